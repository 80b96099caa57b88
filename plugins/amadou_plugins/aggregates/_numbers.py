from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from amadou_plugins.aggregates._errors import ValueKindError


def plain_number(value: Any) -> float | int | Decimal | None:
    """Return a number as a `float`, an `int` or a `Decimal`; `None` if the value is not a number."""
    kind = type(value)
    if kind is float or kind is int or kind is Decimal:
        return value  # type: ignore[no-any-return]
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    return Decimal(value) if isinstance(value, Decimal) else None


def number(aggregate: Any, value: Any) -> float | int:
    """Return a number as an `int` or a `float`; a `Decimal` becomes the nearest float.

    :raises ValueKindError: the value is not a number
    """
    kind = type(value)
    if kind is float or kind is int:
        return value  # type: ignore[no-any-return]
    plain = plain_number(value)
    if plain is None:
        raise ValueKindError(repr(aggregate), value, "int, float and Decimal")
    return float(plain) if isinstance(plain, Decimal) else plain
