"""A watermark for each partition, on running jobs."""

import io
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.topics import add_partitions, fill, make_topic
from tests.waits import wait_for

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject, truncate
from amadou.plugins import BatchReport, hookimpl
from amadou_plugins.aggregates import Count
from amadou_plugins.connectors import KafkaRecord, KafkaSource, LinesSource
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime import run, start
from amadou_runtime.command.describe import describe

pytestmark = pytest.mark.spark

MIDNIGHT = datetime(2025, 1, 1, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)


def readings(partition: int, count: int, first: float, last: float) -> Iterator[dict[str, Any]]:
    """Records of a partition in perfect order, evenly over some minutes."""
    for number in range(count):
        at = MIDNIGHT + MINUTE * (first + (last - first) * number / count)
        yield {"partition": partition, "value": json.dumps({"time": at.isoformat()}).encode()}


def time_of(record: KafkaRecord) -> datetime:
    return datetime.fromisoformat(json.loads(record.value or b"")["time"])


class Reports:
    """A plugin that records the reports of batches."""

    def __init__(self) -> None:
        self.batches: list[BatchReport] = []

    @hookimpl
    def amadou_batch_completed(self, batch: BatchReport) -> None:
        self.batches.append(batch)


def test_no_event_is_late_if_partitions_are_far_apart_or_added_and_the_one_behind_is_read_first(
    kafka: str, spark: Any, tmp_path: Path
) -> None:
    topic = make_topic(kafka, 2, retention_ms="-1")
    records = [*readings(0, 2_000, 0, 60), *readings(1, 200, 50, 60)]
    fill(kafka, topic, records)
    records += readings(2, 10, 30, 60)
    times = (datetime.fromisoformat(json.loads(record["value"])["time"]) for record in records)
    expected = Counter(truncate(at, MINUTE) for at in times)
    sink, reports = MemorySink(), Reports()
    job = Job(
        "per-minute",
        windowed(key=lambda record: "all", timestamp=time_of, window=TumblingWindow(size=MINUTE, value=Count())),
        {"readings": KafkaSource(topic, kafka, max_records_per_batch=400)},
        {"results": sink},
        watermark_delay=30,
        plugins=[reports],
    )
    checkpoint = str(tmp_path / "checkpoint")
    running = start(job, spark, checkpoint=checkpoint, trigger="0 seconds")
    wait_for(lambda: len(reports.batches) > 1)
    running.stop()
    reached = running.summary.watermark
    assert reached is not None
    assert reached < MIDNIGHT + 30 * MINUTE
    add_partitions(kafka, topic, 3)
    fill(kafka, topic, readings(2, 10, 30, 60))
    summary = run(job, checkpoint=checkpoint, trigger="available-now", flush=True)
    counts = running.summary.counts.then(summary.counts)
    assert (counts.events, counts.late, counts.counters) == (2_210, 0, {})
    assert {result.start: result.value for result in sink.records} == expected
    lag = [{each.partition: each.lag for each in batch.partitions} for batch in reports.batches]
    assert (lag[1][f"{topic}-0"], lag[1][f"{topic}-1"]) == (1_237, 164), "the one that is behind was read alone"
    held_back = [[each.partition for each in batch.partitions if each.holds_back] for batch in reports.batches]
    assert held_back[:2] == [[f"{topic}-0"]] * 2
    out = io.StringIO()
    describe(job, {}, Console(file=out, width=120), tmp_path / "checkpoint")
    assert re.search(rf"readings +{topic}-1 +2025-01-01 00:59:57\+00:00 +0 +0:00:00", out.getvalue())


def test_events_that_are_dropped_are_warned_of_and_named_in_the_summary(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for records in ([b"left 60"], [b"left 60", b"left 61", b"left 3"]):
        source = MemorySource(records)
        job = Job("lateness", Lateness(), {"readings": source}, {"late": MemorySink()}, late_events="drop")
        summary = run(job, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now")
    assert (summary.counts.late, summary.counts.dropped) == (1, 1)
    assert "late: 1 (1 dropped)" in str(summary)
    assert "job lateness: 1 of 2 events (50.0 %) were dropped because they arrived too late" in caplog.text


class Lateness(Handler):
    """Passes on which events were late."""

    late = SinkSpec(str)

    def key_event(self, record: bytes) -> KeyedEvent[None]:
        sensor, minute = record.decode().split()
        return KeyedEvent(sensor, MIDNIGHT + MINUTE * int(minute))

    def on_event(self, subject: Subject, event: KeyedEvent[None]) -> None:
        if subject.is_late:
            self.late.collect(subject, f"{subject.key} {event.timestamp:%H:%M}")


@pytest.mark.qualify  # the test with partitions that are far apart has this for Kafka
def test_unread_files_of_a_partition_hold_the_watermark_back(spark: Any, tmp_path: Path) -> None:
    for sensor, hours in {"left": range(4), "right": range(2)}.items():
        (tmp_path / "in" / sensor).mkdir(parents=True)
        for hour in hours:
            path = tmp_path / "in" / sensor / f"{hour}.txt"
            path.write_text("".join(f"{sensor} {60 * hour + minute}\n" for minute in range(60)))
            os.utime(path, (hour + 10 * (sensor == "right"), hour + 10 * (sensor == "right")))  # Spark's order
    sink, reports = MemorySink(), Reports()
    source = LinesSource(tmp_path / "in" / "*", max_files_per_batch=1, partition_by=r"in/(\w+)/")
    job = Job("lateness", Lateness(), {"readings": source}, {"late": sink}, plugins=[reports])
    run(job, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now")
    assert sink.records == []
    assert [batch.watermark for batch in reports.batches[:5]] == [None] * 5
    newest = {each.partition: (each.newest, each.lag) for each in reports.batches[-1].partitions}
    assert newest == {"left": (MIDNIGHT + 239 * MINUTE, 0), "right": (MIDNIGHT + 119 * MINUTE, 0)}
    assert {each.partition: each.lag for each in reports.batches[0].partitions} == {"left": 3, "right": 2}
    (tmp_path / "in" / "right" / "2.txt").write_text("right 150\n")
    (tmp_path / "in" / "left" / "4.txt").write_text("left 240\n")
    run(job, checkpoint=str(tmp_path / "checkpoint"), trigger="available-now")
    assert sink.records == []
