"""Events that are dropped because they came too late are named, and warned of where they are many."""

import logging
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from amadou import BatchReport, Counts, Handler, Job, KeyedEvent, MemorySink, MemorySource, RunSummary, Subject
from amadou_plugins.aggregates import Count
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime.core.dropped_warning import DroppedWarning


def job_with(late: Any = "drop", handler: Handler | None = None, **settings: Any) -> Job:
    window = TumblingWindow(timedelta(minutes=1), value=Count(), name="minutes", late=late)
    handler = handler or windowed(key="key", timestamp="time", window=window)
    sinks = {"results": MemorySink()} | ({"late_events": MemorySink()} if late == "divert" else {})
    return Job("counts", handler, {"records": MemorySource()}, sinks, **settings)


def test_the_summary_says_dropped() -> None:
    summary = RunSummary("counts", 1, Counts(events=1000, late=20, dropped=15, outputs={"late_events": 5}))
    assert "late: 20 (5 diverted, 15 dropped);" in str(summary)
    assert "late: 20;" in str(RunSummary("counts", 1, Counts(events=1000, late=20)))


NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Batches:
    """Batches of a run, a second apart, and what the run warns of."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self._warning = DroppedWarning(job_with())
        self._now = NOON
        self._caplog = caplog

    def bring(self, events: int, dropped: int = 0, after: timedelta = timedelta(seconds=1)) -> list[str]:
        """Complete a batch. Returns the warnings that come with it."""
        self._now += after
        self._warning.look(BatchReport(0, Counts(events=events, dropped=dropped), None, 1.0, self._now))
        told = [record.getMessage() for record in self._caplog.records if record.levelno == logging.WARNING]
        self._caplog.clear()
        return told


@pytest.fixture
def batches(caplog: pytest.LogCaptureFixture) -> Batches:
    return Batches(caplog)


def test_a_run_that_drops_more_than_one_event_in_a_hundred_is_warned_of(batches: Batches) -> None:
    assert batches.bring(100, 1) == []
    [told] = batches.bring(100, 2)
    assert told.startswith("job counts: 3 of 200 events (1.5 %) were dropped because they arrived too late. Raise ")


def test_so_is_one_that_begins_to_after_very_many_events(batches: Batches) -> None:
    for _ in range(100):
        assert batches.bring(10_000_000) == []
    [told] = batches.bring(1_200, 30)
    assert told.startswith(
        "job counts: 30 of the last 1,200 events (2.5 %) were dropped because they arrived too late ("
    )
    assert "(30 of 1,000,001,200 in total). Raise " in told


def test_the_last_thousand_events_count_however_small_batches_are(batches: Batches) -> None:
    batches.bring(10_000)
    assert [bool(batches.bring(100, 2)) for _ in range(10)] == [False] * 9 + [True]


def test_while_events_are_dropped_warnings_become_rare(batches: Batches) -> None:
    warned = [minute for minute in range(300) if batches.bring(2_000, 1_000, after=timedelta(minutes=1))]
    assert warned == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243]


def test_what_was_warned_of_is_not_told_again_without_another_dropped_event(batches: Batches) -> None:
    assert batches.bring(500, 50)
    assert batches.bring(10, after=timedelta(minutes=5)) == []


@pytest.mark.parametrize(("pause", "begins"), [(timedelta(minutes=59), False), (timedelta(minutes=60), True)])
def test_an_hour_without_it_makes_a_new_beginning(batches: Batches, pause: timedelta, begins: bool) -> None:
    for _ in range(10):
        batches.bring(2_000, 1_000, after=timedelta(minutes=1))
    assert batches.bring(2_000, 1_000, after=pause)
    assert bool(batches.bring(2_000, 1_000, after=timedelta(minutes=1))) is begins


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
def test_the_warning_names_settings_that_the_job_has(job: Job, advice: str, caplog: pytest.LogCaptureFixture) -> None:
    DroppedWarning(job).look(BatchReport(0, Counts(events=10, dropped=5), None, 1.0, NOON))
    [record] = caplog.records
    assert record.getMessage().endswith(f"because they arrived too late. {advice}")


def test_a_replay_is_not_told_to_raise_a_delay(caplog: pytest.LogCaptureFixture) -> None:
    batch = BatchReport(0, Counts(events=10, dropped=5), None, 1.0, NOON)
    DroppedWarning(job_with(), replays=True).look(batch)
    assert "A replay does not move the watermark back, so closed windows do not accept replayed events" in caplog.text
    assert "watermark_delay" not in caplog.text
