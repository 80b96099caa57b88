from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from amadou.dependencies import downtime, has_recovered
from amadou_plugins.dependencies._errors import DependencyError, MarkerError

if TYPE_CHECKING:
    from amadou_plugins.dependencies._checkpoint import Checkpoint

CHECKPOINT_STATE_NAME: Final = "checkpoint_state"
"""Name of a dependency's `checkpoint_state` in a cache's entry and in its `repr`."""
CHECKPOINT_MARKER_NAME: Final = "checkpoint_marker"
"""Name of a dependency's `checkpoint_marker` in the same places."""

_KEPT: Final = {
    CHECKPOINT_STATE_NAME: object,
    CHECKPOINT_MARKER_NAME: object,
    "has_beaten": bool,
    "is_down": bool,
    "down_state": object,
    "down_marker": object,
}
"""The kept attributes of a dependency, and their types."""

Cache: TypeAlias = MutableMapping[str, Any]
"""A store in which checkpoints outlive the process: a `dict`, a `SqliteCache`, the `MapState` of a handler, or any
similar object. An empty one counts, too.
"""
Check: TypeAlias = Callable[["Checkpoint", "Dependency"], Any | Awaitable[Any]]


class Dependency:
    """A stream that another one depends on, with its progress, and its status: down or not.

    The caller supplies markers: aware or naive datetimes, numbers, any values that can be compared and subtracted; 0 is
    a marker, too. Markers do not go back: an older one changes nothing. There is no clock.

    >>> async def emoji():
    ...     for emoji in '🏆📞🐟👌':
    ...         yield emoji
    >>> Dependency('emoji', emoji())
    {'checkpoint_state': None, 'checkpoint_marker': None}

    :param name: name of the dependency in the cache; must not change
    :param dependency: the stream itself, which is only kept
    :param downtime_threshold: largest allowed distance behind the dependent stream, as a difference of markers: the
        dependency is down when it is further behind, and not yet when it is exactly that far
    :param downtime_check: function that decides instead, may be async: returns the downtime, or a false value
    :param recovery_check: function that decides if a stream that is down has caught up, may be async; without it the
        stream's marker must be greater than that of the dependent stream

    :ivar checkpoint_state: state of the dependent stream at the last heartbeat: its progress with this dependency up to
        date
    :ivar checkpoint_marker: newest marker of its heartbeats; before the first heartbeat, the dependent stream's first
    :ivar has_beaten: true if there was a heartbeat
    :ivar is_down: true if the dependency is down
    :ivar down_state: `checkpoint_state` when the dependency went down, also while the recovery is reported; else `None`
    :ivar down_marker: `checkpoint_marker` at that time. From this marker to its own marker of that time, the dependent
        stream was processed without the dependency's late messages
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
        """Function that returns the downtime, or a false value."""
        return self._downtime_check

    @property
    def recovery_check(self) -> Check:
        """Function that returns true if the dependency has caught up."""
        return self._recovery_check

    @property
    def compares(self) -> bool:
        """True if its markers must be comparable: false if both checks are the user's."""
        return self._downtime_check is _downtime or self._recovery_check is _has_recovered

    def behind(self, marker: Any) -> Any:
        """Return the distance behind a marker; `True` for markers without a difference, which the user's checks may
        accept.
        """
        try:
            return marker - self.checkpoint_marker
        except TypeError:
            return True

    def save(self, cache: Cache, cache_key_prefix: str, checkpoint_state: Any, checkpoint_marker: Any) -> None:
        """Store the dependency in a cache as one entry.

        :param checkpoint_state: new `checkpoint_state`
        :param checkpoint_marker: new `checkpoint_marker`
        :raises DependencyError: the cache does not take the entry, and the dependency is unchanged
        """
        changes = {CHECKPOINT_STATE_NAME: checkpoint_state, CHECKPOINT_MARKER_NAME: checkpoint_marker}
        change(self, changes, cache, cache_key_prefix, f"{self.name}: what it is to save")

    def load(self, cache: Cache, cache_key_prefix: str) -> None:
        """Load the saved entry; change nothing if there is none.

        :raises DependencyError: the cache cannot be read, or has something else there
        """
        for name, value in (cached(cache, cache_key_prefix + self.name, _KEPT) or {}).items():
            setattr(self, name, value)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        yield CHECKPOINT_STATE_NAME, self.checkpoint_state
        yield CHECKPOINT_MARKER_NAME, self.checkpoint_marker

    def __repr__(self) -> str:
        return repr(dict(self))


def cached(cache: Cache, key: str, kept: Mapping[str, type]) -> dict[str, Any] | None:
    """Return a copy of a cache's entry, `None` if there is none.

    :param kept: names in the entry, with the types of their values
    :raises DependencyError: the cache cannot be read, or has something else there
    """
    try:
        entry = cache[key]
    except KeyError:
        return None
    except Exception as error:
        raise DependencyError(f"{key!r} cannot be read from {cache!r:.100}: {error}") from error
    if entry is None:
        return None
    if isinstance(entry, Mapping) and all(name in entry and isinstance(entry[name], kept[name]) for name in kept):
        return {name: deepcopy(entry[name]) for name in kept}
    told = f"{key!r} in {cache!r:.100} is not what a Checkpoint keeps: remove it, or give another cache_key_prefix"
    raise DependencyError(told)


def keep(cache: Cache, key: str, entry: dict[str, Any], what: str) -> None:
    """Put an entry into a cache.

    :param what: description of the change, for the error
    :raises DependencyError: the cache does not take it
    """
    try:
        cache[key] = entry
    except Exception as error:
        raise DependencyError(f"{what} cannot be kept in {cache!r:.100}: {error}") from error


def change(
    dependency: Dependency, changes: dict[str, Any], cache: Cache | None, cache_key_prefix: str, what: str
) -> None:
    """Change the kept attributes of a dependency, in the cache first: if that fails, nothing has changed.

    :param what: description of the change, for the error
    :raises DependencyError: the cache does not take it
    """
    if cache is not None:
        entry = {name: getattr(dependency, name) for name in _KEPT} | changes
        keep(cache, cache_key_prefix + dependency.name, entry, what)
    for name, value in changes.items():
        setattr(dependency, name, value)


def _downtime(checkpoint: "Checkpoint", dependency: Dependency) -> Any:
    """Return a dependency's distance behind the dependent stream, if it exceeds the threshold."""
    reached, newest, threshold = checkpoint.state_marker, dependency.checkpoint_marker, dependency.downtime_threshold
    try:
        return downtime(reached, newest, threshold)
    except TypeError as error:
        behind = dependency.behind(reached)
        if behind is True:  # the markers have no difference
            raise MarkerError(dependency.name, reached, newest) from error
        told = f"the downtime_threshold {threshold!r} does not fit {behind!r}, which is the difference of two markers"
        raise DependencyError(f"{dependency.name}: {told}: give the Dependency one of that kind") from error


def _has_recovered(checkpoint: "Checkpoint", dependency: Dependency) -> bool:
    """Return true if a dependency is ahead of the dependent stream."""
    try:
        return has_recovered(checkpoint.state_marker, dependency.checkpoint_marker)
    except TypeError as error:
        raise MarkerError(dependency.name, checkpoint.state_marker, dependency.checkpoint_marker) from error
