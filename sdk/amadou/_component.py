"""What acts inside a handler by itself: windows, joins and what else is made of state and times."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from itertools import compress
from operator import not_
from typing import Any, TypeAlias

import attrs

from amadou._event import Key, KeyedEvent, keyed_events
from amadou._group import Column
from amadou._spec import MISSING
from amadou._state_spec import StateSpec, written_at
from amadou._subject import Subject

Call: TypeAlias = Callable[..., None]
"""``call(subject, function, *arguments)`` runs a function of the user's as ``function(subject, *arguments)``."""

_known: ContextVar[dict[str, "Component"] | None] = ContextVar("known", default=None)


@attrs.frozen
class Events:
    """Events of many subjects, as columns.

    :param micros: the timestamps in microseconds since 1970
    """

    keys: list[Key]
    timestamps: list[datetime]
    values: list[Any]
    micros: list[int]

    def __len__(self) -> int:
        return len(self.keys)

    def each(self) -> Iterator[KeyedEvent[Any]]:
        """The events one by one."""
        return keyed_events(self.keys, self.timestamps, self.values)

    def split(self, micros: int) -> tuple["Events", "Events"]:
        """The events before a time, and those at it or after."""
        before = [time < micros for time in self.micros]
        columns = (self.keys, self.timestamps, self.values, self.micros)
        return (
            Events(*(list(compress(column, before)) for column in columns)),
            Events(*(list(compress(column, map(not_, before))) for column in columns)),
        )


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


class Values:
    """What a component keeps of the subjects of a key group: the same as `Part`, for work on many subjects at once."""

    __slots__ = ("_replaced", "_states", "_wakes", "_wires")

    def __init__(self, column: Column) -> None:
        self._replaced = column.replaced
        self._states = column.states
        self._wakes = column.wakes
        self._wires = column.wires

    def get(self, key: Key) -> Any:
        """A subject's value, `None` for nothing."""
        if self._states and key in self._states:
            return self._states[key].value
        return self._wires.get(key)

    def wake_at(self, key: Key) -> int | None:
        """When the component is woken for a subject."""
        if self._states and key in self._states:
            wake_at: int | None = self._states[key].wake_at
            return wake_at
        return self._wakes.get(key)

    def store(self, key: Key, value: Any, wake_at: int | None) -> None:
        """Keep a value; see `Part.store`. It is packed at the end of the batch."""
        if self._states:
            self._states.pop(key, None)
        if value is None:
            self._wires.pop(key, None)
        else:
            self._wires[key] = value
        self._replaced[key] = None
        if value is None or wake_at is None:
            self._wakes.pop(key, None)
        else:
            self._wakes[key] = wake_at


class Component(StateSpec[Part]):
    """The base of what acts inside a handler by itself: it has a value for each subject, and is woken at times.

    Declared on the handler's class like other specs, or made at run time with a `name=`; the handler's callbacks call
    its methods. It wakes before the handler's own timers of the same time, and times that have passed come in their
    order, those that it asks for while it is woken among them.

    :param name: the name that its state is stored under; the attribute's name without it
    :param ttl: after how long without being written, in event time, a subject's value is gone (`semantics.md` 16)
    """

    wakes = True
    needs_sources: tuple[str, ...] = ()
    """The sources of the job that it cannot do without."""
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

    def woken_all(self, subject: Subject, timestamp: datetime, keys: list[Key], call: Call) -> None:
        """Called for many subjects for which the same time has come, of a component that is a handler's `gives_all_to`;
        does what `woken` does for each, in their order.
        """
        for key in keys:
            subject.key, subject.timestamp = key, timestamp
            self.woken(subject, timestamp, call)

    def values_of(self, subject: Subject) -> Values:
        """What is kept of the subjects of the subject's key group; for components without a `ttl`."""
        return Values(subject._columns.get(self.name) or subject._column(self.name))

    def add_all(self, subject: Subject, events: Events) -> None:
        """Take in events of many subjects at once, to the same effect as one after the other in their order. For
        components that are a handler's `gives_all_to`.

        :param subject: with the events' source; its key and timestamp are to be set before a function of the user's or
            `state_for` sees it
        :param events: of one source
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


@contextmanager
def known_components(known: dict[str, Component]) -> Iterator[None]:
    """Note the components that are made in the meantime, by name."""
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)
