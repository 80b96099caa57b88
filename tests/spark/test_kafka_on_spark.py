"""Kafka at both ends of a run on Spark."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.services import OwnService
from tests.topics import add_partitions, contents, delete, fill, make_anew, make_topic
from tests.waits import wait_for

from amadou import Handler, Job, KeyedEvent, MemorySink, SinkSpec, Subject, ValueSpec
from amadou.errors import SourceError
from amadou_plugins.connectors import KafkaRecord, KafkaSink, KafkaSource
from amadou_runtime import start

pytestmark = pytest.mark.spark

TIME = datetime(2025, 1, 1, tzinfo=timezone.utc)
PATIENCE = 180
OUTAGE = 20


class Numbering(Handler):
    """Passes values on, each with the number of values that its partition has brought."""

    brought = ValueSpec(int, default=0)
    numbered = SinkSpec(dict[str, Any])

    def key_event(self, record: KafkaRecord) -> KeyedEvent[int]:
        return KeyedEvent(record.partition, TIME, int(record.value or b""))

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        brought = self.brought.state_for(subject)
        brought.value += 1
        self.numbered.collect(subject, {"partition": subject.key, "number": brought.value, "value": event.value})


class Topics:
    """A job that runs and numbers the values of a topic, into another topic.

    :param server: the broker's address
    """

    def __init__(self, server: str) -> None:
        self.server = server
        self.incoming, self.outgoing = make_topic(server, 2), make_topic(server, 3)
        self._values = count()

    @contextmanager
    def running(self, spark: Any, checkpoint: Path) -> Iterator[Any]:
        """Run the job while this block lasts."""
        patience = timedelta(seconds=2 * PATIENCE)
        source = KafkaSource(self.incoming, self.server, max_records_per_batch=60, give_up_after=patience)
        sink = KafkaSink(self.outgoing, self.server, give_up_after=patience)
        job = Job("numbering", Numbering(), {"in": source}, {"numbered": sink})
        running = start(job, spark, checkpoint=str(checkpoint), trigger="1 second")
        try:
            yield running
        finally:
            running.stop()

    def bring(self, partition: int, number: int) -> None:
        """Write the next values to a partition."""
        records = ({"value": b"%d" % next(self._values), "partition": partition} for _ in range(number))
        fill(self.server, self.incoming, records)

    def numbered(self) -> list[Any]:
        return [json.loads(message.value() or b"") for message in contents(self.server, self.outgoing)]

    def wait_for(self, running: Any, number: int) -> None:
        """Wait until a run has processed so many values. Assert that as many have then been numbered."""
        wait_for(lambda: running.progress.counts.events >= number, has_ended=lambda: running.await_termination(0.05))
        assert len(self.numbered()) == number

    def check(self, **expected: int) -> None:
        """Assert that each value was numbered once, in the order of its partition.

        :param expected: numbers of values by partition, such as `p0=130`
        """
        found = self.numbered()
        assert Counter(each["value"] for each in found) == Counter(range(sum(expected.values())))
        by_partition: dict[str, list[int]] = {}
        for each in sorted(found, key=lambda each: int(each["value"])):
            by_partition.setdefault(f"p{each['partition']}", []).append(each["number"])
        assert by_partition == {partition: list(range(1, number + 1)) for partition, number in expected.items()}


@pytest.mark.qualify  # test_partitions.py has a topic that gains partitions
def test_a_run_reads_the_partitions_that_a_topic_gains(kafka: str, spark: Any, tmp_path: Path) -> None:
    topics = Topics(kafka)
    topics.bring(0, 100)
    topics.bring(1, 50)
    with topics.running(spark, tmp_path / "checkpoint") as running:
        topics.wait_for(running, 150)
        add_partitions(kafka, topics.incoming, 3)
        topics.bring(2, 70)
        topics.wait_for(running, 220)
    topics.check(p0=100, p1=50, p2=70)


@pytest.mark.qualify
def test_a_run_outlasts_a_broker(own_kafka: OwnService, spark: Any, tmp_path: Path) -> None:
    topics = Topics(own_kafka.address)
    topics.bring(0, 100)
    topics.bring(1, 50)
    with topics.running(spark, tmp_path / "checkpoint") as running:
        topics.wait_for(running, 150)
        own_kafka.stop()
        assert not running.await_termination(OUTAGE)
        own_kafka.start()
        topics.bring(0, 30)
        topics.wait_for(running, 180)
    topics.check(p0=130, p1=50)


def summary_of(source: KafkaSource, spark: Any, checkpoint: Path) -> Any:
    """Read what a source has. Return the run's summary."""
    job = Job("numbering", Numbering(), {"in": source}, {"numbered": MemorySink()})
    running = start(job, spark, checkpoint=str(checkpoint), trigger="available-now")
    running.await_termination()
    return running.summary


@pytest.mark.parametrize("again", [pytest.param(0, marks=pytest.mark.qualify), 5], ids=["shorter", "longer"])
def test_a_topic_that_was_created_again_ends_the_run_with_an_error_that_says_so(
    kafka: str, spark: Any, tmp_path: Path, again: int
) -> None:
    topic = make_topic(kafka)
    fill(kafka, topic, [b"1", b"2", b"3"])
    assert summary_of(KafkaSource(topic, kafka), spark, tmp_path / "checkpoint").counts.events == 3
    make_anew(kafka, topic)
    fill(kafka, topic, [b"%d" % number for number in range(again)])
    with pytest.raises(
        SourceError, match=f"the topic {topic} was re-created since it was last read: start with a new"
    ) as caught:
        summary_of(KafkaSource(topic, kafka), spark, tmp_path / "checkpoint")
    assert "Traceback" not in str(caught.value)
    assert "Logical Plan" not in str(caught.value)


@pytest.mark.qualify
def test_a_run_with_a_pattern_goes_on_without_a_deleted_topic(kafka: str, spark: Any, tmp_path: Path) -> None:
    stays = make_topic(kafka)
    deleted = make_topic(kafka, name=f"{stays}-2")
    for topic in (stays, deleted):
        fill(kafka, topic, [b"1"])
    source = KafkaSource(f"^{stays}", kafka, give_up_after=timedelta(seconds=20))
    assert summary_of(source, spark, tmp_path / "checkpoint").counts.events == 2
    delete(kafka, deleted)
    fill(kafka, stays, [b"2", b"3"])
    assert summary_of(source, spark, tmp_path / "checkpoint").counts.events == 2
