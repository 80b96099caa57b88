"""Rule 13 of `semantics.md`: late events."""

from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import LateCounter, LateReporter, Recorder, at, event, job

from amadou import Job, LateEvent, MemorySink, MemorySource, to_micros
from amadou.errors import CallbackError, EncodeError
from amadou_runtime import TestRun
from amadou_runtime._events import Chunk, pack_events
from amadou_runtime._operator import Operator


def test_rule_13_an_event_before_its_batchs_watermark_is_delivered_as_late(test_run: MakeRun) -> None:
    run = test_run(job(LateReporter())).add_record(event(9, "first")).add_watermark(at(10))
    run.add_records([event(9, "behind"), event(10, "at"), event(11, "ahead"), event(0, "far behind")])
    result = run.run()
    assert result.records("late") == [
        ("first", False),
        ("behind", True),
        ("at", False),
        ("ahead", False),
        ("far behind", True),
    ]


def test_rule_13_lateness_is_told_to_the_microsecond(test_run: MakeRun) -> None:
    run = test_run(job(LateReporter())).add_record(event(9, "first")).add_watermark(at(10.001))
    run.add_record(event(10.000999, "by one")).add_record(event(10.001, "not"))
    assert run.run().records("late")[1:] == [("by one", True), ("not", False)]


def test_rule_13_an_event_is_not_late_for_what_came_in_its_own_batch(test_run: MakeRun) -> None:
    run = test_run(job(LateReporter())).add_records([event(100, "newest"), event(1, "older")])
    assert run.run().records("late") == [("newest", False), ("older", False)]


def test_rule_13_late_events_are_listed_whatever_becomes_of_them(test_run: MakeRun) -> None:
    for policy in ("deliver", "drop", "divert"):
        result = late_run(test_run, policy).run()
        assert result.late == [event(9, "behind"), event(0, "far behind", "other")]


def test_rule_13_dropped_events_come_to_no_callback_and_leave_nothing(test_run: MakeRun) -> None:
    result = late_run(test_run, "drop").run()
    assert result.records("late") == [("first", False), ("at", False)]
    assert (result.state("total", "k"), result.keys()) == (2, ["k"])
    assert [entry.callback for entry in result.trace] == ["on_event", "dropped", "dropped", "on_event"]


def test_rule_13_diverted_events_go_to_the_late_output_with_all_that_is_known_of_them(test_run: MakeRun) -> None:
    test_job = job(LateCounter(), late_events="divert")
    run = test_run(test_job).add_record(event(9, "first")).add_watermark(at(10))
    result = run.add_records([event(9, "behind"), event(10, "at")]).run()
    assert result.records("late") == [("first", False), ("at", False)]
    assert result.records("late_events") == [LateEvent("conformance", "events", "k", at(9), "behind", at(10))]


def late_run(test_run: MakeRun, policy: str) -> TestRun:
    run = test_run(job(LateCounter(), late_events=policy)).add_record(event(9, "first")).add_watermark(at(10))
    return run.add_records([event(9, "behind"), event(10, "at"), event(0, "far behind", "other")])


class Picky(MemorySink):
    """Carries no event."""

    def codec(self, type: Any) -> Any:
        return PickyCodec()


class PickyCodec:
    def encode(self, value: Any) -> Any:
        raise EncodeError(value, LateEvent, "not this one")

    def decode(self, wire: Any) -> Any:
        return wire


def test_a_late_event_that_its_sink_cannot_carry_is_told() -> None:
    made = Job(
        "late",
        Recorder(),
        sources={"events": MemorySource()},
        sinks={"seen": MemorySink(), "late_events": Picky()},
        late_events="divert",
    )
    operator = Operator(made)
    late = Chunk("events", b"", pack_events(["k", at(1), "late"]))
    with pytest.raises(CallbackError) as caught:
        operator.process(None, [late], to_micros(at(2)))
    error = caught.value
    assert (error.callback, error.source, error.key) == ("late_events", "events", "k")
    assert "'late'" in (error.record or "")
    assert "not this one" in error.error
