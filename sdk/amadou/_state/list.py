from collections.abc import Callable, Iterable, Iterator, MutableSequence
from datetime import timedelta
from operator import itemgetter
from typing import Any, Generic, TypeVar, cast, overload

from typing_extensions import TypeForm

from amadou._connectors.codec import SCALARS, Codec
from amadou._handler.event import Key
from amadou._state.in_place import IMMUTABLE, note_assigned, note_read
from amadou._state.spec import MISSING
from amadou._state.state_spec import NEVER, OPERATORS, ExpiringParts, Migrate, SingleTypeSpec, are_timed, names_of
from amadou.errors import EncodeError, StateDecodeError

T = TypeVar("T")


class ListState(MutableSequence[T]):
    """A list stored per subject, declared by a `ListSpec`. Items are decoded when they are accessed, not when the
    subject is loaded.

    Changes through the list's methods are stored. If you read an item and change it in place, the change is not stored
    until you assign the item again (`semantics.md` 14).

    Writing an item that does not fit the spec raises an `EncodeError`. Reading a stored item that does not fit the spec
    raises a `StateDecodeError`.
    """

    __slots__ = ("_changed", "_encoded", "_key", "_spec")
    has_ttl = False

    def __init__(self, spec: "ListSpec[T]", key: Key, items: list[Any]) -> None:
        self._spec = spec
        self._key = key
        self._encoded = items
        self._changed = False

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._noted(part) for part in self._seen()[index]]
        return self._noted(self._seen()[index])

    @overload
    def __setitem__(self, index: int, value: T) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[T]) -> None: ...
    def __setitem__(self, index: int | slice, value: Any) -> None:
        if isinstance(index, slice):
            self._changing()[index] = [self._encoded_of(item) for item in value]
        else:
            self._changing()[index] = self._encoded_of(value)

    def __delitem__(self, index: int | slice) -> None:
        del self._changing()[index]

    def __len__(self) -> int:
        return len(self._seen())

    def __iter__(self) -> Iterator[T]:
        return map(self._noted, self._seen())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | ListState) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def insert(self, index: int, value: T) -> None:
        """Insert an item before an index, like `list.insert`."""
        encoded = self._encoded_of(value)  # an item that cannot be encoded changes nothing
        self._changing().insert(index, encoded)

    def append(self, value: T) -> None:
        """Append an item, without decoding the other items."""
        encoded = self._encoded_of(value)
        self._changing().append(encoded)

    def extend(self, values: Iterable[T]) -> None:
        """Append all items, or no item if one of the items does not fit the spec."""
        encoded_values = [self._encoded_of(value) for value in values]
        self._changing().extend(encoded_values)

    def clear(self) -> None:
        """Remove every item."""
        if self._encoded:
            self._changing().clear()

    def _assign(self, value: Iterable[T]) -> None:
        self[:] = value

    def _shown(self) -> list[T]:
        return list(self)

    def _stored(self) -> Any:
        return self._encoded or MISSING  # an empty list is not stored (`semantics.md` 15)

    def _seen(self) -> list[Any]:
        """Return the encoded items that the callback sees."""
        return self._encoded

    def _changing(self) -> list[Any]:
        """Return the encoded items, which the caller changes."""
        self._changed = True
        return self._encoded

    def _encoded_of(self, value: T) -> Any:
        """Return the part for an item that a callback writes."""
        part = self._encoded_item(value)
        if type(value) not in IMMUTABLE and _is_unique(part):
            note_assigned(self, id(part), part, value)
        return part

    def _encoded_item(self, value: T) -> Any:
        spec = self._spec
        try:
            return value if type(value) is spec.scalar else spec.encode(value)
        except EncodeError as error:
            raise EncodeError(value, spec.type, error.why, spec.name, self._key) from error

    def _noted(self, part: Any) -> T:
        """Return the item of a part that a callback reads."""
        value = self._read(part)
        if type(value) not in IMMUTABLE and _is_unique(part):
            note_read(self, id(part), part, value)
        return value

    def _holds(self, at: int, part: Any) -> bool:
        return any(each is part for each in self._encoded)

    def _content(self, part: Any) -> Any:
        return part

    def _assignment(self, at: int) -> str:
        index = next((index for index, part in enumerate(self._seen()) if id(part) == at), "index")
        return f"self.{self._spec.name}.state_for(subject)[{index}]"

    def _read(self, encoded: Any) -> T:
        spec = self._spec
        try:
            return cast("T", encoded if type(encoded) is spec.scalar else spec.decode(encoded))
        except Exception as error:
            raise spec.unreadable(error, encoded, spec.type, self._key) from error

    def __repr__(self) -> str:
        return f"ListState({self._spec.name!r}, {list(self)!r})"


def _is_unique(part: Any) -> bool:
    """Return `True` if no other item has the same object as its part, as equal numbers and short strings can."""
    return type(part) in (list, dict) or (type(part) is bytes and len(part) > 1)


class _ExpiringListState(ExpiringParts, ListState[T]):
    """A `ListState` with a ttl. A callback that changes the list removes the items that it does not see."""

    __slots__ = ("_expired_at", "_now", "_since", "_visible")

    def _see(self, now: int) -> None:
        super()._see(now)
        self._visible: list[Any] | None = None

    def _seen(self) -> list[Any]:
        if self._visible is None:
            items = self._encoded
            self._visible = items if self._sees_all() else [item for item in items if item[0] > self._expired_at]
        return self._visible

    def _changing(self) -> list[Any]:
        self._encoded = self._seen()
        self._since = min(self._since, self._now)  # the caller writes items
        return super()._changing()

    def __setitem__(self, index: Any, value: Any) -> None:
        replaced = self._seen()[index]
        if isinstance(index, slice):
            before = max((written for written, _ in replaced), default=NEVER)
            self._changing()[index] = [self._encoded_of(item, before) for item in value]
        else:
            self._changing()[index] = self._encoded_of(value, replaced[0])

    def _encoded_of(self, value: T, before: int = NEVER) -> Any:
        """Return an item in encoded form, with the time at which it is written.

        :param before: the time at which an item that it replaces was written
        """
        part = [max(self._now, before), self._encoded_item(value)]
        if type(value) not in IMMUTABLE:
            note_assigned(self, id(part), part, value)
        return part

    def _read(self, encoded: Any) -> T:
        return super()._read(encoded[1])

    def _oldest(self) -> int:
        return min(map(itemgetter(0), self._encoded), default=self._now)


class ListSpec(SingleTypeSpec[ListState[T]], Generic[T]):
    """Spec for a list per subject.

    :param type: the type of the items: any type that `codec_for` supports
    :param ttl: duration in event time after which an item expires unless it is written again (`semantics.md` 16)
    :param name: the name that the state is stored under; by default the attribute's name
    :param codec: codec for the items, for types that `codec_for` does not support
    :param version: the version of the item type; must be positive if `migrate` is set
    :param migrate: function that converts an item of an older version. The function receives the item in encoded form,
        such as a `dict` for a class, and the item's version. It returns an item of the current type (`semantics.md` 17)
    """

    _usage = "state_for(subject).append(…)"
    _of_subjects = names_of(ListState)
    _operators = {**OPERATORS, "__iadd__": "{}.extend(…)"}

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
        """The type of the items if items are stored unchanged; otherwise `None`."""
        self._defer()

    def _state(self, key: Key, items: Any) -> ListState[T]:
        return ListState(self, key, self._items(key, items))

    def _state_with_ttl(self, key: Key, items: Any, now: int) -> ListState[T]:
        return _ExpiringListState(self, key, self._items(key, items), now)

    def _items(self, key: Key, stored: Any) -> list[Any]:
        if stored is MISSING:
            return []
        if type(stored) is not list:
            raise StateDecodeError(stored, list, spec=self.name, key=key)
        return stored

    def _each_part(self, encoded: Any, convert: Callable[[Any], Any]) -> Any:
        return [convert(part) for part in encoded] if type(encoded) is list else encoded

    def _has_times(self, encoded: Any) -> bool:
        return type(encoded) is not list or are_timed(encoded)

    def _parts_after(self, encoded: Any, begin: int) -> Any:
        if type(encoded) is not list:
            return encoded
        left = [part for part in encoded if part[0] > begin]
        return encoded if len(left) == len(encoded) else left

    def structure(self) -> dict[str, Any]:
        return self._structure_of(item=(self.type, self._codec))
