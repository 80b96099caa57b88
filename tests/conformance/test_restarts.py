"""State, timers and outputs survive restarts and crashes."""

from datetime import datetime

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Recorder, StateMethods, TimerSetter, at, details, event, job

from amadou import KeyedEvent, MemorySink, Subject, ValueSpec
from amadou.errors import CheckpointError


class Counter(Recorder):
    """Counts the events of each key in state, and all events in an attribute of the handler."""

    total = ValueSpec(int, default=0)

    def __init__(self) -> None:
        self.timestamps: list[datetime] = []

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.timestamps.append(event.timestamp)
        self.total.state_for(subject).value += 1
        self.report("event", subject, event.timestamp, (self.total.state_for(subject).value, len(self.timestamps)))
        subject.set_timer(at(100))


@pytest.mark.rule(8)
def test_timers_survive_a_restart(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [5, (6, "tag")])).restart().add_watermark(at(6))
    assert [seen[2::2] for seen in run.run().records("seen")] == [(5, ""), (6, "tag")]


@pytest.mark.on_spark("restart")
@pytest.mark.rule(8)
def test_a_restart_creates_a_new_handler_and_keeps_state_and_timers(test_run: MakeRun) -> None:
    run = test_run(job(Counter())).add_records([event(0), event(0)]).restart().add_record(event(1))
    result = run.restart().add_record(event(1)).run()
    assert details(result) == [(1, 1), (2, 2), (3, 1), (4, 1)]
    assert [timer.timestamp for timer in result.timers("k")] == [at(100)]


@pytest.mark.parametrize("after", [0, 1, 2, None])
@pytest.mark.rule(20)
def test_a_reprocessed_batch_counts_once(test_run: MakeRun, after: int | None) -> None:
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
def test_a_timer_of_a_reprocessed_batch_emits_its_output_once(test_run: MakeRun) -> None:
    run = test_run(job(Counter())).add_record(event(0)).add_watermark(at(100)).add_record(event(101)).crash(1)
    result = run.run()
    assert [seen[0] for seen in result.records("seen")] == ["event", "timer", "event"]
    assert result.state("total", "k") == 2


@pytest.mark.on_spark("given state")
def test_a_test_run_can_set_state_and_timers_before_the_first_batch(test_run: MakeRun) -> None:
    run = test_run(job(StateMethods()))
    run.set_state(StateMethods.total, "k", 41).set_state("lists", "k", {"a": [1]}).set_state("history", "other", [[7]])
    run.set_timer("k", at(5), "tag").add_record(event(0, "add_one")).add_record(event(0, "collect_history", "other"))
    result = run.run()
    assert (result.state("total", "k"), result.state("lists", "k")) == (42, {"a": [1]})
    assert result.records("results") == [[[7]]]
    assert [tuple(timer) for timer in result.timers("k")] == [(at(5), "tag")]
    assert run.add_watermark(at(5)).run().state("total", "k") == 52


def test_a_test_run_can_set_state_and_timers_between_batches(test_run: MakeRun) -> None:
    run = test_run(job(StateMethods())).add_records([event(0, "add_one"), event(0, "add_one", "other")])
    run.set_state(StateMethods.total, "k", 41).add_record(event(1, "add_one"))
    result = run.run()
    assert (result.state("total", "k"), result.state("total", "other")) == (42, 1)
    run.set_state(StateMethods.lists, "k", {"a": [1]}).set_timer("k", at(5)).add_watermark(at(5))
    result = run.run()
    assert (result.state("total", "k"), result.state("lists", "k"), result.timers("k")) == (52, {"a": [1]}, [])


def test_a_test_run_can_clear_all_state_of_a_key(test_run: MakeRun) -> None:
    run = test_run(job(StateMethods())).set_state(StateMethods.history, "k", [[1]])
    assert run.add_record(event(1, "add_one", "other")).run().keys() == ["k", "other"]
    run.set_state(StateMethods.history, "k", []).set_state(StateMethods.total, "other", 0)
    assert run.end_batch().run().keys() == ["other"]  # a default that was written is stored


def test_a_test_run_continues_from_a_snapshot(test_run: MakeRun) -> None:
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


def test_a_source_that_the_last_run_lacked_cannot_be_added_again(test_run: MakeRun) -> None:
    both, first = job(StateMethods(), "a", "b"), job(StateMethods(), "a")
    first_run = test_run(both).add_record(event(0, "add_one"), "a").add_record(event(0, "add_one"), "b")
    first_run.run()
    snapshot = first_run.snapshot()
    alone = test_run(first, snapshot=snapshot)
    assert (
        test_run(both, snapshot=alone.snapshot()).run().state("total", "k") == 2
    )  # nothing was read without the source
    alone.add_record(event(1, "add_one")).run()
    with pytest.raises(CheckpointError, match="earlier runs read but the last run lacked: 'b'"):
        test_run(both, snapshot=alone.snapshot())
    renamed = test_run(job(StateMethods(), "a", "c"), snapshot=alone.snapshot())
    assert renamed.add_record(event(2, "add_one"), "c").run().state("total", "k") == 4
    assert test_run(both, snapshot=snapshot).add_record(event(1, "add_one"), "b").run().state("total", "k") == 3


def test_a_source_without_events_can_be_removed_and_added_again(test_run: MakeRun) -> None:
    both, first = job(StateMethods(), "a", "b"), job(StateMethods(), "a")
    first_run = test_run(both).add_record(event(0, "add_one"), "a")
    first_run.run()
    alone = test_run(first, snapshot=first_run.snapshot()).add_record(event(1, "add_one"))
    alone.run()
    run = test_run(both, snapshot=alone.snapshot()).add_record(event(2, "add_one"), "b")
    assert run.run().state("total", "k") == 3
