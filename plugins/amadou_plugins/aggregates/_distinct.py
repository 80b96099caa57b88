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
"""The identities as the keys of a dict, or a sketch of them."""

_LOG_REGISTERS = 12
"""2**12 registers: 4 KiB, and a standard error of 1.04 / sqrt(4096)."""


@attrs.frozen(repr=False)
class DistinctCount(OneValue[Distinct, int]):
    """The number of different values.

    Values of different types differ: 1, "1", b"1" and `True` are four values. Equal numbers count as one: 1, 1.0 and
    `Decimal("1.00")` are a single value.

    The approximate count is a HyperLogLog sketch: at most 4 KiB of state, however many values, and a standard error of
    1.6 %; up to 384 values it is as good as exact. It needs ``pip install 'amadou[sketches]'``.

    :param of: the values, of any type that an event's value may hold; `None` and NaN are skipped
    :param approximate: true for an estimate; without it the state grows with each different value
    :raises AggregateError: the library for estimates is not installed
    """

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
        raise AggregateError(repr(self), "cannot merge an exact count with an approximate one")

    def result(self, accumulator: Distinct) -> int:
        if isinstance(accumulator, dict):
            return len(accumulator)
        # A sketch alone gives an estimate that depends on the order of its values; a union, even with itself, does not.
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
    """Return an identity that equal numbers share, whatever their types."""
    number = None if type(value) is bool else plain_number(value)
    if number is None or isinstance(number, int):
        return number
    if not (number.is_finite() if isinstance(number, Decimal) else isfinite(number)):
        return str(float(number))
    numerator, denominator = number.as_integer_ratio()
    return numerator if denominator == 1 else f"{numerator}/{denominator}"
