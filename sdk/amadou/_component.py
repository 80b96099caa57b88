"""What acts inside a handler by itself: windows, joins and what else is made of state and times."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, TypeAlias

from amadou._event import Key
from amadou._spec import MISSING
from amadou._state_spec import StateSpec, written_at
from amadou._subject import Subject

Call: TypeAlias = Callable[..., None]
"""``call(subject, function, *arguments)`` runs a function of the user's as ``function(subject, *arguments)``."""

_known: ContextVar[dict[str, "Component"] | None] = ContextVar("known", default=None)


class Part:
    """What a component keeps of a subject: a value, and when the component wants to be woken for it."""

    __slots__ = ("_changed", "_key", "_spec", "_subject", "_written", "value", "wake_at")

    def __init__(self, spec: "Component", key: Key, wire: Any) -> None:
        self._spec = spec
        self._key = key
        self._subject: Subject | None = None
        self._changed = False
        self._written = 0
        if wire is not MISSING and spec.ttl is not None:
            self._written, wire = wire
        self.value: Any = None if wire is MISSING else wire
        """What was stored last, `None` for nothing: what plain msgpack carries. Changing it in place stores nothing."""
        self.wake_at: int | None = None
        """When the component is woken, in microseconds since 1970."""

    def store(self, value: Any, wake_at: int | None) -> None:
        """Keep a value. Nothing stays of a subject without one.

        :param value: what plain msgpack carries, `None` for nothing
        :param wake_at: when to wake the component, in microseconds since 1970; after the watermark, or in `woken` after
            the time for which it was woken
        """
        self.value = value
        self.wake_at = None if value is None else wake_at
        if self.ages:
            assert self._subject is not None
            self._written = written_at(self._subject)
        self._changed = True

    @property
    def ages(self) -> bool:
        """Whether the value is gone some time after it was written."""
        return self._spec.ttl is not None

    def _oldest(self) -> int:
        return self._written

    def _stored(self) -> Any:
        if self.value is None:
            return MISSING
        return [self._written, self.value] if self.ages else self.value

    def _shown(self) -> Any:
        return self._spec.shown_value(self._key, self.value)


class Component(StateSpec[Part]):
    """The base of what acts inside a handler by itself: it has a value for each subject, and is woken at times.

    Declared on the handler's class like other specs, or made at run time with a `name=`; the handler's callbacks call
    its methods. It wakes before the handler's own timers of the same time, and times that have passed come in their
    order, those that it asks for while it is woken among them.

    :param name: the name that its state is stored under; the attribute's name without it
    :param ttl: after how long without being written, in event time, a subject's value is gone (`semantics.md` 16)
    """

    wakes = True
    diverts = False
    """Whether it gives late events to `Subject.divert`."""

    def __init__(self, *, name: str | None = None, ttl: timedelta | None = None) -> None:
        self._set_life(name, ttl, 0, None)
        known = _known.get()
        if known is not None and name is not None:
            known[name] = self

    def woken(self, subject: Subject, timestamp: datetime, call: Call) -> None:
        """Called when a time has come that was asked for. Stores when the next one is, if there is one.

        :param timestamp: the time; the subject's watermark may be far past it
        :param call: runs a function of the user's. Where that fails, in a job that goes on, what it did is undone, and
            nothing else: state that is at hand must be looked up again after it
        """
        raise NotImplementedError

    def shown_value(self, key: Key, value: Any) -> Any:
        """A subject's value for people, such as in the messages of failing tests."""
        return value

    def state_for(self, subject: Subject) -> Part:
        column = subject._columns.get(self._name)  # type: ignore[arg-type]
        if column is None:
            subject._batch.components[self.name] = self
        else:
            part: Part | None = column.states.get(subject.key)
            if part is not None:
                return part
        part = super().state_for(subject)
        part._subject = subject
        if part.value is not None:
            part.wake_at = subject._columns[self.name].wakes.get(subject.key)
        return part

    def check(self) -> None:
        self._check_life()

    def _state(self, key: Key, wire: Any) -> Part:
        return Part(self, key, wire)

    def _aging_state(self, key: Key, wire: Any, subject: Subject | None) -> Part:
        return Part(self, key, wire)

    def _each_part(self, wire: Any, convert: Callable[[Any], Any]) -> Any:
        return convert(wire)

    def _parts_after(self, wire: Any, begin: int) -> Any:
        return wire if wire[0] > begin else MISSING


@contextmanager
def known_components(known: dict[str, Component]) -> Iterator[None]:
    """Note the components that are made in the meantime, by name."""
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)
