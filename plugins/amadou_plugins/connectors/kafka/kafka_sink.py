import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import orjson

from amadou import Param
from amadou.errors import EncodeError, SinkError
from amadou.fields import field_types
from amadou.plugins import Codec, Sink, SinkBatch, SinkWriter
from amadou_plugins.connectors._json import JsonCodec, json_lines
from amadou_plugins.connectors.kafka.client import PRODUCER_SETTINGS, Cluster, Patience, check_topic
from amadou_plugins.connectors.kafka.offsets import Offsets
from amadou_plugins.connectors.kafka.schema_format import FormatSettings, SchemaCodec, schema_codec
from amadou_plugins.connectors.kafka.transactions import Part, TransactionalWriter, check_transactions

DEDUPLICATION_HEADER = "amadou-id"
_WAIT = 0.2
_WRITING = {
    # A connection sends one request at a time so that retries do not change the order of records. With idempotent
    # producers, each worker would wait half a second for a producer id, although readers can drop duplicates by id.
    "max.in.flight.requests.per.connection": 1,
    **PRODUCER_SETTINGS,
}
_producers: dict[tuple[Any, ...], "_Producer"] = {}
"""Producers of this process by their settings, cached because connections are costly."""


class _RecordCodec:
    """Encodes each value as a pair: the record's key, and the record's value.

    :param type_: type of the values
    :param value: codec for the record's value
    :param key: field whose value becomes the record's key; `None` for records without a key
    :param encode_key: function that encodes the key
    """

    def __init__(
        self, type_: Any, value: Codec[Any], key: str | None, encode_key: Callable[[Any], bytes | None]
    ) -> None:
        self._type, self._value, self._key, self._encode_key = type_, value, key, encode_key

    def encode(self, value: Any) -> list[bytes | None]:
        encoded = self._value.encode(value)
        return [None if self._key is None else self._encoded_key(value, self._key), encoded]

    def decode(self, encoded: Any) -> Any:
        return self._value.decode(encoded[1])

    def _encoded_key(self, value: Any, name: str) -> bytes | None:
        try:
            key = value[name] if isinstance(value, Mapping) else getattr(value, name)
        except (AttributeError, KeyError) as error:
            raise EncodeError(value, self._type, f"it has no field {name!r} for the record's key") from error
        return None if key is None else self._encode_key(key)


def _key_bytes(key: Any) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    text: bytes = JsonCodec(Any).encode(key)
    parsed = orjson.loads(text)  # removes the quotes around a timestamp or a UUID
    return parsed.encode() if isinstance(parsed, str) else text


@attrs.frozen
class KafkaSink(FormatSettings, Sink):
    """Writes each value as a record to a Kafka topic: as JSON, in `value_format`, or as the bytes that the port's codec
    returns. At-least-once, or exactly-once for readers with ``isolation.level=read_committed``.

    Unless the sink is exactly-once, each record has an ``amadou-id`` header that identifies the run, the port, the
    batch and the value. After a crash, the sink writes the records of the reprocessed batch again with the same ids, so
    readers can drop duplicates. The sink writes records while their batch is being processed, so the topic can also
    contain records from a failed batch.

    :param topic: the topic, which must exist
    :param servers: bootstrap servers, as a comma-separated list of ``host:port``
    :param key: field whose value becomes the record's key; without `key_format`, `bytes` are written unchanged, and
        other values as text. Records with the same key go to the same partition, in the order in which each worker
        writes them. By default, records have no key
    :param value_format: format of the records' values with a schema registry, such as an `AvroFormat`; by default JSON
    :param key_format: format of the records' keys with a schema registry
    :param schema_registry: URL of the schema registry; several URLs are separated by commas
    :param schema_registry_options: settings of confluent-kafka's ``SchemaRegistryClient``, such as
        ``basic.auth.user.info``
    :param exactly_once: `True` to write each part of a batch in a transaction, together with a token that says that
        the part has been written. When the batch is reprocessed after a crash, the parts with a token are not written
        again. The tokens are in the topic ``amadou-tokens``, which the sink creates. The handler must be deterministic:
        reprocessed, a batch must collect the same values. The cluster needs transactions, and the login needs the
        permission to use transactional ids that begin with ``amadou-``. Workers hold a part's records in memory until
        the part is complete. The parts of a batch become visible one by one, before the batch is committed
    :param username: user to log in as, through SASL
    :param password: the user's password, a `Secret` or ``Param(…, secret=True)``
    :param mechanism: SASL mechanism: ``"PLAIN"``, ``"SCRAM-SHA-256"`` or ``"SCRAM-SHA-512"``
    :param tls: `True` to encrypt connections
    :param options: additional librdkafka settings, under librdkafka's names, such as ``ssl.ca.location``
    :param give_up_after: maximum time to wait for a cluster that does not answer; after this time, the run fails
    :raises SinkError: a setting is invalid
    """

    topic: str | Param
    servers: str | Param
    key: str | Param | None = attrs.field(default=None, kw_only=True)
    exactly_once: bool | Param = attrs.field(default=False, kw_only=True)
    _error = SinkError

    @property
    def guarantee(self) -> str:  # type: ignore[override]
        """`exactly-once` or `at-least-once`."""
        return "exactly-once" if self.exactly_once is True else "at-least-once"

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not isinstance(self.topic, Param):
            check_topic(self.topic, SinkError)
        if self.key_format is not None and self.key is None:
            raise SinkError("key_format= needs the field with the key: set key=")

    def codec(self, type_: Any) -> Codec[Any]:
        return self._codec(type_, partial(schema_codec, self._registry(self.cluster.label)))

    def _codec(self, type_: Any, schema_codec_of: Callable[..., SchemaCodec]) -> Codec[Any]:
        if self.key is None and self.value_format is None:
            return JsonCodec(type_)
        key, topic = None if self.key is None else str(self.key), str(self.topic)
        value: Codec[Any] = JsonCodec(type_)
        encode_key: Callable[[Any], bytes] = _key_bytes
        if self.value_format is not None:
            value = schema_codec_of(self.value_format, topic, "value", type_)
        if self.key_format is not None:
            key_type = (field_types(type_) or {}).get(str(key), Any)
            encode_key = schema_codec_of(self.key_format, topic, "key", key_type).encode
        return _RecordCodec(type_, value, key, encode_key)

    def check(self, port: str, type_: Any) -> None:
        fields = field_types(type_)
        if self.key is not None and fields is not None and self.key not in fields:
            known = ", ".join(fields)
            raise SinkError(
                f"{self.cluster.label}: values of port {port!r} have no field {self.key!r}: set key to one of {known}"
            )
        self.cluster.check_installed()
        Offsets(self.cluster, [str(self.topic)]).partitions()
        with self._registry(self.cluster.label).with_new_client() as registry:
            self._codec(type_, partial(SchemaCodec, registry))
        if self.exactly_once:
            check_transactions(self.cluster)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        setting = "value_format" if self.key is None else "key"
        if getattr(self, setting) is not None and not isinstance(batch.codec, _RecordCodec):
            conflict = f"{setting}= conflicts with the codec of port {batch.port!r}"
            raise SinkError(f"{self.cluster.label}: {conflict}: remove one of the two")
        if self.exactly_once:
            records = partial(_records, batch)
            return TransactionalWriter(self.cluster, str(self.topic), Part.of(batch, str(self.topic), part), records)
        return _KafkaWriter(_producer(self.cluster), str(self.topic), batch, part)

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        """Do nothing: each writer has already waited until Kafka acknowledged its records."""

    @property
    def cluster(self) -> Cluster:
        """The sink's cluster."""
        return self._cluster(str(self.topic))


def _records(batch: SinkBatch, encoded_values: Sequence[Any]) -> Any:
    """Return encoded values as pairs of a record's key and its value."""
    if isinstance(batch.codec, _RecordCodec):
        return encoded_values
    if encoded_values and isinstance(encoded_values[0], bytes):
        return ((None, encoded) for encoded in encoded_values)
    return ((None, line) for line in json_lines(batch, encoded_values))


class _KafkaWriter(SinkWriter):
    def __init__(self, producer: "_Producer", topic: str, batch: SinkBatch, part: str) -> None:
        self._producer = producer
        self._topic = topic
        self._batch = batch
        self._prefix = f"{batch.run}-{batch.port}-{batch.number}-{part}"
        self._seen: dict[str, int] = {}

    def write(self, encoded_values: Sequence[Any]) -> None:
        produce, topic, prefix, seen = self._producer.produce, self._topic, self._prefix, self._seen
        for key, value in _records(self._batch, encoded_values):
            # The ids depend on content rather than position, because the order of a batch's results can change.
            digest = hashlib.blake2b(value, digest_size=8).hexdigest()
            count = seen[digest] = seen.get(digest, 0) + 1
            produce(topic, value, key, f"{prefix}-{digest}-{count}")

    def finish(self) -> None:
        self._producer.flush()

    def abort(self) -> None:
        self._producer.abandon()


class _Producer:
    """A librdkafka producer that waits for its cluster during an outage."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka import KafkaException, Producer

        self._cluster = cluster
        self._patience = Patience(cluster)
        self._failed: Any = None
        self._refusal = KafkaException  # looked up here: `produce` is called for each record
        timeout = int(cluster.give_up_after.total_seconds() * 1000)
        own = {
            **_WRITING,
            "message.timeout.ms": timeout,
            "error_cb": self._patience.note,
            "on_delivery": self._note,
        }
        self._client = cluster.client(Producer, own)

    def produce(self, topic: str, value: bytes, key: bytes | None, identity: str) -> None:
        """Queue a record, which the producer sends in the background.

        :param identity: id by which readers can recognize duplicates of the record
        :raises SinkError: Kafka does not accept a record, or does not answer in time
        """
        while True:
            try:
                self._client.produce(topic, value, key, headers=[(DEDUPLICATION_HEADER, identity)])
            except BufferError:
                self._progress()
            except self._refusal as error:
                self._failed = error.args[0]
                self._raise_failure()
            else:
                return

    def flush(self) -> None:
        """Wait until Kafka has acknowledged all records.

        :raises SinkError: Kafka does not accept a record, or does not answer in time
        """
        while len(self._client):
            self._progress()
        self._raise_failure()

    def abandon(self) -> None:
        """Drop the unsent records."""
        self._client.purge()
        self._client.flush(_WAIT)
        self._patience.ends()
        self._failed = None

    def _progress(self) -> None:
        left = len(self._client)
        self._client.flush(_WAIT)
        self._raise_failure()
        if len(self._client) < left:
            self._patience.ends()
        else:
            self._patience.waits()

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed = error

    def _raise_failure(self) -> None:
        if self._failed is not None:
            failed, self._failed = self._failed, None
            problem = f"{self._cluster.label}: Kafka at {self._cluster.servers} did not accept a record"
            raise SinkError(f"{problem}: check the topic's settings ({failed.str()})")


def _producer(cluster: Cluster) -> _Producer:
    key = cluster.key({})
    if key not in _producers:
        _producers[key] = _Producer(cluster)
    return _producers[key]
