"""The console and `amadou top` of a job with several stages."""

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from io import StringIO
from pathlib import Path
from typing import Any

import attrs
import pytest
import rich.console
from tests.plugins.test_console import Browser, Stored
from tests.top_pages import Top, Views, top_pages, view

from amadou import MemorySink, MemorySource
from amadou.plugins import BatchReport, Run, RunSummary, hookimpl
from amadou_plugins.connectors import ConsoleSink
from amadou_plugins.console import Console
from amadou_runtime import run
from amadou_runtime.command.console_client import ConsoleClient
from amadou_runtime.command.top_display import TopScreen
from amadou_runtime.command.top_view import read_view
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.runs.history import HistoryWriter, read_history

VIEWS = [view("/a", 1), view("/odd", 2), view("/a", 61), view("/bad", 62), view("/a", 400)]


class Lazy(Top):
    """Has events that are late."""

    def key_event(self, record: Any) -> Any:
        event = super().key_event(record)
        return event._replace(timestamp=event.timestamp.replace(year=2024)) if record.minute.minute == 6 else event


class Recording:
    """Records the run and its batches."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.batches: list[BatchReport] = []

    @hookimpl
    def amadou_run_started(self, run: Run) -> None:
        self.runs.append(run)

    @hookimpl
    def amadou_batch_completed(self, batch: BatchReport) -> None:
        self.batches.append(batch)


class StoredByStage(Stored):
    """State with a key in each stage."""

    def find(self, key: str, stage: str = "") -> dict[str, Any] | None:
        return {"key": f"{key} of {stage}", "batch": 2, "state": {}, "timers": [], "held": {}, "hidden": []}


def recorded() -> tuple[Run, list[BatchReport]]:
    """Return a run with its batches, as a run on Spark would report them."""
    recording = Recording()
    job = top_pages(
        MemorySource(VIEWS),
        ConsoleSink(),
        handlers=(Views(), Lazy()),
        dead_letters=MemorySink(),
        plugins=[recording],
        on_error="dead_letter",
        late_events="drop",
    )
    run(job, engine="embedded", flush=True)
    return attrs.evolve(recording.runs[0], engine="spark", state=StoredByStage()), recording.batches


@contextmanager
def staged_console() -> Iterator[Console]:
    """A console with a run of a job with two stages."""
    console, (made, batches) = Console(), recorded()
    console.amadou_run_started(made)
    for batch in batches:
        console.amadou_batch_completed(made, attrs.evolve(batch, completed=datetime.now(timezone.utc)))
    yield console
    console.amadou_run_ended(made, RunSummary("top-pages"))


@pytest.fixture(scope="module")
def console() -> Iterator[Console]:
    with staged_console() as console:
        yield console


@pytest.fixture(scope="module")
def browser(console: Console) -> Browser:
    return Browser(console)


def test_the_overview_shows_each_stage_and_the_sources_that_are_not_ports(browser: Browser) -> None:
    overview = browser.document("overview")
    views, top = overview["stages"]
    assert (views["name"], views["keys"], views["timers_pending"]) == ("views", 0, 0)
    assert (top["name"], top["watermark"]) == ("top", "9999-12-31T23:59:59.999999+00:00")
    assert views["events_per_second"] > top["events_per_second"] > 0
    assert [source["name"] for source in overview["sources"]] == ["views.clicks"]
    page = browser.get("/")
    assert '<h2 id="stages">Stages</h2>' in page
    assert re.search(r'<th scope="row">top</th><td>9999-12-31 23:59:59</td>', page)


def test_the_pipeline_shows_all_stages_with_the_rates_between_them(browser: Browser) -> None:
    pipeline = browser.document("pipeline")
    views, top = pipeline["stages"]["views"], pipeline["stages"]["top"]
    assert views["sources"]["clicks"]["records"] == 5
    assert top["sources"]["sums"]["records"] == 5
    assert top["sources"]["sums"]["records_per_second"] > 0
    between = views["ports"]["sums"]
    assert (between["values"], between["readers"]) == (5, ["top"])
    assert between["values_per_second"] == top["sources"]["sums"]["records_per_second"]
    assert top["ports"]["dead_letters"]["values"] == 2
    page = browser.get("/pipeline")
    for part in (
        '<h3 id="stage-views">views</h3>',
        '<a href="#stage-top">stage top</a>',
        '<a href="#stage-views">port sums of views</a>',
        "Has events that are late.",
        "<code>ConsoleSink()</code>",
    ):
        assert part in page


def test_dead_letters_and_late_events_name_their_stage(browser: Browser) -> None:
    failures = browser.document("letters")
    assert [letter["stage"] for letter in failures["dead_letters"]] == ["top", "top"]
    assert [event["stage"] for event in failures["late_events"]] == ["top"]
    page = browser.get("/letters")
    assert "<td>top.key_event</td>" in page
    assert "<td>top.sums</td>" in page
    id_ = next(letter["id"] for letter in failures["dead_letters"] if letter["callback"] == "key_event")
    letter = html.unescape(browser.get(f"/letters/{id_}"))
    assert "<dt>Stage</dt><dd>top</dd>" in letter
    assert "PageSum(page='/bad'" in letter


def test_the_state_page_asks_for_the_stage(browser: Browser) -> None:
    page = browser.get("/state?key=x&stage=top")
    assert "<option>views</option>" in page
    assert "<option selected>top</option>" in page
    assert "x of top" in page
    assert "Find the biggest keys of the stage top" in page
    assert "x of views" in browser.get("/state?key=x")
    assert browser.document("state?key=x&stage=top")["key"] == "x of top"
    status, _, text = browser.ask("/api/v1/state?key=x&stage=other", Authorization=f"Bearer {browser.token}")
    assert (status, text) == (404, '{"error":"the job has no stage \'other\': use one of views, top"}')


def test_pages_are_shown_before_the_first_batch_and_after_a_restart(tmp_path: Path) -> None:
    made, batches = recorded()
    files = LocalFiles(str(tmp_path), tmp_path)
    writer = HistoryWriter(files, made.description, None)
    for batch in batches:
        writer.add(batch)
    writer.end()
    for history in ([], read_history(files)):
        console = Console()
        console.amadou_run_started(attrs.evolve(made, history=lambda of=history: of))
        browser = Browser(console)
        for page in ("/", "/pipeline", "/state", "/letters", "/batches"):
            assert "top-pages" in browser.get(page)
        console.amadou_run_ended(made, RunSummary("top-pages"))


def test_the_history_keeps_the_reports_of_stages(tmp_path: Path) -> None:
    made, batches = recorded()
    files = LocalFiles(str(tmp_path), tmp_path)
    writer = HistoryWriter(files, made.description, None)
    for batch in batches:
        writer.add(batch)
    writer.end()
    read = read_history(files)
    assert list(map(_shown, read)) == list(map(_shown, batches))
    for batch, before in zip(read, batches, strict=True):
        assert isinstance(batch, BatchReport)
        assert {name: of.counts for name, of in batch.stages.items()} == {
            name: of.counts for name, of in before.stages.items()
        }
    line = (tmp_path / "history" / "0").read_text().splitlines()[-1]
    assert line.count('"counts"') == 2  # the sums are not stored


def _shown(batch: Any) -> dict[str, Any]:
    return attrs.asdict(batch, filter=lambda field, _: field.name != "stages")


@pytest.mark.parametrize("width", [60, 160])
def test_top_shows_each_stage(width: int, console: Console) -> None:
    assert console.url is not None
    out = StringIO()
    rich.console.Console(file=out, width=width).print(TopScreen(read_view(ConsoleClient(console.url))))
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert ["Stage", "Watermark", "Events", "Keys", "Timers", "pending"] in rows or width < 100
    assert ["top", "9999-12-31"] in [row[:2] for row in rows]
    assert max(map(len, out.getvalue().splitlines())) <= width
