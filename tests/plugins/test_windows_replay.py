"""A replay calls failed functions of windows and joins again with the same arguments."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.windows import SECOND, at, count, event, few_inputs, seconds, streams

from amadou import DeadLetter, Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou._state.encoding import unpack
from amadou.errors import LoadError
from amadou.event_time import to_micros
from amadou_plugins.aggregates import Collect, Count, Max
from amadou_plugins.joins import AsOfJoin
from amadou_plugins.windows import (
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
    WindowSpec,
)
from amadou_runtime import TestResult, TestRun
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.group_batch import GroupBatch, ReplayedGroup
from amadou_runtime.core.operator import Operator
from amadou_runtime.jobs.ports import port_codec
from amadou_runtime.runs.dead_letter_files import Letter
from amadou_runtime.runs.replay import ReplayedLetter, plan_of
from amadou_runtime.store.packed_group import PackedGroup

DISORDER = 5


class Recorded(Handler):
    """Collects results, and fails for some of them while it is broken."""

    results = SinkSpec(tuple)

    def __init__(self, is_broken: bool) -> None:
        self.is_broken = is_broken

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def take(self, subject: Subject, *result: Any, fails: bool = False) -> None:
        if fails and self.is_broken:
            raise ValueError("not this one")
        self.results.collect(subject, (subject.timestamp, subject.key, result))


class CompositeAggregate(Recorded):
    """Adds events to a window of each kind. Windows with a value that is a multiple of three fail."""

    tumbling = TumblingWindow(7 * SECOND, Collect())
    early = TumblingWindow(10 * SECOND, Collect(), early=3 * SECOND)
    hopping = HoppingWindow(10 * SECOND, 5 * SECOND, Collect())
    sliding = SlidingWindow(5 * SECOND, Collect())
    session = SessionWindow(5 * SECOND, Collect(), max_duration=20 * SECOND)
    in_memory = TumblingWindow(7 * SECOND, Collect(), storage="memory")
    short_lived = SessionWindow(5 * SECOND, Collect(), ttl=100 * SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for window in self.windows():
            window.add(subject, event)

    def windows(self) -> list[WindowSpec]:
        kinds = self.tumbling, self.early, self.hopping, self.sliding, self.session, self.in_memory, self.short_lived
        return list(kinds)

    @tumbling.on_close
    @early.on_close
    @hopping.on_close
    @sliding.on_close
    @session.on_close
    @in_memory.on_close
    @short_lived.on_close
    def closed(self, subject: Subject, window: Window, values: list[Any]) -> None:
        span = seconds(window.start), seconds(window.end), seconds(window.first), seconds(window.last)
        self.take(subject, span, values, fails=any(value % 3 == 0 for value in values))


def job(handler: Handler, sources: Iterable[str] = ("in",), **settings: Any) -> Job:
    inputs = {name: MemorySource() for name in sources}
    return Job(
        "windows",
        handler,
        inputs,
        {"results": MemorySink(), "dead_letters": MemorySink()},
        on_error="dead_letter",
        **settings,
    )


def file_letters(dead_letters: Iterable[DeadLetter]) -> list[Letter]:
    """Return dead letters in the form in which files have them."""
    return [
        Letter(
            json.dumps([number, letter.shown]).encode(),
            {
                "job": letter.job,
                "callback": letter.callback,
                "source": letter.source,
                "timestamp": None if letter.timestamp is None else letter.timestamp.isoformat(),
                "tag": letter.tag,
            },
            unpack(letter.packed),
        )
        for number, letter in enumerate(dead_letters)
    ]


def replayed(fixed: Job, run: TestRun, result: TestResult, dead_letters: list[DeadLetter]) -> dict[str, list[Any]]:
    """Replay dead letters into a job with the state of a test run. Return the outputs of each port."""
    plan = plan_of(file_letters(dead_letters), fixed, set())
    assert not plan.others
    calls = [FailedCall(*ReplayedLetter.of_line(each.line()).content) for step in plan.steps for each in step]
    operator = Operator(fixed)
    operator.open()
    assert result.watermark is not None
    group = ReplayedGroup([], [], calls)
    processed = operator.process(
        GroupBatch(PackedGroup(run._stages[""].state), [], to_micros(result.watermark), again=group)
    )
    assert (processed.counts.late, processed.counts.timers_fired) == (0, len(calls))
    outputs = {
        port: [port_codec(fixed, port).decode(encoded) for encoded in encoded_values]
        for port, encoded_values in processed.outputs.items()
    }
    return outputs | {"counts": [processed.counts.counters]}


def results(records: Iterable[Any]) -> Any:
    return count((key, result) for _, key, result in records)


@few_inputs
@given(streams(DISORDER), st.booleans())
def test_results_and_replayed_results_are_those_of_a_handler_that_does_not_fail(batches: Any, flush: bool) -> None:
    made = {}
    for is_broken in (True, False):
        run = TestRun(job(CompositeAggregate(is_broken), watermark_delay=DISORDER))
        for batch in batches:
            run.add_records(batch).end_batch()
        made[is_broken] = run, run.run(flush=flush)
    (run, broken), (_, whole) = made[True], made[False]
    dead_letters = broken.dead_letters
    again = replayed(job(CompositeAggregate(False)), run, broken, dead_letters) if dead_letters else {}
    assert again.get("dead_letters", []) == []
    assert results([*broken.records("results"), *again.get("results", [])]) == results(whole.records("results"))
    assert {letter.timestamp for letter in dead_letters} == {at for at, _, _ in again.get("results", [])}


class Plain(Recorded):
    """Has a window with a plain function."""

    def __init__(self, is_broken: bool) -> None:
        super().__init__(is_broken)
        self.window = HoppingWindow(10 * SECOND, 5 * SECOND, Max(None), name="window", on_close=_take)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)


def _take(subject: Subject, window: Window, value: Any) -> None:
    subject.handler.take(subject, value, fails=True)


def test_a_replay_calls_a_plain_function_of_a_window() -> None:
    run = TestRun(job(Plain(True))).add_records([event(1, 3), event(2, 5)])
    result = run.run(flush=True)
    again = replayed(job(Plain(False)), run, result, result.dead_letters)
    assert [value for *_, (value,) in again["results"]] == [5, 5]


class Priced(Recorded):
    prices = AsOfJoin(left="trades", right="quotes")

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.prices.add(subject, event)

    @prices.on_match
    def priced(self, subject: Subject, trade: KeyedEvent[Any], quote: KeyedEvent[Any] | None) -> None:
        self.take(subject, trade.value, quote and quote.value, fails=trade.value > 1)


def _take_unseen(subject: Subject, window: Window, value: Any) -> Any:
    yield subject.handler.take(subject, value)


def test_a_replayed_function_that_is_a_generator_becomes_a_dead_letter() -> None:
    run = TestRun(job(Plain(True))).add_records([event(1, 3), event(2, 5)])
    result = run.run(flush=True)
    fixed = Plain(False)
    hidden = HoppingWindow(
        10 * SECOND, 5 * SECOND, Max(None), name="window", on_close=lambda *arguments: _take_unseen(*arguments)
    )
    fixed.window = hidden
    again = replayed(job(fixed), run, result, result.dead_letters)
    assert [letter.error.partition(":")[0] for letter in again["dead_letters"]] == ["NotRunError"] * 2


def test_a_replay_calls_a_function_of_a_join() -> None:
    sources = "trades", "quotes"
    run = TestRun(job(Priced(True), sources)).add_record(event(1, 100), "quotes")
    run.add_records([event(second, second) for second in (1, 2, 3)], "trades").add_watermark(at(60))
    result = run.run()
    again = replayed(job(Priced(False), sources), run, result, result.dead_letters)
    assert [values for *_, values in again["results"]] == [(2, 100), (3, 100)]


class Feeding(Recorded):
    """Adds the results of a window to a longer window."""

    short = TumblingWindow(10 * SECOND, Count())
    long = TumblingWindow(60 * SECOND, Count())

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.short.add(subject, event)

    @short.on_close
    def short_closed(self, subject: Subject, window: Window, number: int) -> None:
        self.long.add(subject, KeyedEvent(subject.key, window.start))
        self.take(subject, "short", number, subject.set_timer(window.end), fails=True)

    @long.on_close
    def long_closed(self, subject: Subject, window: Window, number: int) -> None:
        self.take(subject, "long", seconds(window.start), number)

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None: ...


def test_a_replayed_function_can_add_events_only_to_open_windows() -> None:
    run = TestRun(job(Feeding(True))).add_records([event(1), event(61)]).add_watermark(at(80))
    result = run.run()
    assert len(result.dead_letters) == 2
    again = replayed(job(Feeding(False)), run, result, result.dead_letters)
    assert [values for *_, values in again["results"]] == [("short", 1, False)] * 2
    assert again["counts"] == [{"long.late": 1}]


class FedByTimers(Recorded):
    """Adds an event to a short and to a long window when its timer fires."""

    short = TumblingWindow(10 * SECOND, Count())
    long = TumblingWindow(60 * SECOND, Count())

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.short.add(subject, event)
        subject.set_timer(event.timestamp)

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        if self.is_broken:
            raise ValueError("not now")
        for window in (self.short, self.long):
            window.add(subject, KeyedEvent(subject.key, timestamp))

    @short.on_close
    @long.on_close
    def closed(self, subject: Subject, window: Window, number: int) -> None:
        self.take(subject, seconds(window.start), number)


def test_events_that_a_replayed_timer_adds_to_a_closed_window_are_late() -> None:
    run = TestRun(job(FedByTimers(True))).add_record(event(5)).add_watermark(at(20))
    result = run.run()
    assert [letter.callback for letter in result.dead_letters] == ["on_timer_expired"]
    fixed = job(FedByTimers(False))
    operator, timers = Operator(fixed), [("a", to_micros(at(5)), "")]
    restored = operator.process(
        GroupBatch(PackedGroup(run._stages[""].state), [], to_micros(at(20)), again=ReplayedGroup([], timers, []))
    )
    assert (restored.outputs, restored.counts.counters) == ({}, {"short.late": 1})
    closed = operator.process(GroupBatch(PackedGroup(restored.changes.packed), [], to_micros(at(60))))
    assert [port_codec(fixed, "results").decode(encoded) for encoded in closed.outputs["results"]] == [
        (at(60), "a", (0, 1))
    ]


def test_a_replayed_call_that_fails_becomes_a_dead_letter_that_can_be_replayed() -> None:
    broken = job(CompositeAggregate(True))
    run = TestRun(broken).add_records([event(1, 3), event(2, 5)]).add_watermark(at(30))
    result = run.run()
    first = replayed(broken, run, result, result.dead_letters)
    assert "results" not in first
    assert [letter.shown for letter in first["dead_letters"]] == [letter.shown for letter in result.dead_letters]
    fixed = job(CompositeAggregate(False))
    once, twice = (
        replayed(fixed, run, result, dead_letters) for dead_letters in (result.dead_letters, first["dead_letters"])
    )
    assert once["results"] == twice["results"]


class Shorter(CompositeAggregate):
    tumbling = TumblingWindow(3 * SECOND, Collect())

    @tumbling.on_close
    def tumbled(self, subject: Subject, window: Window, values: list[Any]) -> None: ...


def test_a_replayed_call_that_a_changed_window_no_longer_makes_becomes_a_dead_letter() -> None:
    run = TestRun(job(CompositeAggregate(True))).add_record(event(1, 3)).add_watermark(at(7))
    result = run.run()
    dead_letters = [letter for letter in result.dead_letters if unpack(letter.packed)["call"][0] == "tumbling"]
    (letter,) = replayed(job(Shorter(False)), run, result, dead_letters)["dead_letters"]
    assert letter.callback == "closed"
    assert letter.error.startswith("RunError: cannot replay closed(Wi")
    assert ": tumbling no longer makes this call. Revert the settings or the aggregate of tumbling" in letter.error


class Made(Recorded):
    """Makes its window at run time."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.on_recover_window("made", subject).add(subject, event)

    def on_recover_window(self, name: str, subject: Subject) -> WindowSpec:
        return TumblingWindow(10 * SECOND, Collect(), name=name, on_close=_take)


def test_a_replay_recovers_a_window_that_is_made_at_run_time() -> None:
    run = TestRun(job(Made(True))).add_record(event(1, 3)).add_watermark(at(10))
    result = run.run()
    again = replayed(job(Made(False)), run, result, result.dead_letters)
    assert [values for *_, values in again["results"]] == [([3],)]


def test_a_dead_letter_of_a_window_that_the_handler_lacks_cannot_be_replayed() -> None:
    run = TestRun(job(CompositeAggregate(True))).add_record(event(1, 3)).add_watermark(at(7))
    dead_letters = file_letters(run.run().dead_letters)
    with pytest.raises(LoadError, match=r"a dead letter needs the window or join '\w+': declare it in the handler"):
        plan_of(dead_letters, job(Feeding(False)), set())
