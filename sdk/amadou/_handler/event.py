from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeAlias

from typing_extensions import NamedTuple, TypeVar

from amadou._state.encoding import MAX_NESTING
from amadou.errors import KeyTypeError

Key: TypeAlias = str | bytes | int | tuple[Any, ...]
"""The type of a key: `str`, `bytes`, `int`, or a tuple of these. `1`, `"1"` and `b"1"` are three different keys."""

K = TypeVar("K", bound=Key, default=Any)
K_co = TypeVar("K_co", bound=Key, covariant=True, default=Any)
V_co = TypeVar("V_co", covariant=True, default=Any)
T = TypeVar("T")


# A named tuple, because `key_event` creates an instance for each event, and each call of `on_event` receives a new one.
# Creating an instance of a frozen attrs class takes three times as long.
class KeyedEvent(NamedTuple, Generic[V_co, K_co]):
    """An event with the key of its subject and its event time.

    The types of the value and the key can be declared: `KeyedEvent[View]` or `KeyedEvent[View, str]`.

    :param key: a `str`, `bytes`, `int` or a tuple of these types; callbacks receive the key with the same type
    :param timestamp: an aware datetime, with microsecond precision; callbacks receive the timestamp in UTC
    :param value: any value that msgpack and the codecs support, including instances of attrs classes and dataclasses
    """

    key: K_co
    timestamp: datetime
    value: V_co = None  # type: ignore[assignment]


class Filtered(NamedTuple):
    """What `key_event` can return for a record that is not an event: its time advances the watermark, as that of an
    event does (`semantics.md` 2).

    :param timestamp: an aware datetime
    """

    timestamp: datetime


_new_event: Callable[[Any], KeyedEvent[Any]] = partial(tuple.__new__, KeyedEvent)


def keyed_events(
    keys: Iterable[Key], timestamps: Iterable[datetime], values: Iterable[Any]
) -> Iterator[KeyedEvent[Any]]:
    """Yield events from columns, three times as fast as by calling `KeyedEvent` for each event."""
    return map(_new_event, zip(keys, timestamps, values, strict=True))


def check_key(key: Any) -> None:
    """Raise a `KeyTypeError` unless the key's type is supported."""
    kind = type(key)
    if kind is tuple:
        _check_parts(key, key, 1)
    elif kind is not str and kind is not bytes and kind is not int:
        raise KeyTypeError(key)


def _check_parts(parts: tuple[Any, ...], key: Any, depth: int) -> None:
    if depth > MAX_NESTING:
        raise KeyTypeError(key, f"is nested more than {MAX_NESTING} tuples deep")
    for part in parts:
        kind = type(part)
        if kind is tuple:
            _check_parts(part, key, depth + 1)
        elif kind is not str and kind is not bytes and kind is not int:
            raise KeyTypeError(part)


def in_key_order(items: Iterable[T], key: Callable[[T], Any] | None = None) -> list[T]:
    """Sort keys, or items with keys, into the order in which timers fire (`semantics.md` 6). Keys of different types
    are ordered by type.

    :param key: function that returns an item's key
    """
    items = list(items)
    try:
        return sorted(items, key=key)  # type: ignore[type-var, arg-type]
    except TypeError:
        return sorted(items, key=lambda item: _sortable(item if key is None else key(item)))


def _sortable(key: Any) -> Any:
    """Return a sort key that can be compared between keys of different types."""
    if type(key) is tuple:
        return ("tuple", tuple(_sortable(part) for part in key))
    return (type(key).__name__, key)
