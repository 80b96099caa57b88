"""Events that are dropped because they came too late are named, and warned of where they are many."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from amadou import Counts, Handler, Job, MemorySink, MemorySource, RunSummary
from amadou_plugins.aggregates import Count
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime._dropped import DroppedWarning


def job_with(late: Any = "drop", handler: Handler | None = None, **settings: Any) -> Job:
    window = TumblingWindow(timedelta(minutes=1), value=Count(), name="minutes", late=late)
    handler = handler or windowed(key="key", timestamp="time", window=window)
    sinks = {"results": MemorySink()} | ({"late_events": MemorySink()} if late == "divert" else {})
    return Job("counts", handler, {"records": MemorySource()}, sinks, **settings)


def test_what_the_job_drops_and_what_its_windows_drop_is_added_up() -> None:
    assert Counts.dropped_of(job_with(), 7, {"minutes.late": 5, "other.late": 3, "minutes.lost": 2}) == 5
    assert Counts.dropped_of(job_with(late_events="drop"), 7, {}) == 7


def test_what_is_diverted_or_handed_on_is_not_dropped() -> None:
    assert Counts.dropped_of(job_with(late="divert"), 7, {"minutes.late": 5}) == 0
    window = TumblingWindow(timedelta(minutes=1), value=Count(), name="minutes", on_late=lambda subject, event: None)
    handler = windowed(key="key", timestamp="time", window=window)
    assert Counts.dropped_of(job_with(handler=handler), 7, {"minutes.late": 5}) == 0


def test_the_summary_says_dropped() -> None:
    summary = RunSummary("counts", 1, Counts(events=1000, late=20, dropped=15, outputs={"late_events": 5}))
    assert "late: 20 (5 diverted, 15 dropped);" in str(summary)
    assert "late: 20;" in str(RunSummary("counts", 1, Counts(events=1000, late=20)))


def test_a_run_is_warned_of_once_when_more_than_one_event_in_a_hundred_is_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warning = DroppedWarning("counts")
    warning.look(Counts(events=100, late=50, dropped=1))
    assert caplog.records == []
    warning.look(Counts(events=200, dropped=3))
    warning.look(Counts(events=300, dropped=30))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "job counts: 3 of 200 events (1.5 %) were dropped because they came too late" in record.getMessage()
