"""If no event is late, results do not depend on how the input is cut into batches (`semantics.md` 21).

This holds for every window except early results and `max_active`, for every join except `LatestJoin`, for every
aggregate, and for state with a `ttl`.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plugins.windows import SECOND, at, windowing

from amadou import Handler, Job, KeyedEvent, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou_plugins import aggregates
from amadou_plugins.aggregates import Collect, Count, Max, RunningSpec, Sum
from amadou_plugins.joins import AsOfJoin, IntervalJoin
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow
from amadou_runtime import TestRun

DISORDER = 3
LATE = {"allowed_lateness": 2 * SECOND}


class Vectorized:
    """Makes a handler that only adds events to a window, so that it is processed in columnar form."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __call__(self) -> Handler:
        handler: Any = self.make()
        handler.delegates_to = "window"
        return handler  # type: ignore[no-any-return]


WINDOWS: dict[str, Callable[[], Handler]] = {
    "tumbling": lambda: windowing(TumblingWindow, 5 * SECOND, Collect()),
    "tumbling, late": lambda: windowing(TumblingWindow, 5 * SECOND, Collect(), **LATE),
    "tumbling, offset": lambda: windowing(TumblingWindow, 5 * SECOND, Collect(), offset=2 * SECOND),
    "hopping": lambda: windowing(HoppingWindow, 6 * SECOND, 2 * SECOND, Collect()),
    "hopping, uneven": lambda: windowing(HoppingWindow, 5 * SECOND, 3 * SECOND, Collect(), **LATE),
    "hopping, gaps": lambda: windowing(HoppingWindow, 2 * SECOND, 3 * SECOND, Collect()),
    "sliding": lambda: windowing(SlidingWindow, 4 * SECOND, Collect()),
    "sliding, late": lambda: windowing(SlidingWindow, 4 * SECOND, Collect(), **LATE),
    "session": lambda: windowing(SessionWindow, 3 * SECOND, Collect()),
    "session, late": lambda: windowing(SessionWindow, 3 * SECOND, Collect(), **LATE),
    "session, max_duration": lambda: windowing(SessionWindow, 3 * SECOND, Collect(), max_duration=5 * SECOND),
    "count, ttl": lambda: windowing(CountWindow, 3, Collect(), ttl=4 * SECOND),
}
COLUMNS: dict[str, Callable[[], Handler]] = {
    f"{name}, in columns": Vectorized(make)
    for name, make in WINDOWS.items()
    if name.startswith(("tumbling", "hopping", "session")) and "max" not in name and "gaps" not in name
}


class Keeping(Handler):
    """Has state with a `ttl`, and no timers."""

    flag = ValueSpec(bool, default=False, ttl=4 * SECOND)
    counts = MapSpec(int, int, ttl=5 * SECOND)
    lately = RunningSpec({"n": Count(), "sum": Sum(), "max": Max()}, ttl=3 * SECOND)
    results = SinkSpec(tuple)
    late = SinkSpec(tuple)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        assert not subject.is_late
        flag, counts = self.flag.state_for(subject), self.counts.state_for(subject)
        counts[event.value % 3] = counts.get(event.value % 3, 0) + 1
        seen = flag.value
        flag.value = flag.value or event.value % 2 == 0
        self.results.collect(subject, (subject.key, seen, list(counts.items()), self.lately.add(subject, event)))


streams = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-DISORDER, 3) | st.just(9), st.integers(0, 9), st.booleans()),
    max_size=25,
)


def events_of(stream: list[Any]) -> list[tuple[KeyedEvent[int], bool]]:
    """Events that are out of order by at most `DISORDER` seconds, and whether a batch ends before each."""
    newest, events = 100, []
    for key, step, value, cut in stream:
        events.append((KeyedEvent(key, at(newest + step), value), cut))
        newest = max(newest, newest + step)
    return events


def results_of(job: Job, events: list[tuple[KeyedEvent[int], bool]], sources: list[str], cuts: bool) -> Any:
    run = TestRun(job)
    for (event, cut), source in zip(events, sources, strict=True):
        if cut and cuts:
            run.end_batch()
        run.add_record(event, source)
    result = run.run(flush=True)
    assert (result.late, result.dropped) == ([], 0)
    return [sorted(map(repr, result.records(port))) for port in job.ports]


@pytest.mark.parametrize("name", [*WINDOWS, *COLUMNS, "state"])
@given(streams)
@settings(max_examples=12)
def test_results_do_not_depend_on_the_cuts_into_batches(name: str, stream: list[Any]) -> None:
    make = {**WINDOWS, **COLUMNS, "state": Keeping}[name]

    def job() -> Job:
        sinks = {"results": MemorySink(), "late": MemorySink()}
        return Job("cut", make(), {"in": MemorySource()}, sinks, watermark_delay=DISORDER)

    events = events_of(stream)
    sources = ["in"] * len(events)
    assert results_of(job(), events, sources, cuts=True) == results_of(job(), events, sources, cuts=False)


SIDES: Any = {"left": "l", "right": "r", "name": "join"}
JOINS: dict[str, Callable[[Any], Any]] = {
    **{
        f"interval, {how}": lambda function, how=how: IntervalJoin(
            lower=-2 * SECOND, upper=3 * SECOND, how=how, on_match=function, **SIDES
        )
        for how in ("inner", "left", "right", "outer")
    },
    "interval, late": lambda function: IntervalJoin(
        lower=SECOND, upper=3 * SECOND, how="outer", on_match=function, **SIDES, **LATE
    ),
    **{
        f"as of, {direction}": lambda function, direction=direction: AsOfJoin(
            tolerance=3 * SECOND, direction=direction, on_match=function, **SIDES
        )
        for direction in ("backward", "forward", "nearest")
    },
    "as of, any time": lambda function: AsOfJoin(on_match=function, **SIDES),
    "as of, ttl": lambda function: AsOfJoin(ttl=4 * SECOND, on_match=function, **SIDES),
    "as of, ttl, late": lambda function: AsOfJoin(ttl=4 * SECOND, on_match=function, **SIDES, **LATE),
}


class Joining(Handler):
    results = SinkSpec(tuple)

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.join = make(lambda subject, *match: subject.handler.matched(subject, *match))

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.join.add(subject, event)

    def matched(self, subject: Subject, left: Any, right: Any) -> None:
        self.results.collect(subject, (left, right))


@pytest.mark.parametrize("name", JOINS)
@given(streams, st.lists(st.sampled_from("lr"), min_size=25, max_size=25))
@settings(max_examples=20)
def test_results_of_joins_do_not_depend_on_the_cuts_into_batches(name: str, stream: list[Any], sides: Any) -> None:
    def job() -> Job:
        sources = {"l": MemorySource(), "r": MemorySource()}
        return Job("cut", Joining(JOINS[name]), sources, {"results": MemorySink()}, watermark_delay=DISORDER)

    # equal times on one side would make the source's order count, which cuts between two sources can change
    seen, events, sources = set(), [], []
    for (event, cut), side in zip(events_of(stream), sides, strict=False):
        if (event.key, event.timestamp, side) not in seen:
            seen.add((event.key, event.timestamp, side))
            events.append((event, cut))
            sources.append(side)
    assert results_of(job(), events, sources, cuts=True) == results_of(job(), events, sources, cuts=False)


def _square(event: KeyedEvent[int]) -> int:
    return event.value * event.value % 7


ALL = {
    "all": aggregates.AllOf(lambda event: event.value > 2),
    "any": aggregates.AnyOf(lambda event: event.value > 7),
    "arg max": aggregates.ArgMax(None, by=_square),
    "arg min": aggregates.ArgMin(None, by=_square),
    "list": aggregates.Collect(),
    "some": aggregates.Collect(limit=2),
    "correlation": aggregates.Correlation(None, _square),
    "count": aggregates.Count(),
    "covariance": aggregates.Covariance(None, _square),
    "distinct": aggregates.DistinctCount(),
    "about": aggregates.DistinctCount(approximate=True),
    "earliest": aggregates.Earliest(),
    "first": aggregates.First(),
    "last": aggregates.Last(),
    "latest": aggregates.Latest(),
    "max": aggregates.Max(),
    "mean": aggregates.Mean(lambda event: event.value / 7),
    "median": aggregates.Median(),
    "min": aggregates.Min(),
    "moving": aggregates.MovingAverage(n=2),
    "quantiles": aggregates.Quantiles(quantiles=[0.1, 0.9]),
    "reduce": aggregates.Reduce(lambda total, value: total * 2 + value, initial=1),
    "deviation": aggregates.StdDev(),
    "sum": aggregates.Sum(lambda event: event.value / 7),
    "top": aggregates.TopK(2),
    "variance": aggregates.Variance(),
}


def test_every_aggregate_is_tried() -> None:
    made = (getattr(aggregates, name) for name in aggregates.__all__)
    classes = {each for each in made if isinstance(each, type) and issubclass(each, aggregates.Aggregate)}
    assert classes - {type(each) for each in ALL.values()} == {aggregates.Aggregate, aggregates.CompositeAggregate}


def alike(name: str) -> tuple[bool, bool]:
    """Return what decides how a window of an aggregate works."""
    return ALL[name].mergeable, ALL[name].ordered


@pytest.mark.parametrize("names", [[*names] for _, names in groupby(sorted(ALL, key=alike), alike)], ids=" ".join)
@pytest.mark.parametrize(
    "window",
    [
        lambda value: windowing(HoppingWindow, 6 * SECOND, 2 * SECOND, value),
        lambda value: windowing(SlidingWindow, 4 * SECOND, value),
        lambda value: windowing(SessionWindow, 3 * SECOND, value),
    ],
    ids=["hopping", "sliding", "session"],
)
@given(streams)
@settings(max_examples=12)
def test_results_of_aggregates_do_not_depend_on_the_cuts_into_batches(
    window: Any, names: list[str], stream: list[Any]
) -> None:
    def job() -> Job:
        sinks = {"results": MemorySink(), "late": MemorySink()}
        handler = window({name: ALL[name] for name in names})
        return Job("cut", handler, {"in": MemorySource()}, sinks, watermark_delay=DISORDER)

    events = events_of(stream)
    sources = ["in"] * len(events)
    assert results_of(job(), events, sources, cuts=True) == results_of(job(), events, sources, cuts=False)
