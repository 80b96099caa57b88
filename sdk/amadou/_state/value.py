from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar, cast, overload

from typing_extensions import TypeForm

from amadou._connectors.codec import Codec
from amadou._handler.event import Key
from amadou._handler.subject import Subject
from amadou._state.in_place import IMMUTABLE, note_assigned, note_cleared, note_read
from amadou._state.spec import MISSING
from amadou._state.state_spec import ExpiringState, Migrate, SingleTypeSpec, names_of
from amadou.errors import EncodeError

T = TypeVar("T")
U = TypeVar("U")


class ValueState(Generic[T]):
    """A subject's state under a `ValueSpec`: a single value."""

    __slots__ = ("_changed", "_encoded", "_key", "_spec")
    has_ttl = False

    def __init__(self, spec: "ValueSpec[T]", key: Key, encoded: Any) -> None:
        self._spec = spec
        self._key = key
        self._encoded = encoded
        self._changed = False

    @property
    def value(self) -> T:
        """The value that was last set, or the spec's default. Each read returns a new object: to store an in-place
        change, assign the object again.

        :raises StateDecodeError: on reading, if the stored value does not fit the spec
        :raises EncodeError: on setting, if the new value does not fit the spec
        """
        return self._value_of(self._encoded)

    @value.setter
    def value(self, value: T) -> None:
        self._encoded = self._encoded_of(value)
        self._changed = True

    def _value_of(self, encoded: Any) -> T:
        if encoded is MISSING:
            encoded = self._spec.default_encoded
            if encoded is MISSING:
                return cast("T", None)
        value = self._read(encoded)
        if type(value) not in IMMUTABLE:
            note_read(self, None, encoded, value)
        return value

    def _read(self, encoded: Any) -> T:
        try:
            return cast("T", self._spec.decode(encoded))
        except Exception as error:
            raise self._spec.unreadable(error, encoded, self._spec.type, self._key) from error

    def _encoded_of(self, value: T) -> Any:
        spec = self._spec
        try:
            encoded = spec.encode(value)
        except EncodeError as error:
            raise EncodeError(value, spec.type, error.why, spec.name, self._key) from error
        if type(value) not in IMMUTABLE:
            note_assigned(self, None, encoded, value)
        return encoded

    def _holds(self, at: None, encoded: Any) -> bool:
        return encoded is (self._visible() if self.exists else self._spec.default_encoded)

    def _content(self, encoded: Any) -> Any:
        return encoded

    def _visible(self) -> Any:
        """Return the encoded value that the callback sees."""
        return self._encoded

    def _assignment(self, at: None) -> str:
        return f"self.{self._spec.name}.state_for(subject).value"

    def __bool__(self) -> bool:
        raise TypeError(f"the state of {self._spec.name} has no truth value: use its .value or .exists")

    @property
    def exists(self) -> bool:
        """`True` if a value has been set and has neither been cleared nor expired."""
        return self._encoded is not MISSING

    def clear(self) -> None:
        """Remove the value; `value` returns the default again."""
        note_cleared(self, None)
        if self._encoded is not MISSING:
            self._encoded = MISSING
            self._changed = True

    def _stored(self) -> Any:
        return self._encoded

    def _shown(self) -> T:
        return self.value

    def _assign(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"ValueState({self._spec.name!r}, {self.value!r})"


class _ExpiringValueState(ExpiringState, ValueState[T]):
    """A `ValueState` with a ttl."""

    __slots__ = ("_expired_at", "_now")

    @property
    def value(self) -> T:
        return self._value_of(self._encoded[1] if self.exists else MISSING)

    @value.setter
    def value(self, value: T) -> None:
        encoded = self._encoded_of(value)
        at = self._now if self._encoded is MISSING else max(self._encoded[0], self._now)
        self._encoded = [at, encoded]
        self._changed = True

    def _visible(self) -> Any:
        return self._encoded[1]

    @property
    def exists(self) -> bool:
        return self._encoded is not MISSING and self._encoded[0] > self._expired_at

    def _oldest(self) -> int:
        return int(self._encoded[0])


class ValueSpec(SingleTypeSpec[ValueState[T]], Generic[T]):
    """State spec for a single value per subject.

    :param type: any type that `codec_for` supports
    :param default: the result of `.value` while no value is set; by default `None`
    :param ttl: duration in event time after which a value expires unless it is written again (`semantics.md` 16)
    :param name: the name that the state is stored under; by default the attribute's name
    :param codec: codec for values of a type that `codec_for` does not support
    :param version: the version of the type; must be a positive integer if `migrate` is set
    :param migrate: function that converts a value stored by an older version (`semantics.md` 17). The function receives
        the encoded value (for a class, a `dict`) and the value's version, and returns a value of the current type. Not
        needed for removed attributes, for new attributes with a default, or for widened unions
    """

    _usage = "state_for(subject).value = …"
    _of_subjects = names_of(ValueState)
    _operators = {
        "__add__": "{}.value + …",
        "__bool__": "{}.value",
        "__ge__": "{}.value >= …",
        "__getitem__": "{}.value[…]",
        "__gt__": "{}.value > …",
        "__iadd__": "{}.value += …",
        "__le__": "{}.value <= …",
        "__lt__": "{}.value < …",
    }

    @overload
    def __init__(
        self: "ValueSpec[U | None]",
        type: TypeForm[U | None],
        *,
        ttl: timedelta | None = ...,
        name: str | None = ...,
        codec: Codec[U] | None = ...,
        version: int = ...,
        migrate: Migrate | None = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        type: TypeForm[T],
        default: T,
        *,
        ttl: timedelta | None = ...,
        name: str | None = ...,
        codec: Codec[T] | None = ...,
        version: int = ...,
        migrate: Migrate | None = ...,
    ) -> None: ...
    def __init__(
        self,
        type: Any,
        default: Any = MISSING,
        *,
        ttl: timedelta | None = None,
        name: str | None = None,
        codec: Codec[Any] | None = None,
        version: int = 0,
        migrate: Migrate | None = None,
    ) -> None:
        self.type = type
        self.default = default
        self._codec = codec
        self._set_ttl(name, ttl, version, migrate)
        self._defer()

    @cached_property
    def default_encoded(self) -> Any:
        """The default in encoded form, from which each read decodes a new copy."""
        return MISSING if self.default is MISSING or self.default is None else self.encode(self.default)

    def _state(self, key: Key, encoded: Any) -> ValueState[T]:
        return ValueState(self, key, encoded)

    def _state_with_ttl(self, key: Key, encoded: Any, now: int) -> ValueState[T]:
        return _ExpiringValueState(self, key, encoded, now)

    def count_if_expired(self, state: ValueState[T], subject: Subject) -> None:
        """Count the value of a subject as expired if the callback, which replaces it, does not see it."""
        if state._encoded is not MISSING and not state.exists:
            self.count_expired(subject)

    def check(self) -> None:
        super().check()
        self.default_encoded  # noqa: B018

    def structure(self) -> dict[str, Any]:
        return self._structure_of(value=(self.type, self._codec))
