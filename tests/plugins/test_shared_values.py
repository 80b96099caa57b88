"""Values that a handler passes to windows and joins, or receives from them, are its own: it may change them."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.plugins.windows import SECOND, event, seconds

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou.components import VectorizedHandler
from amadou_plugins.aggregates import (
    Aggregate,
    AllOf,
    ArgMax,
    Collect,
    Count,
    DistinctCount,
    First,
    Last,
    Max,
    Mean,
    Median,
    Min,
    MovingAverage,
    Quantiles,
    Reduce,
    StdDev,
    Sum,
    TopK,
    aggregate_of,
)
from amadou_plugins.joins import AsOfJoin, IntervalJoin, JoinSpec, LatestJoin
from amadou_plugins.windows import (
    CountWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
    WindowSpec,
)
from amadou_runtime import TestRun, run


def change(value: Any) -> None:
    """Change all dicts and lists in a value."""
    if isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            change(part)
    if isinstance(value, dict):
        value.update(price=-1, changed=True)
    elif isinstance(value, list):
        value.append("changed")


class Windowing(VectorizedHandler):
    """Adds events to its window, and collects results. `changes` names what it changes: the values of `events` that it
    has added, or `results` that it has collected.
    """

    out = SinkSpec(list)

    def __init__(self, window: WindowSpec, changes: str) -> None:
        self.window = window
        self.changes = changes

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)
        if self.changes == "events":
            change(event.value)

    def closed(self, subject: Subject, window: Window, result: Any) -> None:
        self.out.collect(subject, [subject.key, seconds(window.start), window.partial, result])
        if self.changes == "results":
            change(result)


def windowing(make: Callable[..., WindowSpec], value: Any, changes: str = "nothing", **settings: Any) -> Windowing:
    return Windowing(make(value, name="window", on_close=_closed, **settings), changes)


def _closed(subject: Subject, window: Window, result: Any) -> None:
    subject.handler.closed(subject, window, result)


def job(handler: Handler, *sources: str) -> Job:
    return Job("shared", handler, {name: MemorySource() for name in sources or ("in",)}, {"out": MemorySink()})


def orders() -> list[KeyedEvent[Any]]:
    """Return events whose values have parts, of two keys, with two prices that are equal."""
    prices = [(0, 3), (1, 5), (4, 2), (6, 5), (7, 1), (11, 4), (12, 9), (30, 2)]
    return [
        event(second, {"price": price, "n": 1, "items": [{"name": f"item {second}"}]}, key)
        for second, price in prices
        for key in ("a", "b")
    ]


def results(handler: Handler, *, cut: bool = False) -> list[Any]:
    """Return what a handler collects.

    :param cut: `True` for a batch for each event, between which the state is packed
    """
    with TestRun(job(handler)) as test_run:
        for order in orders():
            test_run.add_record(order)
            if cut:
                test_run.end_batch()
        collected: list[Any] = test_run.run(flush=True).records("out")
    return collected


def cheaper(order: Any, other: Any) -> Any:
    return min(order, other, key=lambda each: each["price"])


def together(order: Any, other: Any) -> Any:
    return {**order, "n": order["n"] + other["n"], "items": order["items"] + other["items"]}


WINDOWS: dict[str, Callable[..., WindowSpec]] = {
    "tumbling": lambda value, **settings: TumblingWindow(10 * SECOND, value, **settings),
    "hopping": lambda value, **settings: HoppingWindow(10 * SECOND, 5 * SECOND, value, **settings),
    "session": lambda value, **settings: SessionWindow(4 * SECOND, value, **settings),
    "sliding": lambda value, **settings: SlidingWindow(10 * SECOND, value, **settings),
    "count": lambda value, **settings: CountWindow(2, value, **settings),
    "count with hop": lambda value, **settings: CountWindow(3, value, hop=1, **settings),
}
AGGREGATES: dict[str, Any] = {
    "Collect": Collect(),
    "First": First(),
    "Last": Last(),
    "TopK": TopK(2, by="price"),
    "TopK of events": TopK(2, by="price", give=lambda event: event),
    "ArgMax": ArgMax("items", by="price"),
    "Reduce": Reduce(cheaper),
    "mergeable Reduce": Reduce(together, mergeable=True),
    "mapping": {"n": Count(), "all": {"orders": Collect(), "first": First("items")}},
}
windows = pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
aggregates = pytest.mark.parametrize("value", AGGREGATES.values(), ids=AGGREGATES)
cuts = pytest.mark.parametrize("cut", [False, True], ids=["in one batch", "across batches"])


@windows
@aggregates
@cuts
def test_a_callback_may_change_the_values_of_events_that_it_has_added_and_results_without_changing_others(
    window: Callable[..., WindowSpec], value: Any, cut: bool
) -> None:
    expected = results(windowing(window, value), cut=cut)
    assert len(expected) >= 4
    for changes in ("events", "results"):
        assert results(windowing(window, value, changes), cut=cut) == expected, changes


@windows
@pytest.mark.parametrize("value", [Collect(), First(), Reduce(cheaper)], ids=repr)
@pytest.mark.parametrize(
    "settings", [{"early": 1}, {"max_active": 1}, {"early": 1, "storage": "memory"}], ids=["early", "evicted", "memory"]
)
def test_a_callback_may_change_an_early_result(
    window: Callable[..., WindowSpec], value: Any, settings: dict[str, Any]
) -> None:
    expected = results(windowing(window, value, **settings))
    assert any(partial for _, _, partial, _ in expected) or "max_active" in settings
    for changes in ("events", "results"):
        assert results(windowing(window, value, changes, **settings)) == expected, changes


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "session"])
@aggregates
@cuts
def test_a_callback_may_change_results_in_the_vectorized_path(kind: str, value: Any, cut: bool) -> None:
    """A test run compares the results of both paths."""
    expected = results(windowing(WINDOWS[kind], value), cut=cut)
    handler = windowing(WINDOWS[kind], value, "results")
    handler.delegates_to = "window"
    assert sorted(results(handler, cut=cut), key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("kind", ["tumbling", "hopping", "session"])
def test_a_run_in_the_vectorized_path_has_the_results_of_events_that_are_not_changed(kind: str) -> None:
    collected = []
    for changes, delegates_to in (("nothing", None), ("events", None), ("results", "window")):
        handler = windowing(WINDOWS[kind], Collect(), changes)
        handler.delegates_to = delegates_to
        sink = MemorySink()
        run(Job("shared", handler, {"in": MemorySource(orders())}, {"out": sink}), engine="embedded")
        collected.append(sorted(sink.records, key=repr))
    assert collected[0]
    assert collected == [collected[0]] * 3


def test_results_are_those_of_the_events_as_they_were_added() -> None:
    class Prices(Handler):
        out = SinkSpec(list)
        window = HoppingWindow(10 * SECOND, 5 * SECOND, Collect())

        def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
            return record

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event)
            event.value["seen"] = True

        @window.on_close
        def closed(self, subject: Subject, window: Window, orders: list[dict[str, Any]]) -> None:
            self.out.collect(subject, [seconds(window.start), orders])
            for order in orders:
                order["price"] *= 100

    result = TestRun(job(Prices())).add_record(event(1, {"price": 3})).run(flush=True)
    assert result.records("out") == [[-5, [{"price": 3}]], [0, [{"price": 3}]]]


class Joining(Handler):
    """Adds events to its join, and collects matches. `changes` names what it changes: the values of `events` that it
    has added, or those of `matches` that it has collected.
    """

    out = SinkSpec(list)

    def __init__(self, join: JoinSpec, changes: str) -> None:
        self.join = join
        self.changes = changes

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.join.add(subject, event)
        if self.changes == "events":
            change(event.value)


def matched(subject: Subject, left: KeyedEvent[Any] | None, right: KeyedEvent[Any] | None) -> None:
    sides = [None if side is None else side.value for side in (left, right)]
    subject.handler.out.collect(subject, sides)
    if subject.handler.changes == "matches":
        change(sides)


def matches(make: Callable[..., JoinSpec], changes: str, cut: bool) -> list[Any]:
    join = make(left="left", right="right", name="join", on_match=matched)
    with TestRun(job(Joining(join, changes), "left", "right")) as test_run:
        for second, source in enumerate(["right", "left", "left", "right", "right", "left", "left", "right"]):
            order = event(second, {"price": second, "items": [{"from": source}]})
            test_run.add_record(order, source)
            if cut:
                test_run.end_batch()
        collected: list[Any] = test_run.run(flush=True).records("out")
    return collected


@pytest.mark.parametrize(
    "join",
    [
        AsOfJoin,
        lambda **sides: AsOfJoin(**sides, direction="nearest", tolerance=5 * SECOND),
        lambda **sides: IntervalJoin(**sides, lower=-5 * SECOND, upper=5 * SECOND, how="outer"),
        lambda **sides: IntervalJoin(**sides, lower=0 * SECOND, upper=SECOND, how="left"),
        LatestJoin,
    ],
    ids=["as of", "nearest", "interval", "left interval", "latest"],
)
@pytest.mark.parametrize("changes", ["events", "matches"])
@cuts
def test_a_callback_may_change_the_values_of_a_join(join: Callable[..., JoinSpec], changes: str, cut: bool) -> None:
    expected = matches(join, "nothing", cut)
    assert len(expected) >= 4
    assert matches(join, changes, cut) == expected


class Longest(Count):
    """Overrides `add`, so that the accumulator contains a value."""

    def add(self, accumulator: Any, event: KeyedEvent[Any]) -> Any:
        return event.value


class Doubled(Count):
    def result(self, accumulator: int) -> int:
        return 2 * accumulator


class Frugal(Count):
    keeps_values = False

    def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
        return accumulator + 2


class Own(Aggregate[Any, Any]):
    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, event: KeyedEvent[Any]) -> Any:
        return event.value

    def result(self, accumulator: Any) -> Any:
        return accumulator


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        *((each, False) for each in (Count(), Sum("n"), Min("n"), Max("n"), Mean("n"), StdDev("n"), Median("n"))),
        *((each, False) for each in (DistinctCount("n"), Quantiles("n", [0.5]), MovingAverage("n", n=2), AllOf("n"))),
        *((each, True) for each in (Collect(), First(), Last(), TopK(2, by="n"), ArgMax("n", by="n"), Reduce(max))),
        *((each, False) for each in (Doubled(), Frugal())),
        *((each, True) for each in (Longest(), Own())),
        ({"n": Count(), "sum": Sum("n")}, False),
        ({"n": Count(), "parts": {"sum": Sum("n")}}, False),
        ({"n": Count(), "all": Collect()}, True),
        ({"n": Count(), "parts": {"sum": Sum("n"), "first": First()}}, True),
    ],
    ids=repr,
)
def test_an_aggregate_states_whether_it_keeps_values(aggregate: Any, expected: bool) -> None:
    assert aggregate_of(aggregate).keeps_values is expected


def test_an_aggregate_that_keeps_no_values_gets_the_event_itself() -> None:
    values = []

    class Watching(Frugal):
        keeps_values = False

        def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
            values.append(event.value)
            return super().add(accumulator, event)

    class Adding(Windowing):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            super().on_event(subject, event)
            assert values[-1] is event.value

    window = TumblingWindow(10 * SECOND, Watching(), name="window", on_close=_closed)
    result = TestRun(job(Adding(window, "nothing"))).add_record(event(1, {"price": 3})).run(flush=True)
    assert result.records("out") == [["a", 0, False, 2]]


def into_first(order: Any, other: Any) -> Any:
    order["n"] += other["n"]
    order["items"] += other["items"]
    return order


@pytest.mark.parametrize(
    ("kind", "early"),
    [
        ("tumbling", None),
        ("tumbling", 1),
        ("session", None),
        ("count", None),
        ("count with hop", None),
        ("hopping", None),
        ("sliding", None),
        ("session", 1),
        ("count with hop", 1),
    ],
)
def test_the_function_of_reduce_may_change_and_return_its_first_argument(kind: str, early: int | None) -> None:
    expected = results(windowing(WINDOWS[kind], Reduce(together), early=early))
    assert results(windowing(WINDOWS[kind], Reduce(into_first), early=early)) == expected


@windows
def test_the_function_of_mergeable_reduce_may_change_and_return_its_first_argument(
    window: Callable[..., WindowSpec],
) -> None:
    expected = results(windowing(window, Reduce(together, mergeable=True), early=1))
    assert results(windowing(window, Reduce(into_first, mergeable=True), early=1)) == expected
