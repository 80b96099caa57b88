"""What survives restarts and crashes."""

from datetime import datetime

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Keeper, Recorder, TimerSetter, at, event, job

from amadou import KeyedEvent, MemorySink, Subject, ValueSpec
from amadou.errors import CheckpointError


class Counter(Recorder):
    """Counts the events of each key in its state and, wrongly, in the handler; a timer tells both."""

    total = ValueSpec(int, default=0)

    def __init__(self) -> None:
        self.seen_here: list[datetime] = []

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.seen_here.append(event.timestamp)
        self.total.state_for(subject).value += 1
        self.report("event", subject, event.timestamp, (self.total.state_for(subject).value, len(self.seen_here)))
        subject.set_timer(at(100))


def details(records: list[tuple[object, ...]]) -> list[object]:
    return [record[4] for record in records]


@pytest.mark.on_spark("restart")
@pytest.mark.rule(8)
def test_timers_and_state_survive_a_restart(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [5, (6, "tag")])).restart().add_watermark(at(6))
    assert [seen[2::2] for seen in run.run().records("seen")] == [(5, ""), (6, "tag")]


@pytest.mark.on_spark("restart")
@pytest.mark.rule(8)
def test_a_restart_begins_with_the_handler_anew(test_run: MakeRun) -> None:
    run = test_run(job(Counter())).add_records([event(0), event(0)]).restart().add_record(event(1))
    result = run.restart().add_record(event(1)).run()
    assert details(result.records("seen")) == [(1, 1), (2, 2), (3, 1), (4, 1)]
    assert [timer.timestamp for timer in result.timers("k")] == [at(100)]


@pytest.mark.on_spark("crash")
@pytest.mark.parametrize("after", [0, 1, 2, None])
@pytest.mark.rule(20)
def test_a_batch_that_crashed_counts_once(test_run: MakeRun, after: int | None) -> None:
    test_job = job(Counter())
    run = test_run(test_job).add_record(event(0)).end_batch()
    run.add_records([event(1), event(1, key="other"), event(2)]).crash(after).add_record(event(3))
    result = run.run()
    assert [(seen[1], *seen[4][:1]) for seen in result.records("seen")] == [
        ("k", 1),
        ("k", 2),
        ("other", 1),
        ("k", 3),
        ("k", 4),
    ]
    assert (result.state("total", "k"), result.state("total", "other")) == (4, 1)
    sink = test_job.sinks["seen"]
    assert isinstance(sink, MemorySink)
    assert sink.records == result.records("seen")


@pytest.mark.on_spark("crash")
@pytest.mark.rule(20)
def test_a_timer_that_fired_in_a_batch_that_crashed_fires_again_and_counts_once(test_run: MakeRun) -> None:
    run = test_run(job(Counter())).add_record(event(0)).add_watermark(at(100)).add_record(event(101)).crash(1)
    assert [seen[0] for seen in run.run().records("seen")] == ["event", "timer", "event"]


@pytest.mark.on_spark("restart")
def test_state_and_timers_can_be_put_in_place(test_run: MakeRun) -> None:
    run = test_run(job(Keeper()))
    run.set_state(Keeper.total, "k", 41).set_state("lists", "k", {"a": [1]}).set_state("history", "other", [[7]])
    run.set_timer("k", at(5), "tag").add_record(event(0, "add_one")).add_record(event(0, "tell_history", "other"))
    result = run.run()
    assert (result.state("total", "k"), result.state("lists", "k")) == (42, {"a": [1]})
    assert result.records("found") == [[[7]]]
    assert [tuple(timer) for timer in result.timers("k")] == [(at(5), "tag")]
    assert run.add_watermark(at(5)).run().state("total", "k") == 52


def test_state_and_timers_can_be_put_in_place_between_batches(test_run: MakeRun) -> None:
    run = test_run(job(Keeper())).add_records([event(0, "add_one"), event(0, "add_one", "other")])
    run.set_state(Keeper.total, "k", 41).add_record(event(1, "add_one"))
    result = run.run()
    assert (result.state("total", "k"), result.state("total", "other")) == (42, 1)
    run.set_state(Keeper.lists, "k", {"a": [1]}).set_timer("k", at(5)).add_watermark(at(5))
    result = run.run()
    assert (result.state("total", "k"), result.state("lists", "k"), result.timers("k")) == (52, {"a": [1]}, [])


@pytest.mark.on_spark("restart")
def test_all_of_the_state_can_be_taken_away(test_run: MakeRun) -> None:
    run = test_run(job(Keeper())).set_state(Keeper.history, "k", [[1]])
    assert run.add_record(event(1, "add_one", "other")).run().keys() == ["k", "other"]
    run.set_state(Keeper.history, "k", []).set_state(Keeper.total, "other", 0)
    assert run.end_batch().run().keys() == ["other"]  # a default that was written is there


@pytest.mark.on_spark("restart")
def test_runs_go_on_from_a_snapshot(test_run: MakeRun) -> None:
    first = test_run(job(Counter()), processing_time=at(7))
    first.add_record(event(0)).add_watermark(at(99)).run()
    snapshot = first.snapshot()
    for _ in range(2):
        run = test_run(job(Counter()), snapshot=snapshot)
        result = run.add_record(event(100)).run()
        assert result.watermark == at(100)
        assert result.records("seen") == [("event", "k", 100, 99, (2, 1))]
        assert run.add_watermark().run().records("seen", new=True) == [("timer", "k", 100, 100, "")]
    assert test_run(job(Counter()), snapshot=snapshot, processing_time=at(8)).snapshot() != snapshot
    assert test_run(job(Counter()), snapshot=snapshot).snapshot() == snapshot


def test_a_snapshot_refuses_a_source_that_a_later_run_did_without(test_run: MakeRun) -> None:
    both, first = job(Keeper(), "a", "b"), job(Keeper(), "a")
    begun = test_run(both).add_record(event(0, "add_one"), "a").add_record(event(0, "add_one"), "b")
    begun.run()
    with_both = begun.snapshot()
    alone = test_run(first, snapshot=with_both)
    assert test_run(both, snapshot=alone.snapshot()).run().state("total", "k") == 2  # nothing was read without it
    alone.add_record(event(1, "add_one")).run()
    with pytest.raises(CheckpointError, match="earlier runs read but the last run lacked: 'b'"):
        test_run(both, snapshot=alone.snapshot())
    renamed = test_run(job(Keeper(), "a", "c"), snapshot=alone.snapshot())
    assert renamed.add_record(event(2, "add_one"), "c").run().state("total", "k") == 4
    assert test_run(both, snapshot=with_both).add_record(event(1, "add_one"), "b").run().state("total", "k") == 3


def test_a_source_that_never_brought_anything_may_leave_and_come_back(test_run: MakeRun) -> None:
    both, first = job(Keeper(), "a", "b"), job(Keeper(), "a")
    begun = test_run(both).add_record(event(0, "add_one"), "a")
    begun.run()
    alone = test_run(first, snapshot=begun.snapshot()).add_record(event(1, "add_one"))
    alone.run()
    run = test_run(both, snapshot=alone.snapshot()).add_record(event(2, "add_one"), "b")
    assert run.run().state("total", "k") == 3
