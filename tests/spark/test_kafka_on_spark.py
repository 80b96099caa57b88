"""Kafka at both ends of a run on Spark."""

import json
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.services import OwnService
from tests.topics import add_partitions, contents, delete, fill, make_anew, make_topic

from amadou import Handler, Job, KeyedEvent, MemorySink, SinkSpec, Subject, ValueSpec
from amadou.errors import SourceError
from amadou_plugins.connectors import KafkaRecord, KafkaSink, KafkaSource
from amadou_runtime import start

pytestmark = pytest.mark.spark

TIME = datetime(2025, 1, 1, tzinfo=timezone.utc)
PATIENCE = 180
OUTAGE = 20


class Numbering(Handler):
    """Passes values on, with how many their partition had brought."""

    brought = ValueSpec(int, default=0)
    numbered = SinkSpec(dict[str, Any])

    def key_event(self, record: KafkaRecord) -> KeyedEvent[int]:
        return KeyedEvent(record.partition, TIME, int(record.value or b""))

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        brought = self.brought.state_for(subject)
        brought.value += 1
        self.numbered.collect(subject, {"partition": subject.key, "number": brought.value, "value": event.value})


def numbered(server: str, topic: str) -> list[Any]:
    return [json.loads(message.value() or b"") for message in contents(server, topic)]


def wait_for(done: Callable[[], bool], running: Any) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        if running.await_termination(0.2):
            pytest.fail("the run ended early")
        assert time.monotonic() < until, "nothing came"


def test_a_run_outlasts_a_broker_and_reads_the_partitions_that_a_topic_gains(
    own_kafka: OwnService, spark: Any, tmp_path: Path
) -> None:
    server = own_kafka.address
    incoming, outgoing = make_topic(server, 2), make_topic(server, 3)
    values = iter(range(10_000))

    def bring(partition: int, count: int) -> None:
        fill(server, incoming, ({"value": b"%d" % next(values), "partition": partition} for _ in range(count)))

    bring(0, 100)
    bring(1, 50)
    source = KafkaSource(incoming, server, max_records_per_batch=60, give_up_after=timedelta(seconds=2 * PATIENCE))
    sink = KafkaSink(outgoing, server, give_up_after=timedelta(seconds=2 * PATIENCE))
    job = Job("numbering", Numbering(), {"in": source}, {"numbered": sink})
    running = start(job, spark, checkpoint=str(tmp_path / "checkpoint"), trigger="1 second")
    try:
        wait_for(lambda: len(numbered(server, outgoing)) == 150, running)
        add_partitions(server, incoming, 3)
        bring(2, 70)
        wait_for(lambda: len(numbered(server, outgoing)) == 220, running)
        own_kafka.stop()
        assert not running.await_termination(OUTAGE)
        own_kafka.start()
        bring(0, 30)
        wait_for(lambda: len(numbered(server, outgoing)) >= 250, running)
    finally:
        running.stop()
    found = numbered(server, outgoing)
    assert Counter(each["value"] for each in found) == Counter(range(250))
    by_partition: dict[int, list[int]] = {}
    for each in sorted(found, key=lambda each: int(each["value"])):
        by_partition.setdefault(each["partition"], []).append(each["number"])
    counts = {partition: len(numbers) for partition, numbers in by_partition.items()}
    assert counts == {0: 130, 1: 50, 2: 70}
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_partition.values()), "in their order"


def played(source: KafkaSource, spark: Any, checkpoint: Path) -> Any:
    job = Job("numbering", Numbering(), {"in": source}, {"numbered": MemorySink()})
    running = start(job, spark, checkpoint=str(checkpoint), trigger="available-now")
    running.await_termination()
    return running.summary


@pytest.mark.parametrize("again", [0, 5], ids=["shorter", "longer"])
def test_a_topic_that_was_made_anew_ends_the_run_with_a_word_about_it(
    kafka: str, spark: Any, tmp_path: Path, again: int
) -> None:
    topic = make_topic(kafka)
    fill(kafka, topic, [b"1", b"2", b"3"])
    assert played(KafkaSource(topic, kafka), spark, tmp_path / "checkpoint").counts.events == 3
    make_anew(kafka, topic)
    fill(kafka, topic, [b"%d" % number for number in range(again)])
    with pytest.raises(
        SourceError, match=f"the topic {topic} was re-created since it was last read: start with a new"
    ) as caught:
        played(KafkaSource(topic, kafka), spark, tmp_path / "checkpoint")
    assert "Traceback" not in str(caught.value)
    assert "Logical Plan" not in str(caught.value)


def test_a_topic_of_a_pattern_may_go(kafka: str, spark: Any, tmp_path: Path) -> None:
    stays = make_topic(kafka)
    goes = make_topic(kafka, name=f"{stays}-2")
    for topic in (stays, goes):
        fill(kafka, topic, [b"1"])
    source = KafkaSource(f"^{stays}", kafka, give_up_after=timedelta(seconds=20))
    assert played(source, spark, tmp_path / "checkpoint").counts.events == 2
    delete(kafka, goes)
    fill(kafka, stays, [b"2", b"3"])
    assert played(source, spark, tmp_path / "checkpoint").counts.events == 2
