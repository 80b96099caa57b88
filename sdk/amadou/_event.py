from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias

from typing_extensions import TypeVar

from amadou._encoding import MAX_NESTING
from amadou.errors import KeyTypeError

Key: TypeAlias = str | bytes | int | tuple[Any, ...]
"""What a key may be: text, bytes, an integer, or a tuple of those. `1`, `"1"` and `b"1"` are three keys."""

K = TypeVar("K", bound=Key, default=Any)
K_co = TypeVar("K_co", bound=Key, covariant=True, default=Any)
V_co = TypeVar("V_co", covariant=True, default=Any)
T = TypeVar("T")


# A named tuple, not attrs: one is made for every record in `key_event` and one for every call of `on_event`, and a
# frozen attrs class takes three times as long to make.
class KeyedEvent(NamedTuple, Generic[V_co, K_co]):
    """An event, with the key of the subject that it belongs to and the time at which it happened.

    Its type may name that of the value, `KeyedEvent[View]`, and that of the key after it, `KeyedEvent[View, str]`.

    :param key: a `str`, `bytes`, `int` or a tuple of those; it comes back with the type that it went in with
    :param timestamp: an aware datetime; microseconds are kept, the zone comes back as UTC
    :param value: anything that msgpack and the codecs can carry, attrs classes and dataclasses among them
    """

    key: K_co
    timestamp: datetime
    value: V_co = None  # type: ignore[assignment]


_new_event: Callable[[Any], KeyedEvent[Any]] = partial(tuple.__new__, KeyedEvent)


def keyed_events(
    keys: Iterable[Key], timestamps: Iterable[datetime], values: Iterable[Any]
) -> Iterator[KeyedEvent[Any]]:
    """Events of their columns, made at a third of the cost of calling the class for each."""
    return map(_new_event, zip(keys, timestamps, values, strict=True))


def check_key(key: Any) -> None:
    """Raise a `KeyTypeError` unless the key is of a supported type."""
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
    """Keys, or what has them, in the order in which their timers fire (`semantics.md` 6); those of several types by
    type.

    :param key: gives an item's key
    """
    items = list(items)
    try:
        return sorted(items, key=key)  # type: ignore[type-var, arg-type]
    except TypeError:
        return sorted(items, key=lambda item: _sortable(item if key is None else key(item)))


def _sortable(key: Any) -> Any:
    """A stand-in for a key that can be compared with those of keys of other types."""
    if type(key) is tuple:
        return ("tuple", tuple(_sortable(part) for part in key))
    return (type(key).__name__, key)
