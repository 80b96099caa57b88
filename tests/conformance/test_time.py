"""Timestamps, the watermark and idle sources."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, START, Recorder, TimerSetter, at, event, job

from amadou import Filtered, KeyedEvent
from amadou.errors import CallbackError


@pytest.mark.rule(1)
def test_a_naive_timestamp_is_an_error_that_names_handler_and_record(test_run: MakeRun) -> None:
    run = test_run(job(Recorder())).add_record(KeyedEvent("k", datetime(2025, 1, 1), "the record"))
    with pytest.raises(CallbackError, match="no time zone") as caught:
        run.run()
    assert caught.value.handler == "Recorder"
    assert caught.value.callback == "key_event"
    assert "the record" in (caught.value.record or "")


@pytest.mark.rule(1)
def test_callbacks_receive_timestamps_in_utc_with_microseconds(test_run: MakeRun) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    early = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=START.tzinfo)
    run = test_run(job(Recorder()))
    run.add_record(KeyedEvent("k", at(1.000001).astimezone(east))).add_record(KeyedEvent("k", early))
    result = run.run()
    entries = [entry.timestamp for entry in result.trace]
    assert entries == [at(1.000001), early]
    assert [entry.tzinfo for entry in entries] == [START.tzinfo] * 2


@pytest.mark.rule(1, 8)
def test_a_timer_fires_up_to_a_millisecond_late_but_never_early(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [5.000001]))
    run.add_watermark(at(5))
    assert run.run().records("seen") == []
    run.add_watermark(at(5.001))
    assert [seen[:3] for seen in run.run().records("seen")] == [("timer", "k", 5.000001)]


@pytest.mark.rule(2)
def test_the_first_batch_has_no_watermark(test_run: MakeRun) -> None:
    result = test_run(job(Recorder())).add_records([event(10), event(20)]).run()
    assert watermarks(result) == [None, None]


@pytest.mark.rule(2)
def test_the_watermark_is_the_newest_time_of_earlier_batches_minus_the_delay(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), watermark_delay=3 * SECOND))
    run.add_records([event(10), event(20), event(15)]).end_batch()
    run.add_record(event(30)).end_batch()
    run.add_record(event(31))
    assert watermarks(run.run()) == [None, None, None, 17, 27]


@pytest.mark.rule(2)
def test_the_watermark_never_goes_back(test_run: MakeRun) -> None:
    run = test_run(job(Recorder()))
    run.add_record(event(20)).end_batch()
    run.add_record(event(5)).end_batch()
    run.add_record(event(6)).add_watermark(at(1))
    run.add_record(event(7))
    assert watermarks(run.run()) == [None, 20, 20, 20]


@pytest.mark.rule(2)
def test_the_slowest_source_holds_back_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "fast", "slow"))
    run.add_record(event(100), source="fast").add_record(event(10), source="slow").end_batch()
    run.add_record(event(101), source="fast").end_batch()
    run.add_record(event(20), source="slow").end_batch()
    run.add_record(event(102), source="fast")
    assert watermarks(run.run()) == [None, None, 10, 10, 20]


@pytest.mark.rule(2, 22)
def test_the_slowest_partition_holds_back_the_watermark_of_its_source(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), watermark_delay=SECOND))
    run.add_record(event(10), partition="slow").add_record(event(100), partition="fast").end_batch()
    run.add_record(event(101), partition="fast").end_batch()
    run.add_record(event(20), partition="slow").end_batch()
    run.add_record(event(102), partition="fast")
    assert watermarks(run.run()) == [None, None, 9, 9, 19]


@pytest.mark.rule(2, 22)
def test_a_partition_without_events_does_not_hold_back_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Recorder())).add_record(event(10), partition="1").end_batch()
    run.add_record(event(5), partition="2").end_batch()
    run.add_record(event(6), partition="2").end_batch()
    run.add_record(event(20), partition="1")
    assert watermarks(run.run()) == [None, 10, 10, 10], "the watermark never goes back"


@pytest.mark.rule(2, 22)
def test_a_test_run_can_set_the_watermark_of_a_partition(test_run: MakeRun) -> None:
    run = test_run(job(Recorder()))
    run.add_record(event(10), partition="1").add_record(event(11), partition="2")
    run.add_watermark(at(15), partition="1").add_record(event(16), partition="1").add_watermark(at(18), "events")
    run.add_record(event(19), partition="1")
    assert watermarks(run.run()) == [None, None, 11, 18]


@pytest.mark.rule(3, 22)
def test_an_idle_partition_does_not_hold_back_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), idle_timeout=5))
    run.add_record(event(10), partition="slow").add_record(event(20), partition="fast")
    run.advance_processing_time(4 * SECOND).add_record(event(30), partition="fast")
    run.advance_processing_time(SECOND).add_record(event(40), partition="fast")
    assert watermarks(run.run()) == [None, None, 10, 30]


@pytest.mark.rule(7)
def test_events_of_a_key_are_processed_in_order_of_partition(test_run: MakeRun) -> None:
    run = test_run(job(Recorder()))
    run.add_record(event(3, "b1"), partition="b").add_record(event(9, "a1"), partition="a")
    run.add_record(event(1, "b2"), partition="b").add_record(event(2, "a2"), partition="a")
    assert [entry.value for entry in run.run().trace] == ["a1", "a2", "b1", "b2"]


@pytest.mark.rule(2)
def test_a_source_that_has_delivered_no_event_holds_the_watermark_back(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "busy", "silent"))
    run.add_record(event(10), source="busy").end_batch().add_record(event(11), source="busy").end_batch()
    result = run.run()
    assert (watermarks(result), result.watermark, result.held_back_by) == ([None, None], None, "silent")
    result = run.add_record(event(9), source="silent").end_batch().run()
    assert (result.watermark, result.held_back_by) == (at(9), "silent")


@pytest.mark.rule(3)
def test_a_source_that_has_delivered_no_event_holds_the_watermark_back_until_its_timeout(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "busy", "silent", idle_timeout={"silent": 10}))
    run.add_record(event(10), source="busy").end_batch()
    assert run.advance_processing_time(9.999 * SECOND).run().watermark is None
    assert run.advance_processing_time(0.001 * SECOND).run().watermark == at(10)


@pytest.mark.rule(3)
def test_a_source_with_a_timeout_of_zero_does_not_hold_the_watermark_back(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "busy", "rules", idle_timeout={"rules": 0}))
    run.add_record(event(10), source="busy").end_batch().add_record(event(2), source="rules").end_batch()
    assert run.add_record(event(20), source="busy").end_batch().run().watermark == at(20)


class Filtering(Recorder):
    """An event with the value "no" is filtered out."""

    def key_event(self, record: KeyedEvent[Any]) -> Any:
        return Filtered(record.timestamp) if record.value == "no" else record


@pytest.mark.rule(2)
def test_the_time_of_a_filtered_record_advances_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Filtering(), "in")).add_record(event(10), "in").end_batch()
    run.add_records([event(30, "no"), event(20)], "in").end_batch()
    result = run.run()
    assert (result.watermark, len(result.events())) == (at(30), 2)


@pytest.mark.rule(2)
def test_a_source_with_filtered_records_alone_has_a_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Filtering(), "busy", "filtered")).add_record(event(10), "busy")
    result = run.add_record(event(7, "no"), "filtered").end_batch().run()
    assert (result.watermark, result.keys()) == (at(7), [])


@pytest.mark.parametrize("nothing", [None, []])
@pytest.mark.rule(3)
def test_a_source_that_brings_only_records_without_a_time_becomes_idle(test_run: MakeRun, nothing: Any) -> None:
    class Dropping(Recorder):
        def key_event(self, record: KeyedEvent[Any]) -> Any:
            return nothing if record.value == "no" else record

    run = test_run(job(Dropping(), "busy", "filtered", idle_timeout=5))
    run.add_record(event(0), "filtered").add_record(event(0), "busy").end_batch()
    reached = []
    for second in range(1, 8):
        run.advance_processing_time(SECOND).add_record(event(second, "no"), "filtered")
        reached.append(run.add_record(event(second), "busy").end_batch().run().watermark)
    assert reached == [at(0)] * 4 + [at(5), at(6), at(7)]


@pytest.mark.rule(4)
def test_the_time_of_a_filtered_record_can_be_too_far_ahead(test_run: MakeRun) -> None:
    run = test_run(job(Filtering(), "in", max_ahead=60, on_error="dead_letter"), processing_time=at(0))
    result = run.add_records([event(10), event(61, "no"), event(60, "no")], "in").end_batch().run()
    assert result.watermark == at(60)
    (dead_letter,) = result.dead_letters
    assert (dead_letter.callback, "ahead" in dead_letter.error) == ("key_event", True)


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (Filtered(datetime(2025, 1, 1)), "NaiveTimestampError"),
        (Filtered(datetime.max.replace(tzinfo=timezone(timedelta(hours=-1)))), "TimestampRangeError"),
        (Filtered("2025"), "is not a datetime"),  # type: ignore[arg-type]
        (
            [Filtered(datetime(2025, 1, 1, tzinfo=timezone.utc))],
            "must return a KeyedEvent, an iterable of them, Filtered",
        ),
    ],
)
@pytest.mark.rule(1)
def test_a_filtered_record_needs_a_time(test_run: MakeRun, returned: Any, problem: str) -> None:
    class Wrong(Recorder):
        def key_event(self, record: Any) -> Any:
            return returned

    with pytest.raises(CallbackError, match=problem):
        test_run(job(Wrong(), "in")).add_record(1, "in").run()


@pytest.mark.rule(2)
def test_a_watermark_of_a_test_run_counts_for_every_source(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "busy", "silent", watermark_delay=5)).add_watermark(at(7))
    assert run.run().watermark == at(7)
    assert run.add_record(event(20), source="busy").end_batch().run().watermark == at(7)
    assert run.add_watermark(at(9)).run().watermark == at(9)


@pytest.mark.rule(2)
def test_a_test_run_advances_the_watermark_to_at_least_a_time(test_run: MakeRun) -> None:
    run = test_run(job(Recorder())).add_record(event(108))
    assert run.add_watermark(at(100)).run().watermark == at(108)
    assert run.add_watermark(at(110)).run().watermark == at(110)


@pytest.mark.rule(2)
def test_a_time_before_the_first_partition_does_not_hold_the_watermark_back(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "in")).add_watermark(at(7))
    run.add_record(event(20), "in", partition="p").end_batch()
    assert run.run().watermark == at(20)


@pytest.mark.rule(3)
def test_timers_do_not_fire_by_processing_time_without_an_idle_timeout(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [5])).advance_processing_time(3600 * SECOND)
    result = run.run()
    assert (result.records("seen"), result.watermark) == ([], at(0))


@pytest.mark.on_spark("wake-ups")
@pytest.mark.rule(3)
def test_when_all_sources_are_idle_the_watermark_rises_with_the_clock(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter(), idle_timeout=10, watermark_delay=2)).add_record(event(2, [60]))
    run.advance_processing_time(10 * SECOND).advance_processing_time(59 * SECOND)
    result = run.run()
    assert (result.records("seen"), result.watermark) == ([], at(59))
    result = run.advance_processing_time(1 * SECOND).run()
    assert [seen[:4] for seen in result.records("seen")] == [("timer", "k", 60, 60)]


@pytest.mark.rule(3)
def test_an_idle_source_does_not_hold_back_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "busy", "slow", idle_timeout=10))
    run.add_record(event(100), source="busy").add_record(event(10), source="slow")
    run.advance_processing_time(9 * SECOND).add_record(event(101), source="busy")
    run.advance_processing_time(1 * SECOND).add_record(event(102), source="busy")
    assert watermarks(run.run()) == [None, None, 10, 101]


@pytest.mark.rule(3)
def test_a_source_that_is_no_longer_idle_holds_back_the_watermark_but_does_not_lower_it(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "busy", "slow", idle_timeout=10))
    run.add_record(event(100), source="busy").add_record(event(10), source="slow")
    run.advance_processing_time(9 * SECOND).add_record(event(101), source="busy")
    run.advance_processing_time(1 * SECOND).add_record(event(20), source="slow")
    run.end_batch().add_record(event(103), source="busy").end_batch().add_record(event(104), source="busy")
    assert watermarks(run.run()) == [None, None, 10, 101, 101, 101]


@pytest.mark.rule(3)
def test_a_source_without_its_own_idle_timeout_holds_back_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "busy", "slow", idle_timeout={"busy": 10}))
    run.add_record(event(100), source="busy").add_record(event(10), source="slow")
    run.advance_processing_time(70 * SECOND).add_record(event(20), source="slow")
    assert watermarks(run.run()) == [None, None, 10]
    assert run.advance_processing_time(70 * SECOND).run().watermark == at(20)

    run = test_run(job(Recorder(), "busy", "slow", idle_timeout={"slow": 10}))
    run.add_record(event(100), source="busy").add_record(event(10), source="slow")
    assert run.advance_processing_time(70 * SECOND).run().watermark == at(100)


@pytest.mark.rule(3)
def test_events_after_idle_time_see_the_watermark_that_the_clock_raised(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), idle_timeout=10)).add_record(event(0)).advance_processing_time(70 * SECOND)
    run.add_record(event(1)).add_record(event(100)).end_batch().add_record(event(101))
    assert watermarks(run.run()) == [None, 60, 60, 100]


@pytest.mark.rule(3)
def test_the_watermark_does_not_rise_with_the_clock_without_an_idle_timeout(test_run: MakeRun) -> None:
    run = test_run(job(Recorder())).add_watermark(at(5)).advance_processing_time(100 * SECOND)
    assert run.run().watermark == at(5)
    run = test_run(job(Recorder())).add_record(event(7)).advance_processing_time(100 * SECOND)
    assert run.run().watermark == at(7)


@pytest.mark.rule(4)
def test_an_event_too_far_ahead_of_the_clock_is_an_error_that_names_the_record(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), max_ahead=60), processing_time=at(0)).add_record(event(61, "absurd"))
    with pytest.raises(CallbackError, match="too far ahead of the clock") as caught:
        run.run()
    assert (caught.value.callback, caught.value.key) == ("key_event", "k")
    assert "absurd" in (caught.value.record or "")


@pytest.mark.rule(4)
def test_max_ahead_is_relative_to_the_clock_and_can_be_timedelta_max(test_run: MakeRun) -> None:
    test_run(job(Recorder(), max_ahead=timedelta.max)).add_record(event(10**9)).run()
    run = test_run(job(Recorder(), max_ahead=60), processing_time=at(0)).add_record(event(60))
    run.advance_processing_time(10 * SECOND).add_record(event(70)).end_batch().add_record(event(1))
    assert watermarks(run.run()) == [None, 60, 70]


@pytest.mark.rule(4)
def test_a_timestamp_beyond_max_ahead_does_not_move_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), max_ahead=60, on_error="dead_letter"), processing_time=at(0))
    run.add_record(event(5)).add_record(event(10**9)).end_batch().add_record(event(6))
    result = run.run()
    assert watermarks(result) == [None, 5]
    assert [dead_letter.callback for dead_letter in result.dead_letters] == ["key_event"]


def watermarks(result: Any) -> list[float | None]:
    """Return the watermark of each callback in seconds."""
    return [seen[3] for seen in result.records("seen")]


@pytest.mark.rule(3)
def test_a_watermark_set_by_a_test_run_rises_with_the_clock(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter(), idle_timeout=10)).set_timer("k", at(60)).add_watermark(at(0))
    run.advance_processing_time(69 * SECOND)
    assert run.run().records("seen") == []
    assert [seen[2:4] for seen in run.advance_processing_time(SECOND).run().records("seen")] == [(60, 60)]


@pytest.mark.rule(2)
def test_each_source_can_have_its_own_watermark_delay(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "left", "right", watermark_delay={"left": 5}))
    run.add_record(event(10), source="left").add_record(event(10), source="right").end_batch()
    run.add_record(event(30), source="left").end_batch().add_record(event(31), source="left")
    assert watermarks(run.run()) == [None, None, 5, 10]
    run.add_watermark(source="left").add_record(event(50), source="right").end_batch()
    assert run.add_record(event(60), source="right").run().watermark == at(31)


@pytest.mark.rule(2)
def test_a_test_run_can_set_the_watermark_of_each_source(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "left", "right", watermark_delay=5))
    run.add_record(event(10), source="left").add_record(event(10), source="right").end_batch()
    run.add_watermark(at(50), source="left").add_record(event(1), source="left")
    run.add_watermark(at(20), source="right").add_record(event(2), source="left")
    run.add_watermark(source="right")
    result = run.run()
    assert watermarks(result) == [None, None, 5, 20]
    assert result.watermark == at(25)
