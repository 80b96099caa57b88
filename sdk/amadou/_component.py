"""What acts inside a handler by itself: windows, joins and what else is made of state and times."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from itertools import compress
from typing import Any, ClassVar, TypeAlias

import attrs

from amadou._event import Key, KeyedEvent, keyed_events
from amadou._group import Column
from amadou._spec import MISSING
from amadou._state_spec import NEVER, StateSpec
from amadou._subject import Batch, Subject
from amadou._wire import pack, unpack
from amadou.event_time import LAST_TIME, MICROSECOND, from_micros

Call: TypeAlias = Callable[..., None]
"""``call(subject, function, *arguments)`` runs a function of the user's as ``function(subject, *arguments)``."""

_known: ContextVar[dict[str, "Component"] | None] = ContextVar("known", default=None)


@attrs.frozen
class Events:
    """Events of many subjects and of one source, as columns.

    :param micros: their timestamps in microseconds since 1970
    """

    keys: list[Key]
    values: list[Any]
    micros: list[int]

    def __len__(self) -> int:
        return len(self.keys)

    def each(self) -> Iterator[KeyedEvent[Any]]:
        """The events one by one."""
        return keyed_events(self.keys, map(from_micros, self.micros), self.values)

    def where(self, chosen: Iterable[Any]) -> "Events":
        """The events for which something is true."""
        chosen = list(chosen)
        return Events(*(list(compress(column, chosen)) for column in (self.keys, self.values, self.micros)))

    def by(self, labels: list[Any]) -> dict[Any, "Events"]:
        """The events by what they are labelled with."""
        if len(set(labels)) == 1:
            return {labels[0]: self}
        found: dict[Any, Events] = {}
        for label, *event in zip(labels, self.keys, self.values, self.micros, strict=True):
            part = found.get(label)
            if part is None:
                part = found[label] = Events([], [], [])
            part.keys.append(event[0])
            part.values.append(event[1])
            part.micros.append(event[2])
        return found

    def between(self, start: int, end: int) -> "Events":
        """The events of some positions."""
        if (start, end) == (0, len(self)):
            return self
        return Events(self.keys[start:end], self.values[start:end], self.micros[start:end])


class Part:
    """What a component keeps of a subject: a value, and when the component wants to be woken for it."""

    __slots__ = ("_changed", "_key", "_spec", "_subject", "_written", "value", "wake_at")

    def __init__(self, spec: "Component", key: Key, wire: Any) -> None:
        self._spec = spec
        self._key = key
        self._subject: Subject | None = None
        self._changed = False
        self._written = NEVER
        if wire is not MISSING and spec.ttl is not None:
            self._written, wire = wire
        self.value: Any = None if wire is MISSING else wire
        """What was stored last, `None` for nothing: what plain msgpack carries. Changing it in place stores nothing."""
        self.wake_at: int | None = None
        """When the component is woken, in microseconds since 1970."""

    @property
    def noted(self) -> Any:
        """What the component notes for the batch's events, or for the time in hand while what is due is woken; `None`
        before. It is not kept.
        """
        at, value = self._column.noted.get(self._key, (None, None))
        return value if at == self._batch.firing_micros else None

    @noted.setter
    def noted(self, value: Any) -> None:
        self._column.noted[self._key] = self._batch.firing_micros, value

    @property
    def _column(self) -> Column:
        assert self._subject is not None
        return self._subject._columns[self._spec.name]

    @property
    def _batch(self) -> Batch:
        assert self._subject is not None
        return self._subject._batch

    def store(self, value: Any, wake_at: int | None, *, renews: bool = True) -> None:
        """Keep a value. Nothing stays of a subject without one.

        :param value: what plain msgpack carries, `None` for nothing
        :param wake_at: when to wake the component, in microseconds since 1970; after `Component.reached`, or in `woken`
            after the time for which it was woken
        :param renews: whether it counts as written now, for a `ttl`: not what is left after a wake
        """
        self.value = value
        self.wake_at = None if value is None else wake_at
        if self.ages and renews:
            assert self._subject is not None
            self._written = max(self._written, self._spec._written_at(self._subject))
        self._changed = True
        if self._batch.firing_micros is not None:
            self._batch.stored.add(self._spec.name)

    @property
    def ages(self) -> bool:
        """Whether the value is gone some time after it was written."""
        return self._spec.ttl is not None

    def is_gone(self, now: int) -> bool:
        """Whether its time to live is over.

        :param now: in microseconds since 1970
        """
        life = self._spec.ttl
        return life is not None and self.value is not None and self._written + life // MICROSECOND <= now

    def _oldest(self) -> int:
        return self._written

    def _stored(self) -> Any:
        if self.value is None:
            return MISSING
        return [self._written, self.value] if self.ages else self.value

    def _shown(self) -> Any:
        return self._spec.shown_value(self._key, self.value)


class Whole:
    """What a component keeps of all subjects of a key group, as one value, and when it wants to be woken for the first
    of them.
    """

    __slots__ = ("keys", "layout", "noted", "value", "wake_at")

    def __init__(
        self, value: Any = None, wake_at: int | None = None, keys: Collection[Key] = (), layout: Any = None
    ) -> None:
        self.value = value
        """What plain msgpack carries, `None` for nothing."""
        self.wake_at = wake_at
        """In microseconds since 1970."""
        self.keys = keys
        """The subjects that it is about."""
        self.layout = layout
        """The component's `layout` when it was stored."""
        self.noted: Any = None
        """What the component notes for the rest of the batch; it is not kept."""

    def store(self, value: Any, wake_at: int | None, keys: Collection[Key]) -> None:
        """Keep a value.

        :param value: what plain msgpack carries, `None` for nothing
        :param wake_at: when to wake the component, after the watermark
        :param keys: the subjects that it is about, each of which has one time to wake
        """
        self.value, self.wake_at, self.keys = value, wake_at, keys


class Component(StateSpec[Part]):
    """The base of what acts inside a handler by itself: it has a value for each subject, and is woken at times.

    Declared on the handler's class like other specs, or made at run time with a `name=`; the handler's callbacks call
    its methods. It wakes before the handler's own timers of the same time, and times that have passed come in their
    order, those that are asked for meanwhile among them. At the same time the components of a subject wake in the order
    in which the handler declares them, then those that were made at run time by their names.

    :param name: the name that its state is stored under; the attribute's name without it
    :param ttl: after how long without being written, in event time, a subject's value is gone (`semantics.md` 16); it
        is woken for it before, where it is to be
    :param version: the version of what it stores; above zero with `migrate`
    :param migrate: what `_migrated` makes of what an older version stored goes by it (`semantics.md` 17, 28)
    """

    noun: ClassVar[str] = "component"
    """What messages call it."""
    wakes = True
    needs_sources: tuple[str, ...] = ()
    """The sources of the job that it cannot do without."""
    diverts = False
    """Whether it gives late events to `Subject.divert`."""
    drops_late = False
    """Whether it gives late events to `Subject.drop`."""
    in_memory = False
    """Whether only the run that stored its state reads it. The next run begins without, and counts the keys that lost
    something as ``<name>.lost``."""

    def __init__(
        self,
        *,
        name: str | None = None,
        ttl: timedelta | None = None,
        version: int = 0,
        migrate: Callable[[Any, int], Any] | None = None,
    ) -> None:
        self._set_life(name, ttl, version, migrate)
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

    @property
    def layout(self) -> Any:
        """What the form of a `Whole` depends on besides the component's class, in terms of msgpack. One that was stored
        with another layout is spread before it is used.
        """
        return None

    @property
    def at_once(self) -> bool:
        """Whether it can take in the events of a whole key group at once, as the `gives_all_to` of a handler that has
        no other state and no timers: it has `gathered`, `spread`, `add_all` and `woken_all`.
        """
        return False

    def gathered(self, values: Mapping[Key, Any], wake_at: int | None) -> Whole | None:
        """What is kept of subjects as a whole, the opposite of `spread`.

        :param wake_at: when the component is to be woken for the first of them
        :returns: `None` where it cannot be a whole
        """
        raise NotImplementedError

    def spread(self, value: Any, wake_at: int, layout: Any) -> Iterator[tuple[Key, Any, int]]:
        """The value of each subject in a `Whole`, and when the component is to be woken for it.

        :param layout: the one that it was stored with
        """
        raise NotImplementedError

    def add_all(self, subject: Subject, whole: Whole, events: Events) -> None:
        """Take in events of many subjects, to the same effect as one after the other in their order.

        :param subject: its key and timestamp are to be set before a function of the user's sees it
        """
        raise NotImplementedError

    def woken_all(self, subject: Subject, whole: Whole, watermark: int) -> int:
        """Do what `woken` does for every subject and time up to a watermark, in the order of times and keys.

        :param watermark: in microseconds
        :returns: how many calls of `woken` it stands for
        """
        raise NotImplementedError

    def reached(self, subject: Subject) -> int | None:
        """The time up to which all has come that the component takes in, in microseconds; `None` before the first
        watermark. It is the watermark for the batch's events. What is due comes before them, in the order of its times:
        then it is the time in hand, or just before it while the component may still be woken at that time. What a
        component gives itself at a flush, by way of others or not, comes too late: else it would go on to the end of
        time. What a replayed timer gives comes after all that was due, as events do.
        """
        batch = subject._batch
        if batch.firing_micros is None or batch.is_replay:
            return batch.watermark_micros
        if batch.watermark == LAST_TIME and batch.woken and self._has_fed(batch.woken[-1], subject):
            return batch.watermark_micros
        is_over = batch.woken is None or self.name in batch.woken
        return batch.firing_micros - (not is_over)

    def _has_fed(self, giver: str, subject: Subject) -> bool:
        """Whether the component in hand has something of this one, by way of others or not. If it has not, note that it
        feeds this one.
        """
        fed_by = subject._batch.fed_by.setdefault(subject.key, {})
        givers = fed_by.get(giver, frozenset()) | {giver}
        if self.name in givers:
            return True
        fed_by[self.name] = fed_by.get(self.name, frozenset()) | givers
        return False

    def woken_before(self, subject: Subject) -> str | None:
        """The name of the component in hand, where this one was woken before it at the same time."""
        woken = subject._batch.woken or []
        return woken[-1] if self.name in woken[:-1] and woken[-1] != self.name else None

    def shown_value(self, key: Key, value: Any) -> Any:
        """A subject's value for people, such as in the messages of failing tests."""
        return value

    def state_for(self, subject: Subject) -> Part:
        column = subject._columns.get(self._name)  # type: ignore[arg-type]
        if column is None or column.component is not self:
            column = self._take(subject)
            subject._batch.components[self.name] = self
        part: Part | None = column.states.get(subject.key)
        if part is not None:
            firing = subject._batch.firing_micros
            if firing is not None:
                self.age(part, firing - 1)
            return part
        part = super().state_for(subject)
        part._subject = subject
        if part.value is not None:
            part.wake_at = subject._columns[self.name].wakes.get(subject.key)
        return part

    def age(self, state: Part, now: int) -> None:
        if state.is_gone(now):
            state.store(None, None)

    def check(self) -> None:
        self._check_life()

    def shown_type(self) -> str:
        return repr(self) if type(self).__repr__ is not object.__repr__ else ""

    def structure(self) -> dict[str, Any]:
        """What is stored under it: its ``kind``, ``noun`` and ``version``, its ``settings``, texts by name of which
        none may change, and its ``aggregate``, where it has one.
        """
        return {**super().structure(), "noun": self.noun, "settings": {}}

    def _encode_part(self, value: Any) -> Any:
        return unpack(pack(value))

    def _shown_part(self) -> Any:
        return type(self)

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
