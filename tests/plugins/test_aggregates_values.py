"""Aggregates that pick, count or collect values, the ways in which they read values, and their errors."""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from importlib.util import find_spec
from typing import Any, NamedTuple

import attrs
import pytest

from amadou import KeyedEvent
from amadou._state.encoding import pack, unpack
from amadou_plugins.aggregates import (
    Aggregate,
    AggregateError,
    AllOf,
    AnyOf,
    ArgMax,
    ArgMin,
    Collect,
    Count,
    DistinctCount,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Min,
    MissingFieldError,
    Quantiles,
    Reduce,
    Sum,
    TopK,
    ValueKindError,
)

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
WITH_DATASKETCHES = pytest.mark.skipif(
    find_spec("datasketches") is None, reason="datasketches is not installed: it has no wheels for Python 3.14 yet"
)


def event(value: Any, second: int = 0) -> KeyedEvent[Any]:
    return KeyedEvent("key", START + timedelta(seconds=second), value)


def result(aggregate: Aggregate[Any, Any], *values: Any) -> Any:
    """Return the result for events a second apart."""
    return of_events(aggregate, *(event(value, second) for second, value in enumerate(values)))


def of_events(aggregate: Aggregate[Any, Any], *events: KeyedEvent[Any]) -> Any:
    return aggregate.result(aggregate.add_all(aggregate.create(), events))


@attrs.frozen
class View:
    page: str
    ms: float | None = None


@dataclass
class Click:
    page: str


class Visit(NamedTuple):
    page: str


class Colour(str, Enum):
    RED = "red"


def test_the_field_of_an_aggregate_can_be_a_key_or_an_attribute() -> None:
    assert result(Collect("page"), {"page": "a"}, View("b"), Click("c"), Visit("d")) == ["a", "b", "c", "d"]
    assert result(Collect(lambda event: event.timestamp.second), "x", "y") == [0, 1]
    assert result(Collect(), "x", None, "y") == ["x", "y"]


@pytest.mark.parametrize(
    ("value", "type_", "fields", "reason"),
    [
        ({"price": 1, "n": 2}, "dict", ("price", "n"), "the value's fields are price, n"),
        (View("a"), "View", ("page", "ms"), "the value's fields are page, ms"),
        (Click("a"), "Click", ("page",), "the value's fields are page"),
        (Visit("a"), "Visit", ("page",), "the value's fields are page"),
        (3, "int", (), "the value has no fields"),
    ],
)
def test_the_error_for_a_missing_field_lists_the_fields_of_the_value(
    value: Any, type_: str, fields: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(MissingFieldError) as caught:
        result(Mean("prize"), value)
    error = pickle.loads(pickle.dumps(caught.value))
    assert str(error) == (
        f"Mean('prize') found no field 'prize' in a value of type {type_}: {reason}. Correct the name, or pass a "
        "function of the event that returns None for a missing value"
    )
    assert (error.aggregate, error.field, error.type, error.fields) == ("Mean('prize')", "prize", type_, fields)


def test_the_field_of_an_aggregate_must_be_a_name_or_a_function() -> None:
    with pytest.raises(AggregateError, match="Mean cannot read of=3: pass a field name or a function"):
        Mean(3)  # type: ignore[arg-type]
    with pytest.raises(AggregateError, match="ArgMax cannot read by=3: pass a field name or a function"):
        ArgMax("user", 3)  # type: ignore[arg-type]


def test_the_error_for_arguments_in_the_wrong_order_shows_the_right_call() -> None:
    reason = r"TopK needs a positive integer k, such as TopK\(k=3, of='score'\), not 'score'"
    with pytest.raises(AggregateError, match=reason):
        TopK("score", 3)  # type: ignore[arg-type]
    with pytest.raises(AggregateError, match=r"Reduce\('x', max\) needs a function of the current result and a value"):
        Reduce("x", max)  # type: ignore[arg-type]
    with pytest.raises(AggregateError, match=r"Reduce\(5\) needs .*, as in Reduce\(function=max, of='score'\)"):
        Reduce(5)  # type: ignore[arg-type]


def test_a_count_of_a_field_ignores_missing_values() -> None:
    views = [View("a", 1.0), View("b"), View("c", float("nan")), View("d", 0.0)]
    assert result(Count(), *views) == 4
    assert result(Count("ms"), *views) == 2


@pytest.mark.parametrize(
    "values",
    [
        ["b", "a", "c"],
        [b"b", b"a"],
        [START, START - timedelta(1)],
        [date(2026, 1, 2), date(2026, 1, 1)],
        [timedelta(2), timedelta(1)],
        [Decimal("2.5"), 2, 2.25],
    ],
)
def test_min_max_and_top_k_accept_all_types_with_an_order(values: list[Any]) -> None:
    assert result(Min(), *values) == min(values)
    assert result(Max(), *values) == max(values)
    assert result(TopK(2), *values) == sorted(values, reverse=True)[:2]


@pytest.mark.parametrize("aggregate", [Min("x"), Max("x"), ArgMin("x", "x"), ArgMax("x", "x"), TopK(2, "x")], ids=repr)
def test_values_that_cannot_be_compared_are_refused(aggregate: Aggregate[Any, Any]) -> None:
    for values in ([1, "a"], ["a", 1]):
        with pytest.raises(ValueKindError, match=r"but accepts only values that can be compared with the earlier"):
            result(aggregate, *({"x": value} for value in values))
        left, right = (aggregate.add(aggregate.create(), event({"x": value})) for value in values)
        with pytest.raises(ValueKindError, match=r"but accepts only values that can be compared with the earlier"):
            aggregate.merge(left, right)
    with pytest.raises(ValueKindError, match=r"got \[1\] \(list\), but accepts only numbers, or strings, or bytes"):
        result(aggregate, {"x": [1]})


def test_the_order_of_equal_numbers_of_several_types_is_fixed() -> None:
    for values in ([1, 1.0, True, Decimal(1)], [Decimal(1), True, 1.0, 1]):
        assert repr(result(Min(), *values)) == "Decimal('1')"
        assert repr(result(Max(), *values)) == "1"
        assert repr(result(TopK(3), *values)) == "[1, 1.0, True]"
    assert repr(result(Min(), 0.0, -0.0)) == repr(result(Min(), -0.0, 0.0)) == "-0.0"


def test_arg_max_returns_the_earliest_of_equal_events() -> None:
    best = [
        event({"user": "b", "score": 2}, 1),
        event({"user": "a", "score": 2}, 1),
        event({"user": "0", "score": 2}, 3),
    ]
    others = [event({"user": "x", "score": 1}), event({"user": None, "score": 0}), event({"user": "y", "score": None})]
    for events in (best + others, others + best[::-1]):
        assert of_events(ArgMax("user", "score"), *events) == "a"
        assert of_events(ArgMin("user", "score"), *events) == "x"
        assert of_events(TopK(3, "user", by="score"), *events) == ["a", "b", "0"]


def test_latest_and_earliest_go_by_time_and_first_and_last_by_order() -> None:
    events = [
        event("late", 9),
        event("early", 1),
        event("early", 1),
        event(None, 0),
        event(None, 10),
        event("middle", 5),
    ]
    assert of_events(Earliest(), *events) == "early"
    assert of_events(Latest(), *events) == "late"
    assert of_events(First(), *events) == "late"
    assert of_events(Last(), *events) == "middle"


PRICES = {"tea": 3, "pot": 20, "cup": 9, "jug": 9}
SALES = [{"item": item, "price": price, "note": None} for item, price in PRICES.items()]


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (TopK(3, by="price", give="item"), ["pot", "cup", "jug"]),
        (TopK(3, "price", give="item"), ["pot", "cup", "jug"]),
        (TopK(3, "item", by="price"), ["pot", "cup", "jug"]),
        (TopK(2, by="price", give=["item", "price"]), [("pot", 20), ("cup", 9)]),
        (TopK(1, by="price"), [SALES[1]]),
        (TopK(1, by="price", give=lambda event: event), [event(SALES[1])]),
        (TopK(3, by="price", give="note"), []),
    ],
    ids=repr,
)
def test_top_k_can_return_other_fields_of_the_events(aggregate: Any, expected: Any) -> None:
    assert of_events(aggregate, *map(event, SALES)) == expected
    left, right = (aggregate.add_all(aggregate.create(), [*map(event, part)]) for part in (SALES[:2], SALES[2:]))
    assert aggregate.result(unpack(pack(aggregate.merge(left, unpack(pack(right)))))) == expected


def test_contradictory_settings_of_top_k_are_refused() -> None:
    with pytest.raises(AggregateError, match=r"has by= for the rank and give= for the result: remove of=, which"):
        TopK(3, "a", "b", give="c")
    with pytest.raises(AggregateError, match="needs give= to be a field name, a list of field names, or a function"):
        TopK(3, by="b", give=())
    with pytest.raises(AggregateError, match="cannot read give=5"):
        TopK(3, by="b", give=5)  # type: ignore[arg-type]
    assert TopK(3, by="b", give=("c", "d")).fields == {"b", "c", "d"}
    assert TopK(3, by="b").fields is None


def test_the_order_of_values_with_the_same_time_is_fixed() -> None:
    mixed = ["a", "b", 10, 9.5, b"a", (1, "x"), {"k": 1}]
    for values in (mixed, mixed[::-1]):
        events = [event(value) for value in values]
        assert of_events(Earliest(), *events) == 9.5
        assert of_events(Latest(), *events) == (1, "x")


def test_any_of_and_all_of_test_the_truth_of_values() -> None:
    slow = [{"ms": ms} for ms in (3, None, 0)]
    assert result(AnyOf("ms"), *slow) is True
    assert result(AllOf("ms"), *slow) is False
    assert result(AllOf(lambda event: event.value["ms"] != 3), *slow[1:]) is True


def test_collect_stops_at_its_limit() -> None:
    assert result(Collect(limit=2), 3, None, 1, 2) == [3, 1]
    assert result(Collect(limit=0), 3) == []
    accumulator = Collect().add([], event(3))
    Collect().result(accumulator).append(4)
    assert Collect().result(accumulator) == [3]
    with pytest.raises(AggregateError, match="needs an integer limit of zero or more"):
        Collect(limit=-1)
    with pytest.raises(AggregateError, match=r"needs a positive integer k, such as .*, not 0"):
        TopK(0)


def test_reduce_calls_its_function_in_the_order_of_events() -> None:
    assert result(Reduce(lambda made, value: made - value), 10, None, 3, 2) == 5
    appended = Reduce(lambda made, value: [*made, value], initial=[])
    assert result(appended, 1, 2) == [1, 2]
    accumulator = appended.create()
    accumulator.append(7)
    assert appended.create() == []


@pytest.mark.parametrize("approximate", [False, pytest.param(True, marks=WITH_DATASKETCHES)])
@pytest.mark.parametrize(
    ("values", "count"),
    [
        ([1, "1", b"1", True, (1,), (True,), ("1",), frozenset({1})], 8),
        ([1, 1.0, Decimal("1.00"), 2**70, float(2**70)], 2),
        ([0.5, Decimal("0.5"), 0.1, Decimal("0.1"), 0.0, -0.0, 0], 4),
        ([(1, 0.5), (1.0, Decimal("0.50"))], 1),
        ([("a", "b"), ("a', 'b",), ("a",), "a"], 4),
        ([frozenset({"a", "b"}), frozenset({"b", "a"}), {"b": 1, "a": 2}, {"a": 2, "b": 1}], 2),
        ([START, START.astimezone(), START.date(), timedelta(1), None], 3),
        ([View("a"), View("a"), View("b"), Click("a")], 3),
        (["red", Colour.RED], 1),
        ([Decimal("1E+400"), Decimal("1E+500"), float("inf"), Decimal("Infinity"), 10**400], 3),
    ],
)
def test_distinct_count_counts_equal_values_once(values: list[Any], count: int, approximate: bool) -> None:
    assert result(DistinctCount(approximate=approximate), *values) == count


@WITH_DATASKETCHES
def test_an_approximate_distinct_count_is_within_five_percent() -> None:
    estimate = result(DistinctCount(approximate=True), *[f"user{i % 20_000}" for i in range(30_000)])
    assert estimate == pytest.approx(20_000, rel=0.05)
    assert estimate != 20_000


@WITH_DATASKETCHES
def test_approximate_distinct_counts_do_not_depend_on_order_or_merging() -> None:
    counted = DistinctCount(approximate=True)
    values = [event(i) for i in range(3000)]
    expected = of_events(counted, *values)
    assert of_events(counted, *values[::-1]) == expected
    parts = [counted.add_all(counted.create(), values[start::7]) for start in range(7)]
    whole = parts[3]
    for part in parts[:3] + parts[4:]:
        whole = counted.merge(whole, part)
        assert len(whole) <= 4200
    assert counted.result(whole) == expected
    assert counted.result(counted.add_all(whole, values[:2000])) == expected


@pytest.mark.parametrize(
    "aggregate",
    [pytest.param("DistinctCount(approximate=True)", marks=WITH_DATASKETCHES), "TopK(2, by=lambda _: 1)"],
)
def test_results_of_aggregates_are_the_same_in_each_process(aggregate: str) -> None:
    program = (
        "import datetime; from amadou import KeyedEvent; from amadou_plugins.aggregates import *\n"
        "now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)\n"
        f"of = {aggregate}; made = of.create()\n"
        "events = [KeyedEvent('k', now, frozenset({f'a{i}', f'b{i}'})) for i in range(1000)]\n"
        "result = of.result(of.add_all(made, events))\n"
        "print([sorted(part) for part in result] if isinstance(result, list) else result)"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


def test_the_error_for_a_missing_library_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("datasketches", "ddsketch"):
        monkeypatch.setitem(sys.modules, library, None)
    assert result(DistinctCount(), 1, 2) == 2
    with pytest.raises(
        AggregateError, match=r"needs the library ddsketch, .* not installed: run pip install 'amadou\[sketches\]'"
    ):
        Quantiles("x", [0.5])
    with pytest.raises(
        AggregateError, match=r"needs the library datasketches, .* not installed: run pip install 'amadou\[sketches\]'"
    ):
        DistinctCount(approximate=True)


def test_pickled_errors_of_aggregates_have_their_attributes() -> None:
    with pytest.raises(ValueKindError) as caught:
        result(Sum("page"), View("a"))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.aggregate, error.value, error.takes) == ("Sum('page')", "a", "int, float, Decimal and timedelta")
    assert str(error) == str(caught.value)
    with pytest.raises(AggregateError, match=r"got 'x{199}… \(str\), but accepts only"):
        result(Sum(), "x" * 1000)
