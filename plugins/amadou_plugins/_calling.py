"""The common base of windows and joins: the handler's methods that they call, and the treatment of late events."""

from collections.abc import Callable, Mapping
from copy import copy
from datetime import timedelta
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction, unwrap
from types import MethodType
from typing import Any, Literal, Self, TypeAlias, TypeVar

from amadou import Component, KeyedEvent, Subject, check_ran
from amadou.errors import SpecError
from amadou.event_time import MICROSECOND

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H")
X = TypeVar("X")
OnLate: TypeAlias = Callable[[Subject, KeyedEvent[Any]], Any]
"""A function for late events."""
LateMethod: TypeAlias = Callable[[H, Subject, KeyedEvent[Any]], X]
"""The same as a method of the handler."""


class CallingComponent(Component):
    """A component that gives its results to the user's functions: marked methods of the handler, or functions passed
    at construction.

    :param functions: passed functions by purpose, `None` where there is none
    :param allowed_lateness: event time for which events behind the watermark are still taken
    :param late: treatment of late events, besides `on_late`
    :raises SpecError: a setting makes no sense
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
            raise SpecError(f"name must be a text, not {name!r}")
        for which, function in functions.items():
            if function is not None:
                _check_callable(which, function)
        self.diverts = late == "divert"
        self._lateness = micros_of("allowed_lateness", allowed_lateness, least=0)
        self._given: dict[str, Any] = dict(functions)
        super().__init__(name=name, ttl=ttl, version=version, migrate=migrate)

    def mark(self, which: str, function: F) -> F:
        """Use a method of the handler's class, or any other function as it is, for a purpose."""
        _check_callable(which, function)
        if self._given[which] is not None:
            raise SpecError(f"{self.given_name or type(self).__name__} has two functions for {which}")
        self._given[which] = _Marked(function)
        return function

    def function(self, which: str, handler: Any) -> Any:
        """Return the function for a purpose, ready to be called; `None` where there is none."""
        function = self._given[which]
        return function.of(handler) if type(function) is _Marked else function

    def copied(self) -> Self:
        """Return a copy with functions of its own."""
        made = copy(self)
        made._given = dict(self._given)
        return made

    @property
    def drops_late(self) -> bool:  # type: ignore[override]
        return not self.diverts and self._given["on_late"] is None

    def too_late(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        """Deal with a late event: it is always counted as ``<name>.late``."""
        subject.count(f"{self.name}.late")
        if self.drops_late:
            subject.drop(event)
        if self.diverts:
            subject.divert(event, self.name)
        function = self.function("on_late", subject.handler)
        if function is not None:
            check_ran("on_late", function(subject, event))

    def require(self, which: str) -> None:
        """Check that there is a function for a purpose.

        :raises SpecError: there is none
        """
        if self._given[which] is None:
            raise SpecError(
                f"nothing takes its results: mark a method with @{self.given_name or 'it'}.{which}, or give {which}="
            )


class _Marked:
    """A marked function. A method of the handler's class is found by its name, so that subclasses can override it."""

    def __init__(self, function: Any) -> None:
        self._function = function
        self._found: tuple[type | None, Any] = (None, None)  # the class of the last lookup, and its result

    def of(self, handler: Any) -> Any:
        kind = type(handler)
        if self._found[0] is not kind:
            self._found = (kind, _method(kind, self._function))
        found = self._found[1]
        if isinstance(found, str):
            return getattr(handler, found)
        return self._function if found is None else found.__get__(handler)


def _method(kind: type, function: Any) -> Any:
    """Return the name of a function's method in a class; the function if no name leads to it, `None` if it is not a
    method.
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
            # A decorator or another method of the same name may have replaced it.
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
        raise SpecError(f"{name} {what}, so that calling it does nothing: {which} takes a plain function")


def direct(subject: Subject, function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function inside a callback of the handler, which fails if the function fails; an `Invoke`."""
    check_ran(getattr(function, "__name__", type(function).__name__), function(subject, *arguments))


def micros_of(name: str, length: Any, *, least: int) -> int:
    """Return a length of time in microseconds.

    :raises SpecError: the value is not a length of time, or is too short
    """
    if not isinstance(length, timedelta) or length // MICROSECOND < least:
        raise SpecError(f"{name} must be a timedelta, {'above' if least else 'not below'} zero, not {length!r}")
    return length // MICROSECOND


def latest(time: int | None, other: int) -> int:
    """Return the later of two times, the first of which may be missing."""
    return other if time is None else max(time, other)


def earliest(time: int | None, other: int) -> int:
    """Return the earlier of two times, the first of which may be missing."""
    return other if time is None else min(time, other)
