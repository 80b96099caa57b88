"""Summaries and warnings about events that were dropped because they arrived too late."""

import logging
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, Subject
from amadou.plugins import BatchReport, Counts, RunSummary
from amadou_plugins.aggregates import Count
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime.runs.dropped_warning import DroppedWarning


def job_with(late: Any = "drop", handler: Handler | None = None, **settings: Any) -> Job:
    window = TumblingWindow(timedelta(minutes=1), value=Count(), name="minutes", late=late)
    handler = handler or windowed(key="key", timestamp="time", window=window)
    sinks = {"results": MemorySink()} | ({"late_events": MemorySink()} if late == "divert" else {})
    return Job("counts", handler, {"records": MemorySource()}, sinks, **settings)


def test_the_summary_of_a_run_shows_diverted_and_dropped_events() -> None:
    summary = RunSummary("counts", 1, Counts(events=1000, late=20, dropped=15, outputs={"late_events": 5}))
    assert "late: 20 (5 diverted, 15 dropped);" in str(summary)
    assert "late: 20;" in str(RunSummary("counts", 1, Counts(events=1000, late=20)))


NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Batches:
    """Batches of a run, a second apart, and the warnings of the run."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._warning = DroppedWarning(job_with())
        self._now = NOON
        self._caplog = caplog

    def complete(self, events: int, dropped: int = 0, after: timedelta = timedelta(seconds=1)) -> list[str]:
        """Complete a batch, and return its warnings."""
        self._now += after
        self._warning.look(BatchReport(0, Counts(events=events, dropped=dropped), None, 1.0, self._now))
        warnings = [record.getMessage() for record in self._caplog.records if record.levelno == logging.WARNING]
        self._caplog.clear()
        return warnings


@pytest.fixture
def batches(caplog: pytest.LogCaptureFixture) -> Batches:
    return Batches(caplog)


def test_a_run_that_drops_more_than_one_percent_of_its_events_logs_a_warning(batches: Batches) -> None:
    assert batches.complete(100, 1) == []
    [warning] = batches.complete(100, 2)
    assert warning.startswith("job counts: 3 of 200 events (1.5 %) were dropped because they arrived too late. Raise ")


def test_a_run_that_begins_to_drop_events_after_a_billion_events_logs_a_warning(batches: Batches) -> None:
    for _ in range(100):
        assert batches.complete(10_000_000) == []
    [warning] = batches.complete(1_200, 30)
    assert warning.startswith(
        "job counts: 30 of the last 1,200 events (2.5 %) were dropped because they arrived too late ("
    )
    assert "(30 of 1,000,001,200 in total). Raise " in warning


def test_the_share_of_dropped_events_is_that_of_at_least_a_thousand_events(batches: Batches) -> None:
    batches.complete(10_000)
    assert [bool(batches.complete(100, 2)) for _ in range(10)] == [False] * 9 + [True]


def test_warnings_become_rarer_up_to_one_an_hour_while_events_are_dropped(batches: Batches) -> None:
    warned = [minute for minute in range(300) if batches.complete(2_000, 1_000, after=timedelta(minutes=1))]
    assert warned == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_a_warning_is_not_repeated_without_another_dropped_event(batches: Batches) -> None:
    assert batches.complete(500, 50)
    assert batches.complete(10, after=timedelta(minutes=5)) == []


@pytest.mark.parametrize(("pause", "begins"), [(timedelta(minutes=59), False), (timedelta(minutes=60), True)])
def test_warnings_become_frequent_again_after_an_hour_without_dropped_events(
    batches: Batches, pause: timedelta, begins: bool
) -> None:
    for _ in range(10):
        batches.complete(2_000, 1_000, after=timedelta(minutes=1))
    assert batches.complete(2_000, 1_000, after=pause)
    assert bool(batches.complete(2_000, 1_000, after=timedelta(minutes=1))) is begins


class Plain(Handler):
    def key_event(self, record: Any) -> None: ...

    def on_event(self, subject: Subject, event: KeyedEvent) -> None: ...


@pytest.mark.parametrize(
    ("job", "advice"),
    [
        (
            job_with(),
            "Raise watermark_delay or the allowed_lateness of minutes above the out-of-orderness of the input, or "
            'set late="divert" for minutes to keep late events',
        ),
        (
            job_with(late_events="drop", late="divert"),
            "Raise watermark_delay above the out-of-orderness of the input, or set "
            'late_events="divert" to keep late events',
        ),
        (
            Job("counts", Plain(), {"records": MemorySource()}, {}, late_events="drop"),
            "Raise watermark_delay above the out-of-orderness of the input, or set "
            'late_events="divert" to keep late events',
        ),
        (
            job_with(late_events="drop"),
            "Raise watermark_delay or the allowed_lateness of minutes above the out-of-orderness of the input, or "
            'set late_events="divert" and late="divert" for minutes to keep late events',
        ),
    ],
    ids=["windows drop", "the job drops", "no windows", "both drop"],
)
def test_the_warning_about_dropped_events_names_only_settings_that_help(
    job: Job, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    DroppedWarning(job).look(BatchReport(0, Counts(events=10, dropped=5), None, 1.0, NOON))
    [record] = caplog.records
    assert record.getMessage().endswith(f"because they arrived too late. {advice}")


def test_the_warning_of_a_replay_does_not_suggest_to_raise_the_watermark_delay(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batch = BatchReport(0, Counts(events=10, dropped=5), None, 1.0, NOON)
    DroppedWarning(job_with(), replays=True).look(batch)
    assert "A replay does not move the watermark back, so closed windows do not accept replayed events" in caplog.text
    assert "watermark_delay" not in caplog.text
