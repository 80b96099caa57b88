from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._exact import (
    FEW,
    LARGE,
    SMALL,
    add_dyadic,
    add_floats,
    add_product,
    add_squares,
    add_sum,
    comoment,
    dyadic,
    infinite,
    is_infinite,
    new_sum,
    ratio,
    root,
    shrink,
)
from amadou_plugins.aggregates._numbers import number
from amadou_plugins.aggregates._reading import Of, OneValue, Reader, fields_read, is_missing, reader

Moments: TypeAlias = list[Any]
"""An accumulator: the number of values or pairs, followed by the exact sums of the values and of their products."""

_NAN = float("nan")


@attrs.frozen(repr=False)
class _OfSquares(OneValue[Moments, float | None]):
    keeps_values = False

    ddof: int = attrs.field(default=1, kw_only=True)
    _rounded: ClassVar[Any]

    def __attrs_post_init__(self) -> None:
        _check_ddof(self, self.ddof)

    def create(self) -> Moments:
        return [0, new_sum(), new_sum()]

    def add(self, accumulator: Moments, event: KeyedEvent[Any]) -> Moments:
        self._take(accumulator, self.read(event))
        return accumulator

    def add_all(self, accumulator: Moments, events: Sequence[KeyedEvent[Any]]) -> Moments:
        values = list(map(self.read, events))
        kinds = set(map(type, values))
        if kinds == {float} and all(SMALL < abs(value) < LARGE for value in values):
            accumulator[0] += len(values)
            add_floats(accumulator[1], values)
            add_squares(accumulator[2], values)
        elif kinds == {int}:
            accumulator[0] += len(values)
            add_dyadic(accumulator[1], (sum(values), 0))
            add_dyadic(accumulator[2], (sum(value * value for value in values), 0))
        else:
            for value in values:
                self._take(accumulator, value)
        return accumulator

    def merge(self, left: Moments, right: Moments) -> Moments:
        return _merged(left, right)

    def result(self, accumulator: Moments) -> float | None:
        return _spread(accumulator, self.ddof, type(self)._rounded)

    def _take(self, moments: Moments, value: Any) -> None:
        if type(value) is not float or value != value:
            if is_missing(value):
                return
            value = number(self, value)
        moments[0] += 1
        _add(moments[1], value)
        if not is_infinite(value):
            add_product(moments[2], value, value)


@attrs.frozen(repr=False)
class Variance(_OfSquares):
    """The variance of the values, as the float nearest to the exact variance.

    The result is `None` if there are no values, or at most `ddof` values. Otherwise, the result is NaN if a value is
    infinite.

    :param of: the values: `int`, `float`, `bool` (as 0 and 1) or `Decimal` (as the nearest float); `None` and NaN are
        skipped
    :param ddof: number subtracted from the count in the divisor: 1 for a sample, 0 for an entire population
    :raises AggregateError: `of` is neither a field name nor a function, or `ddof` is not an integer
    """

    _rounded = ratio


@attrs.frozen(repr=False)
class StdDev(_OfSquares):
    """The standard deviation of the values, as the float nearest to the exact standard deviation.

    The result is `None` if there are no values, or at most `ddof` values. Otherwise, the result is NaN if a value is
    infinite.

    :param of: the values, of the types that `Variance` accepts; `None` and NaN are skipped
    :param ddof: number subtracted from the count in the divisor: 1 for a sample, 0 for an entire population
    :raises AggregateError: `of` is neither a field name nor a function, or `ddof` is not an integer
    """

    _rounded = root


@attrs.frozen(repr=False)
class _OfPairs(Aggregate[Moments, float | None]):
    keeps_values = False

    x: Of
    y: Of
    read_x: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.x, "x"), takes_self=True)
    )
    read_y: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.y, "y"), takes_self=True)
    )

    @property
    def fields(self) -> frozenset[str] | None:
        return fields_read(self.x, self.y)

    def add(self, accumulator: Moments, event: KeyedEvent[Any]) -> Moments:
        x, y = self.read_x(event), self.read_y(event)
        if is_missing(x) or is_missing(y):
            return accumulator
        x, y = number(self, x), number(self, y)
        accumulator[0] += 1
        _add(accumulator[1], x)
        _add(accumulator[2], y)
        if not is_infinite(x) and not is_infinite(y):
            self.add_products(accumulator, x, y)
        return accumulator

    def add_products(self, accumulator: Moments, x: float | int, y: float | int) -> None:
        """Add the products of a pair of finite values to an accumulator."""
        raise NotImplementedError

    def merge(self, left: Moments, right: Moments) -> Moments:
        return _merged(left, right)


@attrs.frozen(repr=False)
class Covariance(_OfPairs):
    """The covariance of two values of each event, as the float nearest to the exact covariance.

    The result is `None` if there are no pairs of values, or at most `ddof` pairs. Otherwise, the result is NaN if a
    value is infinite.

    :param x: the first value, of the types that `Variance` accepts; events in which either value is `None` or NaN are
        skipped
    :param y: the second value, of the types that `Variance` accepts
    :param ddof: number subtracted from the count in the divisor: 1 for a sample, 0 for an entire population
    :raises AggregateError: `x` or `y` is neither a field name nor a function, or `ddof` is not an integer
    """

    ddof: int = attrs.field(default=1, kw_only=True)

    def __attrs_post_init__(self) -> None:
        _check_ddof(self, self.ddof)

    def create(self) -> Moments:
        return [0, new_sum(), new_sum(), new_sum()]

    def add_products(self, accumulator: Moments, x: float | int, y: float | int) -> None:
        add_product(accumulator[3], x, y)

    def result(self, accumulator: Moments) -> float | None:
        count, x, y, products = accumulator
        if count <= max(self.ddof, 0):
            return None
        if infinite(x) is not None or infinite(y) is not None:
            return _NAN
        numerator, shift = comoment(count, products, x, y)
        return ratio(numerator, (count * (count - self.ddof)) << shift)


@attrs.frozen(repr=False)
class Correlation(_OfPairs):
    """The Pearson correlation of two values of each event, as the float nearest to the exact correlation.

    The result is `None` if there are fewer than two pairs of values. Otherwise, the result is NaN if a value is
    infinite, and `None` if `x` or `y` is the same in all pairs.

    :param x: the first value, of the types that `Variance` accepts; events in which either value is `None` or NaN are
        skipped
    :param y: the second value, of the types that `Variance` accepts
    :raises AggregateError: `x` or `y` is neither a field name nor a function
    """

    def create(self) -> Moments:
        return [0, new_sum(), new_sum(), new_sum(), new_sum(), new_sum()]

    def add_products(self, accumulator: Moments, x: float | int, y: float | int) -> None:
        add_product(accumulator[3], x, x)
        add_product(accumulator[4], y, y)
        add_product(accumulator[5], x, y)

    def result(self, accumulator: Moments) -> float | None:
        count, x, y, x_squares, y_squares, products = accumulator
        if count < 2:
            return None
        if infinite(x) is not None or infinite(y) is not None:
            return _NAN
        x_spread, x_shift = comoment(count, x_squares, x, x)
        y_spread, y_shift = comoment(count, y_squares, y, y)
        if not x_spread or not y_spread:
            return None
        common, shift = comoment(count, products, x, y)
        size = root(common * common << (x_shift + y_shift), x_spread * y_spread << 2 * shift)
        return -size if common < 0 else size


def _check_ddof(aggregate: Any, ddof: int) -> None:
    if type(ddof) is not int:
        raise AggregateError(
            repr(aggregate), "needs an integer ddof, such as 1 for a sample or 0 for an entire population"
        )


def _add(total: list[Any], value: float | int) -> None:
    if type(value) is float:
        floats = total[0]
        floats.append(value)
        if len(floats) > FEW:
            shrink(total)
    else:
        add_dyadic(total, dyadic(value))


def _merged(left: Moments, right: Moments) -> Moments:
    left[0] += right[0]
    for total, other in zip(left[1:], right[1:], strict=True):
        add_sum(total, other)
    return left


def _spread(moments: Moments, ddof: int, rounded: Any) -> float | None:
    count, total, squares = moments
    if count <= max(ddof, 0):
        return None
    if infinite(total) is not None:
        return _NAN
    numerator, shift = comoment(count, squares, total, total)
    return rounded(numerator, (count * (count - ddof)) << shift)  # type: ignore[no-any-return]
