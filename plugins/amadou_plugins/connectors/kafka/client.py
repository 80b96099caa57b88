"""The Kafka clusters of the source and the sink, through confluent-kafka and its librdkafka."""

import importlib.util
import logging
import time
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import attrs

from amadou import Secret
from amadou.errors import AmadouError
from amadou_plugins.connectors._settings import revealed

T = TypeVar("T")
ANSWER_WITHIN = 4.0
"""Longest time of one request, in seconds."""
_PAUSE = 0.5
_QUIET = 3.0
"""Troubles that pass within this many seconds are not logged."""
_logger = logging.getLogger("amadou")


@attrs.frozen
class Cluster:
    """A connector's cluster, with the settings to reach it.

    :param told: the connector, for messages
    :param servers: first servers to contact, ``host:port`` and more after commas
    :param username: user who logs in; without it there is no login
    :param password: the user's password
    :param mechanism: SASL's mechanism for the login
    :param tls: true to encrypt connections
    :param options: further settings of librdkafka, which take precedence
    :param give_up_after: time to wait for a cluster that does not answer
    :param error: class of the errors to raise
    """

    told: str
    servers: str
    username: str | None
    password: Secret | None
    mechanism: str
    tls: bool
    options: Mapping[str, Any]
    give_up_after: timedelta
    error: type[AmadouError]

    def settings(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a client.

        :param own: settings of its kind of client
        """
        login: dict[str, Any] = {}
        if self.username is not None:
            login = {"sasl.username": self.username, "sasl.password": revealed(self.password)}
            login["sasl.mechanism"] = self.mechanism
        protocol = ("SASL_" if login else "") + ("SSL" if self.tls else "PLAINTEXT")
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": protocol,
            "log_level": 0,  # `error_cb` gets the errors that matter
            **login,
            **own,
            **{name: revealed(value) for name, value in self.options.items()},
        }

    def client(self, make: Callable[[dict[str, Any]], T], own: Mapping[str, Any]) -> T:
        """Return a client of librdkafka.

        :raises AmadouError: a setting is wrong
        """
        from confluent_kafka import KafkaException

        try:
            return make(self.settings(own))
        except KafkaException as error:
            raise self.error(f"{self.told}: {error.args[0].str()}") from None
        except (TypeError, ValueError) as error:
            raise self.error(f"{self.told}: the options do not fit librdkafka: {error}") from None

    def key(self, own: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key of a client that may serve several batches."""
        return self.told, self.give_up_after, *sorted(self.settings(own).items())

    def check_installed(self) -> None:
        """Raise unless confluent-kafka is installed."""
        if importlib.util.find_spec("confluent_kafka") is None:
            raise self.error(f"{self.told} needs confluent-kafka: run pip install 'amadou[kafka]'")


class Patience:
    """Waits for a cluster that does not answer, and logs it; raises errors that waiting cannot solve."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._last: str | None = None
        self._refused: str | None = None
        self._since: float | None = None
        self._has_told = False

    def note(self, error: Any) -> None:
        """Note a client's error; the client recovers from most errors by itself."""
        self._last = error.str()
        self._look_for_refusal(error)

    def begins(self) -> None:
        """Note that a request begins."""
        self._since = self._since or time.monotonic()

    def waits(self, error: Any = None) -> None:
        """Note that no answer came.

        :param error: error that came instead of an answer
        :raises AmadouError: the time is up, or the cluster refuses
        """
        cluster, last = self._cluster, self._last or ("nothing comes" if error is None else error.str())
        if error is not None:
            self._look_for_refusal(error)
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise cluster.error(f"{cluster.told}: Kafka at {cluster.servers} {refused}")
        self.begins()
        assert self._since is not None
        waited, limit = time.monotonic() - self._since, cluster.give_up_after.total_seconds()
        if waited >= limit:
            self._last = self._since = None
            raise cluster.error(
                f"{cluster.told}: Kafka at {cluster.servers} did not answer for {limit:g} s ({last}): see whether it "
                "runs and can be reached from here, and whether tls= is right"
            )
        if waited >= _QUIET and not self._has_told:
            _logger.warning("Kafka at %s: %s; waiting up to %g s for it", cluster.servers, last, limit)
            self._has_told = True

    def _look_for_refusal(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        who = "nobody" if self._cluster.username is None else repr(self._cluster.username)
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            told = f"refuses the login of {who} ({error.str()}): see to username=, password= and mechanism="
        elif error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            told = f"does not allow this to {who} ({error.str()}): give them the right to"
        else:
            return
        self._refused = told

    def ends(self) -> None:
        """Note that the cluster answered."""
        if self._has_told:
            _logger.warning("Kafka at %s answers again", self._cluster.servers)
        self._last = self._refused = self._since = None
        self._has_told = False


class Admin:
    """Asks a cluster about topics and offsets."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka.admin import AdminClient

        self.back: datetime | None = None
        """Time at which the cluster answered again after an outage."""
        self._patience = Patience(cluster)
        self._client = cluster.client(AdminClient, {"error_cb": self._patience.note})

    def partitions(self) -> dict[str, list[int]]:
        """Return the partitions of each topic.

        :raises AmadouError: the cluster does not answer, or refuses
        """
        topics = self._answer(lambda: self._client.list_topics(timeout=ANSWER_WITHIN)).topics
        return {name: sorted(topic.partitions) for name, topic in topics.items()}

    def offsets(self, wanted: Mapping[tuple[str, int], Any]) -> dict[tuple[str, int], int]:
        """Return offsets of partitions.

        :param wanted: an `OffsetSpec` for each topic and partition
        :raises AmadouError: the cluster does not answer, or refuses
        """
        from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition

        def ask() -> dict[tuple[str, int], int]:
            found = self._client.list_offsets(
                {TopicPartition(*partition): spec for partition, spec in wanted.items()},
                # an open transaction is read once it ends
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=ANSWER_WITHIN,
            )
            offsets = {(at.topic, at.partition): future.result().offset for at, future in found.items()}
            if OFFSET_INVALID in offsets.values():  # a broker that has just come back does not know it yet
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return offsets

        return self._answer(ask) if wanted else {}

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids that distinguish topics from earlier ones of the same name. Missing topics have none, and old
        clusters do not know ids.

        :raises AmadouError: the cluster does not answer
        """
        from confluent_kafka import TopicCollection

        def ask() -> dict[str, str]:
            found = self._client.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_WITHIN)
            ids = {topic: _topic_id(future) for topic, future in found.items()}
            return {topic: id_ for topic, id_ in ids.items() if id_ is not None}

        return self._answer(ask) if topics else {}

    def _answer(self, ask: Callable[[], T]) -> T:
        from confluent_kafka import KafkaException

        self._patience.begins()
        is_lost = False
        while True:
            try:
                if is_lost:
                    self._client.list_topics(timeout=ANSWER_WITHIN)  # without it, lost leaders stay lost
                answer = ask()
            except KafkaException as error:
                is_lost = True
                self._client.poll(_PAUSE)  # lets the client report its errors
                self._patience.waits(error.args[0])
            else:
                self._patience.ends()
                if is_lost:
                    self.back = datetime.now(UTC)
                return answer


def _topic_id(described: Any) -> str | None:
    from confluent_kafka import KafkaError, KafkaException

    try:
        found = described.result().topic_id
    except KafkaException as error:
        if error.args[0].code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED):
            return None
        raise
    return str(found) if found.get_most_significant_bits() or found.get_least_significant_bits() else None


def cluster_of(connector: Any, what: str, error: type[AmadouError]) -> Cluster:
    """Return the cluster of a source or a sink.

    :param what: topics of the source or sink
    """
    return Cluster(
        f"{type(connector).__name__}({what!r})",
        connector.servers,
        connector.username,
        connector.password,
        connector.mechanism,
        connector.tls,
        connector.options,
        connector.give_up_after,
        error,
    )
