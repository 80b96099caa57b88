"""Running values: aggregates of all events of a key so far."""

from datetime import timedelta
from typing import Any

import pytest
from tests.plugins.windows import at, event

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.errors import UnsupportedTypeError
from amadou_plugins.aggregates import Count, MovingAverage, RunningSpec, Sum, TopK
from amadou_runtime import TestRun


class Account(Handler):
    total = RunningSpec(Sum())
    lately = RunningSpec({"mean": MovingAverage(n=2), "n": Count()}, ttl=timedelta(seconds=10))
    best = RunningSpec(TopK(2))
    running = SinkSpec(tuple)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value is None:
            state = self.total.state_for(subject)
            assert (state.exists, state.value) == (True, 7.25)
            state.clear()
            assert (state.exists, state.value) == (False, 0)
            self.running.collect(subject, (self.total.result(subject), self.lately.result(subject)))
            return
        values = (self.total.add(subject, event), self.lately.add(subject, event), self.best.add(subject, event))
        self.running.collect(subject, values)


def account_run() -> TestRun:
    return TestRun(Job("account", Account(), sources={"in": MemorySource()}, sinks={"running": MemorySink()}))


def test_running_values_continue_over_batches_and_restarts_until_they_expire() -> None:
    run = account_run()
    run.add_records([event(1, 5), event(2, 0.25)]).restart().add_record(event(3, 2)).add_record(event(3, 7, "b"))
    run.add_watermark(at(30)).add_record(event(30, None))
    result = run.run()
    assert result.records("running") == [
        (5, {"mean": 5.0, "n": 1}, [5]),
        (5.25, {"mean": 2.625, "n": 2}, [5, 0.25]),
        (7.25, {"mean": 1.125, "n": 3}, [5, 2]),
        (7, {"mean": 7.0, "n": 1}, [7]),
        (0, {"mean": None, "n": 0}),
    ]
    assert result.state("total", "a") == 0


def test_the_state_of_a_running_value_is_its_current_result() -> None:
    result = account_run().add_records([event(1, 5, "a"), event(2, 0.25, "a")]).run()
    assert result.state(Account.total, "a") == 5.25
    assert result.state("lately", "a") == {"mean": 2.625, "n": 2}
    assert result.state("best", "b") == []


class Lately(Handler):
    count = RunningSpec(Count(), ttl=timedelta(seconds=10))

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.count.add(subject, event)


def test_a_running_value_that_expired_leaves_no_state() -> None:
    run = TestRun(Job("lately", Lately(), sources={"in": MemorySource()}, sinks={}))
    assert run.add_record(event(1, 5, "a")).run().keys() == ["a"]
    run.add_record(event(30, 1, "b")).add_watermark().end_batch().add_record(event(31, 1, "b"))
    result = run.run()
    assert (result.keys(), result.counters) == (["b"], {"count.expired": 1})


def test_a_running_value_that_expired_is_counted_if_it_is_replaced() -> None:
    run = TestRun(Job("lately", Lately(), sources={"in": MemorySource()}, sinks={}))
    result = run.add_records([event(1, 5, "a"), event(9, 5, "a"), event(19, 5, "a")]).run()
    assert (result.state("count", "a"), result.counters) == (1, {"count.expired": 1})


def test_a_test_run_can_set_the_accumulator_of_a_running_value() -> None:
    total = Sum()
    run = account_run().set_state("total", "a", total.add(total.create(), event(1, 5))).add_record(event(2, 3, "a"))
    assert run.run().state("total", "a") == 8


def test_the_error_for_a_value_spec_of_an_aggregate_suggests_a_running_spec() -> None:
    with pytest.raises(UnsupportedTypeError, match="is not a type, but an aggregate: use a RunningSpec"):
        ValueSpec(Sum()).check()  # type: ignore[arg-type]
