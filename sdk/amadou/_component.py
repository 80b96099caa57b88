"""What acts inside a handler by itself: windows, joins and what else is made of state and times."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, TypeAlias

from amadou._component_state import ComponentState, KeyGroupState
from amadou._encoding import pack, unpack
from amadou._event import Key
from amadou._event_columns import EventColumns
from amadou._state_spec import StateSpec
from amadou._subject import Subject
from amadou.event_time import LAST_TIME

Invoke: TypeAlias = Callable[..., None]
"""``call(subject, function, *arguments)`` runs a function of the user's as ``function(subject, *arguments)``."""

_known: ContextVar[dict[str, "Component"] | None] = ContextVar("known", default=None)


class Component(StateSpec[ComponentState]):
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
    has_timers = True
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
        self._set_ttl(name, ttl, version, migrate)
        known = _known.get()
        if known is not None and name is not None:
            known[name] = self

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        """Called when a time has come that was asked for. Stores when the next one is, if there is one.

        :param timestamp: the time; the subject's watermark may be far past it
        :param call: runs a function of the user's. Where that fails, in a job that goes on, what it did is undone, and
            nothing else: state that is at hand must be looked up again after it
        """
        raise NotImplementedError

    @property
    def layout(self) -> Any:
        """What the form of a `KeyGroupState` depends on besides the component's class, in terms of msgpack. State of
        another layout is converted by `from_columns` before it is used.
        """
        return None

    @property
    def is_vectorized(self) -> bool:
        """Whether it can take in the events of a whole key group at once, as the `delegates_to` of a handler that has
        no other state and no timers: it has `to_columns`, `from_columns`, `add_columns` and `on_timers`.
        """
        return False

    def to_columns(self, values: Mapping[Key, Any], next_timer: int | None) -> KeyGroupState | None:
        """What is kept of subjects as a whole, the opposite of `from_columns`.

        :param next_timer: when the component is to be woken for the first of them
        :returns: `None` where it cannot be a whole
        """
        raise NotImplementedError

    def from_columns(self, value: Any, next_timer: int, layout: Any) -> Iterator[tuple[Key, Any, int]]:
        """The value of each subject in a `KeyGroupState`, and when the component is to be woken for it.

        :param layout: the one that it was stored with
        """
        raise NotImplementedError

    def add_columns(self, subject: Subject, whole: KeyGroupState, events: EventColumns) -> None:
        """Take in events of many subjects, to the same effect as one after the other in their order.

        :param subject: its key and timestamp are to be set before a function of the user's sees it
        """
        raise NotImplementedError

    def on_timers(self, subject: Subject, whole: KeyGroupState, watermark: int) -> int:
        """Do what `on_timer` does for every subject and time up to a watermark, in the order of times and keys.

        :param watermark: in microseconds
        :returns: how many calls of `on_timer` it stands for
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
        if batch.watermark == LAST_TIME and batch.fired and self._has_fed(batch.fired[-1], subject):
            return batch.watermark_micros
        is_over = batch.fired is None or self.name in batch.fired
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

    def fired_before(self, subject: Subject) -> str | None:
        """The name of the component in hand, where this one was woken before it at the same time."""
        fired = subject._batch.fired or []
        return fired[-1] if self.name in fired[:-1] and fired[-1] != self.name else None

    def shown_value(self, key: Key, value: Any) -> Any:
        """A subject's value for people, such as in the messages of failing tests."""
        return value

    def state_for(self, subject: Subject) -> ComponentState:
        table = subject._tables.get(self._name)  # type: ignore[arg-type]
        if table is None or table.component is not self:
            table = self.bound(subject)
            subject._batch.components[self.name] = self
        part: ComponentState | None = table.states.get(subject.key)
        if part is not None:
            firing = subject._batch.firing_micros
            if firing is not None:
                self.expire(part, firing - 1)
            return part
        part = super().state_for(subject)
        part._subject = subject
        if part.value is not None:
            part.next_timer = subject._tables[self.name].next_timers.get(subject.key)
        return part

    def expire(self, state: ComponentState, now: int) -> None:
        if state.is_expired(now):
            state.store(None, None)

    def check(self) -> None:
        self._check_ttl()

    def shown_type(self) -> str:
        return repr(self) if type(self).__repr__ is not object.__repr__ else ""

    def structure(self) -> dict[str, Any]:
        """What is stored under it: its ``kind``, ``noun`` and ``version``, its ``settings``, texts by name of which
        none may change, and its ``aggregate``, where it has one.
        """
        return {**super().structure(), "noun": self.noun, "settings": {}}

    def encode_part(self, value: Any) -> Any:
        return unpack(pack(value))

    def _shown_part(self) -> Any:
        return type(self)

    def loaded(self, state: ComponentState) -> ComponentState:
        """Called for what is stored of a subject, before anything else sees it. It may change it and set `changed`."""
        return state

    def _state(self, key: Key, encoded: Any) -> ComponentState:
        return self.loaded(ComponentState(self, key, encoded))

    def _state_with_ttl(self, key: Key, encoded: Any, subject: Subject | None) -> ComponentState:
        return self._state(key, encoded)


@contextmanager
def known_components(known: dict[str, Component]) -> Iterator[None]:
    """Note the components that are made in the meantime, by name."""
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)


class ComponentCallbacks(Protocol):
    """The callback of a handler that makes windows or joins while a run goes on. A handler need not inherit from this
    class; one that does lets type checkers check the signature.
    """

    def on_recover_window(self, name: str, subject: Subject[Any]) -> Any:
        """Called where a window or join is due that was made while the run went on, and is not made yet in this worker:
        after a restart, or where a key comes to another worker.

        :param name: its name
        :returns: the window or join, of that name, and made as it was: one that cannot read what is stored ends the
            run. One that is made here need not be returned
        """
