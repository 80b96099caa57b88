from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from amadou.dependencies import downtime, has_recovered
from amadou_plugins.dependencies._errors import DependencyError, MarkerError

if TYPE_CHECKING:
    from amadou_plugins.dependencies._checkpoint import Checkpoint

CHECKPOINT_STATE_NAME: Final = "checkpoint_state"
"""Name of a dependency's `checkpoint_state` in the dependency's cache entry and `repr`."""
CHECKPOINT_MARKER_NAME: Final = "checkpoint_marker"
"""Name of a dependency's `checkpoint_marker` in the dependency's cache entry and `repr`."""

_KEPT: Final = {
    CHECKPOINT_STATE_NAME: object,
    CHECKPOINT_MARKER_NAME: object,
    "has_beaten": bool,
    "is_down": bool,
    "down_state": object,
    "down_marker": object,
}
"""The attributes of a dependency that the cache stores, with their types."""

Cache: TypeAlias = MutableMapping[str, Any]
"""A mutable mapping that stores the progress of checkpoints: a `dict`, a `SqliteCache`, the `MapState` of a handler, or
any similar object. An empty mapping is valid, too.
"""
Check: TypeAlias = Callable[["Checkpoint", "Dependency"], Any | Awaitable[Any]]


class Dependency:
    """A stream that another stream depends on, with its progress and its status (up or down).

    The caller supplies the markers; a `Dependency` never reads the clock. Markers are aware or naive datetimes,
    numbers, or any other values that can be compared and subtracted; 0 is a valid marker. A heartbeat whose marker is
    older than an earlier heartbeat's marker is ignored.

    >>> async def emoji():
    ...     for emoji in '🏆📞🐟👌':
    ...         yield emoji
    >>> Dependency('emoji', emoji())
    {'checkpoint_state': None, 'checkpoint_marker': None}

    :param name: name of the dependency in the cache; must not change between runs of the program
    :param dependency: the stream itself; a `Dependency` stores the stream but does not read it
    :param downtime_threshold: maximum distance behind the dependent stream, as a difference between markers. The
        dependency goes down when the distance exceeds this threshold
    :param downtime_check: function that replaces the threshold, called with the checkpoint and the dependency; can be
        async. The function returns the downtime, or a falsy value if the dependency is up
    :param recovery_check: function that returns `True` if a dependency that is down has recovered, called with the
        checkpoint and the dependency; can be async. By default, the dependency's marker must be greater than the
        dependent stream's marker

    :ivar checkpoint_state: copy of the checkpoint's `state` at the last heartbeat, with the heartbeat's keyword
        arguments; shows the progress of the dependent stream at that heartbeat. Before the first heartbeat, a copy of
        `state` at the first `check_pulse`. A heartbeat with a marker older than an earlier heartbeat's marker does not
        count
    :ivar checkpoint_marker: newest heartbeat marker; before the first heartbeat, the dependent stream's first
        marker
    :ivar has_beaten: `True` once there has been a heartbeat
    :ivar is_down: `True` if the dependency is down
    :ivar down_state: copy of `checkpoint_state`, created when the dependency goes down and removed when the recovery
        callback has ended; otherwise `None`
    :ivar down_marker: copy of `checkpoint_marker`, created and removed together with `down_state`. When the dependency
        goes down, the dependent stream has already processed messages later than this marker, without the dependency's
        delayed messages
    """

    def __init__(
        self,
        name: str,
        dependency: AsyncIterable[Any] | Any,
        downtime_threshold: Any = timedelta(minutes=10),
        downtime_check: Check | None = None,
        recovery_check: Check | None = None,
    ) -> None:
        self.name = name
        self.dependency = dependency
        self.downtime_threshold = downtime_threshold
        self.checkpoint_state: Any = None
        self.checkpoint_marker: Any = None
        self.has_beaten = False
        self.is_down = False
        self.down_state: Any = None
        self.down_marker: Any = None
        self._downtime_check = downtime_check or _downtime
        self._recovery_check = recovery_check or _has_recovered

    @property
    def downtime_check(self) -> Check:
        """Function that returns the downtime, or a falsy value if the dependency is up."""
        return self._downtime_check

    @property
    def recovery_check(self) -> Check:
        """Function that returns `True` if the dependency has recovered."""
        return self._recovery_check

    @property
    def compares(self) -> bool:
        """`True` if the dependency's markers must be comparable; `False` if the user has supplied both checks."""
        return self._downtime_check is _downtime or self._recovery_check is _has_recovered

    def behind(self, marker: Any) -> Any:
        """Return the dependency's distance behind a marker; `True` if the markers cannot be subtracted. Such markers
        are valid if the user has supplied a `downtime_check`.
        """
        try:
            return marker - self.checkpoint_marker
        except TypeError:
            return True

    def save(self, cache: Cache, cache_key_prefix: str, checkpoint_state: Any, checkpoint_marker: Any) -> None:
        """Change the dependency's state and marker, and store the dependency in a cache as one entry.

        :param checkpoint_state: new `checkpoint_state`
        :param checkpoint_marker: new `checkpoint_marker`
        :raises DependencyError: the cache cannot store the entry; the dependency is unchanged
        """
        changes = {CHECKPOINT_STATE_NAME: checkpoint_state, CHECKPOINT_MARKER_NAME: checkpoint_marker}
        change(self, changes, cache, cache_key_prefix, f"{self.name}: the entry")

    def load(self, cache: Cache, cache_key_prefix: str) -> None:
        """Load the dependency's entry from a cache, if there is one.

        :raises DependencyError: the cache cannot be read, or the entry was not stored by a `Checkpoint`
        """
        for name, value in (cached(cache, cache_key_prefix + self.name, _KEPT) or {}).items():
            setattr(self, name, value)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield CHECKPOINT_STATE_NAME, self.checkpoint_state
        yield CHECKPOINT_MARKER_NAME, self.checkpoint_marker

    def __repr__(self) -> str:
        return repr(dict(self))


def cached(cache: Cache, key: str, kept: Mapping[str, type]) -> dict[str, Any] | None:
    """Return a copy of an entry in a cache; `None` if there is no entry.

    :param kept: names that the entry must have, with the types of their values
    :raises DependencyError: the cache cannot be read, or the entry was not stored by a `Checkpoint`
    """
    try:
        entry = cache[key]
    except KeyError:
        return None
    except Exception as error:
        raise DependencyError(f"cannot read {key!r} from cache {cache!r:.100}: check the cache ({error})") from error
    if entry is None:
        return None
    if isinstance(entry, Mapping) and all(name in entry and isinstance(entry[name], kept[name]) for name in kept):
        return {name: deepcopy(entry[name]) for name in kept}
    message = f"the entry {key!r} in the cache {cache!r:.100} was not stored by a Checkpoint"
    raise DependencyError(f"{message}: remove the entry, or pass a different cache_key_prefix")


def keep(cache: Cache, key: str, entry: dict[str, Any], what: str) -> None:
    """Store an entry in a cache.

    :param what: description of the change, for the error message
    :raises DependencyError: the cache cannot store the entry
    """
    try:
        cache[key] = entry
    except Exception as error:
        raise DependencyError(f"{what} cannot be stored in the cache {cache!r:.100}: {error}") from error


def change(
    dependency: Dependency, changes: dict[str, Any], cache: Cache | None, cache_key_prefix: str, what: str
) -> None:
    """Change stored attributes of a dependency. The cache is changed first: if this change fails, the dependency stays
    unchanged.

    :param what: description of the change, for the error message
    :raises DependencyError: the cache cannot store the change
    """
    if cache is not None:
        entry = {name: getattr(dependency, name) for name in _KEPT} | changes
        keep(cache, cache_key_prefix + dependency.name, entry, what)
    for name, value in changes.items():
        setattr(dependency, name, value)


def _downtime(checkpoint: "Checkpoint", dependency: Dependency) -> Any:
    """Return a dependency's distance behind the dependent stream; `None` if it is within the threshold."""
    reached, newest, threshold = checkpoint.state_marker, dependency.checkpoint_marker, dependency.downtime_threshold
    try:
        return downtime(reached, newest, threshold)
    except TypeError as error:
        behind = dependency.behind(reached)
        if behind is True:  # the markers cannot be subtracted
            raise MarkerError(dependency.name, reached, newest) from error
        problem = f"downtime_threshold {threshold!r} cannot be compared with {behind!r}, a difference between markers"
        raise DependencyError(f"{dependency.name}: {problem}: pass a threshold of the same type") from error


def _has_recovered(checkpoint: "Checkpoint", dependency: Dependency) -> bool:
    """Return `True` if a dependency is ahead of the dependent stream."""
    try:
        return has_recovered(checkpoint.state_marker, dependency.checkpoint_marker)
    except TypeError as error:
        raise MarkerError(dependency.name, checkpoint.state_marker, dependency.checkpoint_marker) from error
