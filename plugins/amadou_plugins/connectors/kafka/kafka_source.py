import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, methodcaller
from typing import Any, Generic

import attrs
from typing_extensions import NamedTuple, TypeVar

from amadou import Param
from amadou.errors import AmadouError, SourceError, error_class
from amadou.event_time import from_millis
from amadou.plugins import PartitionOffset, Source
from amadou_plugins.connectors._settings import check_count
from amadou_plugins.connectors.kafka.client import Cluster, Patience, check_topic
from amadou_plugins.connectors.kafka.offsets import EARLIEST, LATEST, Offsets, Range, check_start
from amadou_plugins.connectors.kafka.planned_offsets import Planned
from amadou_plugins.connectors.kafka.schema_format import FormatSettings, Reader, SchemaFormat, reader
from amadou_plugins.connectors.kafka.schema_registry import Registry

V = TypeVar("V", default=bytes | None)
K = TypeVar("K", default=bytes | None)
_AT_ONCE = 2_000
_WAIT = 0.1
_READING = {
    "group.id": "amadou",  # librdkafka requires a group; amadou commits no offsets to it
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # A new assignment waits for the current fetch, which takes half a second by default.
    "fetch.wait.max.ms": 10,
    # Small fetches: records fetched beyond the end of a range are discarded.
    "max.partition.fetch.bytes": 262_144,
    "queued.max.messages.kbytes": 2_048,
    # When the queue is full, librdkafka pauses fetching, by default for a second.
    "fetch.queue.backoff.ms": 10,
}
_headers_of = methodcaller("headers")
"""Calls a message's `headers`. If a name is not UTF-8, the method returns although it has set an exception, and Python
does not always notice this if the method is called directly.
"""
_logger = logging.getLogger("amadou")
_consumers: dict[tuple[Any, ...], tuple[Any, Patience]] = {}
"""This process's consumers, by their settings. They are cached because connections are costly."""


@error_class
class KafkaTimestampError(AmadouError):
    """A Kafka record has no timestamp, or its timestamp does not fit into a `datetime`.

    :param topic: topic of the record
    :param partition: partition of the record
    :param offset: offset of the record
    :param millis: timestamp of the record in milliseconds since 1970; `None` if there is no timestamp
    """

    topic: str
    partition: int
    offset: int
    millis: int | None

    def _message(self) -> str:
        found = (
            "no timestamp" if self.millis is None else f"the timestamp {self.millis} ms, which is after the year 9999"
        )
        return (
            f"the record at offset {self.offset} in partition {self.partition} of topic {self.topic!r} has {found}: "
            "read the event's time from the record's value, or write the record with a timestamp in milliseconds "
            "since 1970"
        )


@error_class
class KafkaHeadersError(AmadouError):
    """A Kafka record has a header whose name is not valid UTF-8, so confluent-kafka cannot read the record's headers.

    :param topic: topic of the record
    :param partition: partition of the record
    :param offset: offset of the record
    """

    topic: str
    partition: int
    offset: int

    def _message(self) -> str:
        return (
            f"the record at offset {self.offset} in partition {self.partition} of topic {self.topic!r} has a header "
            "whose name is not UTF-8, so its headers cannot be read: write the record with other names, or read what "
            "you need from its value"
        )


class _Fields(NamedTuple, Generic[V, K]):
    value: V
    key: K = None  # type: ignore[assignment]
    headers: tuple[tuple[str, bytes | None], ...] | None = ()  # None if they cannot be read
    timestamp: datetime | int | None = None  # milliseconds if the time does not fit into a datetime
    topic: str = ""
    partition: int = 0
    offset: int = 0


class KafkaRecord(_Fields[V, K]):
    """A Kafka record as passed to `key_event`: a named tuple. The types of its value and key are type parameters, such
    as ``KafkaRecord[dict[str, Any]]``.

    :param value: value of the record, as bytes or as decoded with the source's `value_format`; `None` for a tombstone
    :param key: key of the record, as bytes or as decoded with the source's `key_format`; `None` if there is no key
    :param headers: headers of the record, as pairs of name and value. If a name is not valid UTF-8, reading this
        attribute raises a `KafkaHeadersError`
    :param timestamp: create time or log append time of the record in UTC, depending on the topic's
        ``message.timestamp.type``. If a record has no timestamp, or its timestamp is after the year 9999, reading
        this attribute raises a `KafkaTimestampError`
    :param topic: name of the topic
    :param partition: number of the partition
    :param offset: offset of the record in the partition
    """

    __slots__ = ()

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        found = self[2]  # the field that this property hides
        if found is None:
            raise KafkaHeadersError(self.topic, self.partition, self.offset)
        return found

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
        raise SourceError(f"topics must be one or more topic names, not {topics!r}")
    found = tuple(map(str.strip, names))
    for name in found:
        if not name.startswith("^"):
            check_topic(name, SourceError)
    return found


@attrs.frozen
class KafkaSource(FormatSettings, Source):
    """Reads records from Kafka topics as `KafkaRecord`s: each record once, and in offset order within a partition.

    The run's checkpoint stores the offset for each partition; amadou does not commit offsets to a consumer group.
    Partitions and topics that are created after the start of the first run are read from the beginning. Records written
    in a transaction are read only after the transaction is committed. The workers read from the cluster directly,
    through confluent-kafka (``pip install 'amadou[kafka]'``), so Spark needs no extra package. On the embedded engine,
    a run reads the records that exist when the run starts, and then ends.

    :param topics: one or more topics, as a comma-separated string or a sequence; a name that begins with ``^`` is a
        regular expression for topic names
    :param servers: bootstrap servers, as a comma-separated list of ``host:port``
    :param start: where to start reading with a new checkpoint: ``"earliest"``, ``"latest"``, or a time, as an aware
        `datetime` or an ISO string with a time zone
    :param max_records_per_batch: maximum number of records in a batch on Spark; by default, a batch reads all records
        that have arrived
    :param username: user to log in as, through SASL
    :param password: the user's password, a `Secret` or ``Param(…, secret=True)``
    :param mechanism: SASL mechanism: ``"PLAIN"``, ``"SCRAM-SHA-256"`` or ``"SCRAM-SHA-512"``
    :param tls: `True` to encrypt connections
    :param options: additional librdkafka settings, by their librdkafka names, such as ``ssl.ca.location``
    :param give_up_after: maximum time to wait for a cluster that does not answer; after this time, the run fails
    :param value_format: format of the records' values with a schema registry, such as an `AvroFormat`; by default,
        values are bytes
    :param key_format: format of the records' keys with a schema registry; by default, keys are bytes
    :param schema_registry: URL of the schema registry; several URLs are separated by commas
    :param schema_registry_options: settings of confluent-kafka's ``SchemaRegistryClient``, such as
        ``basic.auth.user.info``
    :param skip_lost: `True` to continue if records were deleted before they were read; by default, the run fails
    :param key_event: function that converts records into events; by default, the handler's `key_event`
    :raises SourceError: a setting is invalid
    """

    topics: str | Sequence[str] | Param = attrs.field(converter=_names)
    servers: str | Param
    start: str | datetime | Param = attrs.field(default=EARLIEST, kw_only=True)
    max_records_per_batch: int | Param | None = attrs.field(default=None, kw_only=True)
    skip_lost: bool | Param = attrs.field(default=False, kw_only=True)
    key_event: Callable[[KafkaRecord[Any, Any]], Any] | None = attrs.field(default=None, kw_only=True)

    _error = SourceError

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_count(SourceError, "max_records_per_batch", self.max_records_per_batch, optional=True)
        if not isinstance(self.start, Param):
            check_start(self.start)

    @property
    def bounded(self) -> bool:
        return False

    def check(self) -> None:
        self.cluster.check_installed()
        self._check_formats()
        offsets = self.offsets()
        partitions = offsets.partitions()
        if self.start == EARLIEST:
            for (topic, partition), begin in offsets.emptied(partitions).items():
                message = "%s: partition %s of topic %s is empty and starts at offset %s: earlier records were deleted"
                _logger.warning(message, self.cluster.label, partition, topic, f"{begin:,}")

    @property
    def decode(self) -> Callable[[Any], Any] | None:  # type: ignore[override]
        """Function that decodes a record's key and value; `None` without `key_format` and `value_format`."""
        return _Decode(self._registry(self.cluster.label), self._formats) if self._formats else None

    def _check_formats(self) -> None:
        with self._registry(self.cluster.label).with_new_client() as registry:
            for part, form in self._formats.items():
                registry.ask(lambda client: client.get_schema_types())
                Reader(registry, form, part)

    def records(self) -> Iterator[KafkaRecord]:
        return chain.from_iterable(records for _, records in self.records_by_partition())

    def records_by_partition(self) -> Iterator[tuple[str, Iterator[KafkaRecord]]]:
        offsets = self.offsets()
        partitions = offsets.partitions()
        starts, ends = offsets.at(self.start, partitions), offsets.at(LATEST, partitions)  # type: ignore[arg-type]
        ranges = sorted(offsets.ranges(starts, ends), key=attrgetter("name"))
        return ((each.name, self._read(each)) for each in ranges)

    def read_from(self, position: Any) -> tuple[Iterator[tuple[str, Iterator[KafkaRecord]]], Any]:
        offsets = self.offsets()
        partitions = offsets.partitions()
        ends = offsets.at(LATEST, partitions)
        start: Any = self.start
        before = Planned(offsets.at(start, partitions)) if position is None else Planned.of_json(position)
        ids = before.ids | offsets.ids({topic for topic, _ in partitions}, before.ids)
        ranges = sorted(offsets.ranges(before.read, ends), key=attrgetter("name"))
        after = before.then(ranges, ranges, ends, ids).to_json()
        return ((each.name, self._read(each)) for each in ranges), after

    def position_at(self, offset: Any, files: Mapping[str, str]) -> Any:
        return offset

    def offset_at(self, position: Any) -> tuple[Any, Mapping[str, str]]:
        return position, {}

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        from amadou_plugins.connectors.kafka.stream import kafka_stream

        return kafka_stream(self, spark, reader, name)

    @staticmethod
    def partition_of(partition: str) -> str:
        """Return the partition's name unchanged: Spark's rows already contain the name."""
        return partition

    def partition_offsets(self, offset: Any, log: str) -> Mapping[str, PartitionOffset]:
        return Planned.of_json(offset).offsets()

    def to_records(self, cells: Any) -> Iterator[KafkaRecord]:
        """Yield the records in the given offset ranges.

        :param cells: an Arrow array with the ranges
        """
        return chain.from_iterable(self._read(Range(**cell)) for cell in cells.to_pylist())

    @property
    def cluster(self) -> Cluster:
        """The source's cluster."""
        assert isinstance(self.topics, tuple)
        return self._cluster(",".join(self.topics))

    def offsets(self) -> Offsets:
        """Return the `Offsets` for the source's topics."""
        assert isinstance(self.topics, tuple)
        return Offsets(self.cluster, self.topics)

    def _read(self, wanted: Range) -> Iterator[KafkaRecord]:
        messages = _messages(self.cluster, wanted, bool(self.skip_lost))
        return chain.from_iterable(_records(wanted, self._with_schemas(some)) for some in messages)

    def _with_schemas(self, messages: list[Any]) -> list[Any]:
        """Fetch the schemas of messages. Return the messages."""
        for part, form in self._formats.items():
            parts = (getattr(message, part)() for message in messages)
            reader(self._registry(self.cluster.label), form, part).fetch_schemas(parts)
        return messages


@attrs.frozen
class _Decode:
    """Decodes the keys and values of records. Other keys and values than bytes are those of a test, or tombstones."""

    registry: Registry
    formats: Mapping[str, SchemaFormat]

    def __call__(self, record: Any) -> Any:
        decoded = {
            part: reader(self.registry, form, part).decode(data)
            for part, form in self.formats.items()
            if isinstance(data := getattr(record, part), bytes)
        }
        return record._replace(**decoded)


def _messages(cluster: Cluster, wanted: Range, skip_lost: bool) -> Iterator[list[Any]]:
    """Yield lists of the messages in an offset range."""
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
                        f"{cluster.label}: records in partition {wanted.partition} of {wanted.topic}, from offset "
                        f"{position} on, were deleted before they were read. Increase the topic's retention, and "
                        "restart the job with skip_lost=True"
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


def _headers(message: Any) -> tuple[tuple[str, bytes | None], ...] | None:
    """Return a message's headers; `None` if a name is not valid UTF-8."""
    try:
        return tuple(_headers_of(message) or ())
    except SystemError:
        return None


def _records(wanted: Range, messages: list[Any]) -> Iterator[KafkaRecord]:
    # The records are built from columns: calling the class for each record takes twice as long.
    from confluent_kafka import Message

    millis = [message.timestamp()[1] for message in messages]
    times = {at: _time(at) for at in set(millis)}
    return map(
        partial(tuple.__new__, KafkaRecord),
        zip(
            map(Message.value, messages),
            map(Message.key, messages),
            map(_headers, messages),
            map(times.__getitem__, millis),
            repeat(wanted.topic),
            repeat(wanted.partition),
            map(Message.offset, messages),
            strict=False,
        ),
    )
