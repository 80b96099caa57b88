from collections.abc import Callable, Iterable, Iterator, MutableSequence
from datetime import timedelta
from typing import Any, Generic, TypeVar, cast, overload

from typing_extensions import TypeForm

from amadou._codec import SCALARS, Codec, codec_for
from amadou._event import Key
from amadou._spec import MISSING, shown
from amadou._state_spec import NEVER, OPERATORS, Migrate, StateSpec, names_of
from amadou._subject import Subject
from amadou.errors import EncodeError, StateDecodeError

T = TypeVar("T")


class ListState(MutableSequence[T]):
    """A subject's state of a list. Items are decoded when they are accessed, not when the subject is loaded.

    Changes by its own methods are stored; an item that is read and then changed in place is not (`semantics.md` 14).
    Reading and writing raise `EncodeError` for an item that does not fit the spec, and `StateDecodeError` where a
    stored item does not fit it.
    """

    __slots__ = ("_changed", "_items", "_key", "_spec")
    has_ttl = False

    def __init__(self, spec: "ListSpec[T]", key: Key, items: list[Any]) -> None:
        self._spec = spec
        self._key = key
        self._items = items
        self._changed = False

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._value_of(encoded) for encoded in self._items[index]]
        return self._value_of(self._items[index])

    @overload
    def __setitem__(self, index: int, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._items[index] = [self._wire_of(item) for item in value]
        else:
            self._items[index] = self._wire_of(value)
        self._changed = True

    def __delitem__(self, index: int | slice) -> None:
        del self._items[index]
        self._changed = True

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        return map(self._value_of, self._items)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | ListState) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def insert(self, index: int, value: T) -> None:
        """Insert an item before an index, as a `list` does."""
        self._items.insert(index, self._wire_of(value))
        self._changed = True

    def append(self, value: T) -> None:
        """Add an item to the end. No other item is read."""
        self._items.append(self._wire_of(value))
        self._changed = True

    def extend(self, values: Iterable[T]) -> None:
        """Add items to the end: all of them or none."""
        self._items.extend([self._wire_of(value) for value in values])
        self._changed = True

    def clear(self) -> None:
        """Remove every item."""
        if self._items:
            self._items.clear()
            self._changed = True

    def _assign(self, value: Iterable[T]) -> None:
        self[:] = value

    def _shown(self) -> list[T]:
        return list(self)

    def _stored(self) -> Any:
        return self._items or MISSING  # an empty list is not stored (`semantics.md` 15)

    def _wire_of(self, value: T) -> Any:
        spec = self._spec
        try:
            return value if type(value) is spec.scalar else spec.encode(value)
        except EncodeError as error:
            raise EncodeError(value, spec.type, error.why, spec.name, self._key) from error

    def _value_of(self, encoded: Any) -> T:
        spec = self._spec
        try:
            return cast("T", encoded if type(encoded) is spec.scalar else spec.decode(encoded))
        except Exception as error:
            raise spec.unreadable(error, encoded, spec.type, self._key) from error

    def __repr__(self) -> str:
        return f"ListState({self._spec.name!r}, {list(self)!r})"


class _AgingListState(ListState[T]):
    """A `ListState` with a ttl: each encoded item is a pair; see `StateSpec`."""

    __slots__ = ("_subject", "_valid_until")
    has_ttl = True

    def __init__(self, spec: "ListSpec[T]", key: Key, items: list[Any], subject: Subject | None) -> None:
        super().__init__(spec, key, items)
        self._subject = subject
        self._valid_until = NEVER

    def _wire_of(self, value: T) -> Any:
        assert self._subject is not None
        return [self._spec._written_at(self._subject), super()._wire_of(value)]

    def _value_of(self, encoded: Any) -> T:
        return super()._value_of(encoded[1])

    def _lose(self, left: Any) -> None:
        self._items = left

    def _oldest(self) -> int:
        return min(int(written) for written, _ in self._items)


class ListSpec(StateSpec[ListState[T]], Generic[T]):
    """State of a list for each subject.

    :param type: the type of the items, any that `codec_for` supports
    :param ttl: duration in event time after which an item expires unless it is written again (`semantics.md` 16)
    :param name: the name that the state is stored under; by default the attribute's name
    :param codec: turns items into what msgpack carries, for types that `codec_for` does not support
    :param version: the version of the type of items; above zero with `migrate`
    :param migrate: a function of an item that an older version stored, as msgpack carries it, and of that version; it
        returns the new item (`semantics.md` 17)
    """

    _usage = "state_for(subject).append(…)"
    _of_subjects = names_of(ListState)
    _operators = {**OPERATORS, "__iadd__": "{}.extend(…)"}
    _functions = ("encode", "decode")
    encode: Callable[[Any], Any]
    """Encodes an item."""
    decode: Callable[[Any], Any]
    """Decodes an item."""

    def __init__(
        self,
        type: TypeForm[T],
        *,
        ttl: timedelta | None = None,
        name: str | None = None,
        codec: Codec[T] | None = None,
        version: int = 0,
        migrate: Migrate | None = None,
    ) -> None:
        self.type = type
        self._set_ttl(name, ttl, version, migrate)
        self._codec = codec
        self.scalar = type if codec is None and type in SCALARS else None
        """The type of items, if an item is its own encoded value."""
        self._defer()

    def _state(self, key: Key, items: Any) -> ListState[T]:
        return ListState(self, key, self._items(key, items))

    def _state_with_ttl(self, key: Key, items: Any, subject: Subject | None) -> ListState[T]:
        return _AgingListState(self, key, self._items(key, items), subject)

    def _items(self, key: Key, stored: Any) -> list[Any]:
        if stored is MISSING:
            return []
        if type(stored) is not list:
            raise StateDecodeError(stored, list, "stored is no list", self.name, key)
        return stored

    def encode_part(self, value: Any) -> Any:
        return self.encode(value)

    def _shown_part(self) -> Any:
        return self.type

    def _each_part(self, encoded: Any, convert: Callable[[Any], Any]) -> Any:
        return [convert(part) for part in encoded] if type(encoded) is list else encoded

    def _parts_after(self, encoded: Any, begin: int) -> Any:
        if type(encoded) is not list:
            return encoded
        left = [part for part in encoded if part[0] > begin]
        return encoded if len(left) == len(encoded) else left

    def _resolve(self) -> None:
        codec = self._codec or codec_for(self.type)
        self.encode, self.decode = codec.encode, codec.decode

    def check(self) -> None:
        self._check_ttl()
        self._resolve()

    def structure(self) -> dict[str, Any]:
        return self._structure_of(item=(self.type, self._codec))

    def shown_type(self) -> str:
        return shown(self.type)

    def __repr__(self) -> str:
        return f"ListSpec({self.shown_type()})"
