"""The base class of windows, joins and other components: parts of a handler with their own state and timers."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, TypeAlias

from amadou._components.component_state import ComponentState, KeyGroupState, Plain
from amadou._handler.event import Key
from amadou._handler.event_columns import EventColumns
from amadou._handler.subject import Subject
from amadou._state.encoding import pack, unpack
from amadou._state.state_spec import StateSpec, time_of_state
from amadou.errors import StateDecodeError
from amadou.event_time import LAST_TIME

Invoke: TypeAlias = Callable[..., None]
"""``call(subject, function, *arguments)`` runs a user function as ``function(subject, *arguments)``."""

_REMOVE = "remove the key's state with amadou state import, or use another savepoint"
_known: ContextVar[dict[str, "Component"] | None] = ContextVar("known", default=None)


class Component(StateSpec[ComponentState]):
    """The base class of components: parts of a handler, such as windows, with a value and a timer for each subject.

    A component is declared on the handler's class like other specs, or created at run time with a `name=`. The
    handler's callbacks call the component's methods.

    Due timers fire in time order, including timers that are set while others fire. Among timers for the same time, the
    timers of components fire before the handler's timers. A subject's components that are due at the same time fire in
    declaration order. Components created at run time follow, in order of their names.

    :param name: the name that the component's state is stored under; by default the attribute's name
    :param ttl: duration in event time after which a subject's value expires unless the value is written again
        (`semantics.md` 16), counted as ``<name>.expired``; timers due up to that time fire first
    :param version: the version of the stored state; must be positive if `migrate` is set
    :param migrate: function that `migrated` calls to convert state of an older version (`semantics.md` 17, 28)
    """

    noun: ClassVar[str] = "component"
    """The noun for the component in messages."""
    has_timers = True
    counts_expired = True
    hides_expired: ClassVar[bool] = True
    """`True` if callbacks do not see a value that has expired at their time."""
    needs_sources: tuple[str, ...] = ()
    """Names of the job's sources that the component needs."""
    diverts = False
    """`True` if the component passes late events to `Subject.divert`."""
    drops_late = False
    """`True` if the component passes late events to `Subject.drop`."""
    in_memory = False
    """`True` if the component's state is valid only in the run that stored the state. The next run drops the state, and
    counts the keys that lost state as ``<name>.lost``."""

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
        """Called when the component's timer fires. To set the next timer, this method must call `ComponentState.store`.

        :param timestamp: the timer's time; the subject's watermark may be far past this time
        :param call: function that runs a user function. If the user function fails and the job continues, only changes
            made by the user function are undone. After the call, look up state objects again
        """
        raise NotImplementedError

    @property
    def layout(self) -> Plain:
        """The settings that determine the shape of this class's `KeyGroupState`, such as the version of the
        accumulators. `from_columns` converts state with a different layout before use.
        """
        return None

    @property
    def is_vectorized(self) -> bool:
        """`True` if the component can process the events of an entire key group in one call. The component must then
        define `to_columns`, `from_columns`, `add_columns` and `on_timers`. These methods are called only if a
        handler without other state and timers names the component in `delegates_to`.
        """
        return False

    def to_columns(self, values: Mapping[Key, Any], next_timer: int | None) -> KeyGroupState | None:
        """Convert per-key state to key-group state. This is the inverse of `from_columns`.

        :param values: the subjects' values, as in `ComponentState.value`, by key
        :param next_timer: time of the subjects' earliest timer, in microseconds; `None` if there is no timer
        :returns: the key-group state; `None` if the per-key state cannot be converted
        """
        raise NotImplementedError

    def from_columns(self, value: Plain, next_timer: int, layout: Plain) -> Iterator[tuple[Key, Any, int]]:
        """Yield the key, the value and the timer's time, in microseconds, for each subject in a `KeyGroupState`.

        :param value: the value of the `KeyGroupState`
        :param next_timer: the time of its earliest timer, in microseconds
        :param layout: the component's `layout` when the state was stored
        """
        raise NotImplementedError

    def add_columns(self, subject: Subject, group_state: KeyGroupState, events: EventColumns) -> None:
        """Process events of many subjects. The effect must be the same as if the events were processed one by one in
        the given order.

        :param group_state: the state to change, with `KeyGroupState.store`
        :param events: the events, as one column for each of keys, times and values
        :param subject: the subject to pass to user functions; set its key and timestamp first
        """
        raise NotImplementedError

    @property
    def is_combinable(self) -> bool:
        """`True` if the component is vectorised, and its state does not depend on the order of events, so that events
        can be combined before they are sent to the worker with the state. The component must then define `combine`,
        `add_combined`, `divide_combined` and `add_combined_for`.
        """
        return False

    def combine(self, events: EventColumns) -> Plain:
        """Return the combined form of events of many subjects, none of which is late.

        :returns: a value of any shape: for a tumbling window, the `KeyGroupState.value` that has only these events
        """
        raise NotImplementedError

    def add_combined(self, subject: Subject, group_state: KeyGroupState, combined: Plain) -> int:
        """Process events in combined form, as `add_columns` would process them.

        :param combined: a result of `combine`
        :returns: the number of events
        """
        raise NotImplementedError

    def divide_combined(self, combined: Plain) -> Iterator[tuple[Key, Plain, int]]:
        """Yield the key, the combined form and the number of events of each subject.

        :param combined: a result of `combine`
        """
        raise NotImplementedError

    def add_combined_for(self, subject: Subject, combined: Plain) -> None:
        """Process a subject's events in the form that `divide_combined` yielded for it."""
        raise NotImplementedError

    def on_timers(self, subject: Subject, group_state: KeyGroupState, watermark: int) -> int:
        """Fire the timers of all subjects up to a watermark, in order of time and key, with the same effect as
        `on_timer`.

        :param watermark: the watermark in microseconds
        :returns: the number of calls of `on_timer` that this call replaces
        """
        raise NotImplementedError

    def reached(self, subject: Subject) -> int | None:
        """Return the component's input watermark, in microseconds; `None` before the first watermark.

        While the batch's events are processed, the input watermark is the batch's watermark. Due timers fire before the
        batch's events, in time order. While a timer fires, the input watermark is the timer's time, or one microsecond
        earlier if the component can still fire at the timer's time. During a flush, values that a component feeds to
        itself, directly or through other components, are late. Otherwise the flush would fire timers up to the maximum
        time. While dead letters are replayed, the input watermark is always the batch's watermark.
        """
        batch = subject._batch
        if batch.firing_micros is None or batch.is_replay:
            return batch.watermark_micros
        if batch.watermark == LAST_TIME and batch.fired and self._has_fed(batch.fired[-1], subject):
            return batch.watermark_micros
        is_over = batch.fired is None or self.name in batch.fired
        return batch.firing_micros - (not is_over)

    def _has_fed(self, giver: str, subject: Subject) -> bool:
        """Return `True` if this component feeds the firing component, directly or through other components. Otherwise
        record that the firing component feeds this component.

        :param giver: the name of the component that is firing
        """
        fed_by = subject._batch.fed_by.setdefault(subject.key, {})
        givers = fed_by.get(giver, frozenset()) | {giver}
        if self.name in givers:
            return True
        fed_by[self.name] = fed_by.get(self.name, frozenset()) | givers
        return False

    def fired_before(self, subject: Subject) -> str | None:
        """Return the name of the firing component if it is not this component, and this component has already fired at
        the same time; otherwise `None`.
        """
        fired = subject._batch.fired or []
        return fired[-1] if self.name in fired[:-1] and fired[-1] != self.name else None

    def shown_value(self, key: Key, value: Any) -> Any:
        """Return a subject's value in readable form, for example for the messages of failing tests."""
        return value

    def state_for(self, subject: Subject) -> ComponentState:
        table = subject._tables.get(self._name)  # type: ignore[arg-type]
        if table is None or table.component is not self:
            table = self.bound(subject)
            subject._batch.components[self.name] = self
        part: ComponentState | None = table.states.get(subject.key)
        if part is None:
            part = super().state_for(subject)
            part._subject = subject
            if part.value is not None:
                part.next_timer = subject._tables[self.name].next_timers.get(subject.key)
        if self.ttl is not None and self.hides_expired:
            is_firing = subject._batch.firing_micros is not None  # a timer that is due when the value expires sees it
            if part.is_expired(time_of_state(subject) - is_firing):
                return part.replacement()
        return part

    def expire(self, state: ComponentState, now: int) -> bool:
        if not state.is_expired(now):
            return False
        state.store(None, None)
        return True

    def check(self) -> None:
        self._check_ttl()

    def shown_type(self) -> str:
        return repr(self) if type(self).__repr__ is not object.__repr__ else ""

    def structure(self) -> dict[str, Any]:
        """Return a description of the stored state: its ``kind``, ``noun`` and ``version``; its ``settings`` by name,
        as strings, which must not change; and its ``aggregate``, if there is one.
        """
        return {**super().structure(), "noun": self.noun, "settings": {}}

    def encode_part(self, value: Any) -> Any:
        return unpack(pack(value))

    def _shown_part(self) -> Any:
        return type(self)

    def has_form(self, value: Any) -> bool:
        """Return `True` if a stored value has the form that the component stores. Called before the value is used, as
        the value can come from a savepoint that somebody else has made, or from imported rows.
        """
        return True

    def check_form(self, key: Key, value: Any) -> None:
        """Check a subject's stored value; see `has_form`.

        :raises StateDecodeError: the value has another form
        """
        if not self.has_form(value):
            why = f"a {self.noun} of this kind does not store such a value"
            raise StateDecodeError(value, self._shown_part(), why, self.name, key, _REMOVE)

    def loaded(self, state: ComponentState) -> ComponentState:
        """Return a subject's stored state. Called before the state is used. This method may change the state and mark
        the state as changed.
        """
        return state

    def _state(self, key: Key, encoded: Any) -> ComponentState:
        try:
            state = ComponentState(self, key, encoded)
            if state.value is not None:
                self.check_form(key, state.value)
            return self.loaded(state)
        except StateDecodeError:
            raise
        except Exception as error:
            raise self.unreadable(error, encoded, self._shown_part(), key) from error

    def _state_with_ttl(self, key: Key, encoded: Any, now: int) -> ComponentState:
        return self._state(key, encoded)


@contextmanager
def known_components(known: dict[str, Component]) -> Iterator[None]:
    """Record the components that are created with a name within the context."""
    token = _known.set(known)
    try:
        yield
    finally:
        _known.reset(token)


class ComponentCallbacks(Protocol):
    """The callback of a handler that creates windows or joins at run time. If the handler inherits from this class,
    type checkers check the callback's signature.
    """

    def on_recover_window(self, name: str, subject: Subject[Any]) -> Any:
        """Called when a window or join that was created at run time is due but does not exist on this worker: either
        the run was restarted, or the key has moved to another worker.

        :param name: the name of the window or join
        :returns: the window or join with that name, created with its old settings; or `None` if the callback created
            the window or join without returning it. If the window or join cannot read the stored state, the run ends
        """
