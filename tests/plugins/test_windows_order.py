"""Windows that merge parts: in the order of the stream, and with values of one type."""

from datetime import timedelta
from typing import Any

import pytest
from tests.conformance.handlers import START, at, event, job

from amadou import KeyedEvent, SinkSpec, Subject
from amadou.components import VectorizedHandler
from amadou.errors import CallbackError
from amadou.event_time import to_micros
from amadou_plugins.aggregates import (
    Aggregate,
    ArgMax,
    Collect,
    Count,
    First,
    Last,
    Max,
    Mean,
    Min,
    MovingAverage,
    Reduce,
    Sum,
    TopK,
)
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, Window
from amadou_runtime import TestRun
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupBatch
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.packed_group import PackedGroup

SECOND = timedelta(seconds=1)
ORDERED = {"first": First(), "last": Last(), "all": Collect(), "reduced": Reduce(lambda left, right: left + right)}


class Recorded(VectorizedHandler):
    """Adds events to a window, and collects key, start, end and value of its results."""

    results = SinkSpec(tuple)
    window: Any

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        start, end = ((time - START) / SECOND for time in (window.start, window.end))
        self.results.collect(subject, (window.key, start, end, value))


def recorded(window: Any) -> Recorded:
    handler = Recorded()
    handler.window = window = window.copied()
    window.on_close(Recorded.closed)
    window.__set_name__(Recorded, "window")
    return handler


def overlapping(value: Any) -> list[Any]:
    """Return a window of each kind that merges parts."""
    return [
        HoppingWindow(20 * SECOND, 10 * SECOND, value),
        SlidingWindow(20 * SECOND, value),
        SessionWindow(6 * SECOND, value),
        SessionWindow(6 * SECOND, value, max_duration=60 * SECOND),
        CountWindow(3, value, hop=1),
    ]


def result_of(records: list[Any]) -> Any:
    """Return the result of the window with the most events."""
    return max((value for *_, value in records), key=lambda value: len(value["all"]))


@pytest.mark.parametrize("window", overlapping(ORDERED), ids=repr)
@pytest.mark.parametrize("restarts", [False, True])
def test_windows_that_merge_parts_aggregate_events_in_the_order_of_the_stream(window: Any, restarts: bool) -> None:
    run = TestRun(job(recorded(window), watermark_delay=100))
    for each in (event(15, "a"), event(5, "b"), event(10, "c")):
        run.add_record(each)
        if restarts:
            run.restart()
    largest = result_of(run.run(flush=True).records("results"))
    assert largest == {"first": "a", "last": "c", "all": ["a", "b", "c"], "reduced": "abc"}


KINDS = [Max("n"), Min("n"), TopK(2, "n"), ArgMax("n", by="n"), {"n": Count(), "most": Max("n")}]


@pytest.mark.parametrize("value", KINDS, ids=repr)
@pytest.mark.parametrize("kind", range(5))
def test_a_value_of_another_type_is_refused_when_it_is_added_to_a_window(kind: int, value: Any) -> None:
    run = TestRun(job(recorded(overlapping(value)[kind]), on_error="dead_letter", watermark_delay=100))
    run.add_records([event(15, {"n": 1}), event(9.5, {"n": "12"}), event(12, {"n": 3}), event(15, {"n": 2})]).restart()
    result = run.run(flush=True)
    (letter,) = result.dead_letters
    assert (letter.callback, letter.timestamp) == ("on_event", at(9.5))
    assert letter.error.startswith("ValueKindError: ")
    assert result.keys() == (["k"] if kind == 4 else [])
    assert {repr(value) for *_, value in result.records("results")} <= {
        *("1", "3", "[3]", "[3, 1]", "[3, 2]", "{'n': 1, 'most': 3}", "{'n': 3, 'most': 3}", "{'n': 2, 'most': 2}"),
        *("2", "[2]", "[2, 1]", "{'n': 2, 'most': 3}"),
    }


@pytest.mark.parametrize("value", [Sum("n"), Mean("n")], ids=repr)
@pytest.mark.parametrize("kind", range(5))
def test_adding_a_duration_to_a_window_with_numbers_is_an_error_of_that_event(kind: int, value: Any) -> None:
    run = TestRun(job(recorded(overlapping(value)[kind]), on_error="dead_letter", watermark_delay=100))
    run.add_records([event(15, {"n": 1}), event(9.5, {"n": SECOND}), event(12, {"n": 3})])
    result = run.run(flush=True)
    assert [(letter.callback, letter.timestamp) for letter in result.dead_letters] == [("on_event", at(9.5))]


@pytest.mark.parametrize("value", [Max("n"), {"all": Collect("n"), "most": Max("n")}], ids=repr)
def test_consecutive_windows_can_have_values_of_different_types(value: Any) -> None:
    windows = [
        HoppingWindow(20 * SECOND, 10 * SECOND, value),
        SlidingWindow(20 * SECOND, value),
        SessionWindow(40 * SECOND, value, max_duration=60 * SECOND),
    ]
    for window in windows:
        run = TestRun(job(recorded(window), on_error="dead_letter", watermark_delay=1000))
        result = run.add_records([event(0, {"n": 1}), event(30, {"n": 2}), event(61, {"n": "12"})]).run(flush=True)
        assert result.dead_letters == []
        assert any("12" in repr(record) for record in result.records("results"))


def test_an_aggregate_that_is_not_mergeable_refuses_values_of_another_type() -> None:
    window = HoppingWindow(20 * SECOND, 10 * SECOND, MovingAverage("n", 5))
    run = TestRun(job(recorded(window), on_error="dead_letter")).add_records(
        [event(1, {"n": "12"}), event(1, {"n": 2})]
    )
    result = run.run(flush=True)
    assert [letter.callback for letter in result.dead_letters] == ["on_event"]
    assert [value for *_, value in result.records("results")] == [2, 2]


@pytest.mark.parametrize("value", [Max("n"), Sum("n"), {"n": Count(), "most": TopK(1, "n")}], ids=repr)
@pytest.mark.parametrize("size", [20, 10])
def test_values_of_another_type_are_refused_in_the_vectorized_path_too(
    value: Any, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    handler = recorded(HoppingWindow(size * SECOND, 10 * SECOND, value))
    handler.delegates_to = "window"
    operator = Operator(job(handler))
    assert operator.vectorized_component is not None
    numbers, other = [event(5, {"n": 1}), event(6, {"n": 2}, "a")], event(15, {"n": SECOND}, "a")
    state = operator.process(GroupBatch(PackedGroup(None), [chunk(numbers)], None)).changes.packed
    if size == 10:
        operator.process(GroupBatch(PackedGroup(state), [chunk([other])], None))
        assert caplog.text == ""
        return
    with pytest.raises(CallbackError) as caught:
        operator.process(GroupBatch(PackedGroup(state), [chunk([event(15, {"n": 3}), other])], None))
    assert (caught.value.callback, caught.value.key) == ("on_event", "a")
    assert "ValueKindError" in caught.value.error


def test_windows_of_different_keys_can_have_values_of_different_types(caplog: pytest.LogCaptureFixture) -> None:
    handler = recorded(HoppingWindow(20 * SECOND, 10 * SECOND, Max("n")))
    handler.delegates_to = "window"
    events = [event(5, {"n": 1}), event(15, {"n": 2}), event(5, {"n": "1"}, "a"), event(15, {"n": "2"}, "a")]
    operator = Operator(job(handler))
    state = operator.process(GroupBatch(PackedGroup(None), [chunk(events)], None)).changes.packed
    encoded_values = operator.process(GroupBatch(PackedGroup(state), [], to_micros(at(100)))).outputs["results"]
    values = [operator._codecs["results"].decode(encoded)[-1] for encoded in encoded_values]
    assert sorted(map(repr, values)) == ["'1'", "'2'", "'2'", "1", "2", "2"]
    assert caplog.text == ""


def chunk(events: list[KeyedEvent[Any]]) -> Chunk:
    return Chunk("events", b"", pack_events([field for event in events for field in event]))


class Touchy(Aggregate[list[str], str]):
    """Cannot merge two parts with the same text."""

    def create(self) -> list[str]:
        return []

    def add(self, accumulator: list[str], event: KeyedEvent[Any]) -> list[str]:
        return [*accumulator, event.value]

    def merge(self, left: list[str], right: list[str]) -> list[str]:
        if {*left} & {*right}:
            raise ValueError("the same")
        return left + right

    def result(self, accumulator: list[str]) -> str:
        return "".join(sorted(accumulator))


@pytest.mark.parametrize("kind", range(4))
def test_a_merge_that_fails_at_a_close_becomes_a_dead_letter_of_that_window(kind: int) -> None:
    windows = overlapping(Touchy())[:4]
    windows[2] = TumblingWindow(20 * SECOND, {"n": Touchy()})
    run = TestRun(job(recorded(windows[kind]), on_error="dead_letter", watermark_delay=1000))
    run.add_records([event(5, "a"), event(10, "b"), event(15, "a"), event(5, "c", "other")]).restart()
    result = run.add_record(event(75, "z")).run(flush=True)
    assert {letter.callback for letter in result.dead_letters} <= {"closed"}
    assert bool(result.dead_letters) == (kind != 2)
    assert all(letter.error == "ValueError: the same" for letter in result.dead_letters)
    values = {value if isinstance(value, str) else value["n"] for *_, value in result.records("results")}
    assert {"c", "z"} <= values, "other windows close"
    assert result.keys() == []
