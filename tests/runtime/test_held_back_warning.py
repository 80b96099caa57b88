"""Warnings about silent partitions that hold the watermark back."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tests.conformance.handlers import Recorder, job

from amadou.plugins import BatchReport, Counts, PartitionReport
from amadou_runtime.runs.held_back_warning import HeldBackWarning

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


def batch(second: int, *, newest: int = 0, lag: int | None = 0) -> BatchReport:
    """Return a batch that is completed at a second after noon. The partition `quiet` holds the watermark back."""
    quiet = PartitionReport("events", "quiet", NOON + timedelta(seconds=newest), lag, None, True)
    busy = PartitionReport("events", "busy", NOON + timedelta(seconds=second), 0, None, False)
    return BatchReport(second, Counts(), NOON, 0.1, NOON + timedelta(seconds=second), partitions=[quiet, busy])


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Any:
    def warned(*batches: BatchReport, **settings: Any) -> list[str]:
        caplog.clear()
        warning = HeldBackWarning(job(Recorder(), **settings))
        for each in batches:
            warning.look(each)
        return caplog.messages

    return warned


def test_a_warning_names_a_partition_that_is_silent_for_a_minute_while_others_have_events(warned: Any) -> None:
    [message] = warned(batch(0), batch(59), batch(60), batch(200))
    assert "events/quiet has had no new events for 60 s (newest event: 2025-01-01T12:00:00Z) and holds the" in message
    assert "idle_timeout" in message
    assert warned(batch(0), batch(59)) == []


def test_no_warning_names_a_partition_that_has_new_events_or_more_to_read(warned: Any) -> None:
    assert warned(batch(0), batch(59), batch(100, newest=50), batch(150, newest=50)) == []
    assert warned(batch(0), batch(100, lag=7), batch(150)) == []


def test_no_warning_names_a_partition_of_a_source_with_an_idle_timeout(warned: Any) -> None:
    assert warned(batch(0), batch(100), idle_timeout=5) == []


def test_a_source_without_any_event_is_named_at_once_and_after_a_minute_even_without_batches(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rules = PartitionReport("rules", "", None, None, None, True)
    warning = HeldBackWarning(job(Recorder(), "events", "rules"))
    warning.look(BatchReport(0, Counts(), NOON, 0.1, NOON, partitions=[rules]))
    for seconds in (1, 59, 60, 200):
        warning.look_again(NOON + timedelta(seconds=seconds))
    set_it = "If they must not wait for it, set idle_timeout={'rules': 0}, or a number of seconds to wait"
    assert caplog.messages == [
        f"job conformance: windows and timers wait for the first event of rules. {set_it}",
        f"job conformance: windows and timers have waited for 60 s for the first event of rules. {set_it}",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_no_warning_names_the_only_partition(warned: Any) -> None:
    alone = [
        BatchReport(at, Counts(), NOON, 0.1, NOON + timedelta(seconds=at), partitions=batch(at).partitions[:1])
        for at in (0, 100)
    ]
    assert warned(*alone) == []
