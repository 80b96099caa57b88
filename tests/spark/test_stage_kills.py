"""A job with two stages, from Kafka to Kafka, whose driver is killed again and again.

AMADOU_KILLS is the number of kills, and AMADOU_SEED repeats the input and, as far as the machine does, the moments.
"""

import json
import os
import random
import signal
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.spark.programs import Program, program
from tests.spark.totals import BEGIN, MINUTE, group_of
from tests.topics import committed, fill, make_topic

pytestmark = pytest.mark.spark

Sums: TypeAlias = Counter[tuple[str, datetime, int]]

JOB = Path(__file__).with_name("totals.py")
KILLS = int(os.environ.get("AMADOU_KILLS", "4"))
SEED = int(os.environ.get("AMADOU_SEED", random.randrange(1_000_000)))
VIEWS = 4000
"""Views that arrive before each kill."""
MILLIS_APART = 40


def test_counts_and_totals_are_written_once_however_often_the_driver_is_killed(kafka: str, tmp_path: Path) -> None:
    print(f"AMADOU_SEED={SEED} AMADOU_KILLS={KILLS}")
    drawn = random.Random(SEED)
    views, counts, totals = (make_topic(kafka, 3) for _ in range(3))
    expected_counts: Counter[tuple[str, datetime]] = Counter()
    expected_totals: Counter[tuple[str, datetime]] = Counter()
    options = ["--conf", "spark.sql.shuffle.partitions=2"]
    for name, value in {"VIEWS": views, "COUNTS": counts, "TOTALS": totals, "KAFKA": kafka}.items():
        options += ["-p", f"{name}={value}"]
    for kill in range(KILLS + 1):
        records = []
        for number in range(kill * VIEWS, (kill + 1) * VIEWS):
            channel, millis = str(drawn.randrange(40)), number * MILLIS_APART + drawn.randrange(5000)
            minute = BEGIN + millis // 60_000 * MINUTE
            expected_counts[channel, minute] += 1
            expected_totals[group_of(channel), minute] += 1
            records.append({"value": f"{channel} {millis}".encode(), "partition": number % 3})
        fill(kafka, views, records)
        if kill < KILLS:
            with program(JOB, tmp_path, *options) as run:
                if drawn.random() < 0.5:
                    wait_for_records(counts, kafka, run)
                    time.sleep(0.3 * drawn.random())  # before the batch is completed
                else:
                    wait_for_batches(drawn.randrange(4), run, tmp_path / "checkpoint")
                    time.sleep(1.5 * drawn.random())  # anywhere in a batch
                run.stop(signal.SIGKILL)
    with program(JOB, tmp_path, *options, "--trigger", "available-now", "--flush") as run:
        run.finish()

    assert sums(kafka, counts) == once(expected_counts)
    assert sums(kafka, totals) == once(expected_totals)


def once(expected: Counter[tuple[str, datetime]]) -> Sums:
    return Counter((*each, count) for each, count in expected.items())


def sums(kafka: str, topic: str) -> Sums:
    """The records that readers of committed records see, with the number of times that each was written."""
    values = (json.loads(record.value() or b"") for record in committed(kafka, topic))
    return Counter((each["name"], datetime.fromisoformat(each["minute"]), each["sum"]) for each in values)


def wait_for_batches(count: int, run: Program, checkpoint: Path) -> None:
    """Wait until a run holds its checkpoint, and has completed some batches."""
    holder, before = text_of(checkpoint / "run.json"), batches(checkpoint)
    run.wait_for(lambda: text_of(checkpoint / "run.json") != holder and batches(checkpoint) >= before + count)


def wait_for_records(topic: str, kafka: str, run: Program) -> None:
    """Wait until a run has written to a topic."""
    consumer = Consumer({"bootstrap.servers": kafka, "log_level": 0, "group.id": "tests"})

    def size() -> int:
        return sum(consumer.get_watermark_offsets(TopicPartition(topic, number), 60)[1] for number in range(3))

    before = size()
    run.wait_for(lambda: size() > before)
    consumer.close()


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def batches(checkpoint: Path) -> int:
    """Number of completed batches."""
    return max((int(path.name) + 1 for path in (checkpoint / "commits").glob("[0-9]*")), default=0)
