"""Open windows whose aggregates change: names that are added and removed, and migrations."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.plugins.windows import SECOND, Recording, at, event, job, windowing

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou._state.encoding import unpack
from amadou.errors import CallbackError, SpecError, StateDecodeError
from amadou.event_time import to_micros
from amadou_plugins.aggregates import Aggregate, Collect, Count, First, Max, Mean, Reduce, RunningSpec, Sum
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow
from amadou_runtime import TestRun
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupBatch, ProcessedGroup
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.packed_group import PackedGroup

KINDS: dict[str, Callable[..., Recording]] = {
    "tumbling": lambda *args, **more: windowing(TumblingWindow, 100 * SECOND, *args, **more),
    "hopping": lambda *args, **more: windowing(HoppingWindow, 100 * SECOND, 50 * SECOND, *args, **more),
    "sliding": lambda *args, **more: windowing(SlidingWindow, 100 * SECOND, *args, **more),
    "session": lambda *args, **more: windowing(SessionWindow, 100 * SECOND, *args, **more),
    "cut session": lambda *args, **more: windowing(
        SessionWindow, 100 * SECOND, *args, max_duration=200 * SECOND, **more
    ),
    "count": lambda *args, **more: windowing(CountWindow, 2, *args, **more),
}
AT_ONCE = ("tumbling", "hopping", "session")


def processed_batch(
    operator: Operator, state: bytes | None, chunks: list[Chunk], watermark: int, is_vectorized: bool
) -> ProcessedGroup:
    """Process a batch in the vectorized path or event by event."""
    if is_vectorized:
        assert operator.vectorized_component is not None
        done = operator.vectorized(
            operator.vectorized_component, GroupBatch(PackedGroup(state), chunks, to_micros(at(watermark)))
        )
    else:
        done = operator.per_event(GroupBatch(PackedGroup(state), chunks, to_micros(at(watermark))))
    assert done is not None
    return done


def results(before: Recording, after: Recording, *vectorized: bool) -> list[Any]:
    """Return the results of windows that one handler opens and another handler closes.

    :param vectorized: for both handlers, `True` to process in the vectorized path
    """
    state = None
    outputs: list[Any] = []
    for handler, second, is_vectorized in zip((before, after), (10, 20), vectorized, strict=True):
        handler.delegates_to = "window" if is_vectorized else None
        operator = Operator(job(handler))
        for watermark, chunks in ((0, [Chunk("in", b"", pack_events(["a", at(second), second]))]), (1, [])):
            done = processed_batch(operator, state, chunks, watermark, is_vectorized)
            state = done.changes.packed
            outputs += done.outputs.get("results", [])
    closed = operator.process(GroupBatch(PackedGroup(state), [], to_micros(at(1000))))
    assert closed.changes.packed is None
    return [unpack(result)[-1] for result in [*outputs, *closed.outputs.get("results", [])]]


def ways(kind: str) -> list[tuple[bool, bool]]:
    many = (False, True) if kind in AT_ONCE else (False,)
    return [(first, second) for first in many for second in many]


@pytest.mark.parametrize("kind", KINDS)
def test_aggregates_of_a_window_can_be_added_and_removed_by_name(kind: str) -> None:
    make = KINDS[kind]
    for way in ways(kind):
        before = make({"n": Count(), "sum": Sum(), "deep": {"a": Mean(), "b": Max()}})
        after = make({"n": Count(), "max": Max(), "deep": {"b": Max(), "c": Sum()}})
        assert results(before, after, *way)[-1] == {"n": 2, "max": 20, "deep": {"b": 20, "c": 20}}
        nothing_in_common = results(make({"n": Count()}), make({"sum": Sum()}), *way)[-1]
        assert nothing_in_common == {"sum": 20}


def with_sum(accumulator: Any, version: int) -> Any:
    assert version == 0
    return {"sum": accumulator, "n": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_a_migration_can_change_the_aggregate_of_a_window(kind: str) -> None:
    make = KINDS[kind]
    for way in ways(kind):
        after = make({"sum": Sum(), "n": Count()}, version=1, migrate=with_sum)
        assert results(make(Sum()), after, *way)[-1] == {"sum": 30, "n": 2}


@pytest.mark.parametrize("kind", KINDS)
def test_the_error_of_a_migration_that_fails_names_window_and_key(kind: str) -> None:
    make = KINDS[kind]
    for way in ways(kind):
        after = make({"n": Count()}, version=1, migrate=lambda accumulator, _: accumulator["n"])
        with pytest.raises(Exception, match=r"state 'window' of key 'a'.*migrate= failed for version 0: TypeError"):
            results(make(Sum()), after, *way)


def test_a_migration_of_a_window_that_stores_events_gets_the_events() -> None:
    make = KINDS["session"]
    joined = make(Reduce(lambda left, right: f"{left}{right}", lambda event: str(event.value)))
    after = make({"all": Collect()}, version=1, migrate=lambda events, _: {"all": [value for *_, value in events]})
    assert results(joined, after, False, False)[-1] == {"all": [10, 20]}


class Packed(Aggregate[int, int]):
    """Has its own layout of columns."""

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
        return accumulator + 1

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        return accumulator

    def column(self, accumulators: Any) -> Any:
        return {"packed": list(accumulators)}

    def accumulators(self, column: Any) -> Any:
        return column["packed"]

    def extend(self, column: Any, number: int) -> None:
        column["packed"] += [0] * number

    def taken(self, column: Any, at: Any) -> Any:
        return {"packed": [column["packed"][place] for place in at]}

    def add_each(self, column: Any, at: Any, events: Any) -> None:
        for place in at:
            column["packed"][place] += 1

    def merge_each(self, column: Any, at: Any, other: Any) -> None:
        raise NotImplementedError

    def results(self, column: Any) -> Any:
        return column["packed"]


def test_a_column_with_its_own_layout_is_read_only_by_its_class() -> None:
    make = KINDS["tumbling"]
    both = {"n": Packed(), "max": Max()}
    assert results(make({"n": Packed()}), make(both), True, True)[-1] == {"n": 2, "max": 20}
    with pytest.raises(Exception, match=r"state 'window' of key 'a'.*in the layout Packed\.accumulators"):
        results(make({"n": Packed()}), make({"max": Max()}), True, False)


@pytest.mark.parametrize("version", [-1, "1", None])
def test_columns_of_a_version_that_no_window_has_are_an_error(version: Any) -> None:
    window = TumblingWindow(SECOND, Count(), name="window", on_close=print)
    _, *rest = window.layout
    column = {0: [["a"], [1], [0], [0], [1]]}
    assert list(window.from_columns(column, 1_000_000, [0, *rest]))
    with pytest.raises(StateDecodeError, match=r"state 'window' of key 'a'.*its version is"):
        list(window.from_columns(column, 1_000_000, [version, *rest]))


def test_version_without_migrate_is_refused() -> None:
    with pytest.raises(SpecError, match="version= and migrate= go together"):
        TumblingWindow(SECOND, version=1, on_close=print).check()


class Account(Handler):
    total = RunningSpec({"sum": Sum(), "first": First()}, ttl=timedelta(days=1))
    totals = SinkSpec(object)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.totals.collect(subject, self.total.add(subject, event))


class Wider(Account):
    total = RunningSpec({"sum": Sum(), "max": Max()}, ttl=timedelta(days=1))


class Other(Account):
    total = RunningSpec(Sum(), ttl=timedelta(days=1), version=1, migrate=lambda stored, version: stored["sum"])


class Wrong(Account):
    total = RunningSpec(Sum(), ttl=timedelta(days=1), version=1, migrate=lambda stored, version: stored["max"])


@pytest.mark.parametrize(("after", "value"), [(Wider, {"sum": 7, "max": 2}), (Other, 7)])
def test_a_running_value_continues_with_changed_aggregates(after: type[Handler], value: Any) -> None:
    run = TestRun(Job("running", Account(), sources={"in": MemorySource()}, sinks={"totals": MemorySink()}))
    run.add_record(event(1, 5)).restart(after).add_record(event(2, 2))
    assert run.run().records("totals")[-1] == value


def test_the_error_of_a_migration_of_a_running_value_names_spec_and_key() -> None:
    run = TestRun(Job("running", Account(), sources={"in": MemorySource()}, sinks={"totals": MemorySink()}))
    run.add_record(event(1, 5)).restart(Wrong).add_record(event(2, 2))
    with pytest.raises(CallbackError, match=r"state 'total' of key 'a'.*migrate= failed for version 0: KeyError"):
        run.run()


@pytest.mark.parametrize("kind", ["hopping", "sliding", "session", "cut session"])
@pytest.mark.parametrize("of", [Count, First], ids=["any order", "in order"])
def test_an_aggregate_that_returns_to_a_window_starts_empty(kind: str, of: Callable[[], Any]) -> None:
    def value_after(key: str, *vectorized: bool) -> list[Any]:
        state, outputs = None, []
        with_name, without = {"n": Sum(), "other": of()}, {"other": of()}
        for value, (aggregates, is_vectorized) in enumerate(
            zip((with_name, without, with_name), vectorized, strict=True)
        ):
            second = 10 + 30 * value
            handler = KINDS[kind](aggregates)
            handler.delegates_to = "window" if is_vectorized else None
            operator = Operator(job(handler))
            keys = ["a" if value != 1 else key]
            chunks = [Chunk("in", b"", pack_events([*keys, at(second), 1]))]
            state = processed_batch(operator, state, chunks, value, is_vectorized).changes.packed
        closed = operator.process(GroupBatch(PackedGroup(state), [], to_micros(at(1000))))
        outputs = [unpack(result) for result in closed.outputs["results"]]
        return [result[-1]["n"] for result in outputs if result[2] == "a"]

    ways = [(first, second, third) for first in (False, True) for second in (False, True) for third in (False, True)]
    for way in ways if kind in AT_ONCE else [(False, False, False)]:
        assert max(value_after("a", *way)) == 1, way
        assert max(value_after("idle a", *way)) == 1, way
