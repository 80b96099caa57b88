"""Access to a schema registry for the formats of the source and the sink, through confluent-kafka."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Final, TypeVar

import attrs

from amadou.errors import AmadouError
from amadou_plugins.connectors._settings import revealed

T = TypeVar("T")
SECRET_OPTIONS: Final = (
    *("basic.auth.user.info", "ssl.key.password", "bearer.auth.token"),
    *("bearer.auth.client.secret", "bearer.auth.custom.config"),
)
_clients: dict["Registry", Any] = {}
"""This process's clients. They are cached because they cache schemas."""
_DEFAULTS: Final = {"timeout": 10, "max.retries": 3}
"""Seconds per request, and number of times that a failed request is repeated."""
_REFUSED: Final = 'refuses the login: check "basic.auth.user.info" in schema_registry_options='
_SILENT: Final = (
    "did not answer: check that it is running and reachable from this machine, and that its URL and "
    "schema_registry_options= are correct"
)
_FAILED: Final = "answered with an error: look into its log"


@attrs.frozen
class Registry:
    """A connector's schema registry.

    :param label: name of the connector, for messages
    :param url: URL of the registry; several URLs are separated by commas
    :param options: settings of confluent-kafka's `SchemaRegistryClient`, which override all other settings
    :param error: class of the errors to raise
    :param owner: object that has a client of its own; `None` to use the process's client for these settings
    """

    label: str
    url: str
    options: Mapping[str, Any] = attrs.field(hash=False)
    error: type[AmadouError]
    owner: object = None

    @property
    def client(self) -> Any:
        """The client, which caches schemas.

        :raises AmadouError: a package is missing, or a setting is invalid
        """
        if self not in _clients:
            _clients[self] = _made_client(self)
        return _clients[self]

    @contextmanager
    def with_new_client(self) -> Iterator["Registry"]:
        """Yield this registry with a client that has not cached any schemas. Close the client at the end."""
        registry = attrs.evolve(self, owner=object())
        try:
            yield registry
        finally:
            if registry in _clients:
                _clients.pop(registry).close()

    def ask(self, call: Callable[[Any], T], hints: Mapping[int, str] = MappingProxyType({})) -> T:
        """Call a function with the client, and return the function's result.

        :param hints: problems, with what the user should do, by HTTP status
        :raises AmadouError: the registry does not answer, or answers with an error
        """
        client = self.client
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return call(client)
        except SchemaRegistryError as error:
            problems = {401: _REFUSED, 403: _REFUSED, **hints}
            raise self._problem(problems.get(error.http_status_code, _FAILED), error.error_message) from None
        except Exception as error:  # an error of httpx or of httpx2, depending on the version of confluent-kafka
            raise self._problem(_SILENT, str(error) or type(error).__name__) from error

    def _problem(self, problem: str, cause: object) -> AmadouError:
        return self.error(f"{self.label}: the schema registry at {self.url} {problem} ({cause})")


def _made_client(registry: Registry) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError:
        needed = "needs more packages to use a schema registry: run pip install 'amadou[schema-registry]'"
        raise registry.error(f"{registry.label} {needed}") from None
    options = {name: revealed(value) for name, value in registry.options.items()}
    try:
        return SchemaRegistryClient.new_client({"url": registry.url, **_DEFAULTS, **options})
    except (OSError, TypeError, ValueError) as error:
        problem = "confluent-kafka rejects a setting of the schema registry: fix schema_registry= or "
        raise registry.error(f"{registry.label}: {problem}schema_registry_options= ({error})") from None
