"""Windows whose parts are put together: in the order of the stream, and of one kind of values."""

from datetime import timedelta
from typing import Any

import pytest
from tests.conformance.handlers import START, at, event, job

from amadou import KeyedEvent, SinkSpec, Subject, VectorizedHandler, to_micros
from amadou.errors import CallbackError
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
from amadou_runtime.core.operator import GroupBatch, Operator
from amadou_runtime.core.packed_group import PackedGroup

SECOND = timedelta(seconds=1)
ORDERED = {"first": First(), "last": Last(), "all": Collect(), "reduced": Reduce(lambda left, right: left + right)}


class Recorded(VectorizedHandler):
    """Gives events to a window, and records key, start, end and value of its results."""

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
    """A window of each kind that is made of parts."""
    return [
        HoppingWindow(20 * SECOND, 10 * SECOND, value),
        SlidingWindow(20 * SECOND, value),
        SessionWindow(6 * SECOND, value),
        SessionWindow(6 * SECOND, value, max_duration=60 * SECOND),
        CountWindow(3, value, hop=1),
    ]


def result_of(records: list[Any]) -> Any:
    """The result of the window that has most."""
    return max((value for *_, value in records), key=lambda value: len(value["all"]))


@pytest.mark.parametrize("window", overlapping(ORDERED), ids=repr)
@pytest.mark.parametrize("restarts", [False, True])
def test_what_goes_by_the_order_of_the_stream_has_it(window: Any, restarts: bool) -> None:
    run = TestRun(job(recorded(window), watermark_delay=100))
    for given in (event(15, "a"), event(5, "b"), event(10, "c")):
        run.add_record(given)
        if restarts:
            run.restart()
    found = result_of(run.run(flush=True).records("results"))
    assert found == {"first": "a", "last": "c", "all": ["a", "b", "c"], "reduced": "abc"}


KINDS = [Max("n"), Min("n"), TopK(2, "n"), ArgMax("n", by="n"), {"n": Count(), "most": Max("n")}]


@pytest.mark.parametrize("value", KINDS, ids=repr)
@pytest.mark.parametrize("kind", range(5))
def test_a_value_of_another_kind_is_refused_when_it_is_added(kind: int, value: Any) -> None:
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
def test_numbers_and_durations_are_not_summed_up_in_one_window(kind: int, value: Any) -> None:
    run = TestRun(job(recorded(overlapping(value)[kind]), on_error="dead_letter", watermark_delay=100))
    run.add_records([event(15, {"n": 1}), event(9.5, {"n": SECOND}), event(12, {"n": 3})])
    result = run.run(flush=True)
    assert [(letter.callback, letter.timestamp) for letter in result.dead_letters] == [("on_event", at(9.5))]


@pytest.mark.parametrize("value", [Max("n"), {"all": Collect("n"), "most": Max("n")}], ids=repr)
def test_values_of_two_kinds_may_follow_one_another_in_two_windows(value: Any) -> None:
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


def test_an_aggregate_that_is_kept_whole_refuses_what_it_would_refuse_in_the_end() -> None:
    window = HoppingWindow(20 * SECOND, 10 * SECOND, MovingAverage("n", 5))
    run = TestRun(job(recorded(window), on_error="dead_letter")).add_records(
        [event(1, {"n": "12"}), event(1, {"n": 2})]
    )
    result = run.run(flush=True)
    assert [letter.callback for letter in result.dead_letters] == ["on_event"]
    assert [value for *_, value in result.records("results")] == [2, 2]


@pytest.mark.parametrize("value", [Max("n"), Sum("n"), {"n": Count(), "most": TopK(1, "n")}], ids=repr)
@pytest.mark.parametrize("size", [20, 10])
def test_many_at_a_time_are_refused_as_one_by_one(value: Any, size: int, caplog: pytest.LogCaptureFixture) -> None:
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


def test_other_keys_may_have_values_of_another_kind_at_once(caplog: pytest.LogCaptureFixture) -> None:
    handler = recorded(HoppingWindow(20 * SECOND, 10 * SECOND, Max("n")))
    handler.delegates_to = "window"
    events = [event(5, {"n": 1}), event(15, {"n": 2}), event(5, {"n": "1"}, "a"), event(15, {"n": "2"}, "a")]
    operator = Operator(job(handler))
    state = operator.process(GroupBatch(PackedGroup(None), [chunk(events)], None)).changes.packed
    encoded_values = operator.process(GroupBatch(PackedGroup(state), [], to_micros(at(100)))).outputs["results"]
    given = [operator._codecs["results"].decode(encoded)[-1] for encoded in encoded_values]
    assert sorted(map(repr, given)) == ["'1'", "'2'", "'2'", "1", "2", "2"]
    assert caplog.text == ""


def chunk(events: list[KeyedEvent[Any]]) -> Chunk:
    return Chunk("events", b"", pack_events([field for event in events for field in event]))


class Touchy(Aggregate[list[str], str]):
    """Cannot be merged where two parts have the same text."""

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
def test_a_merge_that_fails_at_a_close_is_that_windows_letter(kind: int) -> None:
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
