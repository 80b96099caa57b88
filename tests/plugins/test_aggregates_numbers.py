"""Sums, means, spreads and quantiles, compared with their definitions."""

import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amadou import KeyedEvent
from amadou_plugins.aggregates import (
    Aggregate,
    AggregateError,
    Correlation,
    Covariance,
    Max,
    Mean,
    Median,
    Min,
    MovingAverage,
    Quantiles,
    StdDev,
    Sum,
    ValueKindError,
    Variance,
)

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
LARGEST = 1.7976931348623157e308
INFINITY = float("inf")

ordinary = st.integers(-(10**9), 10**9).map(lambda thousandths: thousandths / 1000) | st.integers(-1000, 1000)
scaled = st.builds(math.ldexp, st.floats(-1, 1), st.sampled_from([-1070, -540, -500, -465, 0, 498, 512, 1023]))
finite = st.floats(allow_nan=False, allow_infinity=False) | scaled | st.integers(-(2**80), 2**80)


def result(aggregate: Aggregate[Any, Any], values: Iterable[Any]) -> Any:
    events = [KeyedEvent("key", START, value) for value in values]
    return aggregate.result(aggregate.add_all(aggregate.create(), events))


def nearest(fraction: Fraction) -> float:
    try:
        return float(fraction)
    except OverflowError:
        return INFINITY if fraction > 0 else -INFINITY


def exact_variance(values: Sequence[float | int], ddof: int) -> Fraction:
    exact = list(map(Fraction, values))
    mean = sum(exact, Fraction(0)) / len(exact)
    return sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - ddof)


def is_nearest_root(value: float, square: Fraction) -> bool:
    if math.isinf(value):
        return square >= Fraction(LARGEST) ** 2
    below, above = (Fraction(math.nextafter(value, to)) for to in (0, INFINITY))
    at = Fraction(value)
    return ((below + at) / 2) ** 2 <= square <= ((at + above) / 2) ** 2


@settings(max_examples=40, deadline=None)
@given(st.lists(finite, min_size=1, max_size=40))
def test_sum_and_mean_are_the_floats_nearest_to_the_exact_values(values: list[float | int]) -> None:
    exact = sum(map(Fraction, values), Fraction(0))
    expected = nearest(exact) if any(isinstance(value, float) for value in values) else int(exact)
    assert result(Sum(), values) == expected
    assert type(result(Sum(), values)) is type(expected)
    assert result(Mean(), values) == nearest(exact / len(values))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, places=3), min_size=1), st.integers())
def test_decimals_are_summed_exactly(values: list[Decimal], whole: int) -> None:
    exact = sum(map(Fraction, values), Fraction(whole))
    total = result(Sum(), [*values, whole])
    assert type(total) is Decimal
    assert Fraction(total) == exact
    assert result(Sum(), [*values, whole, 0.5]) == nearest(exact + Fraction(1, 2))
    mean = result(Mean(), [*values, whole])
    assert abs(Fraction(mean) - exact / (len(values) + 1)) <= abs(exact) / 10**27


@settings(max_examples=40, deadline=None)
@given(st.lists(st.timedeltas(timedelta(days=-9999), timedelta(days=9999)), min_size=1))
def test_durations_are_summed_exactly(values: list[timedelta]) -> None:
    assert result(Sum(), values) == sum(values, timedelta(0))
    assert result(Mean(), values) == sum(values, timedelta(0)) / len(values)


@pytest.mark.parametrize(
    ("values", "total", "mean"),
    [
        ([0.1] * 10, 1.0, 0.1),
        ([1e308, 1e308, -1e308], 1e308, 1e308 / 3),
        ([LARGEST, LARGEST], INFINITY, LARGEST),
        ([-LARGEST, -1e300], -INFINITY, -LARGEST / 2 - 5e299),
        ([1e300, INFINITY, 1.0], INFINITY, INFINITY),
        ([5e-324, 5e-324, -5e-324], 5e-324, 0.0),
        ([1, 1e100, 1, -1e100], 2.0, 0.5),
        ([True, True, False, None], 2, 2 / 3),
        ([10**400, -(10**400), 3], 3, 1.0),
        ([10**400, 0.5], INFINITY, INFINITY),
        ([Decimal("0.10"), Decimal("0.20")], Decimal("0.30"), Decimal("0.15")),
        ([Decimal("Infinity"), 1], INFINITY, INFINITY),
        ([0.0, -0.0], 0.0, 0.0),
    ],
)
def test_sum_and_mean_are_exact_for_extreme_values_in_any_order(values: list[Any], total: Any, mean: Any) -> None:
    for order in (values, values[::-1]):
        assert repr(result(Sum(), order)) == repr(total)
        assert repr(result(Mean(), order)) == repr(mean)


def test_aggregates_treat_numbers_of_numpy_like_those_of_python() -> None:
    values = [numpy.float64(0.5), numpy.float32(0.25), numpy.int64(2), numpy.float32("nan")]
    for aggregate, expected in ((Sum(), "2.75"), (Median(), "0.5"), (Min(), "0.25"), (Max(), "2")):
        assert repr(result(aggregate, values)) == expected
        assert repr(result(aggregate, values[:2])) in ("0.75", "0.375", "0.25", "0.5")


def test_the_sum_of_infinities_with_both_signs_is_nan() -> None:
    assert math.isnan(result(Sum(), [INFINITY, 1.0, -INFINITY]))
    assert math.isnan(result(Mean(), [INFINITY, 1.0, -INFINITY]))


@settings(max_examples=40, deadline=None)
@given(st.lists(finite, min_size=2, max_size=20))
def test_variance_and_standard_deviation_are_the_floats_nearest_to_the_exact_values(values: list[float | int]) -> None:
    for ddof in (0, 1):
        exact = exact_variance(values, ddof)
        assert result(Variance(ddof=ddof), values) == nearest(exact)
        deviation = result(StdDev(ddof=ddof), values)
        assert is_nearest_root(deviation, exact)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(ordinary, ordinary), min_size=2, max_size=20))
def test_variance_standard_deviation_and_covariance_agree_with_pandas_and_statistics(
    pairs: list[tuple[float, float]],
) -> None:
    xs, ys = ([float(value) for value in part] for part in zip(*pairs, strict=True))
    largest = max(map(abs, xs + ys))
    x, y = (lambda event: event.value[0]), (lambda event: event.value[1])
    assert result(Variance(), xs) == float(statistics.variance(map(Fraction, xs)))
    assert result(StdDev(), xs) == pytest.approx(pandas.Series(xs).std(), rel=1e-6, abs=1e-6 * largest)
    assert result(Covariance(x, y), pairs) == pytest.approx(
        statistics.covariance(xs, ys), rel=1e-6, abs=1e-6 * largest**2
    )


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(finite, finite), min_size=2, max_size=12))
def test_covariance_and_correlation_are_the_floats_nearest_to_the_exact_values(
    pairs: list[tuple[float, float]],
) -> None:
    xs, ys = ([Fraction(value) for value in part] for part in zip(*pairs, strict=True))
    x, y = (lambda event: event.value[0]), (lambda event: event.value[1])
    both = exact_variance(xs, 1) * exact_variance(ys, 1)
    sums = [left + right for left, right in zip(xs, ys, strict=True)]
    covariance = (exact_variance(sums, 1) - exact_variance(xs, 1) - exact_variance(ys, 1)) / 2
    assert result(Covariance(x, y), pairs) == nearest(covariance)
    correlation = result(Correlation(x, y), pairs)
    if not both:
        assert correlation is None
    else:
        assert is_nearest_root(abs(correlation), covariance**2 / both)
        assert correlation == 0 or (correlation < 0) == (covariance < 0)
        assert abs(correlation) <= 1


def test_variance_of_values_far_from_zero_is_exact() -> None:
    assert result(Variance(), [1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16]) == 30.0
    assert result(Variance(), [0.1, 0.1, 0.1]) == 0.0
    assert result(Variance(ddof=0), [1e200, 1e200 + 1e185]) == pytest.approx(INFINITY)
    assert result(StdDev(ddof=0), [1e200, -1e200]) == 1e200
    assert result(StdDev(ddof=0), [5e-324, -5e-324]) == 5e-324


@pytest.mark.parametrize("aggregate", [Variance(), StdDev()], ids=repr)
def test_variance_and_standard_deviation_of_one_value_are_none(aggregate: Aggregate[Any, Any]) -> None:
    assert result(aggregate, [1.0]) is None
    assert result(type(aggregate)(ddof=0), [1.0]) == 0.0
    assert math.isnan(result(aggregate, [1.0, INFINITY]))


def test_correlation_with_a_constant_is_none() -> None:
    constant = Correlation(lambda event: 1, lambda event: event.value)
    assert result(constant, [1.0, 2.0]) is None
    same = Correlation(None, lambda event: -2 * event.value)
    assert result(same, [1.1, 2.7, 0.3]) == -1.0
    assert math.isnan(result(same, [1.1, INFINITY]))
    assert math.isnan(result(Covariance(None, None), [1.1, INFINITY]))
    assert result(Covariance(None, None, ddof=0), [1, 2, 3]) == 2 / 3


@settings(max_examples=40, deadline=None)
@given(st.lists(finite, min_size=1))
def test_a_median_is_the_float_nearest_to_the_exact_value(values: list[float | int]) -> None:
    assert result(Median(), values) == nearest(statistics.median(map(Fraction, values)))


def test_a_median_can_be_infinite_or_nan() -> None:
    assert result(Median(), [INFINITY, 10**400]) == INFINITY
    assert result(Median(), [10**400, 10**400]) == INFINITY
    assert result(Median(), [-INFINITY, 3, INFINITY]) == 3.0
    assert math.isnan(result(Median(), [-INFINITY, INFINITY]))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-1e12, 1e12) | st.integers(-9, 9) | st.floats(), min_size=1),
    st.sampled_from([0.0, 0.1, 0.5, 0.99, 1.0]),
    st.sampled_from([0.001, 0.01, 0.2]),
)
def test_the_error_of_a_quantile_is_within_its_accuracy(values: list[float], quantile: float, accuracy: float) -> None:
    present = sorted(value for value in values if value == value)
    (estimate,) = result(Quantiles(None, [quantile], accuracy=accuracy), values)
    if not present:
        assert estimate is None
        return
    exact = present[math.floor(quantile * (len(present) - 1))]
    if abs(exact) > 1e308:
        assert abs(estimate) > 1e308 * (1 - 2 * accuracy)
    else:
        assert estimate == pytest.approx(exact, rel=accuracy * (1 + 1e-9), abs=1e-307)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_quantiles_agree_with_the_library_ddsketch(values: list[float]) -> None:
    ddsketch = pytest.importorskip("ddsketch")
    sketch = ddsketch.DDSketch(0.02)
    for value in values:
        sketch.add(value)
    quantiles = [0, 0.25, 0.5, 0.9, 1]
    assert result(Quantiles(None, quantiles, accuracy=0.02), values) == list(map(sketch.get_quantile_value, quantiles))


def test_quantiles_are_in_the_order_of_the_setting() -> None:
    high, low = result(Quantiles(None, [0.99, 0.01]), range(1, 1001))
    assert high == pytest.approx(990, rel=0.01)
    assert low == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize("quantiles", [[], [0.5, 1.5], [-0.1], 0.5, ["a"], "ab", None, [None], [Decimal("NaN")]])
def test_quantiles_outside_0_to_1_are_refused(quantiles: Any) -> None:
    with pytest.raises(AggregateError, match=r"needs one or more quantiles from 0 to 1, such as quantiles=\[0.5, "):
        Quantiles("x", quantiles)


@pytest.mark.parametrize("accuracy", [0, 1, "a", None, float("nan")])
def test_an_accuracy_outside_0_to_1_is_refused(accuracy: Any) -> None:
    with pytest.raises(AggregateError, match=r"needs an accuracy above 0 and below 1, such as accuracy=0\.01"):
        Quantiles("x", [0.5], accuracy=accuracy)


def test_settings_of_aggregates_can_be_keywords_without_a_field() -> None:
    assert result(MovingAverage(n=2), [1, 2, 3]) == 2.5
    assert result(Quantiles(quantiles=[0.5]), [0, 0, 7]) == [0.0]
    with pytest.raises(AggregateError, match="needs a positive integer n, such as"):
        MovingAverage()
    with pytest.raises(AggregateError, match="needs one or more quantiles"):
        Quantiles("x")


def test_the_error_for_arguments_in_the_wrong_order_names_the_argument() -> None:
    with pytest.raises(AggregateError, match="MovingAverage cannot read of=3: pass a field name or a function"):
        MovingAverage(3, "x")  # type: ignore[arg-type]
    with pytest.raises(AggregateError, match=r"Quantiles cannot read of=\[0.5\]: pass a field name"):
        Quantiles([0.5], "x")  # type: ignore[arg-type]
    with pytest.raises(AggregateError, match="Covariance cannot read y=0: pass a field name"):
        Covariance("x", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("ddof", ["a", 0.5, None])
def test_ddof_must_be_an_integer(ddof: Any) -> None:
    reason = r"needs an integer ddof, such as 1 for a sample or 0 for an entire population"
    for make in (Variance, StdDev, lambda ddof: Covariance("x", "y", ddof=ddof)):
        with pytest.raises(AggregateError, match=reason):
            make(ddof=ddof)


def test_a_moving_average_is_of_the_newest_values() -> None:
    moving = MovingAverage("x", 3)
    accumulator, averages = moving.create(), []
    for value in (1, 2.0, None, 6, 7, 8):
        accumulator = moving.add(accumulator, KeyedEvent("key", START, {"x": value}))
        averages.append(moving.result(accumulator))
    assert averages == [1.0, 1.5, 1.5, 3.0, 5.0, 7.0]
    with pytest.raises(AggregateError, match="needs a positive integer n, such as"):
        MovingAverage("x", 0)


@pytest.mark.parametrize(
    ("aggregate", "takes"),
    [
        (Sum("x"), "int, float, Decimal and timedelta"),
        (Mean("x"), "int, float, Decimal and timedelta"),
        (MovingAverage("x", 2), "int, float, Decimal and timedelta"),
        (Variance("x"), "int, float and Decimal"),
        (StdDev("x"), "int, float and Decimal"),
        (Covariance("x", "x"), "int, float and Decimal"),
        (Correlation("x", "x"), "int, float and Decimal"),
        (Median("x"), "int, float and Decimal"),
        (Quantiles("x", [0.5]), "int, float and Decimal"),
    ],
    ids=repr,
)
def test_the_error_for_a_value_that_is_not_a_number_names_aggregate_and_value(
    aggregate: Aggregate[Any, Any], takes: str
) -> None:
    with pytest.raises(ValueKindError) as caught:
        result(aggregate, [{"x": 1.5}, {"x": "2.5"}])
    assert str(caught.value) == f"{aggregate!r} got '2.5' (str), but accepts only {takes}"
    assert (caught.value.aggregate, caught.value.value, caught.value.takes) == (repr(aggregate), "2.5", takes)


@pytest.mark.parametrize("number", [1, 1.5, Decimal(1), 0, False])
def test_adding_numbers_and_durations_is_an_error(number: Any) -> None:
    total = Sum()
    for values in ([number, timedelta(1)], [timedelta(1), number]):
        with pytest.raises(ValueKindError, match="numbers or durations, not both"):
            result(total, values)
        with pytest.raises(ValueKindError, match="numbers or durations, not both"):
            total.add(
                total.add(total.create(), KeyedEvent("key", START, values[0])), KeyedEvent("key", START, values[1])
            )
        left, right = (total.add(total.create(), KeyedEvent("key", START, value)) for value in values)
        with pytest.raises(ValueKindError, match="numbers or durations, not both"):
            total.merge(left, right)


def test_a_sum_out_of_range_of_durations_or_decimals_is_an_error() -> None:
    with pytest.raises(AggregateError, match="exceeds a timedelta's range: sum numbers of seconds instead"):
        result(Sum(), [timedelta.max, timedelta.max])
    assert result(Mean(), [timedelta.max, timedelta.max]) == timedelta.max
    with pytest.raises(AggregateError, match="an exact sum would exceed 100,000 digits"):
        result(Sum(), [Decimal("1E+200000"), Decimal(1)])
