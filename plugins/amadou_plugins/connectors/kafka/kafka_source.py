import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, repeat
from operator import attrgetter
from typing import Any, NamedTuple

import attrs

from amadou import Param, PartitionOffset, Secret, Source
from amadou.errors import AmadouError, SourceError
from amadou.event_time import from_millis
from amadou_plugins.connectors._settings import check_count, check_secret, check_time
from amadou_plugins.connectors.kafka.client import Cluster, Patience, cluster_of
from amadou_plugins.connectors.kafka.offsets import EARLIEST, LATEST, Offsets, Range, check_start
from amadou_plugins.connectors.kafka.planned_offsets import Planned

_AT_ONCE = 2_000
_WAIT = 0.1
_READING = {
    "group.id": "amadou",  # librdkafka requires it; no offset is committed to it
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # A new assignment waits for the current fetch, half a second by librdkafka's default.
    "fetch.wait.max.ms": 10,
    # Records fetched beyond the end of a range are thrown away.
    "max.partition.fetch.bytes": 262_144,
    "queued.max.messages.kbytes": 2_048,
    # If more than this waits, librdkafka stops for a second.
    "fetch.queue.backoff.ms": 10,
}
_logger = logging.getLogger("amadou")
_consumers: dict[tuple[Any, ...], tuple[Any, Patience]] = {}
"""Consumers of this process by their settings: connections are costly."""


class KafkaTimestampError(AmadouError):
    """A record of Kafka has no timestamp, or one that does not fit a `datetime`.

    :param topic: topic of the record
    :param partition: partition of the record
    :param offset: offset of the record
    :param millis: timestamp of the record in milliseconds since 1970; `None` where it has none
    """

    def __init__(self, topic: str, partition: int, offset: int, millis: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.millis = millis
        found = "no timestamp" if millis is None else f"the timestamp {millis} ms, which is after the year 9999"
        super().__init__(
            f"the record at offset {offset} of partition {partition} of the topic {topic!r} has {found}: read the "
            "event's time from the record's value, or write the record with its time in milliseconds since 1970"
        )


class _Fields(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: datetime | int | None = None  # milliseconds where they do not fit a datetime
    topic: str = ""
    partition: int = 0
    offset: int = 0


class KafkaRecord(_Fields):
    """A record of a topic, as `key_event` gets it: a named tuple.

    :param value: value of the record; `None` for a tombstone
    :param key: key of the record; `None` where it has none
    :param headers: names and values
    :param timestamp: time in UTC at which the record was made or written, by the topic's setting. If there is none, or
        one after the year 9999, reading it raises a `KafkaTimestampError`
    :param topic: name of the topic
    :param partition: number of the partition
    :param offset: position of the record in the partition
    """

    __slots__ = ()

    @property
    def timestamp(self) -> datetime:
        at = self[3]  # the field that this property hides
        if isinstance(at, datetime):
            return at
        raise KafkaTimestampError(self.topic, self.partition, self.offset, at)


def _names(topics: str | Sequence[str] | Param) -> Any:
    if isinstance(topics, Param):
        return topics
    names = topics.split(",") if isinstance(topics, str) else topics
    if not isinstance(names, Sequence) or not names or not all(isinstance(name, str) for name in names):
        raise SourceError(f"topics must be names of topics, not {topics!r}")
    return tuple(map(str.strip, names))


@attrs.frozen
class KafkaSource(Source):
    """Reads the records of topics of a Kafka cluster, as `KafkaRecord`s, each once, in the order of their partition.

    The run's checkpoint keeps the offset of each partition; no consumer group is used. Partitions and topics that
    appear later are read from their beginning, transactions once they are committed. The workers read from the cluster
    directly, with confluent-kafka (``pip install 'amadou[kafka]'``): Spark needs no package. On the embedded engine a
    run reads the records that exist when it begins.

    :param topics: a topic, or several after commas or as a sequence; one that begins with ``^`` is a regular expression
        for the names of topics
    :param servers: first servers to contact, ``host:port`` and more after commas
    :param start: start of a new checkpoint: ``"earliest"``, ``"latest"``, or the time from which records are read, an
        aware `datetime` or its ISO text
    :param max_records_per_batch: bound of the batches on Spark; without it all present records make one batch
    :param username: user who logs in, with SASL
    :param password: the user's password, a `Secret` or ``Param(…, secret=True)``
    :param mechanism: SASL's mechanism: ``"PLAIN"``, ``"SCRAM-SHA-256"``, ``"SCRAM-SHA-512"``
    :param tls: true to encrypt connections
    :param options: further settings of librdkafka by its names, such as ``ssl.ca.location``
    :param give_up_after: time to wait for a cluster that does not answer
    :param skip_lost: true to go on, instead of failing, if records were deleted before they were read
    :param key_event: function that turns records into events, instead of the handler's own
    :raises SourceError: a setting makes no sense
    """

    topics: str | Sequence[str] | Param = attrs.field(converter=_names)
    servers: str | Param
    start: str | datetime | Param = attrs.field(default=EARLIEST, kw_only=True)
    max_records_per_batch: int | Param | None = attrs.field(default=None, kw_only=True)
    username: str | Param | None = attrs.field(default=None, kw_only=True)
    password: Secret | Param | None = attrs.field(default=None, kw_only=True)
    mechanism: str | Param = attrs.field(default="PLAIN", kw_only=True)
    tls: bool | Param = attrs.field(default=False, kw_only=True)
    options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    give_up_after: timedelta | Param = attrs.field(default=timedelta(minutes=2), kw_only=True)
    skip_lost: bool | Param = attrs.field(default=False, kw_only=True)
    key_event: Callable[[KafkaRecord], Any] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_count(SourceError, "max_records_per_batch", self.max_records_per_batch, optional=True)
        if not isinstance(self.start, Param):
            check_start(self.start)
        check_secret(SourceError, "password", self.password)
        check_time(SourceError, "give_up_after", self.give_up_after)

    @property
    def bounded(self) -> bool:
        return False

    def check(self) -> None:
        self.cluster.check_installed()
        offsets = self.offsets()
        partitions = offsets.partitions()
        if self.start == EARLIEST:
            for (topic, partition), begin in offsets.emptied(partitions).items():
                told = "%s: partition %s of topic %s begins at offset %s and has no records: its retention deleted them"
                _logger.warning(told, self.cluster.told, partition, topic, f"{begin:,}")

    def records(self) -> Iterator[KafkaRecord]:
        return chain.from_iterable(records for _, records in self.records_by_partition())

    def records_by_partition(self) -> Iterator[tuple[str, Iterator[KafkaRecord]]]:
        offsets = self.offsets()
        partitions = offsets.partitions()
        starts, ends = offsets.at(self.start, partitions), offsets.at(LATEST, partitions)  # type: ignore[arg-type]
        ranges = sorted(offsets.ranges(starts, ends), key=attrgetter("name"))
        return ((each.name, self._read(each)) for each in ranges)

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        from amadou_plugins.connectors.kafka.stream import kafka_stream

        return kafka_stream(self, spark, reader, name)

    @staticmethod
    def partition_of(partition: str) -> str:
        """Return the partition's own name: the topic's name and the partition's number."""
        return partition

    def partition_offsets(self, offset: Any, log: str) -> Mapping[str, PartitionOffset]:
        return Planned.of_json(offset).offsets()

    def to_records(self, cells: Any) -> Iterator[KafkaRecord]:
        """Yield the records of ranges."""
        return chain.from_iterable(self._read(Range(**cell)) for cell in cells.to_pylist())

    @property
    def cluster(self) -> Cluster:
        """The source's cluster."""
        assert isinstance(self.topics, tuple)
        return cluster_of(self, ",".join(self.topics), SourceError)

    def offsets(self) -> Offsets:
        """Return the object that asks the cluster for offsets."""
        assert isinstance(self.topics, tuple)
        return Offsets(self.cluster, self.topics)

    def _read(self, wanted: Range) -> Iterator[KafkaRecord]:
        messages = _messages(self.cluster, wanted, bool(self.skip_lost))
        return chain.from_iterable(_records(wanted, some) for some in messages)


def _messages(cluster: Cluster, wanted: Range, skip_lost: bool) -> Iterator[list[Any]]:
    """Yield the messages of a range, many at once."""
    from confluent_kafka import KafkaError, TopicPartition

    consumer, patience = _consumer(cluster, skip_lost)
    position = wanted.start
    patience.ends()
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, position)])
    try:
        while position < wanted.end:
            messages = []
            for message in consumer.consume(min(_AT_ONCE, wanted.end - position), _WAIT):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    position = max(position, message.offset())  # the skipped offsets have no records
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise SourceError(
                        f"{cluster.told}: records of partition {wanted.partition} of {wanted.topic} from offset "
                        f"{position} on were deleted before they were read, as the topic's retention says: keep them "
                        "for longer, and go on with skip_lost=True"
                    )
                else:
                    patience.waits(error)
            if messages:
                patience.ends()
                position = max(position, messages[-1].offset() + 1)
                if messages[-1].offset() >= wanted.end:
                    messages = [message for message in messages if message.offset() < wanted.end]
                yield messages
            elif position < wanted.end:
                patience.waits()
    finally:
        consumer.unassign()


def _consumer(cluster: Cluster, skip_lost: bool) -> tuple[Any, Patience]:
    from confluent_kafka import Consumer

    own = {**_READING, "auto.offset.reset": "earliest" if skip_lost else "error"}
    key = cluster.key(own)
    if key not in _consumers:
        patience = Patience(cluster)
        _consumers[key] = cluster.client(Consumer, {**own, "error_cb": patience.note}), patience
    return _consumers[key]


def _time(millis: int) -> datetime | int | None:
    try:
        return from_millis(millis) if millis >= 0 else None
    except OverflowError:
        return millis


def _records(wanted: Range, messages: list[Any]) -> Iterator[KafkaRecord]:
    # By column: calling the class for each record takes twice the time.
    from confluent_kafka import Message

    millis = [message.timestamp()[1] for message in messages]
    times = {at: _time(at) for at in set(millis)}
    return map(
        partial(tuple.__new__, KafkaRecord),
        zip(
            map(Message.value, messages),
            map(Message.key, messages),
            (tuple(message.headers() or ()) for message in messages),
            map(times.__getitem__, millis),
            repeat(wanted.topic),
            repeat(wanted.partition),
            map(Message.offset, messages),
            strict=False,
        ),
    )
