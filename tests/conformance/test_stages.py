"""Stages: a port of one stage is a source of another stage (`semantics.md` 36)."""

from datetime import timedelta
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import EventHandler, Recorder, at, event

from amadou import (
    FromPort,
    Handler,
    Job,
    KeyedEvent,
    MapSpec,
    MemorySink,
    MemorySource,
    ReferenceSpec,
    SinkSpec,
    Stage,
    Subject,
    ValueSpec,
)
from amadou.errors import CallbackError, JobError, PortError
from amadou_plugins.aggregates import Count, Sum
from amadou_plugins.windows import TumblingWindow, WindowResult, windowed
from amadou_runtime import TestRun, run

pytestmark = [pytest.mark.rule(36), pytest.mark.several_stages]


@attrs.frozen
class SentNumber:
    key: Any
    number: int


class Sender(EventHandler):
    """Emits the numbers in an event's value; ``("timer", seconds)`` in the value emits 0 when the timer fires."""

    out = SinkSpec(SentNumber)
    sent = ValueSpec(int, default=0)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for each in event.value:
            if isinstance(each, tuple):
                subject.set_timer(at(each[1]))
            else:
                self.send(subject, each)

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        self.send(subject, 0)

    def send(self, subject: Subject, number: int) -> None:
        self.sent.state_for(subject).value += 1
        self.out.collect(subject, SentNumber(subject.key, number))


class Receiver(Recorder):
    """Reports each event, and sets a timer one second after the event."""

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return record if isinstance(record, KeyedEvent) else KeyedEvent("all", None, (record.key, record.number))  # type: ignore[arg-type]

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        super().on_event(subject, event)
        subject.set_timer(event.timestamp + timedelta(seconds=1))


def two_stages(receiver: Handler | None = None, **settings: Any) -> Job:
    """Return a job with a stage `first` that feeds a stage `second`."""
    first = Stage(Sender(), {"in": MemorySource()})
    source = FromPort("first", "out")
    second = Stage(receiver or Receiver(), {"fed": source}, {"seen": MemorySink()}, **settings)
    return Job("two_stages", stages={"second": second, "first": first})


def test_a_value_reaches_the_next_stage_with_the_time_of_the_callback_that_collected_it(test_run: MakeRun) -> None:
    """Rule a."""
    test = test_run(two_stages()).add_event(event(1, [1, ("timer", 5)])).add_event(event(2, [2])).end_batch()
    test.add_event(event(7, [3])).end_batch()
    result = test.run()
    assert [(each.timestamp, each.value) for each in result.events("fed")] == [
        (at(1), ("k", 1)),
        (at(2), ("k", 2)),
        (at(7), ("k", 3)),
        (at(5), ("k", 0)),
    ]
    assert result.records("out") == [SentNumber("k", 1), SentNumber("k", 2), SentNumber("k", 3), SentNumber("k", 0)]
    assert result.stage("first").records("out") == result.records("out")


def test_key_event_of_a_stage_can_change_the_time_and_return_several_events(test_run: MakeRun) -> None:
    """Rule a."""

    class Twice(Receiver):
        def key_event(self, record: SentNumber) -> list[KeyedEvent[Any]]:  # type: ignore[override]
            return [KeyedEvent("a", at(record.number), 1), KeyedEvent("b", at(record.number + 1), 2)]

    result = test_run(two_stages(Twice())).add_event(event(1, [10, 20])).run()
    assert [(each.key, each.timestamp) for each in result.events("fed")] == [
        ("a", at(10)),
        ("b", at(11)),
        ("a", at(20)),
        ("b", at(21)),
    ]


@pytest.mark.parametrize("key", ["key", lambda sent: sent.key])
def test_the_key_of_a_stage_can_be_a_field_or_a_function_of_the_value(test_run: MakeRun, key: Any) -> None:
    """Rule a."""
    first = Stage(Sender(), {"in": MemorySource()})
    second = Stage(Recorder(), {"fed": FromPort("first", "out", key=key)}, {"seen": MemorySink()})
    result = test_run(Job("keyed", stages={"first": first, "second": second})).add_event(event(3, [1], "x")).run()
    assert result.records("seen") == [("event", "x", 3.0, None, SentNumber("x", 1))]


def test_the_watermark_reaches_the_next_stage_one_batch_later(test_run: MakeRun) -> None:
    """Rule b."""
    test = test_run(two_stages())
    for second in (10, 20, 30):
        test.add_event(event(second, [second])).end_batch()
    result = test.run()
    assert [
        (entry.stage, entry.timestamp, entry.watermark) for entry in result.trace if entry.callback == "on_event"
    ] == [
        ("first", at(10), None),
        ("second", at(10), None),
        ("first", at(20), at(10)),
        ("second", at(20), None),
        ("first", at(30), at(20)),
        ("second", at(30), at(10)),
    ]
    assert result.stage("first").watermark == result.stage("second").watermark == at(30)


def test_a_value_collected_on_time_is_never_late_in_the_next_stage(test_run: MakeRun) -> None:
    """Rule b: timers that fire in the batch in which the watermark passes them, and a late event."""
    test = test_run(two_stages()).add_event(event(1, [("timer", 50), ("timer", 99)])).add_watermark(at(40)).end_batch()
    test.add_event(event(200, [])).add_watermark().end_batch().add_event(event(100, [5]))
    result = test.run()
    assert [(each.timestamp, each.value) for each in result.late if isinstance(each.value, tuple)] == [
        (at(100), ("k", 5))
    ]
    assert {entry.timestamp for entry in result.trace if entry.stage == "second" and entry.is_late} == {at(100)}


def test_the_watermark_delay_of_a_port_is_subtracted(test_run: MakeRun) -> None:
    """Rule b."""
    test = test_run(two_stages(watermark_delay={"fed": 5})).add_event(event(10, [1])).end_batch()
    test.add_event(event(20, [1])).end_batch().end_batch()
    result = test.run()
    assert (result.stage("first").watermark, result.stage("second").watermark) == (at(20), at(15))
    assert result.watermark == at(15)


def test_idle_sources_of_a_stage_do_not_hold_back_its_watermark(test_run: MakeRun) -> None:
    """Rule c."""
    first = Stage(Sender(), {"in": MemorySource()})
    sources = {"fed": FromPort("first", "out"), "own": MemorySource()}
    second = Stage(Receiver(), sources, {"seen": MemorySink()}, idle_timeout={"own": 10})
    test = test_run(Job("mixed", stages={"first": first, "second": second}))
    test.add_event(event(5, "own"), "own").add_event(event(50, [1]), "in").end_batch().end_batch()
    assert test.run().stage("second").watermark == at(5)
    test.advance_processing_time(timedelta(seconds=9.999)).end_batch()
    assert test.run().stage("second").watermark == at(5)
    test.advance_processing_time(timedelta(seconds=0.001)).end_batch()
    assert test.run().stage("second").watermark == at(50)


def test_a_source_beside_a_port_that_has_delivered_nothing_holds_back_the_watermark(test_run: MakeRun) -> None:
    first = Stage(Sender(), {"in": MemorySource()})
    sources = {"fed": FromPort("first", "out"), "own": MemorySource()}
    second = Stage(Receiver(), sources, {"seen": MemorySink()})
    test = test_run(Job("mixed", stages={"first": first, "second": second}))
    test.add_event(event(5, [1]), "in").end_batch().add_event(event(50, [1]), "in").end_batch().end_batch()
    result = test.run()
    assert (result.stage("second").watermark, result.held_back_by) == (None, "second.own")
    test.add_event(event(20, "own"), "own").end_batch()
    assert test.run().stage("second").watermark == at(20)


def test_a_watermark_of_a_test_run_also_holds_for_stages_with_references(test_run: MakeRun) -> None:
    class WithLimits(Receiver):
        limits = ReferenceSpec(str, int, source="limits")

    sources = {"fed": FromPort("first", "out"), "limits": MemorySource()}
    second = Stage(WithLimits(), sources, {"seen": MemorySink()})
    job = Job("limited", stages={"first": Stage(Sender(), {"in": MemorySource()}), "second": second})
    test = test_run(job).add_event(event(5, [1]), "in").add_watermark(at(5)).add_watermark(at(6), "limits")
    test.add_event(event(50, [1]), "in").end_batch().end_batch()
    assert test.run().stage("second").watermark == at(50)


@pytest.mark.on_spark("stages")
def test_values_reach_the_next_stage_in_order_of_time_then_key_and_values_of_a_key_keep_their_order(
    test_run: MakeRun,
) -> None:
    """Rule d."""
    test = test_run(two_stages())
    test.add_event(event(9, [1], "b")).add_event(event(3, [2, 3], "b")).add_event(event(9, [4], "a"))
    test.add_event(event(5, [5], 7)).add_event(event(9, [6], 7))
    assert [each.value for each in test.run().events("fed")] == [
        (7, 5),
        (7, 6),
        ("a", 4),
        ("b", 1),
        ("b", 2),
        ("b", 3),
    ]


def test_values_before_1970_reach_the_next_stage_in_order_of_time(test_run: MakeRun) -> None:
    """Rule d."""
    century = -100 * 365 * 86_400.0
    test = test_run(two_stages()).add_event(event(century + 2, [1], "a")).add_event(event(century + 1, [2], "b"))
    assert [each.value for each in test.run().events("fed")] == [("b", 2), ("a", 1)]


def test_a_stage_merges_sources_and_ports_by_time(test_run: MakeRun) -> None:
    """Rules d and 7 b."""
    first = Stage(Sender(), {"in": MemorySource()})
    sources = {"fed": FromPort("first", "out", key=lambda sent: "k"), "own": MemorySource()}
    second = Stage(Receiver(), sources, {"seen": MemorySink()})
    test = test_run(Job("merged", stages={"first": first, "second": second}))
    test.add_event(event(2, "own 2"), "own").add_event(event(4, "own 4"), "own")
    test.add_event(event(3, [3]), "in").add_event(event(4, [4]), "in")
    seen = [each.value for each in test.run().stage("second").events()]
    assert seen == ["own 2", SentNumber("k", 3), SentNumber("k", 4), "own 4"]


def test_one_port_can_feed_several_stages_and_a_sink(test_run: MakeRun) -> None:
    """Rule e: also a stage that is not the next in the chain."""
    relay = Relay()
    job = Job(
        "diamond",
        stages={
            "last": Stage(
                Receiver(), {"a": FromPort("first", "out"), "b": FromPort("middle", "out")}, {"seen": MemorySink()}
            ),
            "middle": Stage(relay, {"fed": FromPort("first", "out", key="key")}, {"out": MemorySink()}),
            "first": Stage(Sender(), {"in": MemorySource()}, {"out": MemorySink()}),
        },
    )
    assert list(job.by_stage) == ["first", "middle", "last"]
    test = test_run(job).add_event(event(1, [1], "x")).add_event(event(2, [2], "y")).end_batch()
    result = test.run()
    assert [(entry.source, entry.value) for entry in result.trace if entry.stage == "last" and entry.source] == [
        ("a", ("x", 1)),
        ("b", ("x", 10)),
        ("a", ("y", 2)),
        ("b", ("y", 20)),
    ]
    assert result.records("out", stage="first") == [SentNumber("x", 1), SentNumber("y", 2)]
    assert result.records("out", stage="middle") == [SentNumber("x", 10), SentNumber("y", 20)]
    assert job.by_stage["middle"].sinks["out"].records == [SentNumber("x", 10), SentNumber("y", 20)]  # type: ignore[union-attr]


class Relay(Handler):
    """Emits each number times ten."""

    out = SinkSpec(SentNumber)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value.number == 13:
            raise ValueError("thirteen")
        self.out.collect(subject, SentNumber(subject.key, event.value.number * 10))


def chain() -> Job:
    return Job(
        "chain",
        stages={
            "first": Stage(Sender(), {"in": MemorySource()}),
            "middle": Stage(Relay(), {"fed": FromPort("first", "out", key="key")}),
            "last": Stage(Receiver(), {"fed": FromPort("middle", "out")}, {"seen": MemorySink()}),
        },
    )


def test_a_failure_in_one_stage_fails_the_batch_of_all_stages(test_run: MakeRun) -> None:
    """Rule e."""
    test = test_run(chain()).add_event(event(1, [1])).end_batch()
    test.run()
    test.add_event(event(2, [2, 13]))
    with pytest.raises(CallbackError, match="thirteen") as caught:
        test.run()
    assert caught.value.stage == "middle"
    assert "\n  stage     middle\n" in str(caught.value)
    result = test.add_event(event(3, [3])).run()
    assert result.state(Sender.sent, "k") == 2  # without the failed batch
    assert [each.value for each in result.stage("last").events()] == [("k", 10), ("k", 30)]


def test_a_dead_letter_of_one_stage_does_not_affect_other_stages(test_run: MakeRun) -> None:
    """Rule e."""
    job = chain()
    middle = attrs.evolve(job.stages["middle"], on_error="dead_letter")
    test = test_run(attrs.evolve(job, stages={**job.stages, "middle": middle}))
    result = test.add_event(event(2, [2, 13, 4])).run()
    assert [each.value for each in result.stage("last").events()] == [("k", 20), ("k", 40)]
    (dead_letter,) = result.dead_letters
    assert (dead_letter.job, dead_letter.source, dead_letter.record) == (
        "chain.middle",
        "fed",
        event(2, SentNumber("k", 13)),
    )


@pytest.mark.parametrize("stage", ["first", pytest.param("middle", marks=pytest.mark.on_spark("stages")), "last"])
def test_a_crash_in_any_stage_does_not_change_the_results(test_run: MakeRun, stage: str) -> None:
    """Rules e and 20."""

    def script(test: TestRun, *, crashes: bool) -> list[Any]:
        test.add_event(event(1, [1, ("timer", 3)])).end_batch().add_event(event(5, [2]))
        result = (test.crash(0, stage=stage) if crashes else test.end_batch()).end_batch().run()
        return [result.records("seen"), result.state(Sender.sent, "k"), result.timers("all", stage="last")]

    assert script(test_run(chain()), crashes=True) == script(TestRun(chain(), engine="embedded"), crashes=False)


def test_a_restart_keeps_state_and_watermarks_of_all_stages(test_run: MakeRun) -> None:
    """Rules b and 20."""
    test = test_run(two_stages()).add_event(event(10, [1])).end_batch().add_event(event(20, [1])).restart()
    test.add_event(event(21, [2])).end_batch()
    result = test.run()
    assert result.state(Sender.sent, "k") == 3
    (last,) = [entry for entry in result.trace if entry.stage == "second" and entry.value == ("k", 2)]
    assert last.watermark == at(10)


def test_a_snapshot_contains_all_stages(test_run: MakeRun) -> None:
    """Rule e."""
    first = TestRun(two_stages(), engine="embedded").add_event(event(10, [1])).end_batch()
    first.run()
    test = test_run(two_stages(), snapshot=first.snapshot()).add_event(event(20, [2])).end_batch()
    result = test.run()
    assert result.state(Sender.sent, "k") == 2
    assert result.records("seen")[0] == ("event", "all", 20.0, 0.0 + 10.0, ("k", 2))


@pytest.mark.needs_spark(4)
def test_a_flush_fires_the_timers_of_each_stage(engine: str) -> None:
    """Rule f."""
    job = chain()
    source = MemorySource([event(1, [1, ("timer", 100)])])
    stages = {**job.stages, "first": attrs.evolve(job.stages["first"], sources={"in": source})}
    job = attrs.evolve(job, stages=stages)
    summary = run(job, engine=engine, trigger="available-now", flush=True)  # type: ignore[arg-type]
    seen = job.stages["last"].sinks["seen"].records  # type: ignore[union-attr]
    assert [each[:3] for each in seen] == [
        ("event", "all", 1.0),
        ("event", "all", 100.0),
        ("timer", "all", 2.0),
        ("timer", "all", 101.0),
    ] or [each[:3] for each in seen] == [
        ("event", "all", 1.0),
        ("timer", "all", 2.0),
        ("event", "all", 100.0),
        ("timer", "all", 101.0),
    ]
    assert summary.counts.timers_pending == 0
    assert summary.counts.records == {"first.in": 1, "middle.fed": 2, "last.fed": 2}


@pytest.mark.needs_spark(4)
def test_a_run_that_ends_fires_the_due_timers_of_each_stage(engine: str) -> None:
    """Rule f."""
    job = chain()
    source = MemorySource([event(1, [1]), event(10, [])])
    stages = {**job.stages, "first": attrs.evolve(job.stages["first"], sources={"in": source})}
    job = attrs.evolve(job, stages=stages)
    run(job, engine=engine, trigger="available-now")  # type: ignore[arg-type]
    seen = job.stages["last"].sinks["seen"].records  # type: ignore[union-attr]
    assert [each[:4] for each in seen] == [("event", "all", 1.0, None), ("timer", "all", 2.0, 10.0)]


@pytest.mark.on_spark("stages")
def test_windows_of_one_stage_feed_windows_of_the_next_stage(test_run: MakeRun) -> None:
    """Rule a: also on the vectorised path."""
    sums = TumblingWindow(timedelta(seconds=10), {"n": Count()})
    first = windowed(key="page", timestamp="at", window=sums)
    totals = TumblingWindow(timedelta(seconds=60), Sum())
    job = Job(
        "windows",
        stages={
            "pages": Stage(first, {"clicks": MemorySource()}),
            "all": Stage(
                AllPages(totals), {"pages": FromPort("pages", "results", key=lambda _: "all")}, {"totals": MemorySink()}
            ),
        },
    )
    test = test_run(job)
    for second, page in ((1, "a"), (2, "a"), (3, "b"), (12, "a"), (65, "b"), (130, "b")):
        test.add_record({"page": page, "at": at(second)})
    test.add_watermark()
    result = test.run()
    assert result.records("totals") == [("all", at(0), 4), ("all", at(60), 1)]
    received = [(each.timestamp, each.value.key) for each in result.events("pages")]
    assert received == [(at(10), "a"), (at(10), "b"), (at(20), "a"), (at(70), "b")]
    assert all(isinstance(each.value, WindowResult) for each in result.events("pages"))


class AfterLateness(EventHandler):
    """Sends the count of each window, which closes five seconds after its end."""

    out = SinkSpec(SentNumber)
    window = TumblingWindow(timedelta(seconds=10), allowed_lateness=timedelta(seconds=5))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Any, count: int) -> None:
        self.out.collect(subject, SentNumber(window.end, count))


class InItsOwnWindow(Handler):
    totals = SinkSpec(tuple)
    window = TumblingWindow(timedelta(seconds=60), Sum(lambda event: event.value.number))

    def key_event(self, record: SentNumber) -> KeyedEvent[Any]:
        return KeyedEvent("all", record.key - timedelta(microseconds=1), record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Any, total: int) -> None:
        self.totals.collect(subject, (window.start, total))


@pytest.mark.parametrize(("delay", "first", "dropped"), [(0, 4, 1), (5, 5, 0)])
def test_a_watermark_delay_of_the_lateness_keeps_the_results_of_windows_punctual(
    test_run: MakeRun, delay: int, first: int, dropped: int
) -> None:
    fed = {"fed": FromPort("first", "out")}
    second = Stage(InItsOwnWindow(), fed, {"totals": MemorySink()}, watermark_delay={"fed": delay})
    test = test_run(Job("late", stages={"first": Stage(AfterLateness(), {"in": MemorySource()}), "second": second}))
    for each in (1, 12, 25, 40, 58, 61, 63, 66, 90):
        test.add_record(event(each), "in").end_batch()
    result = test.run(flush=True)
    assert result.records("totals") == [(at(0), first), (at(60), 4)]
    assert (result.dropped, result.counters) == (dropped, {"second.window.late": 1} if dropped else {})


class AllPages(Handler):
    totals = SinkSpec(tuple)

    def __init__(self, window: Any) -> None:
        window = window.copied()
        window.__set_name__(AllPages, "window")
        window.on_close(AllPages.closed)
        self.window = window

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, KeyedEvent(event.key, event.value.start, event.value.value["n"]))

    def closed(self, subject: Subject, window: Any, value: Any) -> None:
        self.totals.collect(subject, (subject.key, window.start, value))


def test_a_test_run_can_add_records_to_any_stage(test_run: MakeRun) -> None:
    test = test_run(two_stages()).add_record(SentNumber("x", 7), "fed", timestamp=at(3))
    test.add_event(event(4, ("y", 8), "all"), "fed").add_event(event(2, [1]), "in")
    assert [(each.timestamp, each.value) for each in test.run().events("fed")] == [
        (at(2), ("k", 1)),
        (at(3), ("x", 7)),
        (at(4), ("y", 8)),
    ]


def test_a_test_run_can_set_state_and_timers_of_a_stage(test_run: MakeRun) -> None:
    test = test_run(two_stages()).set_state(Sender.sent, "k", 41).set_timer("k", at(5), stage="first")
    result = test.add_event(event(9, [1])).add_watermark().run()
    assert result.state("sent", "k") == 43
    assert [each.timestamp for each in result.events("fed")] == [at(9), at(5)]
    with pytest.raises(ValueError, match=r"several stages are possible: pass stage= \(first, second\)"):
        result.timers("k")
    with pytest.raises(ValueError, match="the job has no stage 'third': use one of first, second"):
        result.stage("third")
    with pytest.raises(PortError):
        result.records("nothing", stage="first")


def test_a_test_run_cannot_set_the_watermark_of_a_port() -> None:
    with pytest.raises(ValueError, match="the watermark of the source fed follows the stages that feed it"):
        TestRun(two_stages()).add_watermark(at(1), "fed")
    with pytest.raises(ValueError, match="the watermark of the stage second follows the stages that feed it"):
        TestRun(two_stages()).add_watermark(at(1), stage="second")


class ForwardsValues(Handler):
    out = SinkSpec(object)
    counts = MapSpec(str, int)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent("k", at(1), record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.out.collect(subject, event.value)


def test_the_error_of_a_value_that_cannot_be_encoded_names_the_port(test_run: MakeRun) -> None:
    class Typed(ForwardsValues):
        out = SinkSpec(int)

    job = Job(
        "typed",
        stages={
            "a": Stage(Typed(), {"in": MemorySource()}),
            "b": Stage(ForwardsValues(), {"fed": FromPort("a", "out")}, {"out": MemorySink()}),
        },
    )
    with pytest.raises(CallbackError, match=r"EncodeError: .*out"):
        test_run(job).add_record("text", "in").run()


MISTAKES = [
    ({"a": Stage(ForwardsValues(), {"in": FromPort("a", "out")})}, "stages feed each other in a circle: a ← a"),
    (
        {
            "a": Stage(ForwardsValues(), {"in": FromPort("b", "out")}),
            "b": Stage(ForwardsValues(), {"in": FromPort("a", "out")}),
        },
        "stages feed each other in a circle: a ← b ← a: remove one FromPort",
    ),
    (
        {"a": Stage(ForwardsValues(), {"in": FromPort("x", "out")})},
        "reads from the stage 'x', which the job does not have",
    ),
    (
        {
            "a": Stage(ForwardsValues(), {"in": MemorySource()}, {"out": MemorySink()}),
            "b": Stage(ForwardsValues(), {"in": FromPort("a", "counts")}, {"out": MemorySink()}),
        },
        r"reads the port 'counts', which the stage 'a' does not have \(ports: out\)",
    ),
    (
        {"a.b": Stage(ForwardsValues(), {"in": MemorySource()})},
        "the stage name 'a.b' must consist of letters, digits, - and _",
    ),
    ({"a": ForwardsValues()}, r"stages\['a'\] must be an amadou.Stage"),
    ([Stage(ForwardsValues(), {})], "stages must be a mapping from names to amadou.Stage"),
    ({"a": Stage(ForwardsValues(), {"in": MemorySource()})}, "stage 'a': the port 'out' of ForwardsValues has no sink"),
    (
        {
            "a": Stage(ForwardsValues(), {"in": MemorySource()}),
            "b": Stage(ForwardsValues(), {"in": FromPort("a", "out")}, {"out": MemorySink()}, idle_timeout={"in": 3}),
        },
        r"stage 'b': idle_timeout\['in'\]: a port of another stage is never idle: remove the entry",
    ),
    (
        {
            "a": Stage(ForwardsValues(), {"in": MemorySource()}),
            "b": Stage(
                ForwardsValues(),
                {"in": FromPort("a", "out", key="k", key_event=lambda value: value)},
                {"out": MemorySink()},
            ),
        },
        "has both key= and key_event=: remove one of them",
    ),
]


@pytest.mark.parametrize(("stages", "message"), MISTAKES)
def test_invalid_stages_are_errors_when_the_job_is_created(stages: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        Job("mistaken", stages=stages)


def test_settings_of_a_job_with_stages_belong_to_its_stages() -> None:
    good = two_stages().stages
    with pytest.raises(JobError, match="watermark_delay cannot be set together with stages: set it on a Stage"):
        Job("settings", stages=good, watermark_delay=3)
    with pytest.raises(JobError, match='state="groups" cannot store several stages: use "log" or "auto"'):
        Job("settings", stages=good, state="groups")
    with pytest.raises(JobError, match="the job has no handler: pass handler=, or stages= for several handlers"):
        Job("settings")
    with pytest.raises(JobError, match=r"sources\['in'\] is a port of another stage: use it in Job\(stages=…\)"):
        Job("settings", ForwardsValues(), {"in": FromPort("a", "b")}, {"out": MemorySink()})
