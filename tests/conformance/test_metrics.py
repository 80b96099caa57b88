"""Counts in the reports of batches are the same on every engine."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.batch_reports import BatchReports
from tests.conformance.handlers import at

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.plugins import Counts
from amadou_plugins.windows import TumblingWindow
from amadou_runtime import run, start


class Watching(Handler):
    """Sets timers for each key, and counts events in a window."""

    total = ValueSpec(int, 0)
    minutes = TumblingWindow(timedelta(minutes=1))
    totals = SinkSpec(int)
    windows = SinkSpec(int)

    def key_event(self, record: tuple[str, int]) -> KeyedEvent | None:
        key, second = record
        return None if key == "nobody" else KeyedEvent(key, at(second), second)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        if event.value % 50 == 13:
            raise ValueError("unlucky")
        self.total.state_for(subject).value += 1
        self.minutes.add(subject, event)
        subject.set_timer(at(100))
        subject.set_timer(event.timestamp + timedelta(hours=1))
        subject.count("watched")

    @minutes.on_close
    def closed(self, subject: Subject, window: Any, value: Any) -> None:
        self.windows.collect(subject, value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.totals.collect(subject, self.total.state_for(subject).value)
        subject.set_timer(timestamp + timedelta(days=1), "again")


def job(views: Sequence[Any], others: Sequence[Any], reports: BatchReports) -> Job:
    sources = {"views": MemorySource(views), "others": MemorySource(others)}
    sinks = {port: MemorySink() for port in ("totals", "windows", "dead_letters")}
    return Job("watching", Watching(), sources, sinks, late_events="drop", on_error="dead_letter", plugins=[reports])


VIEWS = [("a", 1), ("a", 2), ("b", 13), ("b", 30), ("c", 70), ("nobody", 5), ("a", 200)]
OTHERS = [("c", 63), ("d", 150)]
COUNTS = Counts(
    records={"views": 7, "others": 2},
    events=8,
    timers_set=4 + 6 + 4,
    timers_fired=4 + 3,
    outputs={"totals": 4, "windows": 3, "dead_letters": 2},
    counters={"watched": 6},
    keys=4,
    timers_pending=6 + 4 + 2,
)
CALLS = {"key_event": 9, "on_event": 8, "on_timer_expired": 4, "minutes": 3}


@pytest.mark.on_spark("commit")
def test_batch_reports_contain_the_same_counts_on_both_engines(engine: Any) -> None:
    reports = BatchReports()
    run(job(VIEWS, OTHERS, reports), engine=engine)
    assert reports.counts == COUNTS
    assert reports.added("callback_calls") == CALLS
    assert {callback for callback, seconds in reports.added("callback_seconds").items() if seconds > 0} == {*CALLS}
    stages = {"keying", "processing", "writing", "committing"}
    assert {stage for stage, seconds in reports.added("stage_seconds").items() if seconds > 0} == stages
    assert [batch.number for batch in reports.batches] == [0, 1]
    assert [batch.watermark for batch in reports.batches] == [None, at(150)]


@pytest.mark.qualify
@pytest.mark.spark
def test_batch_reports_count_late_events_of_a_resumed_run(spark: Any, tmp_path: Path) -> None:
    reports = BatchReports()
    watching = job(VIEWS, OTHERS, reports)
    start(watching, spark, checkpoint=str(tmp_path)).await_termination()
    reports.batches.clear()
    watching.sources["views"].add(("b", 10), ("b", 300))  # type: ignore[attr-defined]
    start(watching, spark, checkpoint=str(tmp_path)).await_termination()
    counts = reports.counts
    assert (counts.records, counts.events, counts.late, counts.timers_set) == ({"views": 2}, 2, 1, 1)
    assert reports.added("callback_calls") == {"key_event": 2, "on_event": 1}
    assert (counts.keys, counts.timers_pending) == (4, 6 + 4 + 2 + 1 + 1)
    assert all(batch.lag == batch.completed - at(150) for batch in reports.batches)
