"""Timers."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import (
    SECOND,
    EventHandler,
    TagReader,
    TagUndo,
    TimerChain,
    TimerDeleter,
    TimerSetter,
    TimerUndo,
    at,
    event,
    job,
)
from tests.conformance.handlers import job as job_in_memory

from amadou import Job, KeyedEvent, MapSpec, MemorySource, SinkSpec, Subject, truncate
from amadou.errors import CallbackError
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import TestRun, run

MINUTE = timedelta(minutes=1)


@pytest.mark.on_spark("wake-ups")
@pytest.mark.rule(8)
def test_a_timer_fires_once_when_the_watermark_reaches_its_time(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [5])).add_watermark(at(5)).add_watermark(at(9))
    assert [seen[:4] for seen in run.run().records("seen")] == [("timer", "k", 5, 5)]


@pytest.mark.rule(8)
def test_a_timer_ahead_of_the_watermark_stays_pending(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [5])).add_watermark(at(4))
    result = run.run()
    assert result.records("seen") == []
    assert [timer.timestamp for timer in result.timers("k")] == [at(5)]


@pytest.mark.rule(9)
def test_set_timer_at_or_before_the_watermark_sets_no_timer(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0)).add_watermark(at(10))
    run.add_record(event(11, [9, 10, 10.000001])).add_watermark(at(20))
    result = run.run()
    assert result.records("answers") == [False, False, True]
    assert [seen[2] for seen in result.records("seen")] == [10.000001]


@pytest.mark.rule(9)
def test_without_a_watermark_a_timer_can_have_any_time(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [-5])).add_watermark()
    result = run.run()
    assert result.records("answers") == [True]
    assert [seen[2] for seen in result.records("seen")] == [-5]


@pytest.mark.rule(10)
def test_timers_of_the_same_key_time_and_tag_are_one_timer(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter()))
    run.add_record(event(0, [5, 5, (5, "a"), (5, "a")])).add_record(event(1, [5]))
    run.add_record(event(0, [5], "other")).add_watermark(at(5))
    result = run.run()
    assert result.records("answers") == [True] * 6
    assert sorted((seen[1], seen[4]) for seen in result.records("seen")) == [("k", ""), ("k", "a"), ("other", "")]


@pytest.mark.rule(10)
def test_delete_timer_returns_whether_the_timer_was_set(test_run: MakeRun) -> None:
    run = test_run(job(TimerDeleter())).add_record(event(0, [5, 6])).end_batch()
    run.add_record(event(1, [5, 5, 7])).add_watermark(at(10))
    result = run.run()
    assert result.records("answers") == [True, True, True, False, False]
    assert [seen[2] for seen in result.records("seen")] == [6]


@pytest.mark.rule(11)
def test_a_timer_sees_its_own_time_and_the_new_watermark(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [5])).add_watermark(at(60))
    result = run.run()
    assert [seen[2:4] for seen in result.records("seen")] == [(5, 60)]
    entry = result.trace[-1]
    assert (entry.callback, entry.timestamp, entry.watermark) == ("on_timer_expired", at(5), at(60))


@pytest.mark.rule(11)
def test_the_tag_of_a_timer_is_set_only_while_the_timer_fires(test_run: MakeRun) -> None:
    run = test_run(job(TagReader())).add_record(event(1)).add_watermark(at(5)).add_record(event(6))
    assert [(seen[0], seen[4]) for seen in run.run().records("seen")] == [
        ("event", ""),
        ("timer", "tag"),
        ("event", ""),
    ]


@pytest.mark.rule(9)
def test_a_timer_can_set_a_timer_that_the_watermark_has_passed(test_run: MakeRun) -> None:
    run = test_run(job(TimerChain())).add_record(event(1, "2")).add_watermark(at(10)).add_watermark(at(20))
    result = run.run()
    assert result.records("answers") == [True]
    assert [seen[2:4] for seen in result.records("seen")] == [(1, 10), (2, 10)]


@pytest.mark.parametrize("second", ["1", "0.5", "0"])
@pytest.mark.rule(9)
def test_a_timer_cannot_set_a_timer_at_or_before_its_time(test_run: MakeRun, second: str) -> None:
    run = test_run(job(TimerChain())).add_record(event(1, second)).add_watermark(at(10)).add_watermark(at(20))
    result = run.run()
    assert (result.records("answers"), result.timers("k")) == ([False], [])


class EveryMinute(EventHandler):
    """Reports the number of events of each minute, also of minutes without events, until it has seen three of them."""

    counts = MapSpec(datetime, int)
    out = SinkSpec(tuple)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        minute = truncate(event.timestamp, MINUTE)
        counts = self.counts.state_for(subject)
        counts[minute] = counts.get(minute, 0) + 1
        if not subject.timers():
            subject.set_timer(minute + MINUTE)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        counts = self.counts.state_for(subject)
        self.out.collect(
            subject, (subject.key, (timestamp - MINUTE - at(0)) // MINUTE, counts.pop(timestamp - MINUTE, 0))
        )
        subject.set_timer(timestamp + MINUTE)


@pytest.mark.parametrize("steps", [[240], [59, 60, 61, 240], [120, 240], [60, 120, 180, 240]])
@pytest.mark.rule(9)
def test_a_timer_that_sets_itself_again_fires_for_every_interval(test_run: MakeRun, steps: list[int]) -> None:
    run = test_run(job_in_memory(EveryMinute(), "in"))
    run.add_records([event(1, None, key) for key in ("b", "a")] + [event(2, None, "a"), event(185, None, "a")])
    for step in steps:
        run.add_watermark(at(step))
    minutes = [("a", 0, 2), ("b", 0, 1), ("a", 1, 0), ("b", 1, 0), ("a", 2, 0), ("b", 2, 0), ("a", 3, 1), ("b", 3, 0)]
    result = run.run()
    assert result.records("out") == minutes
    assert [timer.timestamp for timer in result.timers("a")] == [at(300)]


@pytest.mark.rule(12)
def test_a_timer_that_sets_itself_again_stops_in_a_flush_after_the_newest_event(test_run: MakeRun) -> None:
    run = test_run(job_in_memory(EveryMinute(), "in")).add_records([event(1, None, "a"), event(150, None, "b")])
    result = run.run(flush=True)
    assert result.records("out") == [("a", 0, 1), ("a", 1, 0), ("b", 2, 1)]
    assert (result.counters, result.keys()) == ({"timers.not_set": 2}, [])


@pytest.mark.rule(12)
def test_timers_of_events_and_windows_fire_in_a_flush_after_the_newest_event(test_run: MakeRun) -> None:
    class Closing(EventHandler):
        window = TumblingWindow(MINUTE)
        out = SinkSpec(tuple)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event)
            subject.set_timer(event.timestamp + 10 * MINUTE, "event")

        @window.on_close
        def closed(self, subject: Subject, window: Window, count: int) -> None:
            assert subject.set_timer(window.end + 20 * MINUTE, "window")
            assert not subject.set_timer(window.end, "window")

        def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
            self.out.collect(subject, (subject.timer_tag, (timestamp - at(0)) / SECOND))
            assert not subject.set_timer(timestamp + SECOND)

    run = test_run(job_in_memory(Closing(), "in")).add_record(event(1))
    result = run.run(flush=True)
    assert result.records("out") == [("event", 601), ("window", 1260)]
    assert result.counters == {"timers.not_set": 2}


@pytest.mark.rule(9)
def test_a_timer_that_callbacks_set_again_and_again_counts_once(
    test_run: MakeRun, caplog: pytest.LogCaptureFixture
) -> None:
    class Cleaning(EventHandler):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            subject.set_timer(event.timestamp)

        def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
            for _ in range(10_000 if subject.timer_tag != "clean up" else 0):
                assert subject.set_timer(at(100), "clean up")

    result = test_run(job_in_memory(Cleaning(), "in")).add_record(event(0)).add_watermark(at(200)).run()
    assert (result.timers("k"), caplog.messages) == ([], [])


@pytest.mark.rule(9)
def test_a_failing_callback_ends_its_chain(test_run: MakeRun) -> None:
    class Failing(EveryMinute):
        def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
            super().on_timer_expired(subject, timestamp)
            if timestamp == at(120):
                raise ValueError

    run = test_run(job_in_memory(Failing(), "in", on_error="dead_letter")).add_record(event(1)).add_watermark(at(600))
    result = run.run()
    assert (result.records("out"), result.timers("k")) == ([("k", 0, 1)], [])
    (dead_letter,) = result.dead_letters
    assert dead_letter.timestamp == at(120)


class Looping(EventHandler):
    """Sets a timer for every second."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        subject.set_timer(event.timestamp)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        subject.set_timer(timestamp + SECOND)


@pytest.mark.rule(9)
def test_a_warning_says_that_a_key_sets_very_many_timers_for_a_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On the embedded engine, since workers of Spark log in their own processes."""
    run = TestRun(job_in_memory(Looping(), "in")).add_record(event(0)).add_watermark(at(9_999))
    run.run()
    assert caplog.records == []
    run.add_record(event(10_001, None, "other")).add_watermark(at(20_000)).run()
    (warning,) = caplog.messages
    assert warning.startswith("timer callbacks of the key 'k' have set 10,000 timers in one batch, the last at 2025")
    assert "for 0:00:01 later, since the watermark has advanced to 2025" in warning


@pytest.mark.rule(9)
def test_a_callback_that_sets_a_million_timers_for_a_batch_fails() -> None:
    """Not in a test run, which keeps a trace of all callbacks."""
    records = [event(0), event(2_000_000, None, "other")]
    with pytest.raises(CallbackError, match="'k' have set 1,000,000 timers in one batch"):
        run(Job("loop", Looping(), {"in": MemorySource(records)}, {}), engine="embedded", trigger="available-now")


@pytest.mark.rule(11)
def test_a_timer_can_set_a_later_timer(test_run: MakeRun) -> None:
    run = test_run(job(TimerChain())).add_record(event(1, "15")).add_watermark(at(10)).add_watermark(at(20))
    result = run.run()
    assert result.records("answers") == [True]
    assert [seen[2:4] for seen in result.records("seen")] == [(1, 10), (15, 20)]


@pytest.mark.rule(11)
def test_a_timer_can_delete_another_due_timer(test_run: MakeRun) -> None:
    run = test_run(job(TimerUndo())).add_record(event(0)).add_watermark(at(10))
    assert [seen[2] for seen in run.run().records("seen")] == [1]


@pytest.mark.rule(11)
def test_a_timer_can_delete_another_timer_of_the_same_time(test_run: MakeRun) -> None:
    run = test_run(job(TagUndo())).add_record(event(0, ["b", "", "a"])).add_record(event(0, ["a", "b"], "other"))
    result = run.add_watermark(at(1)).run()
    assert [(seen[1], seen[4]) for seen in result.records("seen")] == [("k", ""), ("other", "a")]
    assert result.timers("k") == result.timers("other") == []


@pytest.mark.rule(12)
def test_at_the_end_of_input_timers_beyond_the_watermark_stay_pending(test_run: MakeRun) -> None:
    result = test_run(job(TimerSetter())).add_record(event(0, [5, 10**6])).end_batch().run()
    assert (result.records("seen"), len(result.timers("k"))) == ([], 2)


@pytest.mark.rule(12)
def test_a_flush_moves_the_watermark_to_the_end_of_time_and_fires_all_timers(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [10**6, (5, "a")], "a")).add_record(event(1, [5], "b"))
    result = run.run(flush=True)
    assert [seen[:3] for seen in result.records("seen")] == [
        ("timer", "a", 5),
        ("timer", "b", 5),
        ("timer", "a", 10**6),
    ]
    assert result.keys() == []
    assert result.watermark == datetime.max.replace(tzinfo=timezone.utc)
