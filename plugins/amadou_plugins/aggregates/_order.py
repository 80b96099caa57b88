"""A fixed order of values, which breaks ties in the same way in every process."""

from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypeAlias

from amadou.fields import fields_of, has_fields
from amadou_plugins.aggregates._errors import ValueKindError
from amadou_plugins.aggregates._numbers import plain_number

Rank: TypeAlias = tuple[int, Any, str]

KINDS = ("numbers", "texts", "bytes", "times", "dates", "durations")

_TAKES = "numbers, or strings, or bytes, or aware datetimes, or dates, or durations"


def kind_of(value: Any) -> int:
    """Return the position of a value's kind in `KINDS`, or 6 for any other kind. Values of the same kind can be
    compared, except for values of kind 6.
    """
    if isinstance(value, (int, float, Decimal)):
        return 0
    if isinstance(value, str):
        return 1
    if isinstance(value, bytes):
        return 2
    if isinstance(value, datetime):
        return 6 if value.utcoffset() is None else 3
    if isinstance(value, date):
        return 4
    if isinstance(value, timedelta):
        return 5
    return 6 if plain_number(value) is None else 0


def kind_name(value: Any) -> str | None:
    """Return the `Aggregate.kind` of a value; `None` for a missing value."""
    return None if value is None else KINDS[kind_of(value)]


def rank(value: Any) -> Rank:
    """Return the sort key of a value in the fixed order."""
    kind, text = kind_of(value), text_of(value, _typed)
    return (kind, text, "") if kind == 6 else (kind, value, text)


def comparable(aggregate: Any, value: Any, other: Any = None) -> Any:
    """Check that a value can be compared with other values, and return the value. A number is returned as a `float`, an
    `int`, a `bool` or a `Decimal`.

    :param other: an earlier value of the aggregate, if any
    :raises ValueKindError: the value cannot be compared
    """
    kind = kind_of(value)
    if kind == 6:
        raise ValueKindError(repr(aggregate), value, _TAKES)
    if other is not None and kind_of(other) != kind:
        raise ValueKindError(
            repr(aggregate), value, f"values that can be compared with the earlier {other!r} ({type(other).__name__})"
        )
    return value if kind or type(value) is bool else plain_number(value)


def text_of(value: Any, leaf: Callable[[Any], str]) -> str:
    """Return a string that represents a value. The string is the same in every process, whereas the `repr` of a set
    depends on the hash seed.

    :param leaf: function that converts each value inside nested containers into a string
    """
    kind = type(value)
    if isinstance(value, tuple | list):
        inside = [text_of(part, leaf) for part in value]
    elif isinstance(value, set | frozenset):
        inside = sorted(text_of(part, leaf) for part in value)
    elif isinstance(value, Mapping):
        inside = sorted(f"{text_of(key, leaf)}: {text_of(part, leaf)}" for key, part in value.items())
    elif has_fields(kind):
        inside = [text_of(getattr(value, field.name), leaf) for field in fields_of(kind)]
    else:
        if isinstance(value, datetime) and value.utcoffset() is not None:
            value = value.astimezone(timezone.utc)
        return leaf(value)
    return f"{kind.__qualname__}({', '.join(inside)})"


def _typed(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"
