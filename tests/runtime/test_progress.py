import io
from contextlib import suppress
from datetime import datetime, timedelta, timezone

import attrs
import pytest

from amadou import Secret
from amadou.plugins import Counts, RunSummary
from amadou_runtime import Progress
from amadou_runtime.command.progress_display import ProgressDisplay, progress_line
from amadou_runtime.command.run_logs import run_logs

PROGRESS = Progress(
    job="views",
    batches=1200,
    counts=Counts(events=5_000_000, state_bytes=5 * 1024 * 1024, keys=1000, late=3, timers_pending=4000),
    events_per_second=123_456.7,
    watermark=datetime(2025, 1, 1, 0, 1, tzinfo=timezone.utc),
    seconds=0.0,
)
LINE = (
    "1,200 batches · 123,457 events/s · watermark 2025-01-01T00:01:00Z · state 5.0 MiB for 1,000 keys · 3 late · "
    "4,000 timers pending"
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def at(seconds: float) -> Progress:
    return attrs.evolve(PROGRESS, seconds=seconds)


def test_the_progress_line_shows_held_events() -> None:
    counts = attrs.evolve(PROGRESS.counts, held={"views": 1000, "clicks": 500})
    assert progress_line(attrs.evolve(PROGRESS, counts=counts)).endswith("4,000 timers pending · 1,500 held")


def test_the_progress_line_without_state_shows_no_size() -> None:
    counts = attrs.evolve(PROGRESS.counts, state_bytes=0, keys=0)
    assert "watermark 2025-01-01T00:01:00Z · 3 late" in progress_line(attrs.evolve(PROGRESS, counts=counts))


def test_the_progress_line_shows_batches_watermark_state_late_events_and_timers() -> None:
    assert progress_line(at(65.9)) == f"1:05 · {LINE}"
    assert progress_line(at(3600 * 30 + 1)) == f"30:00:01 · {LINE}"
    assert "watermark none" in progress_line(attrs.evolve(PROGRESS, watermark=None))


def test_without_a_terminal_progress_is_logged_every_five_seconds_and_at_the_end() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream) as display:
        for quarter in range(50):
            display(at(quarter / 4))
    assert [line.split(" · ")[0] for line in stream.getvalue().splitlines()] == [
        "views: 0:05",
        "views: 0:10",
        "views: 0:12",
    ]


def test_a_terminal_obeys_nothing_that_a_progress_line_names() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream) as display:
        display(attrs.evolve(at(5), job="views\x1b[2J\nforged"))
    assert stream.getvalue().startswith("views\N{REPLACEMENT CHARACTER}[2J\N{REPLACEMENT CHARACTER}forged: 0:05")


def test_the_interval_of_logged_progress_can_be_set() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream, every=timedelta(seconds=1)) as display:
        for second in range(4):
            display(at(second))
    assert len(stream.getvalue().splitlines()) == 3


def test_a_short_run_that_fails_logs_its_progress_once() -> None:
    stream = io.StringIO()
    with suppress(RuntimeError), ProgressDisplay(stream) as display:
        display(at(0.5))
        raise RuntimeError
    assert stream.getvalue() == f"views: 0:00 · {LINE}\n"


def test_a_run_without_a_batch_logs_no_progress() -> None:
    stream = io.StringIO()
    with ProgressDisplay(stream):
        pass
    assert stream.getvalue() == ""


def test_a_terminal_shows_one_progress_line_which_is_erased_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with ProgressDisplay(stream) as display:
        display(at(1))
        display._live.refresh()
        assert LINE in stream.getvalue()
    shown = stream.getvalue()
    assert shown.count("\n") <= 1
    assert shown.endswith("\x1b[2K")  # the line is erased


def test_a_narrow_terminal_cuts_the_progress_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with ProgressDisplay(stream) as display:
        display(at(1))
        display._live.refresh()
        assert "0:01 · 1,200 batches" in stream.getvalue()
        assert "pending" not in stream.getvalue()


def test_the_summary_of_a_run_is_a_line_whatever_the_counters_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    Secret("sesame-open")
    counts = Counts(counters={"a\x1b[2J\u202e\nWARNING forged\r": 1, "sesame-open": 2})
    run_logs("text", "views").show_summary(RunSummary("views", counts=counts))
    line = capsys.readouterr().err.removesuffix("\n")
    assert line.isprintable()
    assert "a�[2J��WARNING forged�: 1; ***: 2; " in line
