"""Writes parts of batches to Kafka in transactions, each part once.

A part is written in one transaction, together with a token: a record in a topic of its own that says which batch of the
part was written last. A part that is written again, because its batch is processed again or because Spark repeats its
task, finds the token and writes nothing. Before that, it takes over the part's transactional id. So Kafka ends the
transaction of a writer that has died, and refuses to commit that of one that is still running elsewhere.
"""

import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar
from uuid import uuid4

import attrs
import orjson

from amadou.errors import SinkError
from amadou.plugins import SinkBatch, SinkWriter
from amadou_plugins.connectors.kafka.client import ANSWER_WITHIN, PRODUCER_SETTINGS, Admin, Cluster, Patience

T = TypeVar("T")
TOKENS_TOPIC: Final = "amadou-tokens"
_PARTITIONS: Final = 16
_TRANSACTION_SECONDS: Final = 60
"""Kafka aborts a transaction that is open for longer, such as that of a process that has died."""
_SLOW_ABORT_SECONDS: Final = 30
"""Kafka looks for transactions to abort at intervals."""
_MOST_TRANSACTIONS: Final = 5
_MOST_WRITERS: Final = 8
_WAIT: Final = 0.2
_NEEDED: Final = "that its brokers have transactions (transaction.state.log.replication.factor)"
_SETTINGS: Final = {**PRODUCER_SETTINGS, "transaction.timeout.ms": 1000 * _TRANSACTION_SECONDS}
_writers: OrderedDict[tuple[Any, ...], "_Transactions"] = OrderedDict()
"""The producers of this process that were used last, cached because connections are costly."""
_readers: dict[tuple[Any, ...], "_Tokens"] = {}
"""The tokens that this process has read, by the settings of the cluster."""


@attrs.frozen
class Part:
    """A part of the batches of a port.

    :param id: the part's name among all parts of all runs; also its transactional id
    :param number: number of the batch
    """

    id: str
    number: int

    @classmethod
    def of(cls, batch: SinkBatch, topic: str, part: str) -> "Part":
        """Return a part of a batch that is written to a topic."""
        return cls(f"amadou-{batch.run}/{batch.batches_before}/{topic}/{part}/{batch.port}", batch.number)

    @property
    def partition(self) -> int:
        """The partition of the topic of tokens. Parts in other partitions do not have to wait for each other."""
        return zlib.crc32(self.id.encode()) % _PARTITIONS


def _make_tokens_topic(cluster: Cluster) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

    admin, existing = cluster.client(AdminClient, {}), Admin(cluster)
    if TOKENS_TOPIC not in existing.partitions():
        topic = NewTopic(TOKENS_TOPIC, _PARTITIONS, config={"cleanup.policy": "compact"})
        try:
            admin.create_topics([topic], request_timeout=ANSWER_WITHIN)[TOKENS_TOPIC].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise SinkError(
                    f"{cluster.label}: the topic {TOKENS_TOPIC} cannot be created: create it with {_PARTITIONS} "
                    f"partitions and cleanup.policy=compact, or grant the permission to do so ({error.args[0].str()})"
                ) from None
    partitions = existing.partitions().get(TOKENS_TOPIC, range(_PARTITIONS))  # a new topic is not known at once
    if len(partitions) != _PARTITIONS:
        raise SinkError(
            f"{cluster.label}: the topic {TOKENS_TOPIC} has {len(partitions)} partitions: it needs {_PARTITIONS}"
        )
    resource = ConfigResource(ResourceType.TOPIC, TOKENS_TOPIC)
    try:
        found = admin.describe_configs([resource], request_timeout=ANSWER_WITHIN)[resource].result()
    except KafkaException:
        return  # without the permission to look, the topic is trusted
    if found["cleanup.policy"].value != "compact":
        raise SinkError(f"{cluster.label}: the topic {TOKENS_TOPIC} must have cleanup.policy=compact: change it")


def check_transactions(cluster: Cluster) -> None:
    """Raise an error unless the cluster has transactions. Create the topic of tokens if it does not exist.

    :raises SinkError: the cluster has no transactions, or the topic cannot be created or used
    """
    _make_tokens_topic(cluster)
    _Transactions(cluster, Part(f"amadou-check/{uuid4().hex}", 0)).end_others()


class TransactionalWriter(SinkWriter):
    """Writes a part in a transaction, unless it has been written. Until then, its records are in memory, so that they
    can be written again if another writer takes over the part.

    :param records: function that returns pairs of key and value for encoded values
    """

    def __init__(self, cluster: Cluster, topic: str, part: Part, records: Callable[[Sequence[Any]], Any]) -> None:
        self._cluster, self._topic, self._part, self._records = cluster, topic, part, records
        self._encoded_values: list[Any] = []

    def write(self, encoded_values: Sequence[Any]) -> None:
        self._encoded_values.extend(encoded_values)

    def finish(self) -> None:
        part, last = self._part, ""
        for _ in range(_MOST_TRANSACTIONS):
            transactions = _transactions(self._cluster, part)
            try:
                transactions.take_over()
                if transactions.written >= part.number:
                    return
                transactions.write(part.number, self._topic, self._records(self._encoded_values))
                return
            except _LostError as error:
                last = str(error)
        raise SinkError(
            f"{self._cluster.label}: a part of batch {part.number} with {len(self._encoded_values)} records could not "
            f"be written in {_MOST_TRANSACTIONS} transactions of up to {_TRANSACTION_SECONDS} s each: check that Kafka "
            f"is fast enough, and that no other program uses transactional ids that begin with amadou- ({last})"
        )

    def abort(self) -> None:
        self._encoded_values.clear()


class _LostError(Exception):
    """A transaction has been lost: another writer has taken over its id, or Kafka has aborted it."""


class _Transactions:
    """The transactions of a part; see librdkafka's transactional producer.

    :param part: the part, in any batch
    """

    def __init__(self, cluster: Cluster, part: Part) -> None:
        self.written = -1
        """Number of the part's last batch that has been written. If another writer has written a later one, it has
        taken over, so that Kafka refuses the next transaction of this one."""
        self._cluster, self._part = cluster, part
        self._patience = Patience(cluster, needed=_NEEDED)
        self._client: Any = None
        self._failed: Any = None

    def take_over(self) -> None:
        """End the transactions of other writers of the part, and look up what they have written. Does nothing if this
        writer has taken over before, and has not lost a transaction since.

        :raises SinkError: the cluster has no transactions, refuses them, or does not answer
        """
        if self._client is not None:
            return
        client = self.end_others()
        self.written = _tokens(self._cluster).latest(self._part)
        self._client = client

    def end_others(self) -> Any:
        """End the transactions of other writers of the part. Return a new client for transactions.

        :raises SinkError: the cluster has no transactions, refuses them, or does not answer
        """
        from confluent_kafka import Producer

        callbacks = {"error_cb": self._patience.note, "on_delivery": self._note}
        client = self._cluster.client(Producer, {**_SETTINGS, "transactional.id": self._part.id, **callbacks})
        self._failed = None
        self._call(lambda: client.init_transactions(ANSWER_WITHIN))
        return client

    def write(self, number: int, topic: str, records: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Write records and the token of a batch in a transaction.

        :param number: number of the batch
        :param topic: the records' topic
        :param records: pairs of key and value
        :raises _LostError: the transaction is lost; whether it has been committed is not known
        :raises SinkError: the cluster does not accept a record
        """
        from confluent_kafka import KafkaException

        self._failed = None
        try:
            self._call(self._client.begin_transaction)
            for key, value in records:
                self._produce(topic, value, key)
            token = orjson.dumps({"batch": number})
            self._produce(TOKENS_TOPIC, token, self._part.id.encode(), self._part.partition)
            self._flush()
            self._call(lambda: self._client.commit_transaction(ANSWER_WITHIN))
            self.written = number
            return
        except BaseException as error:
            failure = error
        # Not in the handler: a call of confluent-kafka that fails there keeps the handled exception in memory for ever,
        # and with it what its frames refer to, such as the records.
        try:
            self._abort()
            if isinstance(failure, KafkaException):
                self._raise(failure.args[0])
            raise failure
        finally:
            del failure

    def _produce(self, topic: str, value: bytes, key: bytes | None, partition: int = -1) -> None:
        while not self._enqueue(topic, value, key, partition):
            self._client.poll(_WAIT)
        self._client.poll(0)
        self._check()

    def _enqueue(self, *record: Any) -> bool:
        """Add a record to the client's queue. Return `False` if the queue is full."""
        try:
            self._client.produce(*record)
        except BufferError:
            return False
        return True

    def _flush(self) -> None:
        """Wait until all records have been sent."""
        while left := len(self._client):
            self._client.flush(_WAIT)
            self._check()
            if len(self._client) < left:
                self._patience.ends()
            else:
                self._patience.waits()
        self._check()

    def _abort(self) -> None:
        """Abort the transaction, if possible. Otherwise the next writer of the part aborts it."""
        from confluent_kafka import KafkaException

        client, self._client = self._client, None
        with suppress(KafkaException):
            client.purge()
            client.abort_transaction(ANSWER_WITHIN)
        for _ in range(2):  # the first call may raise the client's error
            with suppress(KafkaException):
                client.poll(0)  # removes the reports of purged records, which are not freed with the client
        self._patience.ends()

    def _call(self, call: Callable[[], T]) -> T:
        """Make a call until it succeeds."""
        from confluent_kafka import KafkaException

        self._patience.begins()
        while True:
            try:
                result = call()
            except KafkaException as failed:
                if not failed.args[0].retriable():
                    self._raise(failed.args[0])
                self._patience.waits(failed.args[0])
                continue
            self._check()
            self._patience.ends()
            return result

    def _note(self, error: Any, _: Any) -> None:
        self._failed = self._failed or error

    def _check(self) -> None:
        """Raise the error with which Kafka has refused a record."""
        if self._failed is not None:
            self._raise(self._failed)

    def _raise(self, error: Any) -> NoReturn:
        from confluent_kafka import KafkaError

        lost = (
            # another writer has taken over: the error itself, and what calls return after it
            *(KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED),
            *(KafkaError._FATAL, KafkaError._STATE, KafkaError._INCONSISTENT),
            *(KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT),
            # Kafka has aborted the transaction, or has forgotten the id
            *(KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError.INVALID_TXN_STATE),
            *(KafkaError.UNKNOWN_PRODUCER_ID, KafkaError.INVALID_PRODUCER_ID_MAPPING),
        )
        if error.code() in lost:
            raise _LostError(error.str())
        raise SinkError(
            f"{self._cluster.label}: Kafka at {self._cluster.servers} did not accept a transaction: check {_NEEDED} "
            f"and that the login may use transactional ids that begin with amadou- ({error.str()})"
        )


class _Tokens:
    """Reads the topic of tokens."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka import Consumer

        own = {"group.id": "amadou", "enable.auto.commit": False, "isolation.level": "read_committed"}
        own |= {"enable.partition.eof": True, "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10}
        self._cluster = cluster
        self._patience = Patience(cluster)
        self._client = cluster.client(Consumer, {**own, "error_cb": self._patience.note})
        self._admin = Admin(cluster)
        self._positions: dict[int, int] = {}
        self._latest: dict[str, int] = {}

    def latest(self, part: Part) -> int:
        """Return the number of the last batch of a part that has been written; -1 if there is none.

        :raises SinkError: the topic cannot be read
        """
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        at = TOKENS_TOPIC, part.partition
        end = self._admin.offsets({at: OffsetSpec.latest()}, with_open_transactions=True)[at]
        position = self._positions.get(part.partition, 0)
        if position < end:
            self._client.assign([TopicPartition(*at, position)])
        patience = _TRANSACTION_SECONDS + _SLOW_ABORT_SECONDS + self._cluster.give_up_after.total_seconds()
        limit = time.monotonic() + patience
        try:
            while position < end:
                message = self._client.poll(_WAIT)
                if message is not None and message.partition() in (part.partition, None):
                    position = self._take(message, position)
                if time.monotonic() > limit:  # longer than any transaction can be open
                    raise SinkError(f"{self._cluster.label}: the topic {TOKENS_TOPIC} cannot be read to its end")
        finally:
            self._client.unassign()  # otherwise the client goes on to ask for tokens, a hundred times a second
        self._positions[part.partition] = position
        return self._latest.get(part.id, -1)

    def _take(self, message: Any, position: int) -> int:
        """Take a token, or an event of the client. Return the position after it."""
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            part, batch = self._token(message)
            self._latest[part] = batch
        elif error.code() != KafkaError._PARTITION_EOF:
            self._patience.waits(error)
            return position
        # Only the event at the end of the partition says that there are no tokens before the markers of transactions.
        return int(message.offset()) + (error is None)

    def _token(self, message: Any) -> tuple[str, int]:
        """Return the id of a part, and the number of its last batch.

        :raises SinkError: the record is not a token
        """
        try:
            return message.key().decode(), int(orjson.loads(message.value())["batch"])
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise SinkError(
                f"{self._cluster.label}: the record at offset {message.offset()} in partition {message.partition()} of "
                f"the topic {TOKENS_TOPIC} is not one of amadou's ({error!r}): delete the records up to this one with "
                "kafka-delete-records, and let only amadou write to this topic"
            ) from error


def _transactions(cluster: Cluster, part: Part) -> _Transactions:
    key = part.id, *cluster.key({})
    if key not in _writers:
        _writers[key] = _Transactions(cluster, part)
    _writers.move_to_end(key)
    if len(_writers) > _MOST_WRITERS:
        _writers.popitem(last=False)
    return _writers[key]


def _tokens(cluster: Cluster) -> _Tokens:
    key = cluster.key({})
    if key not in _readers:
        _readers[key] = _Tokens(cluster)
    return _readers[key]
