"""Windows with a time to live: due windows close before state expires, in steps of the watermark of any size."""

from datetime import timedelta
from typing import Any

import pytest
from tests.plugins.windows import Recording, at, event, job, results, windowing

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou_plugins.joins import AsOfJoin
from amadou_plugins.windows import CountWindow, SessionWindow, SlidingWindow, TumblingWindow, Window
from amadou_runtime import TestRun

MINUTE = 60


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (TumblingWindow, [(0, 60, 1), (180, 240, 2)]),
        (SessionWindow, [(30, 90, 1), (200, 261, 2)]),
        (SlidingWindow, [(-30, 30, 1), (140, 200, 1), (141, 201, 2)]),
    ],
)
def test_a_window_that_closes_late_does_not_let_other_windows_expire(kind: Any, expected: Any) -> None:
    run = TestRun(job(windowing(kind, minutes(60), ttl=minutes(90))))
    run.add_record(event(30 * MINUTE)).add_record(event(200 * MINUTE)).end_batch().add_record(event(201 * MINUTE))
    closed = results(run.add_watermark(at(262 * MINUTE)).run())
    assert [(start / MINUTE, end / MINUTE, value) for start, end, value in closed] == expected


def test_a_join_that_answers_late_does_not_let_later_events_expire() -> None:
    class Joining(Handler):
        matches = SinkSpec(tuple)
        join = AsOfJoin(left="l", right="r", ttl=minutes(90))

        def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
            return record

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.join.add(subject, event)

        @join.on_match
        def matched(self, subject: Subject, left: KeyedEvent[Any], right: KeyedEvent[Any] | None) -> None:
            self.matches.collect(subject, (left.value, right and right.value))

    run = TestRun(Job("joining", Joining(), {"l": MemorySource(), "r": MemorySource()}, {"matches": MemorySink()}))
    for minute in (30, 200):
        run.add_record(event(minute * MINUTE, minute), source="l")
    run.add_record(event(200 * MINUTE, 200), source="r").end_batch().add_record(event(201 * MINUTE, 201), source="l")
    result = run.add_watermark(at(262 * MINUTE)).run()
    assert result.records("matches") == [(30, None), (200, 200), (201, 200)]


def test_a_join_answers_if_it_is_due_when_its_time_to_live_ends() -> None:
    class Joining(Handler):
        matches = SinkSpec(tuple)
        # a left event is answered once the watermark is past half an hour after it
        join = AsOfJoin(
            left="l",
            right="r",
            direction="forward",
            tolerance=minutes(30),
            ttl=minutes(30) + timedelta(microseconds=1),
        )

        def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
            return record

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.join.add(subject, event)

        @join.on_match
        def matched(self, subject: Subject, left: KeyedEvent[Any], right: KeyedEvent[Any] | None) -> None:
            self.matches.collect(subject, (left.value, right))

    run = TestRun(Job("joining", Joining(), {"l": MemorySource(), "r": MemorySource()}, {"matches": MemorySink()}))
    result = run.add_record(event(0, "left"), source="l").add_watermark(at(90 * MINUTE)).run()
    assert (result.records("matches"), result.keys()) == ([("left", None)], [])


@pytest.mark.parametrize("cut", [False, True])
def test_windows_expire_for_any_division_into_batches(cut: bool) -> None:
    run = TestRun(job(windowing(TumblingWindow, minutes(60), ttl=minutes(20))))
    run.add_record(event(30 * MINUTE)).add_record(event(90 * MINUTE))
    if cut:
        run.end_batch()
    result = run.add_record(event(121 * MINUTE, key="other")).end_batch().run()
    assert results(result) == [(0, 60 * MINUTE, 1)]
    assert result.keys() == ["other"]


@pytest.mark.parametrize("window", [SessionWindow, SlidingWindow, TumblingWindow])
@pytest.mark.parametrize("cut", [False, True])
def test_a_window_closes_if_it_is_due_when_its_time_to_live_ends(window: Any, cut: bool) -> None:
    settings = {"allowed_lateness": minutes(30)} if window is SlidingWindow else {}
    run = TestRun(job(windowing(window, minutes(30), ttl=minutes(30), **settings))).add_record(event(0))
    if cut:
        run.add_record(event(30 * MINUTE, key="other")).end_batch()
    result = run.add_record(event(90 * MINUTE, key="other")).end_batch().run()
    assert [record[2] for record in result.records("results")][:1] == ["a"]
    assert set(result.keys()) <= {"other"}


@pytest.mark.parametrize("cut", [False, True])
def test_closing_a_window_does_not_extend_the_time_to_live(cut: bool) -> None:
    window = windowing(TumblingWindow, minutes(10), ttl=minutes(25), allowed_lateness=minutes(30))
    run = TestRun(job(window)).add_records([event(0), event(19 * MINUTE)])
    if cut:
        run.add_record(event(42 * MINUTE, key="other")).end_batch()
    result = run.add_record(event(60 * MINUTE, key="other")).end_batch().run()
    assert results(result) == [(0, 10 * MINUTE, 1)], "the other window expires at 44, and would close at 50"
    assert result.keys() == ["other"]


@pytest.mark.parametrize("others", [[], [event(1, key="other")]])
def test_a_window_that_a_timer_filled_expires_after_the_time_of_the_timer(others: list[Any]) -> None:
    class Timed(Handler):
        closes = SinkSpec(tuple)
        window = CountWindow(10, ttl=minutes(30), early=1)

        def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
            return record

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value == "later":
                subject.set_timer(at(60 * MINUTE))
            else:
                self.window.add(subject, event)

        def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
            self.window.add(subject, KeyedEvent(subject.key, timestamp, None))

        @window.on_close
        def closed(self, subject: Subject, window: Window, value: int) -> None:
            if window.key == "a":
                self.closes.collect(subject, (window.key, value))

    run = TestRun(Job("timed", Timed(), {"in": MemorySource()}, {"closes": MemorySink()}))
    run.add_records([event(1, "later"), *others]).add_watermark(at(120 * MINUTE)).add_record(event(121 * MINUTE))
    assert run.run().records("closes") == [("a", 1), ("a", 1)]


@pytest.mark.parametrize("value", [None, "fails"])
def test_an_event_that_fails_does_not_change_which_events_are_late(value: Any) -> None:
    class Failing(Recording):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            super().on_event(subject, event)
            if event.value == "fails":
                raise ValueError

    sinks = {name: MemorySink() for name in ("results", "late", "dead_letters")}
    handler = Failing(windowing(SessionWindow, timedelta(seconds=10)).window)
    run = TestRun(Job("failing", handler, {"in": MemorySource()}, sinks, on_error="dead_letter"))
    run.add_record(event(100)).end_batch()
    result = run.add_records([event(91), event(101, value), event(82)]).run(flush=True)
    assert results(result) == [(91, 111 if value is None else 110, 3 if value is None else 2)]
    assert len(result.records("late")) == 1


def test_windows_before_1970_expire() -> None:
    run = TestRun(job(windowing(TumblingWindow, minutes(5), ttl=timedelta(seconds=1))))
    assert run.add_record(event(-5)).add_watermark(at(-3)).end_batch().run().keys() == []
