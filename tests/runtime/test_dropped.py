"""Events that are dropped because they came too late are named, and warned of where they are many."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from amadou import Counts, Handler, Job, KeyedEvent, MemorySink, MemorySource, RunSummary, Subject
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
    warning = DroppedWarning(job_with())
    warning.look(Counts(events=100, late=50, dropped=1))
    assert caplog.records == []
    warning.look(Counts(events=200, dropped=3))
    warning.look(Counts(events=300, dropped=30))
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "job counts: 3 of 200 events (1.5 %) were dropped because they came too late" in record.getMessage()


class Plain(Handler):
    def key_event(self, record: Any) -> None: ...

    def on_event(self, subject: Subject, event: KeyedEvent) -> None: ...


@pytest.mark.parametrize(
    ("job", "advice"),
    [
        (
            job_with(),
            "Raise watermark_delay or the allowed_lateness of minutes above the disorder of the input, or keep late "
            'events with late="divert" of minutes',
        ),
        (
            job_with(late_events="drop", late="divert"),
            'Raise watermark_delay above the disorder of the input, or keep late events with late_events="divert"',
        ),
        (
            Job("counts", Plain(), {"records": MemorySource()}, {}, late_events="drop"),
            'Raise watermark_delay above the disorder of the input, or keep late events with late_events="divert"',
        ),
        (
            job_with(late_events="drop"),
            "Raise watermark_delay or the allowed_lateness of minutes above the disorder of the input, or keep late "
            'events with late_events="divert" and late="divert" of minutes',
        ),
    ],
    ids=["windows drop", "the job drops", "no windows", "both drop"],
)
def test_the_warning_names_settings_that_the_job_has(job: Job, advice: str, caplog: pytest.LogCaptureFixture) -> None:
    DroppedWarning(job).look(Counts(events=10, dropped=5))
    [record] = caplog.records
    assert record.getMessage().endswith(f"because they came too late. {advice}")
