from bisect import bisect
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import Any

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._exact import is_infinite, ratio
from amadou_plugins.aggregates._numbers import number, plain_number
from amadou_plugins.aggregates._reading import OneValue, is_missing
from amadou_plugins.aggregates._sketches import sketches


def _as_tuple(quantiles: Iterable[float]) -> Sequence[float]:
    return tuple(quantiles) if isinstance(quantiles, Iterable) else quantiles


def _is_share(value: Any) -> bool:
    plain = plain_number(value)
    return plain is not None and not is_missing(plain) and 0 <= plain <= 1


@attrs.frozen(repr=False)
class Quantiles(OneValue[list[Any], list[float | None]]):
    """Approximate quantiles from a DDSketch, as a list in the order of `quantiles`. Each quantile is `None` if there
    are no values.

    The exact quantile is the value at index `floor(quantile * (count - 1))` of the sorted values. Relative to the exact
    quantile, the error of a result is at most `accuracy`. The state grows with the range of the values: values from 1
    ms to 1 h need at most 756 counters at an accuracy of 1 %. At this accuracy, numbers closer to 0 than about 2e-308
    are treated as 0. Numbers beyond about ±1.7e308, such as infinities, are treated as about ±1.7e308.

    Requires ``pip install 'amadou[sketches]'``.

    :param of: numbers (`int`, `float`, `Decimal`, or `bool` as 0 and 1); `None` and NaN are skipped
    :param quantiles: numbers from 0 to 1
    :param accuracy: maximum relative error, greater than 0 and less than 1
    :raises AggregateError: `quantiles` is empty, a quantile or the accuracy is out of range, or the `ddsketch` library
        is not installed
    """

    keeps_values = False

    quantiles: Sequence[float] = attrs.field(default=(), converter=_as_tuple)
    accuracy: float = attrs.field(default=0.01, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if type(self.quantiles) is not tuple or not self.quantiles or not all(map(_is_share, self.quantiles)):
            raise AggregateError(repr(self), "needs one or more quantiles from 0 to 1, such as quantiles=[0.5, 0.99]")
        if not _is_share(self.accuracy) or self.accuracy in (0, 1):
            raise AggregateError(repr(self), "needs an accuracy above 0 and below 1, such as accuracy=0.01")
        sketches(repr(self), "ddsketch")

    def create(self) -> list[Any]:
        return [{}, 0, {}]

    def add(self, accumulator: list[Any], event: KeyedEvent[Any]) -> list[Any]:
        value = self.read(event)
        if not is_missing(value):
            _take(_mapping(self.accuracy), accumulator, number(self, value))
        return accumulator

    def add_all(self, accumulator: list[Any], events: Sequence[KeyedEvent[Any]]) -> list[Any]:
        mapping = _mapping(self.accuracy)
        for value in map(self.read, events):
            if not is_missing(value):
                _take(mapping, accumulator, number(self, value))
        return accumulator

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        for counts, more in ((left[0], right[0]), (left[2], right[2])):
            for key, count in more.items():
                counts[key] = counts.get(key, 0) + count
        left[1] += right[1]
        return left

    def result(self, accumulator: list[Any]) -> list[float | None]:
        negative, zeros, positive = accumulator
        mapping = _mapping(self.accuracy)
        bins = [(-mapping.value(key), negative[key]) for key in sorted(negative, reverse=True)]
        bins += [(0.0, zeros)] if zeros else []
        bins += [(mapping.value(key), positive[key]) for key in sorted(positive)]
        ends = list(accumulate(count for _, count in bins))
        return [bins[bisect(ends, quantile * (ends[-1] - 1))][0] if ends else None for quantile in self.quantiles]


@attrs.frozen(repr=False)
class Median(OneValue[list[float | int], float | None]):
    """The median, as the float nearest to the exact median; `None` if there are no values.

    The state contains every value. For many values, use `Quantiles` instead.

    :param of: numbers (`int`, `float`, `bool` as 0 and 1, or `Decimal` as the nearest float); `None` and NaN are
        skipped
    """

    keeps_values = False

    def create(self) -> list[float | int]:
        return []

    def add(self, accumulator: list[float | int], event: KeyedEvent[Any]) -> list[float | int]:
        value = self.read(event)
        if not is_missing(value):
            accumulator.append(number(self, value))
        return accumulator

    def add_all(self, accumulator: list[float | int], events: Sequence[KeyedEvent[Any]]) -> list[float | int]:
        accumulator += [number(self, value) for value in self.present(events)]
        return accumulator

    def merge(self, left: list[float | int], right: list[float | int]) -> list[float | int]:
        left += right
        return left

    def result(self, accumulator: list[float | int]) -> float | None:
        if not accumulator:
            return None
        values = sorted(accumulator)
        low, high = values[(len(values) - 1) // 2], values[len(values) // 2]
        if is_infinite(low) or is_infinite(high):
            return sum(value for value in (low, high) if is_infinite(value))
        middle = (Fraction(low) + Fraction(high)) / 2
        return ratio(middle.numerator, middle.denominator)


@cache
def _mapping(accuracy: float) -> Any:
    """Return the mapping from values to counters for an accuracy."""
    return sketches("Quantiles", "ddsketch").LogarithmicMapping(accuracy)


def _take(mapping: Any, accumulator: list[Any], value: float | int) -> None:
    size = abs(value)
    if size <= mapping.min_possible:
        accumulator[1] += 1
        return
    key = mapping.key(min(size, mapping.max_possible))
    counts = accumulator[0] if value < 0 else accumulator[2]
    counts[key] = counts.get(key, 0) + 1
