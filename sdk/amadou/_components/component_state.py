"""The state of a component: for one subject, or for all subjects of a key group."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from amadou._engine.batch import Batch
from amadou._handler.event import Key
from amadou._handler.subject import Subject
from amadou._state.spec import MISSING
from amadou._state.state_spec import NEVER, time_of_state
from amadou._state.state_table import StateTable

if TYPE_CHECKING:
    from amadou._components.component import Component

Plain: TypeAlias = "bool | int | float | str | bytes | Sequence[Plain] | Mapping[Any, Plain] | None"
"""A value that msgpack encodes without extensions."""


class ComponentState:
    """A component's state for one subject: a value, and the time of the next timer."""

    __slots__ = ("_changed", "_key", "_replaces", "_spec", "_subject", "_written", "next_timer", "value")

    def __init__(self, spec: "Component", key: Key, encoded: Any) -> None:
        self._spec = spec
        self._key = key
        self._subject: Subject | None = None
        self._changed = False
        self._replaces = False
        self._written = NEVER
        if encoded is not MISSING and spec.ttl is not None:
            self._written, encoded = encoded
        self.value: Any = None if encoded is MISSING else encoded
        """The last stored value, which consists of types that msgpack supports without extensions; `None` if there is
        no value. If you change the value in place, call `store` to store the change.
        """
        self.next_timer: int | None = None
        """The time of the component's timer, in microseconds since 1970; `None` if there is no timer."""

    @property
    def batch_local(self) -> Any:
        """A temporary value that the component can set; `None` by default. A value that is set while an event is
        processed is valid until the end of the batch. A value that is set while a timer fires is valid until all timers
        due at the same time have fired. The value is not stored.
        """
        at, value = self._table.batch_local.get(self._key, (None, None))
        return value if at == self._batch.firing_micros else None

    @batch_local.setter
    def batch_local(self, value: Any) -> None:
        self._table.batch_local[self._key] = self._batch.firing_micros, value

    @property
    def _table(self) -> StateTable:
        assert self._subject is not None
        return self._subject._tables[self._spec.name]

    @property
    def _batch(self) -> Batch:
        assert self._subject is not None
        return self._subject._batch

    def store(self, value: Any, next_timer: int | None, *, renews: bool = True) -> None:
        """Store a value. A subject without a value has no stored state.

        :param value: a `Plain` value; `None` to remove the value
        :param next_timer: time at which to call `Component.on_timer`, in microseconds since 1970; `None` for no timer.
            The time must be later than the result of `Component.reached`. In `on_timer`, the time must be later than
            that of the firing timer
        :param renews: `True` to restart the value's `ttl`; `False` to store the value without restarting the `ttl`,
            for example after a timer has removed a part of the value
        """
        if self._replaces:
            assert self._subject is not None
            self._spec.count_expired(self._subject)
            self._table.states[self._key], self._replaces = self, False
        if self.value is None:
            self._written = NEVER  # the age of a value does not go by what was stored before
        self.value = value
        self.next_timer = None if value is None else next_timer
        if self.has_ttl and renews:
            assert self._subject is not None
            self._written = max(self._written, time_of_state(self._subject))
        self._changed = True
        if self._batch.firing_micros is not None:
            self._batch.stored.add(self._spec.name)

    def mark_changed(self) -> None:
        """Mark the state as changed so that it is stored again. Call this if `Component.loaded` has changed the
        value.
        """
        self._changed = True

    @property
    def has_ttl(self) -> bool:
        """`True` if the value expires."""
        return self._spec.ttl is not None

    def is_expired(self, now: int) -> bool:
        """Return `True` if the value has expired.

        :param now: the current event time, in microseconds since 1970
        """
        return self.has_ttl and self.value is not None and self._written + self._spec.life <= now

    def replacement(self) -> "ComponentState":
        """Return a state without a value, for a callback at whose time the value has expired. When the callback stores
        a value, it takes the place of the expired one.
        """
        made = ComponentState(self._spec, self._key, MISSING)
        made._subject, made._replaces = self._subject, True
        return made

    def _oldest(self) -> int:
        return self._written

    def _stored(self) -> Any:
        if self.value is None:
            return MISSING
        return [self._written, self.value] if self.has_ttl else self.value

    def _shown(self) -> Any:
        return self._spec.shown_value(self._key, self.value)


class KeyGroupState:
    """A component's state for all subjects of a key group: one value, and the time of the subjects' earliest timer."""

    __slots__ = ("batch_local", "keys", "layout", "next_timer", "value")

    def __init__(
        self, value: Any = None, next_timer: int | None = None, keys: Collection[Key] = (), layout: Plain = None
    ) -> None:
        self.value = value
        """The value, which must be `Plain`; `None` if there is no value. Its shape is the component's choice: a
        tumbling window has a `dict` of columns for each of its panes.
        """
        self.next_timer = next_timer
        """The time of the earliest timer, in microseconds since 1970; `None` if there is no timer."""
        self.keys = keys
        """The keys of the subjects whose state is in the value."""
        self.layout = layout
        """The component's `layout` when the value was stored."""
        self.batch_local: Any = None
        """A temporary value that the component can set; valid until the end of the batch. The value is not stored."""

    def store(self, value: Any, next_timer: int | None, keys: Collection[Key]) -> None:
        """Store a value.

        :param value: a `Plain` value; `None` to remove the value
        :param next_timer: time of the earliest timer, in microseconds since 1970; must be later than the watermark
        :param keys: the keys of the subjects whose state is in the value; each counts as one pending timer
        """
        self.value, self.next_timer, self.keys = value, next_timer, keys
