import inspect
from asyncio import Future, get_running_loop
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from threading import RLock
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from weakref import WeakSet

from amadou_plugins.dependencies._dependency import (
    CHECKPOINT_MARKER_NAME,
    CHECKPOINT_STATE_NAME,
    Cache,
    Dependency,
    cached,
    change,
    keep,
)
from amadou_plugins.dependencies._errors import DependencyError, MarkerError

STATE_NAME: Final = "state"
"""Name of a checkpoint's state in the checkpoint's cache entry and `repr`."""
STATE_MARKER_NAME: Final = "state_marker"
"""Name of a checkpoint's marker in the checkpoint's cache entry and `repr`."""
CHECKPOINTS_NAME: Final = "checkpoints"
"""Name of a checkpoint's dependencies in the checkpoint's `repr`."""

_KEPT: Final = {STATE_NAME: dict, STATE_MARKER_NAME: object}
_checkpoints: "WeakSet[Checkpoint]" = WeakSet()
# All checkpoints share one lock: a checkpoint with its own lock could not be copied or pickled. The lock is reentrant,
# because the garbage collector can end an abandoned call of check_pulse at any time, even while the lock is held.
_pausing = RLock()
Callback: TypeAlias = Callable[["Checkpoint", Dependency], Any | Awaitable[Any]]


class Checkpoint:
    """Tracks the progress of a dependent stream and its dependencies, and reports when a dependency goes down or
    recovers.

    By default, a dependency goes down when its newest marker is behind the dependent stream's newest marker by more
    than the threshold. A dependency has recovered once its newest marker is ahead of the dependent stream's newest
    marker. Each change is reported once, through a callback. If the process dies during the callback, the next process
    with the same `cache` reports the change again. If a callback or a check fails, all progress is recorded before the
    error is raised. A change whose callback fails still takes effect: the dependent stream waits or continues
    accordingly.

    >>> async def emoji():
    ...     for emoji in '🏆📞🐟👌':
    ...         yield emoji
    >>> dependent, dependency = emoji(), emoji()

    The cache identifies the checkpoint and the dependency by their names, so do not change these names:

    >>> c = Checkpoint(
    ...     'dependent',
    ...     dependent=dependent,
    ...     dependencies=[Dependency('dependency', dependency)],
    ... )

    With `handle` and `stream`, the dependent stream is paused while a dependency is down:

    >>> from amadou_plugins.dependencies import handle
    >>> @handle(dependent)
    ... async def dependent_handler(msg):
    ...     await c.check_pulse(marker=msg.value['event_timestamp'])
    ...     yield msg.key, msg.value
    >>> @handle(dependency)
    ... async def dependency_handler(msg):
    ...     await c.heartbeat(msg.value['event_timestamp'])
    ...     yield msg.key, msg.value

    Until its first heartbeat, a dependency's marker is the first marker of the dependent stream:

    >>> from asyncio import run
    >>> from datetime import datetime
    >>> run(c.check_pulse(marker=datetime(2025, 1, 1, 10), offset=8))
    >>> c['dependency'].checkpoint_marker
    datetime.datetime(2025, 1, 1, 10, 0)

    A dependency goes down if it is behind the dependent stream by more than the threshold, by default ten minutes:

    >>> run(c.heartbeat(datetime(2025, 1, 1, 10, 30)))  # doctest: +ELLIPSIS
    {'is_late': False, ...}
    >>> run(c.check_pulse(marker=datetime(2025, 1, 1, 11), offset=9))
    datetime.timedelta(seconds=1800)

    The dependency has recovered once its marker is ahead of the dependent stream's marker:

    >>> run(c.heartbeat(datetime(2025, 1, 1, 10, 45)))  # doctest: +ELLIPSIS
    {'is_late': True, ...}
    >>> run(c.heartbeat(datetime(2025, 1, 1, 11, 1)))  # doctest: +ELLIPSIS
    {'is_late': False, ...}

    :param name: name of the checkpoint in the cache
    :param dependent: the dependent stream
    :param dependencies: iterable of the dependent stream's dependencies, at least one
    :param downtime_callback: function that is called each time a dependency goes down, with the checkpoint and the
        dependency; can be async
    :param recovery_callback: function that is called each time a dependency recovers, with the checkpoint and the
        dependency; can be async. The dependent stream continues when the callback has ended and no dependency is down
    :param cache: cache that stores the progress across restarts; without a cache, each process starts from scratch
    :param cache_key_prefix: prefix of the checkpoint's keys in the cache
    :param pause_dependent: `True` if the dependent stream waits while a dependency is down
    :raises DependencyError: there are no dependencies, a dependency is not a `Dependency`, or two dependencies have the
        same name; the cache is not a mutable mapping or cannot be read; or an entry under one of the checkpoint's keys
        was not stored by a `Checkpoint`

    :ivar state: latest value of each keyword argument passed to `check_pulse`, by name
    :ivar state_marker: newest marker of the dependent stream; `None` before the first `check_pulse`
    :ivar dependencies: the dependencies by name
    """

    def __init__(
        self,
        name: str,
        dependent: AsyncIterable[Any] | Any,
        dependencies: Iterable[Dependency],
        downtime_callback: Callback | None = None,
        recovery_callback: Callback | None = None,
        cache: Cache | None = None,
        cache_key_prefix: str = "_",
        pause_dependent: bool = True,
    ) -> None:
        self.name = name
        self.dependent = dependent
        given = list(dependencies) if isinstance(dependencies, Iterable) else [dependencies]
        for each in given:
            if not isinstance(each, Dependency):
                raise DependencyError(f"{name}: dependencies must be Dependency objects in a list, not {each!r:.100}")
        self.dependencies = {dependency.name: dependency for dependency in given}
        if not given or len(self.dependencies) < len(given):
            raise DependencyError(f"{name}: {'give each dependency its own name' if given else 'pass a dependency'}")
        if cache is not None and not hasattr(cache, "__setitem__"):
            raise DependencyError(f"{name}: cache must be a mutable mapping like SqliteCache(path), not {cache!r:.100}")
        self.pause_dependent = pause_dependent
        self.state: dict[str, Any] = {}
        self.state_marker: Any = None
        self._downtime_callback = downtime_callback
        self._recovery_callback = recovery_callback
        self._cache = cache
        self._key = f"{cache_key_prefix}/{quote(name, safe='')}"
        self._paused = False
        self._waiting: set[Future[None]] = set()
        if cache is not None:
            kept = cached(cache, self._key, _KEPT)
            if kept is not None:
                self.state, self.state_marker = kept[STATE_NAME], kept[STATE_MARKER_NAME]
            for dependency in given:
                dependency.load(cache, f"{self._key}/")
        self._note_pause()
        _checkpoints.add(self)

    @property
    def is_paused(self) -> bool:
        """`True` if the dependent stream has to wait: `pause_dependent` is set, and a dependency is down or its
        recovery callback is still running.
        """
        return self._paused

    async def resumed(self) -> None:
        """Wait until the dependent stream can continue. A heartbeat in another thread can end the wait."""
        with _pausing:
            if not self._paused:
                return
            waiting = get_running_loop().create_future()
            self._waiting.add(waiting)
        try:
            await waiting
        finally:
            self._waiting.discard(waiting)

    async def heartbeat(self, marker: Any, dependency_name: str | None = None, **kwargs: Any) -> dict[str, Any]:
        """Record the progress of a dependency. If the marker is older than an earlier heartbeat's marker, nothing is
        recorded.

        :param marker: typically the event time of the dependency's message; compared with the dependent stream's
            markers
        :param dependency_name: name of the dependency; required if there are several dependencies
        :param kwargs: entries for the dependency's `checkpoint_state`, in addition to a copy of the checkpoint's
            `state`. They replace entries of `state` with the same names
        :returns: dict with `is_late` (`True` if the dependency is down and still has to catch up), `dependent_marker`
            and `dependency_marker`
        :raises DependencyError: there is no dependency with that name, or an argument cannot be copied or stored in the
            cache. In both cases, nothing is recorded
        :raises ValueError: there are several dependencies, but no name was passed; or the marker is `None`
        :raises MarkerError: the marker cannot be compared with the other markers
        """
        dependency = self._named(dependency_name)
        _check_fits(marker, self.state_marker, [dependency])
        _check_fits(marker, dependency.checkpoint_marker, [dependency])
        if not (dependency.has_beaten and _is_older(marker, dependency.checkpoint_marker)):
            self._save(dependency, marker, kwargs, has_beaten=True)
        recovered = dependency.is_down and await answer(dependency.recovery_check(self, dependency))
        if recovered and dependency.is_down:
            await self._recovered(dependency)
        return {
            "is_late": dependency.is_down,
            "dependent_marker": self.state_marker,
            "dependency_marker": dependency.checkpoint_marker,
        }

    async def check_pulse(self, marker: Any, **kwargs: Any) -> Any | None:
        """Record the progress of the dependent stream, and check that its dependencies keep up.

        :param marker: typically the event time of the message to process next
        :param kwargs: values to store in `state`, such as the message's offset. Use these values to find and correct
            output that was sent while a dependency was down
        :returns: the maximum downtime of the dependencies that are down; `None` if no dependency is down. Compare the
            result with `None`, because the downtime is zero if a dependency has caught up with the dependent stream but
            is not yet ahead of it
        :raises DependencyError: an argument cannot be copied or stored in the cache (then nothing is recorded), or a
            threshold cannot be compared with the difference of two markers
        :raises ValueError: the marker is `None`
        :raises MarkerError: the marker cannot be compared with the other markers
        """
        _check_fits(marker, self.state_marker, self.dependencies.values())
        for dependency in self.dependencies.values():
            _check_fits(marker, dependency.checkpoint_marker, [dependency])
        if _is_older(marker, self.state_marker):
            marker = self.state_marker
        state = self._copied({**self.state, **kwargs})
        if self._cache is not None:
            entry = {STATE_NAME: state, STATE_MARKER_NAME: marker}
            keep(self._cache, self._key, entry, f"{self.name}: {', '.join(['marker', *kwargs])}")
        self.state_marker = marker
        self.state.update(kwargs)
        downtimes, failures = {}, []
        for name, dependency in self.dependencies.items():
            try:
                downtime = await self._downtime(dependency)
            except Exception as error:
                failures.append(error)
            else:
                if downtime is not None:
                    downtimes[name] = downtime
        if failures:
            raise failures[0]
        return _longest(downtimes)

    async def _downtime(self, dependency: Dependency) -> Any | None:
        """Return the dependency's downtime, or `None` if the dependency is up. Report the downtime if it is new."""
        if dependency.checkpoint_marker is None:
            self._save(dependency, self.state_marker, {}, has_beaten=False)
        downtime = await answer(dependency.downtime_check(self, dependency))
        if downtime and not dependency.is_down:
            await self._went_down(dependency)
        return (downtime or dependency.behind(self.state_marker)) if dependency.is_down else None

    async def _went_down(self, dependency: Dependency) -> None:
        """Record and report that a dependency went down. If the report is cancelled, the dependency counts as up again,
        and the next `check_pulse` reports the downtime.
        """
        dependency.is_down = True
        dependency.down_state = deepcopy(dependency.checkpoint_state)
        dependency.down_marker = dependency.checkpoint_marker
        self._note_pause()
        try:
            await self._call_back(self._downtime_callback, dependency)
        except BaseException as error:
            if not isinstance(error, Exception):
                dependency.is_down, dependency.down_state, dependency.down_marker = False, None, None
                self._note_pause()
            raise
        finally:
            if dependency.is_down:
                self._change(dependency, {}, "the new status (down)")

    async def _recovered(self, dependency: Dependency) -> None:
        """Report and record that a dependency has recovered. If the report is cancelled, the dependency stays down, and
        the next heartbeat reports the recovery again.
        """
        dependency.is_down = False
        try:
            await self._call_back(self._recovery_callback, dependency)
        except BaseException as error:
            dependency.is_down = dependency.is_down or not isinstance(error, Exception)
            raise
        finally:
            self._note_pause()
            if not dependency.is_down:
                dependency.down_state = dependency.down_marker = None
                self._change(dependency, {}, "the new status (up)")

    def _named(self, name: str | None) -> Dependency:
        if name is not None:
            return self[name]
        if len(self.dependencies) > 1:
            names = ", ".join(self.dependencies)
            raise ValueError(f"{self.name} has several dependencies: pass one of {names} as dependency_name")
        return next(iter(self.dependencies.values()))

    def _save(self, dependency: Dependency, marker: Any, state: dict[str, Any], has_beaten: bool) -> None:
        copied = self._copied({**self.state, **state})
        changes = {CHECKPOINT_STATE_NAME: copied, CHECKPOINT_MARKER_NAME: marker, "has_beaten": has_beaten}
        self._change(dependency, changes, ", ".join(["marker", *state]))

    def _change(self, dependency: Dependency, changes: dict[str, Any], what: str) -> None:
        change(dependency, changes, self._cache, f"{self._key}/", f"{dependency.name}: {what}")

    def _copied(self, state: dict[str, Any]) -> dict[str, Any]:
        copied = {}
        for name, value in state.items():
            try:
                copied[name] = deepcopy(value)
            except Exception as error:
                raise DependencyError(f"{self.name}: {name}={value!r:.100} cannot be copied: {error}") from error
        return copied

    def _note_pause(self) -> None:
        with _pausing:
            self._paused = self.pause_dependent and any(each.is_down for each in self.dependencies.values())
            waiting = [] if self._paused else list(self._waiting)
        for each in waiting:
            with suppress(RuntimeError):  # the event loop is closed, so nothing is waiting
                each.get_loop().call_soon_threadsafe(_wake, each)

    async def _call_back(self, callback: Callback | None, dependency: Dependency) -> None:
        if callback is not None:
            await answer(callback(self, dependency))

    def __getitem__(self, name: str) -> Dependency:
        if name not in self.dependencies:
            names = ", ".join(self.dependencies)
            raise DependencyError(f"{self.name} has no dependency {name!r}: use one of {names}")
        return self.dependencies[name]

    def __repr__(self) -> str:
        checkpoints = {name: dict(dependency) for name, dependency in self.dependencies.items()}
        shown = {STATE_NAME: self.state, STATE_MARKER_NAME: self.state_marker, CHECKPOINTS_NAME: checkpoints}
        return repr(shown)


def checkpoints_of(dependent: Any) -> list[Checkpoint]:
    """Return the checkpoints of a dependent stream."""
    return [checkpoint for checkpoint in _checkpoints if checkpoint.dependent is dependent]


async def answer(given: Any) -> Any:
    """Return a function's result; if the function is async, await the result first."""
    return await given if inspect.isawaitable(given) else given


def _wake(waiting: Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _check_fits(marker: Any, other: Any, dependencies: Iterable[Dependency]) -> None:
    """Check that two markers can be compared, before anything is recorded.

    :param dependencies: dependencies whose checks may compare the markers
    :raises ValueError: the marker is `None`
    :raises MarkerError: the markers cannot be compared
    """
    if marker is None:
        raise ValueError("a marker must not be None: pass the event time of the message")
    comparing = [dependency.name for dependency in dependencies if dependency.compares]
    if other is not None and comparing:
        try:
            bool(marker < other)
        except TypeError as error:
            raise MarkerError(comparing[0], marker, other) from error


def _is_older(marker: Any, newest: Any) -> bool:
    """Return `True` if a marker is behind the newest marker; `False` if the markers cannot be compared."""
    try:
        return newest is not None and bool(marker < newest)
    except TypeError:
        return False


def _longest(downtimes: dict[str, Any]) -> Any | None:
    try:
        return max(downtimes.values(), default=None)
    except TypeError:  # the user's checks return values that cannot be compared
        return downtimes[min(downtimes)]
