"""Progress, metrics, pages and dead letters of a job with several stages on Spark."""

from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console
from tests.plugins.test_prometheus import scraped
from tests.top_pages import MINUTE, PageSum, Top, Views, view
from tests.top_pages import top_pages as pages_job

from amadou import Job, KeyedEvent, MemorySink, MemorySource, Subject, truncate
from amadou.errors import LoadError
from amadou.plugins import BatchReport, hookimpl
from amadou.spark_versions import wakes_while_ending
from amadou_plugins.metrics import PrometheusEndpoint
from amadou_runtime import Progress, run, start
from amadou_runtime._run import replay
from amadou_runtime.command.console_command import stored_run
from amadou_runtime.command.describe import describe
from amadou_runtime.command.progress_display import progress_line
from amadou_runtime.runs.dead_letter_files import read_letters

pytestmark = pytest.mark.spark

VIEWS = [
    view("/a", 1),
    b"[nonsense",
    view("/b", -5),
    view("/bad", 2),
    view("/late", 70),
    view("/odd", 130),
    view("/a", 400),
]


def top_pages(*arguments: Any, **settings: Any) -> Job:
    """The job with few key ranges, each of which costs time."""
    return evolve(pages_job(*arguments, **settings), key_groups=2)


class FixedViews(Views):
    """Takes each record."""

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        return super().key_event(view("/fixed", 190) if record == b"[nonsense" else record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.sums.collect(subject, PageSum(subject.key, truncate(event.timestamp, MINUTE), 1))


class FixedTop(Top):
    """Takes each page."""

    def key_event(self, record: PageSum) -> KeyedEvent[PageSum]:
        return KeyedEvent(record.minute.isoformat(), record.minute + MINUTE, record)

    def on_event(self, subject: Subject, event: KeyedEvent[PageSum]) -> None:
        self.top.collect(subject, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.top.collect(subject, self.best.state_for(subject).value)


class Scraped:
    """Reads the metrics after each batch, and the batches."""

    def __init__(self) -> None:
        self.endpoint = PrometheusEndpoint(0)
        self.metrics: dict[str, float] = {}
        self.batches: list[BatchReport] = []

    @hookimpl(trylast=True)
    def amadou_batch_completed(self, batch: BatchReport) -> None:
        self.metrics = scraped(self.endpoint)
        self.batches.append(batch)


@pytest.mark.qualify  # conformance/test_stages.py and plugins/test_console_stages.py have this without Spark
def test_progress_metrics_and_dead_letters_name_the_stage(spark: Any, tmp_path: Path) -> None:
    checkpoint, seen = str(tmp_path / "checkpoint"), Scraped()
    job = top_pages(MemorySource(VIEWS), on_error="dead_letter", plugins=[seen, seen.endpoint])
    shown: list[Progress] = []
    summary = str(run(job, checkpoint=checkpoint, on_progress=shown.append))

    assert [partition.name for partition in shown[-1].partitions] == ["views.clicks"]
    assert "watermark 2025-01-01T00:06:40Z" in progress_line(shown[-1])
    assert "9 events" in summary
    assert "1 top.top" in summary

    dead_letters = [(letter.stage, letter.callback) for batch in seen.batches for letter in batch.dead_letters]
    assert sorted(dead_letters) == [
        ("top", "key_event"),
        ("top", "on_event"),
        ("top", "on_timer_expired"),
        ("views", "key_event"),
        ("views", "on_event"),
    ]
    metrics = {name.replace(" job=top-pages", ""): number for name, number in seen.metrics.items()}
    assert metrics["amadou_events_total stage=views"] == 6
    assert metrics["amadou_events_total stage=top"] == 3
    assert metrics["amadou_dead_letters_total stage=top"] == 3
    assert metrics["amadou_batches_total"] == len(seen.batches)
    assert metrics["amadou_spark_state figure=numRowsTotal"] > 0

    overview = stored_run(checkpoint).overview()
    assert [stage["name"] for stage in overview["stages"]] == ["views", "top"]
    assert [source["name"] for source in overview["sources"]] == ["views.clicks"]
    console = Console(width=100, record=True, file=StringIO())
    describe(job, {}, console, Path(checkpoint))
    assert "views.clicks" in console.export_text().partition("Sources after batch")[2]

    (tmp_path / "pages.py").write_text(
        "from attrs import evolve\n\nfrom amadou import MemorySource\nfrom tests.top_pages import top_pages\n\n"
        'job = top_pages(MemorySource())\nother = evolve(job, name="other")\n'
    )
    typed = stored_run(checkpoint, f"{tmp_path / 'pages.py'}:job").history().facts
    found = typed.state.find("/a", "views")
    assert found is not None
    assert found["timers"] == [["2025-01-01T00:07:00+00:00", ""]]
    assert typed.reproduce is not None
    with pytest.raises(LoadError, match="the state belongs to the job 'top-pages', not to 'other'"):
        stored_run(checkpoint, f"{tmp_path / 'pages.py'}:other")


@pytest.mark.qualify
def test_a_run_that_ends_while_batches_are_due_warns(spark: Any, caplog: pytest.LogCaptureFixture) -> None:
    start(top_pages(MemorySource([view("/a", 1), view("/a", 400)])), spark).await_termination()
    is_warned = "batches are still due, which this version of Spark does not begin in a run that ends" in caplog.text
    assert is_warned != wakes_while_ending()


@pytest.mark.qualify  # conformance/test_replay.py has this for one stage
def test_the_dead_letters_of_each_stage_are_replayed_into_it_once(spark: Any, tmp_path: Path) -> None:
    checkpoint, source = str(tmp_path / "checkpoint"), MemorySource(VIEWS)
    failing, fixed = MemorySink(), MemorySink()
    run(top_pages(source, failing, on_error="dead_letter"), checkpoint=checkpoint)
    directories = [Path(checkpoint) / f"{stage}.dead_letters" for stage in ("views", "top")]
    dead_letters = read_letters(directories)
    assert sorted((letter.fields["job"], letter.fields["callback"]) for letter in dead_letters) == [
        ("top-pages.top", "key_event"),
        ("top-pages.top", "on_event"),
        ("top-pages.top", "on_timer_expired"),
        ("top-pages.views", "key_event"),
        ("top-pages.views", "on_event"),
    ]
    job = top_pages(source, fixed, handlers=(FixedViews(), FixedTop()), on_error="dead_letter")
    outcome = replay(job, dead_letters, checkpoint=checkpoint)
    assert (outcome.letters, outcome.before) == (5, 0)
    assert sorted(each.page for each in fixed.records) == ["/b", "/bad", "/fixed", "/late", "/odd"]
    again = replay(job, dead_letters, checkpoint=checkpoint)
    assert (again.letters, again.before, len(fixed.records)) == (0, 5, 5)
