"""Windows that get events from other windows, joins and timers of the handler."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.windows import SECOND, at, event, few_inputs, job, seconds, streams

from amadou import Handler, KeyedEvent, SinkSpec, Subject
from amadou.errors import CallbackError
from amadou_plugins.aggregates import Collect, Count
from amadou_plugins.windows import HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, Window, WindowSpec
from amadou_runtime import TestRun

DISORDER = 5


class Recorded(Handler):
    results = SinkSpec(tuple)
    late = SinkSpec(tuple)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.results.collect(subject, (*window, value))

    def too_late(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.late.collect(subject, tuple(event))


class Chain(Recorded):
    """Adds the counts of one window to another."""

    def __init__(self, first: WindowSpec, second: WindowSpec) -> None:
        self.first, self.second = first, second

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.first.add(subject, event)

    def feed(self, subject: Subject, window: Window, count: int) -> None:
        self.second.add(subject, KeyedEvent(subject.key, window.start, count))


def chain(first: type[WindowSpec], size: int, second: type[WindowSpec], *lengths: int, **settings: Any) -> Chain:
    return Chain(
        first(size * SECOND, name="first", on_close=lambda subject, *of: subject.handler.feed(subject, *of)),
        second(
            *(length * SECOND for length in lengths),
            name="second",
            on_close=lambda subject, *of: subject.handler.closed(subject, *of),
            on_late=lambda subject, event: subject.handler.too_late(subject, event),
            **settings,
        ),
    )


FED = {
    TumblingWindow: (10,),
    HoppingWindow: (10, 5),
    SlidingWindow: (10,),
    SessionWindow: (10,),
}


@few_inputs
@given(streams(DISORDER), st.sampled_from([2, 5, 10]), st.sampled_from(list(FED)))
def test_windows_that_other_windows_feed_give_the_same_results_for_any_division_into_batches(
    batches: Any, size: int, kind: type[WindowSpec]
) -> None:
    # The result of a tumbling window has the time of its start, so windows that look back have to wait for it.
    waits = timedelta(seconds=size) if kind in (SlidingWindow, SessionWindow) else timedelta(0)

    def results(cut: list[Any], step: int) -> Any:
        handler = chain(TumblingWindow, size, kind, *FED[kind], value=Collect(), allowed_lateness=waits)
        run = TestRun(job(handler, watermark_delay=DISORDER))
        for start in range(0, len(cut), step):
            run.add_records(cut[start : start + step]).end_batch()
        result = run.run(flush=True)
        assert (result.records("late"), result.keys()) == ([], [])
        return sorted(map(repr, result.records("results")))

    events = [one for batch in batches for one in batch]
    whole = results(events, max(len(events), 1))
    assert results(events, 1) == whole
    assert results(events, 3) == whole


@few_inputs
@given(streams(DISORDER))
def test_sums_of_the_counts_of_short_windows_are_the_counts_of_long_windows(batches: Any) -> None:
    handler = chain(TumblingWindow, 5, TumblingWindow, 20, value=Collect())
    run = TestRun(job(handler, watermark_delay=DISORDER))
    for batch in batches:
        run.add_records(batch).end_batch()
    expected: dict[Any, int] = {}
    for one in (one for batch in batches for one in batch):
        start = seconds(one.timestamp) // 20 * 20
        expected[repr(one.key), start] = expected.get((repr(one.key), start), 0) + 1
    records = run.run(flush=True).records("results")
    assert {(repr(key), seconds(start)): sum(value) for start, _, key, _, value in records} == expected


def test_a_window_that_is_declared_before_the_window_that_feeds_it_is_an_error() -> None:
    class Mistaken(Recorded):
        by_five = TumblingWindow(5 * SECOND, Count())
        by_one = TumblingWindow(SECOND, Count())

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.by_one.add(subject, event)

        @by_one.on_close
        def fed(self, subject: Subject, window: Window, count: int) -> None:
            self.by_five.add(subject, KeyedEvent(subject.key, window.start, count))

        @by_five.on_close
        def closed(self, subject: Subject, window: Window, value: Any) -> None: ...

    run = TestRun(job(Mistaken())).add_records([event(0), event(4)]).add_watermark(at(100))
    with pytest.raises(CallbackError, match="declare 'by_five' after 'by_one'") as caught:
        run.run()
    assert caught.value.callback == "fed"


def test_a_window_that_feeds_itself_accepts_only_events_that_are_not_late() -> None:
    class Echo(Recorded):
        window = TumblingWindow(5 * SECOND, Count())

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event)

        @window.on_close
        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            super().closed(subject, window, value)
            self.window.add(subject, KeyedEvent(subject.key, window.start, None))
            if seconds(window.end) < 15:
                self.window.add(subject, KeyedEvent(subject.key, window.end, None))

        @window.on_late
        def too_late(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            super().too_late(subject, event)

    result = TestRun(job(Echo())).add_record(event(0)).add_watermark(at(100)).run()
    assert [seconds(record[0]) for record in result.records("results")] == [0, 5, 10]
    assert [seconds(record[1]) for record in result.records("late")] == [0, 5, 10]
    assert result.keys() == []


def test_a_timer_can_add_events_at_its_time_to_a_window() -> None:
    class Timed(Recorded):
        window = TumblingWindow(10 * SECOND, Count())

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            subject.set_timer(event.timestamp + SECOND)

        def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
            self.window.add(subject, KeyedEvent(subject.key, timestamp, None))

        @window.on_close
        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            super().closed(subject, window, value)

    result = TestRun(job(Timed())).add_records([event(1), event(2), event(11)]).add_watermark(at(100)).run()
    assert [(seconds(start), value) for start, *_, value in result.records("results")] == [(0, 2), (10, 1)]
    assert (result.keys(), result.counters) == ([], {})


class Carrying(Recorded):
    """Adds the result of each window to the next window."""

    window = TumblingWindow(10 * SECOND, Count())

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def carry(self, subject: Subject, window: Window, count: int) -> None:
        self.closed(subject, window, count)
        self.window.add(subject, KeyedEvent(subject.key, window.end, count))


def test_a_window_that_feeds_itself_closes_with_the_watermark_and_ends_at_a_flush() -> None:
    run = TestRun(job(Carrying())).add_record(event(1)).add_watermark(at(35))
    assert [seconds(start) for start, *_ in run.run().records("results")] == [0, 10, 20]
    assert [seconds(start) for start, *_ in run.run(flush=True).records("results")] == [0, 10, 20, 30]


class Circle(Recorded):
    """Has two windows that add their results to each other."""

    ticks = TumblingWindow(10 * SECOND, Count())
    tocks = TumblingWindow(10 * SECOND, Count())

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.ticks.add(subject, event)

    @ticks.on_close
    def tick(self, subject: Subject, window: Window, count: int) -> None:
        self.closed(subject, window, count)
        self.tocks.add(subject, KeyedEvent(subject.key, window.end, "tick"))

    @tocks.on_close
    def tock(self, subject: Subject, window: Window, count: int) -> None:
        self.closed(subject, window, count)
        self.ticks.add(subject, KeyedEvent(subject.key, window.end, "tock"))


def test_windows_that_feed_each_other_close_with_the_watermark_and_end_at_a_flush() -> None:
    run = TestRun(job(Circle())).add_records([event(1), event(2, key="b")]).add_watermark(at(35))
    assert [seconds(start) for start, *_ in run.run().records("results")] == [0, 0, 10, 10, 20, 20]
    result = run.run(flush=True)
    assert [seconds(start) for start, *_ in result.records("results", new=True)] == [30, 30, 40, 40]
    assert (result.keys(), result.counters) == ([], {"tocks.late": 2})


class Backwards(Recorded):
    """Adds the counts of a window to a window that is declared before it."""

    second = TumblingWindow(60 * SECOND, Count())
    first = TumblingWindow(10 * SECOND, Count())

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.first.add(subject, event)

    @first.on_close
    def feed(self, subject: Subject, window: Window, count: int) -> None:
        self.second.add(subject, KeyedEvent(subject.key, window.start, count))

    @second.on_close
    def done(self, subject: Subject, window: Window, count: int) -> None:
        self.closed(subject, window, count)


def test_a_flush_closes_windows_that_feed_each_other_in_one_direction_in_any_order() -> None:
    result = TestRun(job(Backwards())).add_records([event(1), event(12), event(31)]).run(flush=True)
    assert [(seconds(start), count) for start, *_, count in result.records("results")] == [(0, 3)]
