"""Makes, fills and reads topics of a Kafka cluster."""

import time
from collections.abc import Iterable
from functools import cache
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.waits import wait_for

PATIENCE = 60


def make_topic(server: str, partitions: int = 1, name: str | None = None, **config: str) -> str:
    """Make a topic. Return its name."""
    name = name or f"topic-{uuid4().hex[:8]}"
    topic = NewTopic(name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()})
    _admin(server).create_topics([topic])[name].result(PATIENCE)
    _wait_for_partitions(server, name, partitions)
    return name


def add_partitions(server: str, topic: str, partitions: int) -> None:
    """Raise a topic's number of partitions."""
    _admin(server).create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE)
    _wait_for_partitions(server, topic, partitions)


def delete(server: str, topic: str) -> None:
    """Delete a topic."""
    _admin(server).delete_topics([topic])[topic].result(PATIENCE)
    _wait_for_partitions(server, topic, 0)


def make_anew(server: str, topic: str) -> None:
    """Delete a topic, and make a new one with its name."""
    delete(server, topic)
    make_topic(server, name=topic)


def delete_records(server: str, topic: str, before: int) -> None:
    """Delete the records of a topic's first partition up to an offset."""
    partition = TopicPartition(topic, 0, before)
    _admin(server).delete_records([partition])[partition].result(PATIENCE)


def id_of(server: str, topic: str) -> str:
    """The id that the cluster gave a topic when it was made."""
    described = _admin(server).describe_topics(TopicCollection([topic]))[topic].result(PATIENCE)
    return str(described.topic_id)


def fill(server: str, topic: str, records: Iterable[Any]) -> None:
    """Write records: values, or keyword arguments of `Producer.produce`."""
    producer = Producer(
        {"bootstrap.servers": server, "log_level": 0, "linger.ms": 50, "queue.buffering.max.messages": 2_000_000}
    )
    for record in records:
        producer.produce(topic, **(record if isinstance(record, dict) else {"value": record}))
    assert producer.flush(PATIENCE) == 0


def contents(server: str, topic: str) -> list[Message]:
    """Return a topic's current records, partition by partition."""
    consumer = Consumer({"bootstrap.servers": server, "log_level": 0, "group.id": "tests", "enable.auto.commit": False})
    messages: list[Message] = []
    for partition in sorted(consumer.list_topics(topic, PATIENCE).topics[topic].partitions):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), PATIENCE)
        consumer.assign([TopicPartition(topic, partition, low)])
        until, came = time.monotonic() + PATIENCE, low
        while came < high:
            for message in consumer.consume(min(100_000, high - came), 1):
                assert message.error() is None, message.error()
                messages.append(message)
                came = message.offset() + 1
            assert time.monotonic() < until, f"{topic} did not give its records"
    consumer.close()
    return messages


def committed(server: str, topic: str) -> list[Message]:
    """Return the committed records of a topic."""
    settings = {"group.id": "tests", "isolation.level": "read_committed", "enable.partition.eof": True}
    settings["fetch.wait.max.ms"] = 10  # the end of a partition is known after this time
    consumer = Consumer({"bootstrap.servers": server, "log_level": 0, "enable.auto.commit": False, **settings})
    partitions = sorted(consumer.list_topics(topic, PATIENCE).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    messages: list[Message] = []
    at_end: set[int] = set()
    until = time.monotonic() + PATIENCE
    while len(at_end) < len(partitions):
        for message in consumer.consume(100_000, 0.05):  # takes the whole time unless there are so many
            error = message.error()
            if error is None:
                messages.append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                at_end.add(message.partition())
        assert time.monotonic() < until, f"{topic} did not give its records"
    consumer.close()
    return messages


@cache  # requests end when their client is deleted
def _admin(server: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": server, "log_level": 0})


def _wait_for_partitions(server: str, topic: str, count: int) -> None:
    def has_them() -> bool:
        known = _admin(server).list_topics(timeout=PATIENCE).topics.get(topic)
        return count == (0 if known is None else len(known.partitions))

    wait_for(has_them, lambda: f"{topic} does not have {count} partitions", patience=PATIENCE, pause=0.1)
