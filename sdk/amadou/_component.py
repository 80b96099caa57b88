"""The base of windows, joins and other parts of a handler that have state and timers of their own."""

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
"""``call(subject, function, *arguments)`` runs a user function as ``function(subject, *arguments)``."""

_known: ContextVar[dict[str, "Component"] | None] = ContextVar("known", default=None)


class Component(StateSpec[ComponentState]):
    """The base class of components: parts of a handler, such as windows, with a value and a timer for each subject.

    A component is declared on the handler's class like other specs, or made at run time with a `name=`. The handler's
    callbacks call its methods. Its timers fire before the handler's own timers of the same time. Due times are
    processed in order, including those that are set in the meantime. At the same time, a subject's components fire in
    the order in which the handler declares them; components made at run time follow, by name.

    :param name: the name that its state is stored under; by default the attribute's name
    :param ttl: duration in event time after which a subject's value expires unless it is written again
        (`semantics.md` 16); a timer that is due by then fires first
    :param version: the version of its stored state; above zero with `migrate`
    :param migrate: the function by which `migrated` converts the state of an older version (`semantics.md` 17, 28)
    """

    noun: ClassVar[str] = "component"
    """The noun for it in messages."""
    has_timers = True
    needs_sources: tuple[str, ...] = ()
    """Names of the job's sources that it needs."""
    diverts = False
    """`True` if it passes late events to `Subject.divert`."""
    drops_late = False
    """`True` if it passes late events to `Subject.drop`."""
    in_memory = False
    """`True` if only the run that stored its state reads it. The next run starts without that state, and counts the
    keys that lost some as ``<name>.lost``."""

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
        """Called when the component's timer fires. It stores the time of the next timer, if there is one.

        :param timestamp: the timer's time; the subject's watermark may be far past it
        :param call: runs a user function. If the function fails in a job that goes on, only its own changes are undone:
            look up state objects again after the call
        """
        raise NotImplementedError

    @property
    def layout(self) -> Any:
        """The settings that the form of a `KeyGroupState` depends on besides the component's class, as msgpack carries
        them. State of another layout is converted by `from_columns` before it is used.
        """
        return None

    @property
    def is_vectorized(self) -> bool:
        """`True` if it can process the events of a whole key group at once, as the `delegates_to` of a handler without
        other state and timers. It then has `to_columns`, `from_columns`, `add_columns` and `on_timers`.
        """
        return False

    def to_columns(self, values: Mapping[Key, Any], next_timer: int | None) -> KeyGroupState | None:
        """Convert per-key state to key-group state, the opposite of `from_columns`.

        :param next_timer: time of the first of the subjects' timers
        :returns: the state; `None` if it cannot be converted
        """
        raise NotImplementedError

    def from_columns(self, value: Any, next_timer: int, layout: Any) -> Iterator[tuple[Key, Any, int]]:
        """Return the key, the value and the timer of each subject in a `KeyGroupState`.

        :param layout: the layout that the state was stored with
        """
        raise NotImplementedError

    def add_columns(self, subject: Subject, whole: KeyGroupState, events: EventColumns) -> None:
        """Process events of many subjects, with the same effect as one after the other in their order.

        :param subject: the subject for user functions; set its key and timestamp before they get it
        """
        raise NotImplementedError

    def on_timers(self, subject: Subject, whole: KeyGroupState, watermark: int) -> int:
        """Fire the timers of all subjects up to a watermark, in the order of times and keys, as `on_timer` does.

        :param watermark: the watermark in microseconds
        :returns: the number of calls of `on_timer` that it replaces
        """
        raise NotImplementedError

    def reached(self, subject: Subject) -> int | None:
        """Return the time up to which the component's input is complete, in microseconds; `None` before the first
        watermark.

        For the batch's events this is the watermark. Due timers fire before those events, in the order of their times.
        While they fire, it is the current time, or just before it while the component may still fire at that time. At a
        flush, values that a component feeds to itself, directly or through others, are late: otherwise the flush would
        go on to the end of time. Values from a replayed timer come after all due timers, as events do.
        """
        batch = subject._batch
        if batch.firing_micros is None or batch.is_replay:
            return batch.watermark_micros
        if batch.watermark == LAST_TIME and batch.fired and self._has_fed(batch.fired[-1], subject):
            return batch.watermark_micros
        is_over = batch.fired is None or self.name in batch.fired
        return batch.firing_micros - (not is_over)

    def _has_fed(self, giver: str, subject: Subject) -> bool:
        """Return `True` if the component that fires has input from this one, directly or through others. If not, record
        that it feeds this one.
        """
        fed_by = subject._batch.fed_by.setdefault(subject.key, {})
        givers = fed_by.get(giver, frozenset()) | {giver}
        if self.name in givers:
            return True
        fed_by[self.name] = fed_by.get(self.name, frozenset()) | givers
        return False

    def fired_before(self, subject: Subject) -> str | None:
        """Return the name of the component that fires now, if this one fired before it at the same time."""
        fired = subject._batch.fired or []
        return fired[-1] if self.name in fired[:-1] and fired[-1] != self.name else None

    def shown_value(self, key: Key, value: Any) -> Any:
        """Return a subject's value for people, such as in the messages of failing tests."""
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
        """Return a description of the stored state: its ``kind``, ``noun`` and ``version``, its ``settings`` as texts
        by name, none of which may change, and its ``aggregate``, if it has one.
        """
        return {**super().structure(), "noun": self.noun, "settings": {}}

    def encode_part(self, value: Any) -> Any:
        return unpack(pack(value))

    def _shown_part(self) -> Any:
        return type(self)

    def loaded(self, state: ComponentState) -> ComponentState:
        """Called with a subject's stored state before anything else sees it. It may change it and mark it changed."""
        return state

    def _state(self, key: Key, encoded: Any) -> ComponentState:
        return self.loaded(ComponentState(self, key, encoded))

    def _state_with_ttl(self, key: Key, encoded: Any, subject: Subject | None) -> ComponentState:
        return self._state(key, encoded)


@contextmanager
def known_components(known: dict[str, Component]) -> Iterator[None]:
    """Record the components that are made meanwhile, by name."""
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)


class ComponentCallbacks(Protocol):
    """The callback of a handler that makes windows or joins at run time. A handler need not inherit from this class; if
    it does, type checkers check the signature.
    """

    def on_recover_window(self, name: str, subject: Subject[Any]) -> Any:
        """Called when a window or join that was made at run time is due but does not exist in this worker: after a
        restart, or when a key moves to another worker.

        :param name: the name of the window or join
        :returns: the window or join of that name, made as before: one that cannot read the stored state ends the run.
            One that is made in this callback need not be returned
        """
