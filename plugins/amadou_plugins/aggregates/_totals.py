from collections.abc import Iterable, Sequence
from datetime import timedelta
from decimal import Context, Decimal, Inexact
from fractions import Fraction
from typing import Any, Final, TypeAlias

import attrs

from amadou import KeyedEvent
from amadou.components import EventColumns
from amadou.event_time import MICROSECOND
from amadou_plugins.aggregates._errors import AggregateError, ValueKindError
from amadou_plugins.aggregates._exact import FEW, add_dyadic, add_floats, infinite, ratio, shrink, value_of
from amadou_plugins.aggregates._kinds import are_alike
from amadou_plugins.aggregates._numbers import plain_number
from amadou_plugins.aggregates._reading import OneValue, is_missing

Total: TypeAlias = list[Any]
"""An accumulator: an exact sum, followed by the sum of the Decimals or `None`, the unit, and the number of values.

The exact sum contains durations as integer microseconds. The unit is `None` while there are no values, or only
floats."""

Value: TypeAlias = int | float | Decimal | timedelta

_DECIMAL: Final = 3
_UNIT: Final = 4
_COUNT: Final = 5
_NUMBERS: Final = 1
_DURATIONS: Final = 2
_DIGITS: Final = 100_000
_EXACTLY: Final = Context(prec=_DIGITS, Emin=-(10**9), Emax=10**9, traps=[Inexact])
_QUOTIENT: Final = Context(prec=28, Emin=-(10**9), Emax=10**9, traps=[])


@attrs.frozen(repr=False)
class _OfTotal(OneValue[Total, Any]):
    has_kinds = True
    keeps_values = False

    def create(self) -> Total:
        return new_total()

    def add(self, accumulator: Total, event: KeyedEvent[Any]) -> Total:
        take(self, accumulator, self.read(event))
        return accumulator

    def merge(self, left: Total, right: Total) -> Total:
        if right[_COUNT]:
            _agree(self, left, right[_UNIT] or _NUMBERS, _example(right))
            left[_UNIT] = left[_UNIT] or right[_UNIT]
            add_dyadic(left, (right[1], right[2]))
            add_floats(left, right[0])
            if right[_DECIMAL] is not None:
                _add_decimal(self, left, right[_DECIMAL])
            left[_COUNT] += right[_COUNT]
        return left

    def kind(self, accumulator: Total) -> str | None:
        if not accumulator[_COUNT]:
            return None
        return "durations" if accumulator[_UNIT] == _DURATIONS else "numbers"

    # A column consists of a list of counts, a list of integer sums, and all other accumulators, by position.
    # Most sums are integers, and msgpack encodes two lists of integers four times as fast as a list per accumulator.

    def column(self, accumulators: Iterable[Total]) -> list[Any]:
        counts: list[int] = []
        wholes: list[int] = []
        others: dict[int, Total] = {}
        for position, total in enumerate(accumulators):
            is_whole = not total[0] and not total[2] and total[_DECIMAL] is None and total[_UNIT] != _DURATIONS
            counts.append(total[_COUNT] if is_whole else 0)
            wholes.append(total[1] if is_whole else 0)
            if not is_whole:
                others[position] = total
        return [counts, wholes, others]

    def accumulators(self, column: list[Any]) -> list[Total]:
        counts, wholes, others = column
        totals = [
            [[], whole, 0, None, _NUMBERS if count else None, count]
            for count, whole in zip(counts, wholes, strict=True)
        ]
        for position, total in others.items():
            totals[position] = total
        return totals

    def extend(self, column: list[Any], number: int) -> None:
        counts, wholes, _ = column
        counts += [0] * number
        wholes += [0] * number

    def taken(self, column: list[Any], at: Iterable[int]) -> list[Any]:
        counts, wholes, others = column
        at = list(at)
        left = {new: others[old] for new, old in enumerate(at) if old in others} if others else {}
        return [list(map(counts.__getitem__, at)), list(map(wholes.__getitem__, at)), left]

    def add_each(self, column: list[Any], at: Sequence[int], events: EventColumns) -> None:
        counts, wholes, others = column
        for position, value in zip(at, self.read_each(events), strict=True):
            if type(value) is int and position not in others:
                counts[position] += 1
                wholes[position] += value
            elif value is not None:
                take(self, _other(column, position), value)

    def merge_each(self, column: list[Any], at: Sequence[int], other: list[Any]) -> None:
        counts, wholes, others = column
        if others or other[2]:
            for position, total in zip(at, self.accumulators(other), strict=True):
                others[position] = self.merge(_other(column, position), total)
        else:
            for position, count, whole in zip(at, other[0], other[1], strict=True):
                counts[position] += count
                wholes[position] += whole

    def are_alike(self, columns: Sequence[list[Any]]) -> bool:
        kinds = {self.kind(total) for column in columns for total in column[2].values()}
        return are_alike((*kinds, *("numbers" for column in columns if any(column[0]))))

    def _with_others(self, column: list[Any], found: list[Any]) -> list[Any]:
        """Insert the results of the accumulators with other values into the results of the integer sums, and return
        all results.
        """
        for position, total in column[2].items():
            found[position] = self.result(total)
        return found


@attrs.frozen(repr=False)
class Sum(_OfTotal):
    """The sum; 0 if there are no values.

    The sum of integers is an `int`, the sum of Decimals and integers is a `Decimal`, and the sum of durations is a
    `timedelta`. Sums without floats are exact. If any value is a float, the result is the float nearest to the exact
    sum. The result is infinite if a value is infinite or the sum is beyond the largest float, and NaN if there are
    infinities of both signs.

    :param of: numbers (`int`, `float`, `Decimal`, or `bool` as 0 and 1) or durations (`timedelta`), not both; `None`
        and NaN are skipped
    """

    def result(self, accumulator: Total) -> Any:
        if accumulator[_UNIT] == _DURATIONS:
            return _duration(self, accumulator[1])
        if accumulator[0]:
            return _quotient(accumulator, 1)
        if accumulator[_DECIMAL] is not None:
            return _decimal_sum(accumulator)
        return accumulator[1]

    def results(self, column: list[Any]) -> list[Any]:
        return self._with_others(column, list(column[1]))


@attrs.frozen(repr=False)
class Mean(_OfTotal):
    """The arithmetic mean; `None` if there are no values.

    The mean of integers, or of numbers that include a float, is the float nearest to the exact mean. The mean of
    Decimals, or of Decimals and integers, is a `Decimal` with up to 28 digits. The mean of durations is a `timedelta`,
    rounded to microseconds.

    :param of: numbers or durations, of the types that `Sum` accepts; `None` and NaN are skipped
    """

    def result(self, accumulator: Total) -> Any:
        return mean_of(self, accumulator)

    def results(self, column: list[Any]) -> list[Any]:
        counts, wholes, _ = column
        try:
            found = [whole / count if count else None for count, whole in zip(counts, wholes, strict=True)]
        except OverflowError:
            return [self.result(total) for total in self.accumulators(column)]
        return self._with_others(column, found)


def mean_of(aggregate: Any, total: Total) -> Value | None:
    count = total[_COUNT]
    if not count:
        return None
    if total[_UNIT] == _NUMBERS and not total[0] and not total[2] and total[_DECIMAL] is None:
        try:
            return total[1] / count  # type: ignore[no-any-return]
        except OverflowError:
            return _quotient(total, count)
    if total[_UNIT] == _DURATIONS:
        return _duration(aggregate, round(Fraction(total[1], count)))
    if total[_DECIMAL] is not None and not total[0]:
        return _QUOTIENT.divide(_decimal_sum(total), Decimal(count))
    return _quotient(total, count)


def _other(column: list[Any], position: int) -> Total:
    """Return the complete accumulator at a position. In the column, it replaces the count and the integer sum."""
    counts, wholes, others = column
    total: Total | None = others.get(position)
    if total is None:
        total = others[position] = new_total()
        if counts[position]:
            total[1], total[_UNIT], total[_COUNT] = wholes[position], _NUMBERS, counts[position]
            counts[position] = wholes[position] = 0
    return total


def new_total() -> Total:
    return [[], 0, 0, None, None, 0]


def take(aggregate: Any, total: Total, value: Any) -> None:
    kind = type(value)
    if kind is int and not total[2] and total[_UNIT] != _DURATIONS:
        total[1] += value
        total[_UNIT] = _NUMBERS
    elif kind is float and value == value and total[_UNIT] != _DURATIONS:
        floats = total[0]
        floats.append(value)
        if len(floats) > FEW:
            shrink(total)
    elif is_missing(value):
        return
    elif isinstance(value, timedelta):
        _agree(aggregate, total, _DURATIONS, value)
        total[_UNIT] = _DURATIONS
        total[1] += value // MICROSECOND
    else:
        plain = plain_number(value)
        if plain is None:
            raise ValueKindError(repr(aggregate), value, "int, float, Decimal and timedelta")
        _agree(aggregate, total, _NUMBERS, value)
        total[_UNIT] = _NUMBERS
        if isinstance(plain, int):
            add_dyadic(total, (plain, 0))
        elif isinstance(plain, Decimal) and plain.is_finite():
            _add_decimal(aggregate, total, plain)
        else:
            add_floats(total, (float(plain),))
    total[_COUNT] += 1


def _agree(aggregate: Any, total: Total, unit: int, value: Any) -> None:
    if total[_COUNT] and (total[_UNIT] or _NUMBERS) != unit:
        raise ValueKindError(repr(aggregate), value, "numbers or durations, not both")


def _example(total: Total) -> Any:
    if total[_UNIT] == _DURATIONS:
        return timedelta(0)
    return next((part for part in (total[_DECIMAL], *total[0]) if part is not None), 0)


def _add_decimal(aggregate: Any, total: Total, value: Decimal) -> None:
    try:
        total[_DECIMAL] = value if total[_DECIMAL] is None else _EXACTLY.add(total[_DECIMAL], value)
    except Inexact:
        raise AggregateError(
            repr(aggregate), f"cannot add {value}: an exact sum would exceed {_DIGITS:,} digits. Round the values"
        ) from None


def _decimal_sum(total: Total) -> Decimal:
    return _EXACTLY.add(total[_DECIMAL], Decimal(total[1])) if total[1] else total[_DECIMAL]


def _quotient(total: Total, count: int) -> float:
    """Return the float nearest to the quotient of an accumulator's sum and a count."""
    unbounded = infinite(total)
    if unbounded is not None:
        return unbounded
    numerator, shift = value_of(total)
    if total[_DECIMAL] is None:
        return ratio(numerator, count << shift)
    exact = (Fraction(numerator, 1 << shift) + Fraction(total[_DECIMAL])) / count
    return ratio(exact.numerator, exact.denominator)


def _duration(aggregate: Any, microseconds: int) -> timedelta:
    try:
        return timedelta(microseconds=microseconds)
    except OverflowError:
        raise AggregateError(repr(aggregate), "exceeds a timedelta's range: sum numbers of seconds instead") from None
