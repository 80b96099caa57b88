"""Timers."""

from datetime import datetime, timezone

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import (
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


@pytest.mark.rule(11)
def test_a_timer_cannot_set_a_timer_at_or_before_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(TimerChain())).add_record(event(1, "2")).add_watermark(at(10)).add_watermark(at(20))
    result = run.run()
    assert result.records("answers") == [False]
    assert [seen[2] for seen in result.records("seen")] == [1]


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
