"""Late events: delivered, dropped and diverted."""

from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, LateCounter, LateReporter, Recorder, at, event, job

from amadou import Job, KeyedEvent, LateEvent, MemorySink, MemorySource, Subject
from amadou.errors import CallbackError, EncodeError
from amadou.event_time import to_micros
from amadou_plugins.windows import HoppingWindow, TumblingWindow, Window
from amadou_runtime import TestRun
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupBatch
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.packed_group import PackedGroup


@pytest.mark.rule(13)
def test_an_event_before_the_watermark_of_its_batch_is_late(test_run: MakeRun) -> None:
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


@pytest.mark.rule(13)
def test_lateness_is_exact_to_the_microsecond(test_run: MakeRun) -> None:
    run = test_run(job(LateReporter())).add_record(event(9, "first")).add_watermark(at(10.001))
    run.add_record(event(10.000999, "by one")).add_record(event(10.001, "not"))
    assert run.run().records("late")[1:] == [("by one", True), ("not", False)]


@pytest.mark.rule(13)
def test_newer_events_of_the_same_batch_do_not_make_an_event_late(test_run: MakeRun) -> None:
    run = test_run(job(LateReporter())).add_records([event(100, "newest"), event(1, "older")])
    assert run.run().records("late") == [("newest", False), ("older", False)]


@pytest.mark.rule(13)
def test_a_test_result_lists_late_events_under_each_policy(test_run: MakeRun) -> None:
    for policy in ("deliver", "drop", "divert"):
        result = late_run(test_run, policy).run()
        assert result.late == [event(9, "behind"), event(0, "far behind", "other")]


@pytest.mark.rule(13)
def test_dropped_late_events_reach_no_callback_and_leave_no_state(test_run: MakeRun) -> None:
    result = late_run(test_run, "drop").run()
    assert result.records("late") == [("first", False), ("at", False)]
    assert (result.state("total", "k"), result.keys()) == (2, ["k"])
    assert [entry.callback for entry in result.trace] == ["on_event", "dropped", "dropped", "on_event"]


@pytest.mark.on_spark("commit")
@pytest.mark.rule(13)
def test_diverted_late_events_are_emitted_with_source_key_time_value_and_watermark(test_run: MakeRun) -> None:
    test_job = job(LateCounter(), late_events="divert")
    run = test_run(test_job).add_record(event(9, "first")).add_watermark(at(10))
    result = run.add_records([event(9, "behind"), event(10, "at")]).run()
    assert result.records("late") == [("first", False), ("at", False)]
    assert result.records("late_events") == [LateEvent("conformance", "events", "k", at(9), "behind", at(10))]


def late_run(test_run: MakeRun, policy: str) -> TestRun:
    run = test_run(job(LateCounter(), late_events=policy)).add_record(event(9, "first")).add_watermark(at(10))
    return run.add_records([event(9, "behind"), event(10, "at"), event(0, "far behind", "other")])


@pytest.mark.parametrize(("policy", "dropped"), [("deliver", 0), ("drop", 2), ("divert", 0)])
@pytest.mark.rule(24)
def test_late_events_that_the_job_drops_are_counted(test_run: MakeRun, policy: str, dropped: int) -> None:
    assert late_run(test_run, policy).run().dropped == dropped


class AddsToWindows(Recorder):
    """Adds events to windows. One window diverts late events; in `long` they are on time."""

    tens = TumblingWindow(10 * SECOND)
    overlapping = HoppingWindow(10 * SECOND, 2 * SECOND)
    diverting = TumblingWindow(10 * SECOND, late="divert")
    long = TumblingWindow(100 * SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for window in (self.tens, self.overlapping, self.diverting, self.long):
            window.add(subject, event)
        subject.count("orders.late")
        if event.value == "fails":
            raise ValueError("failing event")

    def on_recover_window(self, name: str, subject: Subject) -> None: ...

    @tens.on_close
    @overlapping.on_close
    @diverting.on_close
    @long.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None: ...


@pytest.mark.rule(24)
def test_an_event_dropped_by_several_windows_counts_once_and_counters_of_handlers_do_not_count(
    test_run: MakeRun,
) -> None:
    run = test_run(job(AddsToWindows())).add_record(event(21)).add_watermark(at(21))
    result = run.add_records([event(9, "late"), event(8, "late"), event(22)]).run()
    assert result.dropped == 2
    assert result.counters == {"tens.late": 2, "overlapping.late": 2, "diverting.late": 2, "orders.late": 4}


class AddsAnotherEvent(AddsToWindows):
    """Adds an event of its own to a window, between two windows that the delivered event is added to."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.tens.add(subject, event)
        self.overlapping.add(subject, KeyedEvent(subject.key, event.timestamp, "another"))
        self.overlapping.add(subject, event)


@pytest.mark.rule(24)
def test_an_event_counts_once_if_another_is_dropped_in_between(test_run: MakeRun) -> None:
    run = test_run(job(AddsAnotherEvent())).add_record(event(21)).add_watermark(at(21))
    assert run.add_records([event(9), event(8), event(22)]).run().dropped == 4


@pytest.mark.rule(24)
def test_events_dropped_by_a_failed_callback_are_not_counted(test_run: MakeRun) -> None:
    run = test_run(job(AddsToWindows(), on_error="dead_letter")).add_record(event(21)).add_watermark(at(21))
    result = run.add_records([event(9, "fails"), event(8, "late")]).run()
    assert (result.dropped, len(result.dead_letters)) == (1, 1)


class RejectingSink(MemorySink):
    """Cannot encode any event."""

    def codec(self, type: Any) -> Any:
        return RejectingCodec()


class RejectingCodec:
    def encode(self, value: Any) -> Any:
        raise EncodeError(value, LateEvent, "not this one")

    def decode(self, encoded: Any) -> Any:
        return encoded


def test_a_late_event_that_the_sink_cannot_encode_is_an_error_that_names_key_and_record() -> None:
    diverting = Job(
        "late",
        Recorder(),
        sources={"events": MemorySource()},
        sinks={"seen": MemorySink(), "late_events": RejectingSink()},
        late_events="divert",
    )
    operator = Operator(diverting)
    late = Chunk("events", b"", pack_events(["k", at(1), "late"]))
    with pytest.raises(CallbackError) as caught:
        operator.process(GroupBatch(PackedGroup(None), [late], to_micros(at(2))))
    error = caught.value
    assert (error.callback, error.source, error.key) == ("late_events", "events", "k")
    assert "'late'" in (error.record or "")
    assert "not this one" in error.error
