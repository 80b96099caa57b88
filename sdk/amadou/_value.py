from collections.abc import Callable
from datetime import timedelta
from functools import cached_property
from typing import Any, Generic, TypeVar, cast, overload

from typing_extensions import TypeForm

from amadou._codec import Codec, codec_for
from amadou._event import Key
from amadou._spec import MISSING, shown
from amadou._state_spec import NEVER, Migrate, StateSpec, names_of
from amadou._subject import Subject
from amadou.errors import EncodeError

T = TypeVar("T")
U = TypeVar("U")


class ValueState(Generic[T]):
    """A subject's state of a single value."""

    __slots__ = ("_changed", "_key", "_spec", "_wire")
    has_ttl = False

    def __init__(self, spec: "ValueSpec[T]", key: Key, encoded: Any) -> None:
        self._spec = spec
        self._key = key
        self._wire = encoded
        self._changed = False

    @property
    def value(self) -> T:
        """The value that was last set, or the spec's default. Each read returns a new object, so changing it in place
        stores nothing.

        :raises StateDecodeError: the stored value does not fit the spec
        :raises EncodeError: on setting, the value does not fit the spec
        """
        spec = self._spec
        encoded = self._wire
        if encoded is MISSING:
            encoded = spec.default_encoded
            if encoded is MISSING:
                return cast("T", None)
        try:
            return cast("T", spec.decode(encoded))
        except Exception as error:
            raise spec.unreadable(error, encoded, spec.type, self._key) from error

    @value.setter
    def value(self, value: T) -> None:
        spec = self._spec
        try:
            self._wire = spec.encode(value)
        except EncodeError as error:
            raise EncodeError(value, spec.type, error.why, spec.name, self._key) from error
        self._changed = True

    def __bool__(self) -> bool:
        raise TypeError(f"a subject's state is neither true nor false: use .value, or .exists, of {self._spec.name}")

    @property
    def exists(self) -> bool:
        """`True` if a value has been set and not cleared."""
        return self._wire is not MISSING

    def clear(self) -> None:
        """Remove the value; `value` returns the default again."""
        if self._wire is not MISSING:
            self._wire = MISSING
            self._changed = True

    def _stored(self) -> Any:
        return self._wire

    def _shown(self) -> T:
        return self.value

    def _assign(self, value: T) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"ValueState({self._spec.name!r}, {self.value!r})"


class _AgingValueState(ValueState[T]):
    """A `ValueState` with a ttl: its encoded value is a pair; see `StateSpec`."""

    __slots__ = ("_subject", "_valid_until")
    has_ttl = True

    def __init__(self, spec: "ValueSpec[T]", key: Key, encoded: Any, subject: Subject | None) -> None:
        super().__init__(spec, key, encoded)
        self._subject = subject
        self._valid_until = NEVER

    @property
    def value(self) -> T:
        encoded = self._wire
        return ValueState(self._spec, self._key, encoded if encoded is MISSING else encoded[1]).value

    @value.setter
    def value(self, value: T) -> None:
        plain = ValueState(self._spec, self._key, MISSING)
        plain.value = value
        assert self._subject is not None
        self._wire = [self._spec._written_at(self._subject), plain._wire]
        self._changed = True

    def _lose(self, left: Any) -> None:
        self._wire = left

    def _oldest(self) -> int:
        return int(self._wire[0])


class ValueSpec(StateSpec[ValueState[T]], Generic[T]):
    """State of one value for each subject.

    :param type: any type that `codec_for` supports
    :param default: the value of `.value` while nothing is set; `None` without it
    :param ttl: duration in event time after which a value expires unless it is written again (`semantics.md` 16)
    :param name: the name that the state is stored under; by default the attribute's name
    :param codec: turns values into what msgpack carries, for types that `codec_for` does not support
    :param version: the version of the type; above zero with `migrate`
    :param migrate: a function of a value that an older version stored, as msgpack carries it, and of that version; it
        returns the new value (`semantics.md` 17). Not needed for attributes that were removed or have a default, nor
        for wider unions
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
    _functions = ("encode", "decode")
    encode: Callable[[Any], Any]
    """Encodes a value."""
    decode: Callable[[Any], Any]
    """Decodes a value."""

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

    def _resolve(self) -> None:
        codec = self._codec or codec_for(self.type)
        self.encode, self.decode = codec.encode, codec.decode

    @cached_property
    def default_encoded(self) -> Any:
        """The encoded default, so that each reader gets its own copy."""
        return MISSING if self.default is MISSING or self.default is None else self.encode(self.default)

    def _state(self, key: Key, encoded: Any) -> ValueState[T]:
        return ValueState(self, key, encoded)

    def _state_with_ttl(self, key: Key, encoded: Any, subject: Subject | None) -> ValueState[T]:
        return _AgingValueState(self, key, encoded, subject)

    def encode_part(self, value: Any) -> Any:
        return self.encode(value)

    def _shown_part(self) -> Any:
        return self.type

    def check(self) -> None:
        self._check_ttl()
        self._resolve()
        self.default_encoded  # noqa: B018

    def structure(self) -> dict[str, Any]:
        return self._structure_of(value=(self.type, self._codec))

    def shown_type(self) -> str:
        return shown(self.type)

    def __repr__(self) -> str:
        return f"ValueSpec({self.shown_type()})"
