from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import Any, TypeAlias

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._numbers import plain_number
from amadou_plugins.aggregates._order import text_of
from amadou_plugins.aggregates._reading import OneValue
from amadou_plugins.aggregates._sketches import sketches

Distinct: TypeAlias = dict[int | str, bool] | bytes
"""An accumulator: a dict with the values' identities as keys, or a serialized sketch of the identities."""

_LOG_REGISTERS = 12
"""Base-2 logarithm of the number of registers. 4,096 registers take 4 KiB and give a standard error of 1.04 /
sqrt(4096)."""


@attrs.frozen(repr=False)
class DistinctCount(OneValue[Distinct, int]):
    """The number of distinct values.

    Equal numbers count as one value: 1, 1.0 and `Decimal("1.00")`. All other values of different types are distinct: 1,
    "1", b"1" and `True` are four values.

    The approximate count uses a HyperLogLog sketch: about 4 KiB of state at most, regardless of the number of values,
    and a standard error of 1.6 %. For up to 384 values, the estimate is practically exact. The approximate count
    requires ``pip install 'amadou[sketches]'``.

    :param of: the values, of any type that an event's value can contain; `None` and NaN are skipped
    :param approximate: `True` for an approximate count; an exact count stores every distinct value
    :raises AggregateError: `approximate` is set, but the library for approximate counts is not installed
    """

    keeps_values = False

    approximate: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.approximate:
            sketches(repr(self), "datasketches")

    def create(self) -> Distinct:
        return b"" if self.approximate else {}

    def add(self, accumulator: Distinct, event: KeyedEvent[Any]) -> Distinct:
        return self.add_all(accumulator, (event,))

    def add_all(self, accumulator: Distinct, events: Sequence[KeyedEvent[Any]]) -> Distinct:
        identities = dict.fromkeys(map(_identity, self.present(events)), True)
        if not isinstance(accumulator, bytes):
            accumulator.update(identities)
            return accumulator
        if not identities:
            return accumulator
        sketch = _sketch(accumulator)
        for identity in identities:
            sketch.update(str(identity))
        return sketch.serialize_compact()  # type: ignore[no-any-return]

    def merge(self, left: Distinct, right: Distinct) -> Distinct:
        if isinstance(left, bytes) and isinstance(right, bytes):
            if not left or not right:
                return left or right
            library = _library()
            return _union(left, right).get_result(library.HLL_8).serialize_compact()  # type: ignore[no-any-return]
        if isinstance(left, dict) and isinstance(right, dict):
            left.update(right)
            return left
        raise AggregateError(repr(self), "cannot merge exact and approximate counts: set the same approximate=")

    def result(self, accumulator: Distinct) -> int:
        if isinstance(accumulator, dict):
            return len(accumulator)
        # A sketch's estimate depends on the order in which values were added. The estimate of a union does not depend
        # on the order, so the sketch is merged with itself.
        return round(_union(accumulator, accumulator).get_estimate()) if accumulator else 0


@cache
def _library() -> Any:
    return sketches("DistinctCount", "datasketches")


def _sketch(serialized: bytes) -> Any:
    library = _library()
    if serialized:
        return library.hll_sketch.deserialize(serialized)
    return library.hll_sketch(_LOG_REGISTERS, library.HLL_8)


def _union(left: bytes, right: bytes) -> Any:
    union = _library().hll_union(_LOG_REGISTERS)
    union.update(_sketch(left))
    union.update(_sketch(right))
    return union


def _identity(value: Any) -> int | str:
    if isinstance(value, str):
        return f"'{str.__str__(value)}"
    number = _number(value)
    return text_of(value, _leaf) if number is None else number


def _leaf(value: Any) -> str:
    if isinstance(value, str):
        return str.__repr__(value)
    number = _number(value)
    return f"{type(value).__name__} {value!r}" if number is None else str(number)


def _number(value: Any) -> int | str | None:
    """Return the identity that equal numbers share, regardless of type; `None` if the value is not a number."""
    number = None if type(value) is bool else plain_number(value)
    if number is None or isinstance(number, int):
        return number
    if not (number.is_finite() if isinstance(number, Decimal) else isfinite(number)):
        return str(float(number))
    numerator, denominator = number.as_integer_ratio()
    return numerator if denominator == 1 else f"{numerator}/{denominator}"
