"""Windows and joins with a time to live. Those that the watermark closes refuse one that would lose results. For the
others, state expires at the same event for any division into batches.
"""

from datetime import timedelta
from typing import Any

import pytest
from tests.plugins.windows import Recording, at, event, job, results, windowing

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou.errors import SpecError
from amadou_plugins.joins import AsOfJoin, IntervalJoin, LatestJoin
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, Window
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


LEFT_RIGHT: Any = {"left": "l", "right": "r"}
LATE = {"allowed_lateness": minutes(5)}


@pytest.mark.parametrize(
    ("make", "settings", "least"),
    [
        (TumblingWindow, {"size": minutes(60)}, 60),
        (TumblingWindow, {"size": minutes(60), **LATE}, 65),
        (HoppingWindow, {"size": minutes(60), "hop": minutes(20)}, 60),
        (SessionWindow, {"gap": minutes(30)}, 30),
        (SessionWindow, {"gap": minutes(30), "max_duration": minutes(100), **LATE}, 35),
        (SlidingWindow, {"size": minutes(10), **LATE}, 15),
        (IntervalJoin, {"lower": minutes(-50), "upper": minutes(40), **LEFT_RIGHT}, 50),
        (IntervalJoin, {"lower": minutes(0), "upper": minutes(40), **LEFT_RIGHT, **LATE}, 45),
        (AsOfJoin, {"tolerance": minutes(20), **LEFT_RIGHT}, 20),
        (AsOfJoin, {"tolerance": minutes(20), "direction": "forward", **LEFT_RIGHT, **LATE}, 25),
    ],
)
def test_a_ttl_that_would_lose_results_is_refused(make: Any, settings: Any, least: int) -> None:
    make(ttl=minutes(least), **settings)
    with pytest.raises(
        SpecError, match=f"^ttl must be at least {minutes(least)}, .*Remove ttl, also if the job resumes"
    ):
        make(ttl=minutes(least) - timedelta(microseconds=1), **settings)


def test_the_ttl_of_a_join_without_tolerance_outlasts_allowed_lateness() -> None:
    with pytest.raises(SpecError, match=r"^ttl must be longer than allowed_lateness \(0:05:00\), not 0:05:00"):
        AsOfJoin(ttl=minutes(5), **LEFT_RIGHT, **LATE)


@pytest.mark.parametrize("make", [lambda: CountWindow(2, ttl=minutes(0)), lambda: AsOfJoin(ttl=5, **LEFT_RIGHT)])
def test_a_ttl_is_a_positive_duration(make: Any) -> None:
    with pytest.raises((SpecError, TypeError), match="ttl must be a positive timedelta or None"):
        make().check()


class Joining(Handler):
    matches = SinkSpec(tuple)

    def __init__(self, join: Any) -> None:
        self.join = join

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.join.add(subject, event)


def _matched(subject: Subject, left: KeyedEvent[Any] | None, right: KeyedEvent[Any] | None) -> None:
    subject.handler.matches.collect(subject, (left and left.value, right and right.value))


def joined(join: Any, events: list[tuple[str, int]], cuts: list[int]) -> Any:
    """Run a join. The value of an event is its time in minutes."""
    run = TestRun(Job("joining", Joining(join), {"l": MemorySource(), "r": MemorySource()}, {"matches": MemorySink()}))
    for number, (side, minute) in enumerate(events):
        if number in cuts:
            run.end_batch()
        run.add_record(event(minute * MINUTE, minute), source=side)
    return run.run(flush=True)


CUTS = [[], [1], [2], [3], [1, 2, 3], [2, 4], [1, 2, 3, 4, 5, 6]]


@pytest.mark.parametrize("cuts", CUTS)
def test_an_as_of_join_forgets_a_key_that_has_had_no_events(cuts: list[int]) -> None:
    join = AsOfJoin(name="join", ttl=minutes(30), on_match=_matched, **LEFT_RIGHT)
    events = [("r", 0), ("l", 20), ("l", 45), ("l", 75), ("r", 80), ("l", 100), ("l", 140)]
    result = joined(join, events, cuts)
    # 45 is less than 30 minutes after 20, and 75 is not less than 30 minutes after 45
    assert result.records("matches") == [(20, 0), (45, 0), (75, None), (100, 80), (140, None)]
    assert result.counters["join.expired"] >= 1


@pytest.mark.parametrize("cuts", CUTS)
def test_a_latest_join_forgets_a_right_event(cuts: list[int]) -> None:
    join = LatestJoin(name="join", ttl=minutes(30), on_match=_matched, **LEFT_RIGHT)
    events = [("r", 0), ("l", 20), ("l", 30), ("r", 40), ("l", 50), ("l", 69), ("l", 70)]
    result = joined(join, events, cuts)
    assert result.records("matches") == [(20, 0), (30, None), (50, 40), (69, 40), (70, None)]
    assert result.counters == {"join.expired": 2}


@pytest.mark.parametrize("cuts", CUTS)
def test_a_count_window_expires_for_any_division_into_batches(cuts: list[int]) -> None:
    run = TestRun(job(windowing(CountWindow, 2, ttl=minutes(20))))
    for number, minute in enumerate([0, 19, 30, 50, 60, 90, 91]):
        if number in cuts:
            run.end_batch()
        run.add_record(event(minute * MINUTE))
    result = run.run()
    assert [(start / MINUTE, end / MINUTE) for start, end, _ in results(result)] == [(0, 19), (50, 60), (90, 91)]
    assert result.counters == {"window.expired": 1}


def test_a_read_leaves_an_expired_window_for_earlier_events() -> None:
    class Reading(Recording):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value is None:
                self.results.collect(subject, (event.timestamp, event.timestamp, 0, 0, self.window.shown(subject)))
            else:
                super().on_event(subject, event)

    reading = Reading(windowing(CountWindow, 3, ttl=minutes(20)).window)
    run = TestRun(job(reading)).add_record(event(0, "a")).add_record(event(20 * MINUTE))
    result = run.add_record(event(19 * MINUTE)).run()
    assert [value for _, _, value in results(result)] == [{}, {at(0): 1}]
    assert result.counters == {}


@pytest.mark.parametrize("window", [SessionWindow, SlidingWindow, TumblingWindow])
@pytest.mark.parametrize("cut", [False, True])
def test_a_window_closes_if_it_is_due_when_its_time_to_live_ends(window: Any, cut: bool) -> None:
    run = TestRun(job(windowing(window, minutes(30), ttl=minutes(30)))).add_record(event(0))
    if cut:
        run.add_record(event(30 * MINUTE, key="other")).end_batch()
    result = run.add_record(event(90 * MINUTE, key="other")).end_batch().run()
    assert [record[2] for record in result.records("results")][:1] == ["a"]
    assert set(result.keys()) <= {"other"}


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
    run = TestRun(job(windowing(CountWindow, 5, ttl=timedelta(seconds=1))))
    assert run.add_record(event(-5)).add_watermark(at(-3)).end_batch().run().keys() == []
