from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from datetime import timedelta
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast, get_origin, overload

from typing_extensions import TypeForm

from amadou._connectors.codec import SCALARS, Codec, codec_for
from amadou._handler.event import Key
from amadou._state.in_place import IMMUTABLE, note_assigned, note_read
from amadou._state.map_keys import key_functions
from amadou._state.spec import MISSING, shown
from amadou._state.state_spec import NEVER, OPERATORS, ExpiringParts, Migrate, StateSpec, are_timed, names_of
from amadou.errors import EncodeError, StateDecodeError, UnsupportedTypeError

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")


class MapState(MutableMapping[K, V]):
    """A mapping stored per subject, declared by a `MapSpec`. Entries are decoded when they are accessed, not when the
    subject is loaded.

    Changes made through the map's methods are stored. If you read a value and change it in place, the change is not
    stored until you assign the value again (`semantics.md` 14). Iteration is in insertion order.

    Passing a key or value that does not fit the spec raises an `EncodeError`. Reading a stored key or value that does
    not fit the spec raises a `StateDecodeError`.
    """

    __slots__ = ("_are_scalars", "_changed", "_encoded", "_key", "_spec")
    has_ttl = False

    def __init__(self, spec: "MapSpec[K, V]", key: Key, entries: dict[Any, Any]) -> None:
        self._spec = spec
        self._key = key
        self._encoded = entries
        self._changed = False
        self._are_scalars: bool | None = None
        """`True` if all keys are stored unchanged; `None` if it is not known."""

    # For speed, methods that run once per event do not call one another, and scalars are encoded without a call.

    def __getitem__(self, key: K) -> V:
        encoded_key = self._encoded_key(key)
        part = self._encoded.get(encoded_key, MISSING)
        if part is MISSING:
            raise KeyError(key)
        return self._noted(encoded_key, part)

    @overload
    def get(self, key: K, default: None = None) -> V | None: ...
    @overload
    def get(self, key: K, default: V) -> V: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        spec = self._spec
        try:
            encoded_key = key if type(key) is spec.scalar_key else spec.encode_key(key)
        except EncodeError as error:
            encoded_key = self._stored_key(key, error)
        encoded = self._encoded.get(encoded_key, MISSING)
        if encoded is MISSING:
            return default
        return encoded if type(encoded) is spec.scalar_value else self._noted(encoded_key, encoded)

    def __setitem__(self, key: K, value: V) -> None:
        spec = self._spec
        encoded = value if type(value) is spec.scalar_value else self._encoded_value(value)
        try:
            encoded_key = key if type(key) is spec.scalar_key else spec.encode_key(key)
        except EncodeError as error:
            raise self._misfit(error, key, spec.key_type) from error
        self._encoded[encoded_key] = encoded
        self._changed = True
        if type(value) not in IMMUTABLE:
            note_assigned(self, encoded_key, encoded, value)

    def __delitem__(self, key: K) -> None:
        encoded_key = self._encoded_key(key)
        if encoded_key not in self._encoded:
            raise KeyError(key)
        del self._encoded[encoded_key]
        self._changed = True

    @overload
    def pop(self, key: K) -> V: ...
    @overload
    def pop(self, key: K, default: D) -> V | D: ...
    def pop(self, key: K, default: Any = MISSING) -> Any:
        spec = self._spec
        encoded_key = key if type(key) is spec.scalar_key else self._encoded_key(key)
        encoded = self._encoded.get(encoded_key, MISSING)
        if encoded is not MISSING:
            # decode before removing anything: an entry that cannot be decoded must stay
            value = encoded if type(encoded) is spec.scalar_value else self._read(encoded)
            del self._encoded[encoded_key]
            self._changed = True
            return value
        if default is MISSING:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[K, V]:
        """Remove and return the entry that was inserted last, like `dict.popitem`."""
        if not self._encoded:
            raise KeyError("popitem(): the map is empty")
        encoded_key = next(reversed(self._encoded))
        item = self._key_of(encoded_key), self._read(self._encoded[encoded_key])
        del self._encoded[encoded_key]
        self._changed = True
        return item

    def __contains__(self, key: object) -> bool:
        return self._encoded_key(cast("K", key)) in self._encoded

    def __iter__(self) -> Iterator[K]:
        return self._keys_of(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)

    def clear(self) -> None:
        """Remove every entry."""
        if self._encoded:
            self._encoded.clear()
            self._changed = True

    def _assign(self, value: Mapping[K, V]) -> None:
        self.clear()
        self.update(value)

    def _shown(self) -> dict[K, V]:
        return dict(self)

    def _stored(self) -> Any:
        return self._encoded or MISSING  # an empty map is not stored (`semantics.md` 15)

    def _encoded_key(self, key: K) -> Any:
        try:
            return self._spec.encode_key(key)
        except EncodeError as error:
            return self._stored_key(key, error)

    def _stored_key(self, key: Any, error: EncodeError) -> Any:
        """Return the encoded form of a key that cannot be encoded, but was stored by an earlier release, such as NaN.

        :param error: the error to raise if it was not
        """
        if type(key) is float and key in self._encoded:
            return key
        raise self._misfit(error, key, self._spec.key_type) from error

    def _encoded_value(self, value: V) -> Any:
        try:
            return self._spec.encode_value(value)
        except EncodeError as error:
            raise self._misfit(error, value, self._spec.value_type) from error

    def _noted(self, encoded_key: Any, part: Any) -> V:
        """Return the value of a part that a callback reads."""
        value = self._read(part)
        if type(value) not in IMMUTABLE:
            note_read(self, encoded_key, part, value)
        return value

    def _holds(self, at: Any, part: Any) -> bool:
        return self._encoded.get(at) is part

    def _content(self, part: Any) -> Any:
        return part

    def _assignment(self, at: Any) -> str:
        return f"self.{self._spec.name}.state_for(subject)[{self._key_of(at)!r}]"

    def _misfit(self, error: EncodeError, value: Any, type_: Any) -> EncodeError:
        return EncodeError(value, type_, error.why, self._spec.name, self._key)

    def _keys_of(self, encoded: Iterable[Any]) -> Iterator[K]:
        """Return the keys for some of the encoded keys."""
        if self._are_scalars is None:
            scalar = self._spec.scalar_key
            self._are_scalars = scalar is not None and {*map(type, self._encoded)} <= {scalar}
        return iter(encoded) if self._are_scalars else map(self._key_of, encoded)

    def _key_of(self, encoded: Any) -> K:
        try:
            return cast("K", self._spec.decode_key(encoded))
        except Exception as error:
            raise self._spec.unreadable(error, encoded, self._spec.key_type, self._key) from error

    def _read(self, encoded: Any) -> V:
        try:
            return cast("V", self._spec.decode_value(encoded))
        except Exception as error:
            raise self._spec.unreadable(error, encoded, self._spec.value_type, self._key) from error

    def __repr__(self) -> str:
        return f"MapState({self._spec.name!r}, {dict(self)!r})"


class _ExpiringMapState(ExpiringParts, MapState[K, V]):
    """A `MapState` with a ttl."""

    __slots__ = ("_expired_at", "_now", "_since")

    def __getitem__(self, key: K) -> V:
        value = self.get(key, MISSING)
        if value is MISSING:
            raise KeyError(key)
        return cast("V", value)

    def get(self, key: K, default: Any = None) -> Any:
        encoded_key = key if type(key) is self._spec.scalar_key else self._encoded_key(key)
        part = self._encoded.get(encoded_key)
        return default if part is None or part[0] <= self._expired_at else self._noted(encoded_key, part)

    def __setitem__(self, key: K, value: V) -> None:
        encoded, encoded_key = self._encoded_value(value), self._encoded_key(key)
        part = self._encoded.get(encoded_key)
        if part is None or part[0] <= self._expired_at:
            self._encoded.pop(encoded_key, None)  # the entry becomes the last one, as if it had been removed before
            part = (NEVER,)
        part = self._encoded[encoded_key] = [max(self._now, part[0]), encoded]
        self._since = min(self._since, self._now)
        self._changed = True
        if type(value) not in IMMUTABLE:
            note_assigned(self, encoded_key, part, value)

    def __delitem__(self, key: K) -> None:
        if key not in self:
            raise KeyError(key)
        super().__delitem__(key)

    def pop(self, key: K, default: Any = MISSING) -> Any:
        value = self.get(key, MISSING)
        if value is not MISSING:
            super().__delitem__(key)
            return value
        if default is MISSING:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[K, V]:
        for encoded_key, part in reversed(self._encoded.items()):
            if part[0] > self._expired_at:
                item = self._key_of(encoded_key), self._read(part)
                del self._encoded[encoded_key]
                self._changed = True
                return item
        raise KeyError("popitem(): the map is empty")

    def __contains__(self, key: object) -> bool:
        part = self._encoded.get(self._encoded_key(cast("K", key)))
        return part is not None and part[0] > self._expired_at

    def __iter__(self) -> Iterator[K]:
        if self._sees_all():
            return self._keys_of(self._encoded)
        expired_at = self._expired_at
        return self._keys_of(key for key, part in self._encoded.items() if part[0] > expired_at)

    def __len__(self) -> int:
        if self._sees_all():
            return len(self._encoded)
        return sum(part[0] > self._expired_at for part in self._encoded.values())

    def _read(self, encoded: Any) -> V:
        value = encoded[1]
        return cast("V", value) if type(value) is self._spec.scalar_value else super()._read(value)

    def _oldest(self) -> int:
        return min(map(itemgetter(0), self._encoded.values()), default=self._now)


class MapSpec(StateSpec[MapState[K, V]], Generic[K, V]):
    """State spec for a mapping per subject.

    :param key_type: the type of the keys: any hashable type that `codec_for` supports
    :param value_type: the type of the values: any type that `codec_for` supports
    :param ttl: duration in event time after which an entry expires unless it is written again (`semantics.md` 16)
    :param name: the name that the state is stored under; by default the attribute's name
    :param key_codec: codec for the keys, for types that `codec_for` does not support
    :param codec: codec for the values, for types that `codec_for` does not support
    :param version: the version of the value type; must be positive if `migrate` is set
    :param migrate: function that converts a value of an older version (`semantics.md` 17). The function receives the
        value in encoded form, such as a `dict` for a class, and the value's version. It returns a value of the current
        type
    """

    _usage = "state_for(subject)[…] = …"
    _of_subjects = names_of(MapState)
    _operators = OPERATORS
    _functions = ("encode_key", "decode_key", "encode_value", "decode_value")
    encode_key: Callable[[Any], Any]
    """Encodes a key."""
    decode_key: Callable[[Any], Any]
    """Decodes a key."""
    encode_value: Callable[[Any], Any]
    """Encodes a value."""
    decode_value: Callable[[Any], Any]
    """Decodes a value."""

    def __init__(
        self,
        key_type: TypeForm[K],
        value_type: TypeForm[V],
        *,
        ttl: timedelta | None = None,
        name: str | None = None,
        key_codec: Codec[K] | None = None,
        codec: Codec[V] | None = None,
        version: int = 0,
        migrate: Migrate | None = None,
    ) -> None:
        self.key_type = key_type
        self.value_type = value_type
        self._set_ttl(name, ttl, version, migrate)
        self._key_codec = key_codec
        self._codec = codec
        self.scalar_key = key_type if key_codec is None and key_type in SCALARS and key_type is not float else None
        """The type of the keys if keys are stored unchanged and without a check; otherwise `None`."""
        self.scalar_value = value_type if codec is None and value_type in SCALARS else None
        """The type of the values if values are stored unchanged; otherwise `None`."""
        self._defer()

    def _state(self, key: Key, entries: Any) -> MapState[K, V]:
        return MapState(self, key, self._entries(key, entries))

    def _state_with_ttl(self, key: Key, entries: Any, now: int) -> MapState[K, V]:
        return _ExpiringMapState(self, key, self._entries(key, entries), now)

    def _entries(self, key: Key, stored: Any) -> dict[Any, Any]:
        if stored is MISSING:
            return {}
        if type(stored) is not dict:
            raise StateDecodeError(stored, dict, spec=self.name, key=key)
        return stored

    def encode_part(self, value: Any) -> Any:
        return self.encode_value(value)

    def _shown_part(self) -> Any:
        return self.value_type

    def _each_part(self, encoded: Any, convert: Callable[[Any], Any]) -> Any:
        return {key: convert(part) for key, part in encoded.items()} if type(encoded) is dict else encoded

    def _has_times(self, encoded: Any) -> bool:
        return type(encoded) is not dict or are_timed(encoded.values())

    def _parts_after(self, encoded: Any, begin: int) -> Any:
        if type(encoded) is not dict:
            return encoded
        left = {key: part for key, part in encoded.items() if part[0] > begin}
        return encoded if len(left) == len(encoded) else left

    def _resolve(self) -> None:
        is_scalar = self.scalar_key is not None
        self.encode_key, self.decode_key = key_functions(self.key_type, self._key_codec, is_scalar=is_scalar)
        values = self._codec or codec_for(self.value_type)
        self.encode_value, self.decode_value = values.encode, values.decode

    def check(self) -> None:
        self._check_ttl()
        kind = get_origin(self.key_type) or self.key_type
        if self._key_codec is None and isinstance(kind, type) and kind.__hash__ is None:
            raise UnsupportedTypeError(self.key_type, "the keys of a map must be hashable")
        self._resolve()

    def structure(self) -> dict[str, Any]:
        return self._structure_of(key=(self.key_type, self._key_codec), value=(self.value_type, self._codec))

    def shown_type(self) -> str:
        return f"{shown(self.key_type)} → {shown(self.value_type)}"

    def __repr__(self) -> str:
        return f"MapSpec({self.shown_type()})"
