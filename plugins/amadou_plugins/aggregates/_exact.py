"""Exact sums of floats and integers. Nothing is rounded, so the order of additions and merges does not change a sum.

An exact sum is a list that begins with `[floats, whole, shift]`; the sum is `sum(floats) + whole / 2**shift`. Once the
list `floats` contains more than `FEW` floats, `shrink` replaces these floats with the float nearest to their sum, the
float nearest to the remainder, and so on until the remainder is zero.
"""

from collections.abc import Iterable
from math import fsum, isfinite, isinf, isqrt
from typing import Any, Final, TypeAlias

ExactSum: TypeAlias = list[Any]
Dyadic: TypeAlias = tuple[int, int]
"""A fraction whose denominator is a power of two, as a pair: the numerator and the exponent of the denominator."""

FEW: Final = 16
"""Number of floats above which an exact sum is shrunk. A higher number needs more state, a lower number more time."""

SMALL: Final = 1e-140
LARGE: Final = 1e150
"""If the absolute values of two floats are between `SMALL` and `LARGE`, the rounding error of their product is itself a
float (Dekker 1971).
"""

_SPLITTER: Final = 2.0**27 + 1


def new_sum() -> ExactSum:
    return [[], 0, 0]


def shrink(total: ExactSum) -> None:
    """Make a sum's list of floats as short as possible, but not empty: an empty list marks a sum without floats."""
    rest = total[0].copy()
    floats = []
    try:
        while nearest := fsum(rest):
            floats.append(nearest)
            rest.append(-nearest)
    except (OverflowError, ValueError):  # an intermediate sum beyond the largest float, or an infinite value
        floats = sorted({value for value in total[0] if not isfinite(value)})
        if not floats:
            for value in total[0]:
                add_dyadic(total, dyadic(value))
    total[0] = floats or [0.0]


def add_dyadic(total: ExactSum, value: Dyadic) -> None:
    numerator, shift = value
    if shift == total[2]:
        total[1] += numerator
    elif shift < total[2]:
        total[1] += numerator << (total[2] - shift)
    else:
        total[1] = (total[1] << (shift - total[2])) + numerator
        total[2] = shift


def add_floats(total: ExactSum, values: Iterable[float]) -> None:
    floats = total[0]
    floats.extend(values)
    if len(floats) > FEW:
        shrink(total)


def add_squares(total: ExactSum, values: list[float]) -> None:
    """Add the squares of floats whose absolute values are all between `SMALL` and `LARGE`."""
    floats = total[0]
    for value in values:
        square = value * value
        split = _SPLITTER * value
        high = split - (split - value)
        low = value - high
        floats.append(square)
        floats.append(high * high - square + 2.0 * high * low + low * low)
    if len(floats) > FEW:
        shrink(total)


def add_product(total: ExactSum, left: float | int, right: float | int) -> None:
    """Add the product of two finite numbers."""
    if type(left) is float and type(right) is float and SMALL < abs(left) < LARGE and SMALL < abs(right) < LARGE:
        product = left * right
        split = _SPLITTER * left
        left_high = split - (split - left)
        left_low = left - left_high
        split = _SPLITTER * right
        right_high = split - (split - right)
        right_low = right - right_high
        error = left_high * right_high - product + left_high * right_low + left_low * right_high + left_low * right_low
        floats = total[0]
        floats.append(product)
        floats.append(error)
        if len(floats) > FEW:
            shrink(total)
    else:
        (numerator, shift), (other, other_shift) = dyadic(left), dyadic(right)
        add_dyadic(total, (numerator * other, shift + other_shift))


def add_sum(total: ExactSum, other: ExactSum) -> None:
    add_dyadic(total, (other[1], other[2]))
    add_floats(total, other[0])


def dyadic(value: float | int) -> Dyadic:
    numerator, denominator = value.as_integer_ratio()
    return numerator, denominator.bit_length() - 1


def is_infinite(value: float | int) -> bool:
    return type(value) is float and isinf(value)


def infinite(total: ExactSum) -> float | None:
    """Return the value of an infinite sum, or NaN for infinities of both signs; `None` if the sum is finite."""
    floats = total[0]
    value = sum(floats)
    if isfinite(value):
        return None
    shrink(total)
    value = sum(total[0])
    return None if isfinite(value) else value


def value_of(total: ExactSum) -> Dyadic:
    """Return the value of a finite sum."""
    if len(total[0]) > 1:
        shrink(total)
    exact: ExactSum = [[], total[1], total[2]]
    for value in total[0]:
        add_dyadic(exact, dyadic(value))
    return exact[1], exact[2]


def comoment(count: int, products: ExactSum, left: ExactSum, right: ExactSum) -> Dyadic:
    """Return `count` times the sum `products`, minus the product of the sums `left` and `right`."""
    (first, first_shift), (second, second_shift) = value_of(left), value_of(right)
    exact: ExactSum = [[], -first * second, first_shift + second_shift]
    numerator, shift = value_of(products)
    add_dyadic(exact, (count * numerator, shift))
    return exact[1], exact[2]


def ratio(numerator: int, denominator: int) -> float:
    """Return the float nearest to a fraction. If the fraction is beyond the largest float, return infinity with the
    fraction's sign.
    """
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf") if (numerator < 0) == (denominator < 0) else float("-inf")


def root(numerator: int, denominator: int) -> float:
    """Return the float nearest to the square root of a fraction."""
    if not numerator:
        return 0.0
    half = (112 - numerator.bit_length() + denominator.bit_length()) // 2
    if half >= 0:
        numerator <<= 2 * half
    else:
        denominator <<= -2 * half
    whole, rest = divmod(numerator, denominator)
    floor = isqrt(whole)
    # with at least 55 bits, an odd last bit marks a remainder, which is enough for correct rounding
    floor = 2 * floor + (rest > 0 or floor * floor != whole)
    return ratio(floor, 2 << half) if half >= 0 else ratio(floor << -half, 2)
