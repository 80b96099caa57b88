"""Access to Kafka clusters for the source and the sink, through confluent-kafka and librdkafka."""

import importlib.util
import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar, TypeVar

import attrs

from amadou import Param, Secret
from amadou.errors import AmadouError
from amadou_plugins.connectors._settings import check_secret, check_time, revealed

T = TypeVar("T")
ANSWER_WITHIN = 4.0
"""Timeout of a single request, in seconds."""
PRODUCER_SETTINGS: Mapping[str, Any] = {
    "linger.ms": 20,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 1_000_000,
    "delivery.report.only.error": True,
}
"""Settings of all producers."""
_PAUSE = 0.5
_QUIET = 3.0
"""Seconds after which an outage is logged."""
_TOPIC = re.compile(r"[\w.-]{1,249}", re.ASCII)
_logger = logging.getLogger("amadou")


def check_topic(name: object, error: type[AmadouError]) -> None:
    """Raise an error if no topic can have a name, such as the address of a server."""
    if not isinstance(name, str) or not _TOPIC.fullmatch(name):
        raise error(
            f"{name!r} cannot be the name of a topic, which has letters, digits, '.', '_' and '-': correct it (the "
            f"first argument is the topic, the second one the servers)"
        )


@attrs.frozen
class Cluster:
    """A connector's Kafka cluster, with the settings to connect to it.

    :param label: name of the connector, for messages
    :param servers: bootstrap servers, as a comma-separated list of ``host:port``
    :param username: user to log in as; `None` for no login
    :param password: the user's password
    :param mechanism: SASL mechanism of the login
    :param tls: `True` to encrypt connections
    :param options: additional librdkafka settings, which override all other settings
    :param give_up_after: maximum time to wait for a cluster that does not answer; after this time, amadou raises an
        error
    :param error: class of the errors to raise
    """

    label: str
    servers: str
    username: str | None
    password: Secret | None
    mechanism: str
    tls: bool
    options: Mapping[str, Any]
    give_up_after: timedelta
    error: type[AmadouError]

    def settings(self, own: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings for a librdkafka client.

        :param own: settings specific to this type of client
        """
        login: dict[str, Any] = {}
        if self.username is not None:
            login = {"sasl.username": self.username, "sasl.password": revealed(self.password)}
            login["sasl.mechanism"] = self.mechanism
        protocol = ("SASL_" if login else "") + ("SSL" if self.tls else "PLAINTEXT")
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": protocol,
            "log_level": 0,  # `error_cb` receives the errors that matter
            **login,
            **own,
            **{name: revealed(value) for name, value in self.options.items()},
        }

    def client(self, make: Callable[[dict[str, Any]], T], own: Mapping[str, Any]) -> T:
        """Create a librdkafka client.

        :param make: class of the client
        :param own: settings specific to this type of client
        :raises AmadouError: a setting is invalid
        """
        from confluent_kafka import KafkaException

        try:
            return make(self.settings(own))
        except KafkaException as error:
            raise self.error(f"{self.label}: librdkafka rejects a setting: fix it ({error.args[0].str()})") from None
        except (TypeError, ValueError) as error:
            raise self.error(f"{self.label}: librdkafka rejects a setting: fix it ({error})") from None

    def key(self, own: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key under which a client is cached so that later batches can reuse the client."""
        return self.label, self.give_up_after, *sorted(self.settings(own).items())

    def check_installed(self) -> None:
        """Raise an error unless confluent-kafka is installed."""
        if importlib.util.find_spec("confluent_kafka") is None:
            raise self.error(f"{self.label} needs confluent-kafka: run pip install 'amadou[kafka]'")


class Patience:
    """Tracks how long a cluster has not answered, and logs the outage. Raises an error after `give_up_after`, or
    earlier if waiting cannot help.

    :param needed: what the user should check if the cluster does not answer
    """

    def __init__(self, cluster: Cluster, needed: str = "that tls= is correct") -> None:
        self._cluster = cluster
        self._needed = needed
        self._last: str | None = None
        self._refused: str | None = None
        self._since: float | None = None
        self._has_warned = False

    def note(self, error: Any) -> None:
        """Record an error that a client reports. The client recovers from most errors on its own."""
        self._last = error.str()
        self._look_for_refusal(error)

    def begins(self) -> None:
        """Record that a request begins."""
        self._since = self._since or time.monotonic()

    def waits(self, error: Any = None) -> None:
        """Record that the cluster has not answered yet.

        :param error: error that was returned instead of an answer
        :raises AmadouError: the cluster has not answered within `give_up_after`, or refuses the login or the request
        """
        cluster, last = self._cluster, self._last or ("no progress" if error is None else error.str())
        if error is not None:
            self._look_for_refusal(error)
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise cluster.error(f"{cluster.label}: Kafka at {cluster.servers} {refused}")
        self.begins()
        assert self._since is not None
        waited, limit = time.monotonic() - self._since, cluster.give_up_after.total_seconds()
        if waited >= limit:
            self._last = self._since = None
            raise cluster.error(
                f"{cluster.label}: Kafka at {cluster.servers} did not answer for {limit:g} s: check that Kafka is "
                f"running and reachable from this machine, and {self._needed} ({last})"
            )
        if waited >= _QUIET and not self._has_warned:
            _logger.warning("Kafka at %s does not answer; waiting for up to %g s (%s)", cluster.servers, limit, last)
            self._has_warned = True

    def _look_for_refusal(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        user = "an anonymous user" if self._cluster.username is None else repr(self._cluster.username)
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED):
            refusal = f"refuses the login of {user}: check username=, password= and mechanism= ({error.str()})"
        elif error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
            refusal = f"denies {user} access: grant this user the missing permission ({error.str()})"
        else:
            return
        self._refused = refusal

    def ends(self) -> None:
        """Record that the cluster answered."""
        if self._has_warned:
            _logger.warning("Kafka at %s answers again", self._cluster.servers)
        self._last = self._refused = self._since = None
        self._has_warned = False


class Admin:
    """Queries a cluster's topics and offsets."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka.admin import AdminClient

        self.back: datetime | None = None
        """Time at which the cluster answered again after an outage; `None` if there was no outage."""
        self._patience = Patience(cluster)
        self._client = cluster.client(AdminClient, {"error_cb": self._patience.note})

    def partitions(self) -> dict[str, list[int]]:
        """Return the partition numbers of each topic.

        :raises AmadouError: the cluster does not answer, or refuses the request
        """
        topics = self._answer(lambda: self._client.list_topics(timeout=ANSWER_WITHIN)).topics
        return {name: sorted(topic.partitions) for name, topic in topics.items()}

    def offsets(
        self, wanted: Mapping[tuple[str, int], Any], with_open_transactions: bool = False
    ) -> dict[tuple[str, int], int]:
        """Return the requested offset of each partition.

        :param wanted: an `OffsetSpec` for each topic and partition
        :param with_open_transactions: `True` if the latest offset is after the records of transactions that have not
            ended. By default, it is before these records, because they are read only after their transaction has ended
        :raises AmadouError: the cluster does not answer, or refuses the request
        """
        from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition

        isolation = IsolationLevel.READ_UNCOMMITTED if with_open_transactions else IsolationLevel.READ_COMMITTED

        def ask() -> dict[tuple[str, int], int]:
            found = self._client.list_offsets(
                {TopicPartition(*partition): spec for partition, spec in wanted.items()},
                isolation_level=isolation,
                request_timeout=ANSWER_WITHIN,
            )
            offsets = {(at.topic, at.partition): future.result().offset for at, future in found.items()}
            if OFFSET_INVALID in offsets.values():  # a broker that has just restarted does not yet know its offsets
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return offsets

        return self._answer(ask) if wanted else {}

    def ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids of topics by name; a re-created topic has a new id. The result omits topics that do not exist
        or that the user has no permission to describe. If the cluster does not support topic ids, the result is empty.

        :raises AmadouError: the cluster does not answer, or refuses the request
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
                    self._client.list_topics(timeout=ANSWER_WITHIN)  # required to find new partition leaders
                answer = ask()
            except KafkaException as error:
                is_lost = True
                self._client.poll(_PAUSE)  # lets the client report its errors
                self._patience.waits(error.args[0])
            else:
                self._patience.ends()
                if is_lost:
                    self.back = datetime.now(timezone.utc)
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


@attrs.frozen
class ClusterSettings:
    """Settings for connecting a source or a sink to a cluster; see `Cluster`."""

    username: str | Param | None = attrs.field(default=None, kw_only=True)
    password: Secret | Param | None = attrs.field(default=None, kw_only=True)
    mechanism: str | Param = attrs.field(default="PLAIN", kw_only=True)
    tls: bool | Param = attrs.field(default=False, kw_only=True)
    options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    give_up_after: timedelta | Param = attrs.field(default=timedelta(minutes=2), kw_only=True)
    _error: ClassVar[type[AmadouError]]

    def __attrs_post_init__(self) -> None:
        check_secret(self._error, "password", self.password)
        check_time(self._error, "give_up_after", self.give_up_after)

    def _cluster(self, topics: str) -> Cluster:
        settings: Any = {name: getattr(self, name) for name in ("servers", *attrs.fields_dict(ClusterSettings))}
        return Cluster(f"{type(self).__name__}({topics!r})", **settings, error=self._error)
