"""The common base class of windows and joins. The class calls the handler's methods and handles late events."""

from collections.abc import Callable, Mapping
from copy import copy
from datetime import timedelta
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, unwrap
from types import MethodType
from typing import Any, Literal, TypeAlias, TypeVar

from typing_extensions import Self

from amadou import KeyedEvent, Subject
from amadou.components import Component, check_ran
from amadou.errors import SpecError
from amadou.event_time import MICROSECOND

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H")
X = TypeVar("X")
OnLate: TypeAlias = Callable[[Subject, KeyedEvent[Any]], Any]
"""A function that receives late events."""
LateMethod: TypeAlias = Callable[[H, Subject, KeyedEvent[Any]], X]
"""A handler method that receives late events."""


class CallingComponent(Component):
    """A component that passes its results to user functions: marked methods of the handler, or functions passed to the
    constructor.

    :param functions: functions passed to the constructor, by callback name, such as ``on_late``; `None` for a callback
        without a function
    :param allowed_lateness: maximum lag of an accepted event behind the watermark, in event time
    :param late: `"drop"` to drop late events; `"divert"` to send them to the `late_events` sink. In both cases, the
        `on_late` function, if there is one, receives the late events
    :raises SpecError: a setting is invalid
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any] | None],
        *,
        allowed_lateness: timedelta,
        late: Literal["drop", "divert"],
        ttl: timedelta | None,
        name: str | None,
        version: int = 0,
        migrate: Callable[[Any, int], Any] | None = None,
    ) -> None:
        if late not in ("drop", "divert"):
            raise SpecError(f'late must be "drop" or "divert", not {late!r}')
        if name is not None and (not isinstance(name, str) or not name):
            raise SpecError(f"name must be a non-empty string, not {name!r}")
        for which, function in functions.items():
            if function is not None:
                _check_callable(which, function)
        self.diverts = late == "divert"
        self._lateness = micros_of("allowed_lateness", allowed_lateness, least=0)
        self._given: dict[str, Any] = dict(functions)
        if self._closes_after is not None and isinstance(ttl, timedelta):
            least = (self._closes_after + self._lateness) * MICROSECOND
            if ttl < least:
                raise SpecError(
                    f"ttl must be at least {least}, not {ttl}: otherwise the {self.noun} expires before it can emit "
                    f"its results. Remove ttl, also if the job resumes from a checkpoint: a {self.noun} of this kind "
                    "removes its state itself"
                )
            ttl = None  # the state is removed before
        super().__init__(name=name, ttl=ttl, version=version, migrate=migrate)

    @property
    def _closes_after(self) -> int | None:
        """The time for which an event can be part of a result that has not been emitted yet, without
        `allowed_lateness`, in microseconds; `None` if the watermark does not limit it.
        """
        return None

    def mark(self, which: str, function: F) -> F:
        """Set the function for a callback: a method of the handler's class or any other function."""
        _check_callable(which, function)
        if self._given[which] is not None:
            raise SpecError(f"{self.given_name or type(self).__name__} has two functions for {which}: remove one")
        self._given[which] = _Marked(function)
        return function

    def function(self, which: str, handler: Any) -> Any:
        """Return the function for a callback; `None` if there is none. A method of the handler's class is bound to the
        handler.
        """
        function = self._given[which]
        return function.of(handler) if type(function) is _Marked else function

    def copied(self) -> Self:
        """Return a copy whose functions can be set independently."""
        made = copy(self)
        made._given = dict(self._given)
        return made

    @property
    def drops_late(self) -> bool:  # type: ignore[override]
        return not self.diverts and self._given["on_late"] is None

    def too_late(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        """Handle a late event. The event is always counted as ``<name>.late``."""
        subject.count(f"{self.name}.late")
        if self.drops_late:
            subject.drop(event, self.name)
        if self.diverts:
            subject.divert(event, self.name)
        function = self.function("on_late", subject.handler)
        if function is not None:
            check_ran("on_late", function(subject, event))

    def on_late(self, function: LateMethod[H, X]) -> LateMethod[H, X]:
        """Mark the handler method that receives late events: ``(self, subject, event)``. Late events are counted as
        ``<name>.late``, with or without such a method.
        """
        return self.mark("on_late", function)

    def structure(self) -> dict[str, Any]:
        return {**super().structure(), "settings": self._settings()}

    def _fixed(self) -> dict[str, Any]:
        """Return the subclass's settings by name; the value of an unset setting is `None`."""
        return {}

    def _settings(self) -> dict[str, str]:
        """Return the settings that affect results or their times, as strings."""
        given = {**self._fixed(), "allowed_lateness": self._lateness * MICROSECOND if self._lateness else None}.items()
        return {name: repr(each) if type(each) is str else str(each) for name, each in given if each is not None}

    def require(self, which: str) -> None:
        """Check that a callback has a function.

        :raises SpecError: the callback has no function
        """
        if self._given[which] is None:
            name = self.given_name or self.noun
            raise SpecError(
                f"no function receives the {self.noun}'s results: mark a method with @{name}.{which}, or pass {which}="
            )


class _Marked:
    """A marked function. A method of the handler's class is looked up by name so that subclasses can override it."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._found: tuple[type | None, Any] = (None, None)  # the class of the last lookup, and the lookup's result

    def of(self, handler: Any) -> Any:
        kind = type(handler)
        if self._found[0] is not kind:
            self._found = (kind, _method(kind, self._function))
        found = self._found[1]
        if isinstance(found, str):
            return getattr(handler, found)
        return self._function if found is None else found.__get__(handler)


def _method(kind: type, function: Any) -> Any:
    """Return the name of the class attribute that contains a marked method or a decorated form of the method. If the
    class defines the method but has replaced the attribute, return the function itself. If the function is not a method
    of the class, return `None`.
    """
    if isinstance(function, MethodType):
        return None
    for owner in kind.__mro__:
        for name, value in vars(owner).items():
            if value is function:
                return name
    defined_in, _, name = _qualified(function)
    for owner in kind.__mro__:
        if (owner.__module__, owner.__qualname__) == (getattr(function, "__module__", None), defined_in):
            # A decorator or another method with the same name may have replaced the function.
            value = vars(owner).get(name)
            is_other = value is None or (_qualified(value) == _qualified(function) and unwrap(value) is not function)
            return function if is_other else name
    return None


def _qualified(function: Any) -> tuple[str, str, str]:
    return str(getattr(function, "__qualname__", "")).rpartition(".")


def _check_callable(which: str, function: Any) -> None:
    if not callable(function) and not isinstance(function, classmethod):
        raise SpecError(f"{which} must be a function, not {function!r}")
    called = unwrap(getattr(function, "__func__", function))
    if isgeneratorfunction(called) or iscoroutinefunction(called) or isasyncgenfunction(called):
        what = "has a yield" if isgeneratorfunction(called) else "is async"
        name = getattr(called, "__qualname__", repr(called))
        raise SpecError(f"{name} {what}, so calling it does nothing: {which} must be a plain function")


def direct(subject: Subject, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function from within a handler callback; see `Invoke`. If the function fails, the callback fails."""
    check_ran(getattr(function, "__name__", type(function).__name__), function(subject, *arguments))


def micros_of(name: str, length: Any, *, least: int) -> int:
    """Return a duration in microseconds.

    :param least: minimum duration in microseconds, 0 or 1
    :raises SpecError: the value is not a `timedelta`, or is shorter than the minimum
    """
    if not isinstance(length, timedelta) or length // MICROSECOND < least:
        raise SpecError(f"{name} must be a timedelta {'above zero' if least else 'of zero or more'}, not {length!r}")
    return length // MICROSECOND


def latest(time: int | None, other: int) -> int:
    """Return the later of two times; the first can be `None`."""
    return other if time is None else max(time, other)


def earliest(time: int | None, other: int) -> int:
    """Return the earlier of two times; the first can be `None`."""
    return other if time is None else min(time, other)
