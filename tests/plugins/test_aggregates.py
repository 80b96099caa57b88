"""Behaviour of all aggregates: order, merging, batches, storage, pickling and names."""

import operator
import pickle
import random
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plugins.windows import SECOND, job, results, windowing

import amadou_plugins.aggregates
from amadou import KeyedEvent
from amadou._state.encoding import pack, unpack
from amadou.components import EventColumns
from amadou.errors import AmadouError
from amadou.event_time import to_micros
from amadou_plugins.aggregates import (
    Aggregate,
    AggregateError,
    AllOf,
    AnyOf,
    ArgMax,
    ArgMin,
    Collect,
    CompositeAggregate,
    Correlation,
    Count,
    Covariance,
    DistinctCount,
    Earliest,
    First,
    Last,
    Latest,
    Max,
    Mean,
    Median,
    Min,
    MovingAverage,
    NotAnAggregateError,
    Quantiles,
    Reduce,
    StdDev,
    Sum,
    TopK,
    Variance,
    aggregate_of,
)
from amadou_plugins.windows import SessionWindow
from amadou_runtime import TestRun

START = datetime(2026, 1, 1, tzinfo=timezone.utc)

FREE = [
    Count(),
    Count("x"),
    Sum("x"),
    Sum("floats"),
    Sum("ints"),
    Sum("decimal"),
    Sum("duration"),
    Sum("w"),
    Mean("x"),
    Mean("w"),
    Mean("decimal"),
    Mean("duration"),
    Variance("x"),
    Variance("w"),
    Variance("mild"),
    Variance("ints"),
    Variance("y", ddof=0),
    StdDev("x"),
    StdDev("y"),
    Covariance("x", "y"),
    Correlation("x", "y"),
    Correlation("x", "w"),
    Min("x"),
    Max("w"),
    Min("floats"),
    Max("floats"),
    Min("ints"),
    Min("decimal"),
    Max("text"),
    ArgMin("any", "y"),
    ArgMax("any", "x"),
    Earliest("any"),
    Latest("any"),
    AnyOf("y"),
    AllOf("y"),
    TopK(3, "x"),
    TopK(2, "text"),
    TopK(3, "any", by="y"),
    DistinctCount("any"),
    DistinctCount("text", approximate=True),
    Quantiles("x", [0, 0.5, 0.99], accuracy=0.05),
    Quantiles("w", [0.3]),
    Median("x"),
    Median("w"),
    CompositeAggregate({"n": Count("text"), "of": {"mean": Mean("y"), "greatest": Max("x")}}),
]
ORDERED = [
    First("any"),
    Last("any"),
    Collect("any"),
    Collect("any", limit=3),
    Reduce(operator.add, "text", mergeable=True),
    Reduce(operator.add, "text", initial="", mergeable=True),
    CompositeAggregate({"n": Count(), "first": First("any")}),
]
UNMERGEABLE = [
    MovingAverage("y", 3),
    Reduce(operator.sub, "y"),
    CompositeAggregate({"n": Count(), "moving": MovingAverage("x", 2)}),
]
MERGEABLE = FREE + ORDERED
ALL = MERGEABLE + UNMERGEABLE

awkward = st.sampled_from(
    (None, 0, 0.0, -0.0, 1, 1.0, True, False, 0.1, -0.1, 1e16, -1e16, 5e-324, 2.0**-540, 1e150, 1e-140, 2**53 + 1)
)
plain = st.sampled_from([-2.5, -1, 0, 0.0, 1, 1.0, 3.25, None])
finite = awkward | st.floats(allow_infinity=False) | st.integers(-(2**70), 2**70)
endless = finite | st.sampled_from([float("inf"), float("-inf"), 1.7976931348623157e308, -1e308, 10**400, float("nan")])
values = st.fixed_dictionaries(
    {
        "x": finite,
        "w": endless,
        "floats": st.floats(allow_infinity=False) | st.sampled_from([0.0, -0.0, 0.1]),
        "mild": st.floats(0.5, 1e6),
        "ints": st.integers(),
        "y": plain | st.floats(-1e6, 1e6),
        "decimal": plain | st.decimals(-1000, 1000, places=2) | st.sampled_from([Decimal("1.0"), Decimal("NaN")]),
        "duration": st.none() | st.timedeltas(timedelta(days=-9), timedelta(days=9)),
        "text": st.sampled_from(["", "a", "b", "ä", None]) | st.text("xyz", max_size=3),
        "any": st.sampled_from(
            [None, 0, 0.0, -0.0, 1, True, "1", b"1", (1, "b"), (True, "b"), START, frozenset({"p", "q"}), [1], {"k": 2}]
        ),
    }
)
events = st.lists(
    st.builds(
        lambda second, value: KeyedEvent("key", START + timedelta(seconds=second), value), st.integers(0, 3), values
    ),
    max_size=40,
)
seeds = st.integers(0, 2**32)


def stored(accumulator: Any) -> Any:
    return unpack(pack(accumulator))


def result_one_by_one(aggregate: Aggregate[Any, Any], events: Sequence[KeyedEvent[Any]]) -> bytes:
    accumulator = aggregate.create()
    for event in events:
        accumulator = aggregate.add(accumulator, event)
    return pack(aggregate.result(accumulator))


def split(events: Sequence[KeyedEvent[Any]], chance: random.Random) -> list[Sequence[KeyedEvent[Any]]]:
    cuts = sorted(chance.choices(range(len(events) + 1), k=chance.randint(0, 4)))
    return [events[start:end] for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def merged(aggregate: Aggregate[Any, Any], parts: list[Any], chance: random.Random) -> Any:
    while len(parts) > 1:
        at = chance.randrange(len(parts) - 1)
        right = stored(parts[at + 1])
        before = pack(right)
        parts[at : at + 2] = [aggregate.merge(stored(parts[at]), right)]
        assert pack(right) == before
    return parts[0]


def accumulated(aggregate: Aggregate[Any, Any], events: Sequence[KeyedEvent[Any]], chance: random.Random) -> Any:
    accumulator = aggregate.create()
    for part in split(events, chance):
        if chance.random() < 0.5:
            accumulator = aggregate.add_all(accumulator, part)
        else:
            for event in part:
                accumulator = aggregate.add(accumulator, event)
        if chance.random() < 0.5:
            accumulator = stored(accumulator)
        if chance.random() < 0.3:
            aggregate.result(accumulator)
    return accumulator


@settings(max_examples=80, deadline=None)
@given(events=events, seed=seeds)
def test_results_do_not_depend_on_the_order_and_merging_of_events(events: list[KeyedEvent[Any]], seed: int) -> None:
    for aggregate in FREE:
        assert aggregate.mergeable
        assert not aggregate.ordered
        chance = random.Random(seed)
        expected = result_one_by_one(aggregate, events)
        shuffled = chance.sample(events, len(events))
        parts = [accumulated(aggregate, part, chance) for part in split(shuffled, chance)]
        assert pack(aggregate.result(stored(merged(aggregate, parts, chance)))) == expected


@settings(max_examples=50, deadline=None)
@given(events=events, seed=seeds)
def test_results_of_ordered_aggregates_do_not_depend_on_merging_neighbours(
    events: list[KeyedEvent[Any]], seed: int
) -> None:
    for aggregate in ORDERED:
        assert aggregate.mergeable
        assert aggregate.ordered
        chance = random.Random(seed)
        parts = [accumulated(aggregate, part, chance) for part in split(events, chance)]
        assert pack(aggregate.result(stored(merged(aggregate, parts, chance)))) == result_one_by_one(aggregate, events)


@settings(max_examples=50, deadline=None)
@given(events=events, seed=seeds)
def test_adding_many_events_at_once_gives_the_result_of_adding_them_one_by_one(
    events: list[KeyedEvent[Any]], seed: int
) -> None:
    for aggregate in ALL:
        expected = result_one_by_one(aggregate, events)
        assert pack(aggregate.result(aggregate.add_all(aggregate.create(), events))) == expected
        assert pack(aggregate.result(accumulated(aggregate, events, random.Random(seed)))) == expected


@settings(max_examples=50, deadline=None)
@given(events=events, seed=seeds)
def test_a_column_of_accumulators_gives_the_results_of_single_accumulators(
    events: list[KeyedEvent[Any]], seed: int
) -> None:
    keys, timestamps, values = (list(column) for column in zip(*events, strict=True)) if events else ([], [], [])
    chance = random.Random(seed)
    at = chance.choices(range(3), k=len(events))
    columns = EventColumns(keys, values, list(map(to_micros, timestamps)))
    for aggregate in ALL:
        some = [[event for position, event in zip(at, events, strict=True) if position == number] for number in (0, 1)]
        expected = [result_one_by_one(aggregate, part) for part in some]
        column = aggregate.column([])
        aggregate.extend(column, 3)
        aggregate.add_each(column, at, columns)
        column = stored(column)
        assert list(map(pack, aggregate.results(column)))[:2] == expected
        swapped = aggregate.taken(column, [1, 0])
        assert list(map(pack, aggregate.results(swapped))) == expected[::-1]
        alone = aggregate.accumulators(stored(column))
        assert [pack(aggregate.result(accumulator)) for accumulator in alone][:2] == expected
        assert list(map(pack, aggregate.results(stored(aggregate.column(stored(alone))))))[:2] == expected
        if aggregate.mergeable:
            other = stored(swapped)
            aggregate.merge_each(column, [1, 0], other)  # each with itself
            assert list(map(pack, aggregate.results(other))) == expected[::-1]
            twice = [pack(aggregate.result(aggregate.merge(stored(one), stored(one)))) for one in alone[:2]]
            assert list(map(pack, aggregate.results(column)))[:2] == twice


@settings(max_examples=25, deadline=None)
@given(left=events, right=events, more=events)
def test_merging_does_not_change_the_other_accumulator(
    left: list[KeyedEvent[Any]],
    right: list[KeyedEvent[Any]],
    more: list[KeyedEvent[Any]],
) -> None:
    for aggregate in MERGEABLE:
        merged_from = aggregate.add_all(aggregate.create(), right)
        expected = pack(aggregate.result(stored(merged_from)))
        for first in (left, []):
            both = aggregate.merge(aggregate.add_all(aggregate.create(), first), merged_from)
            for event in more:
                both = aggregate.add(both, event)
            aggregate.add_all(both, more)
            assert pack(aggregate.result(stored(merged_from))) == expected


@pytest.mark.parametrize("aggregate", ALL, ids=repr)
def test_an_aggregate_can_be_pickled(aggregate: Aggregate[Any, Any]) -> None:
    again = pickle.loads(pickle.dumps(aggregate))
    assert repr(again) == repr(aggregate)
    assert again == aggregate
    numbers = dict.fromkeys(("x", "w", "floats", "mild", "ints", "y", "decimal"), 1.5)
    event = KeyedEvent("key", START, {**numbers, "duration": timedelta(1), "text": "a", "any": b"b"})
    assert result_one_by_one(again, [event]) == result_one_by_one(aggregate, [event])


@pytest.mark.parametrize(
    ("aggregate", "nothing"),
    [
        (Count(), 0),
        (Count("x"), 0),
        (Sum("x"), 0),
        (AnyOf("x"), False),
        (AllOf("x"), True),
        (Collect("x"), []),
        (TopK(2, "x"), []),
        (DistinctCount("x"), 0),
        (DistinctCount("x", approximate=True), 0),
        (Quantiles("x", [0.5, 1]), [None, None]),
        (Reduce(operator.add, "x", initial=7), 7),
        *[(kind("x"), None) for kind in (Min, Max, Mean, Median, Variance, StdDev, First, Last, Earliest, Latest)],
        *[(kind("x", "y"), None) for kind in (ArgMin, ArgMax, Covariance, Correlation)],
        (MovingAverage("x", 2), None),
        (Reduce(operator.add, "x"), None),
    ],
    ids=repr,
)
def test_missing_values_are_ignored_by_aggregates(aggregate: Aggregate[Any, Any], nothing: Any) -> None:
    assert aggregate.result(aggregate.create()) == nothing
    absent = (None, float("nan"), Decimal("NaN"), numpy.float32("nan"), pandas.NaT)
    missing = [KeyedEvent("key", START, {"x": value, "y": 1}) for value in absent]
    if aggregate != Count():
        assert aggregate.result(aggregate.add_all(aggregate.create(), missing)) == nothing


@pytest.mark.parametrize("aggregate", UNMERGEABLE, ids=repr)
def test_merging_accumulators_of_an_aggregate_that_is_not_mergeable_is_an_error(aggregate: Aggregate[Any, Any]) -> None:
    assert not aggregate.mergeable
    with pytest.raises(AggregateError, match="cannot merge accumulators"):
        aggregate.merge(aggregate.create(), aggregate.create())


@pytest.mark.parametrize(
    ("aggregate", "shown"),
    [
        (Mean("price"), "Mean('price')"),
        (Count(), "Count()"),
        (Sum(len), "Sum(len)"),
        (MovingAverage(n=3), "MovingAverage(n=3)"),
        (Quantiles("x", [0.5]), "Quantiles('x', (0.5,))"),
        (Variance("x", ddof=0), "Variance('x', ddof=0)"),
        (TopK(3, by="score"), "TopK(3, by='score')"),
        (DistinctCount(approximate=True), "DistinctCount(approximate=True)"),
        (CompositeAggregate({"n": Count()}), "CompositeAggregate({'n': Count()})"),
    ],
)
def test_the_repr_of_an_aggregate_shows_its_settings(aggregate: Aggregate[Any, Any], shown: str) -> None:
    assert repr(aggregate) == shown


class Longest(Aggregate[str, str]):
    def create(self) -> str:
        return ""

    def add(self, accumulator: str, event: KeyedEvent[Any]) -> str:
        return max(accumulator, event.value["text"], key=lambda text: (len(text), text))

    def result(self, accumulator: str) -> str:
        return accumulator


def test_an_aggregate_of_the_user_needs_create_add_and_result() -> None:
    longest = Longest()
    test_events = [KeyedEvent("key", START, {"text": text}) for text in ("a", "ccc", "bb")]
    assert longest.result(longest.add_all(longest.create(), test_events)) == "ccc"
    assert repr(longest) == "Longest()"
    with pytest.raises(AggregateError, match="define merge, or set mergeable = False"):
        longest.merge("", "")


class Span:
    """Has the methods of an aggregate, but not its base class."""

    def create(self) -> list[int]:
        return []

    def add(self, accumulator: list[int], event: KeyedEvent[Any]) -> list[int]:
        return [min(*accumulator, event.value), max(*accumulator, event.value)] if accumulator else [event.value] * 2

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        both = left + right
        return [min(both), max(both)]

    def result(self, accumulator: list[int]) -> int:
        return accumulator[1] - accumulator[0]


class Unmergeable:
    mergeable = False
    ordered = True
    create, add, result = Span.create, Span.add, Span.result

    def __repr__(self) -> str:
        return "Unmergeable"


def test_an_object_with_the_methods_of_an_aggregate_is_an_aggregate() -> None:
    test_events = [KeyedEvent("key", START, value) for value in (3, 10, 5)]
    span = pickle.loads(pickle.dumps(aggregate_of(Span())))
    left, right = span.add_all(span.create(), test_events[:2]), span.add(span.create(), test_events[2])
    assert span.result(span.merge(left, right)) == 7
    assert (span.mergeable, span.ordered, span.fields, repr(span)) == (True, False, None, "Span()")
    several = aggregate_of({"n": Count(), "span": Unmergeable()})
    assert several.result(several.add_all(several.create(), test_events)) == {"n": 3, "span": 7}
    assert (several.mergeable, several.ordered) == (False, True)
    assert repr(several) == "CompositeAggregate({'n': Count(), 'span': Unmergeable})"
    with pytest.raises(AggregateError, match="Unmergeable cannot merge accumulators"):
        aggregate_of(Unmergeable()).merge([1, 2], [3, 4])


def test_windows_accept_an_object_with_the_methods_of_an_aggregate() -> None:
    test_events = [KeyedEvent("key", START + second * SECOND, value) for second, value in ((3, 10), (1, 4), (2, 7))]
    for aggregate in (Span(), Unmergeable()):
        run = TestRun(job(windowing(SessionWindow, gap=SECOND, value=aggregate)))
        assert [value for _, _, value in results(run.add_records(test_events).run(flush=True))] == [6]


def test_the_error_for_an_incomplete_aggregate_names_the_missing_methods() -> None:
    class Half:
        create, add = Span.create, Span.add

        def __repr__(self) -> str:
            return "half"

    class KeyGroupState(Half):
        mergeable = False

    with pytest.raises(NotAnAggregateError) as caught:
        aggregate_of(Half())
    assert str(caught.value) == (
        "half (Half) is not an aggregate: define merge (or set mergeable = False) and result (see the base class "
        "Aggregate)"
    )
    with pytest.raises(NotAnAggregateError, match=r"is not an aggregate: define result \(see the base class"):
        aggregate_of({"whole": KeyGroupState()})
    with pytest.raises(NotAnAggregateError, match=r"Span is a class: pass an instance, such as Span\(\)"):
        aggregate_of(Span)


def test_a_mapping_of_aggregates_gives_results_by_name() -> None:
    several = aggregate_of({"n": Count(), "prices": {"sum": Sum("price"), "greatest": Max("price")}})
    test_events = [KeyedEvent("key", START, {"price": price}) for price in (3, 4)]
    accumulator = several.add_all(several.create(), test_events)
    assert several.result(accumulator) == {"n": 2, "prices": {"sum": 7, "greatest": 4}}


def test_aggregates_can_be_added_to_and_removed_from_a_mapping_with_accumulators() -> None:
    test_events = [KeyedEvent("key", START, {"price": price}) for price in (3, 4)]
    before = CompositeAggregate({"n": Count(), "old": Max("price")})
    now = CompositeAggregate({"sum": Sum("price"), "n": Count()})
    accumulator = now.add(stored(before.add_all(before.create(), test_events)), test_events[0])
    assert now.result(accumulator) == {"sum": 3, "n": 3}
    assert now.result(now.merge(accumulator, before.add(before.create(), test_events[0]))) == {"sum": 3, "n": 4}


def test_values_that_are_not_aggregates_are_refused() -> None:
    assert aggregate_of(count := Count()) is count
    with pytest.raises(NotAnAggregateError, match=r"Count is a class: pass an instance, such as Count\(\)"):
        aggregate_of(Count)
    with pytest.raises(
        NotAnAggregateError, match=r"'price' \(str\) is not an aggregate: pass one, such as Count\(\), or a "
    ):
        aggregate_of({"n": Count(), "of": "price"})
    with pytest.raises(NotAnAggregateError, match=r"the name 1 \(int\) of an aggregate must be a string"):
        aggregate_of({1: Count()})
    with pytest.raises(NotAnAggregateError, match=r"\[Count\(\)\] \(list\) is not a mapping of names to aggregates"):
        CompositeAggregate([Count()])  # type: ignore[arg-type]
    with pytest.raises(NotAnAggregateError, match="an empty mapping of names to aggregates has no results") as caught:
        aggregate_of({})
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, AmadouError)
    assert isinstance(error, TypeError)
    assert (error.aggregate, error.why) == (
        "an empty mapping",
        "of names to aggregates has no results: add an aggregate",
    )


def test_the_exports_of_aggregates_are_sorted_and_exist() -> None:
    names = amadou_plugins.aggregates.__all__
    assert names == sorted(names)
    assert all(hasattr(amadou_plugins.aggregates, name) for name in names)
