"""Windows of each kind, early results, late events, dead letters, restarts. See `tests/plugins/test_windows.py`."""

from datetime import timedelta
from typing import Any

import attrs
import pytest
from attrs import frozen
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import SECOND, START, EventHandler, Mistake, at, event, job

from amadou import (
    Job,
    KeyedEvent,
    MemorySink,
    MemorySource,
    ReferenceChange,
    ReferenceSpec,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou.errors import AmadouError, CallbackError
from amadou_plugins.aggregates import Collect, Count, Last, Max, Mean, Reduce
from amadou_plugins.windows import (
    CountWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
    WindowSpec,
    windowed,
)
from amadou_runtime import TestResult, TestRun


@frozen
class View:
    ms: float


class Recorded(EventHandler):
    """Collects results: a name, and the key, start, end, partial mark and value of a window."""

    results = SinkSpec(tuple)

    def record(self, what: str, subject: Subject, window: Window, value: Any) -> None:
        start, end = ((time - START) / SECOND for time in window[:2])
        self.results.collect(subject, (what, window.key, start, end, window.partial, value))


class Traffic(Recorded):
    """The handler of the documentation, with a value and a timer in addition."""

    per_minute = TumblingWindow(size=timedelta(minutes=1), value=Count(), allowed_lateness=timedelta(seconds=30))
    seen = ValueSpec(int, default=0)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.per_minute.add(subject, event)
        self.seen.state_for(subject).value += 1
        subject.set_timer(at(90))

    @per_minute.on_close
    def minute_closed(self, subject: Subject, window: Window, count: int) -> None:
        assert (subject.timestamp - window.end) == timedelta(seconds=30)
        self.record("closed", subject, window, count)

    @per_minute.on_late
    def too_late(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.results.collect(subject, ("late", (event.timestamp - START) / SECOND))

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        self.results.collect(subject, ("timer", self.seen.state_for(subject).value))
        self.seen.state_for(subject).clear()


@pytest.mark.rule(23)
def test_a_window_closes_once_after_its_allowed_lateness(test_run: MakeRun) -> None:
    run = test_run(job(Traffic())).add_records([event(10), event(59.999999), event(60, key=1)])
    run.add_watermark(at(89.999999)).add_record(event(20))
    assert run.run().records("results") == []
    run.add_watermark(at(90)).add_record(event(30))
    result = run.run()
    assert result.records("results") == [("closed", "k", 0, 60, False, 3), ("timer", 1), ("timer", 3), ("late", 30)]
    assert result.counters == {"per_minute.late": 1}
    result = run.add_watermark(at(150)).run()
    assert result.records("results", new=True) == [("closed", 1, 60, 120, False, 1)]
    assert result.keys() == ["k"], "state that the late event wrote"


class WindowsOfEachKind(Recorded):
    """Has a window of each kind."""

    tumbling = TumblingWindow(timedelta(seconds=10), {"n": Count(), "mean": Mean("ms")}, offset=timedelta(seconds=-3))
    hopping = HoppingWindow(timedelta(seconds=10), timedelta(seconds=4), Reduce(lambda sum, ms: sum + ms, "ms"))
    sliding = SlidingWindow(timedelta(seconds=2), Max(lambda event: event.value.ms))
    session = SessionWindow(timedelta(seconds=3), Collect("ms"))
    counted = CountWindow(2, hop=1)

    def on_event(self, subject: Subject, event: KeyedEvent[View]) -> None:
        for window in (self.tumbling, self.hopping, self.sliding, self.session, self.counted):
            window.add(subject, event)

    @tumbling.on_close
    def tumbled(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("tumbling", subject, window, value)

    @hopping.on_close
    def hopped(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("hopping", subject, window, value)

    @sliding.on_close
    def slid(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("sliding", subject, window, value)

    @session.on_close
    def ended(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("session", subject, window, value)

    @counted.on_close
    def full(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("counted", subject, window, value)


@pytest.mark.on_spark("restart")
@pytest.mark.rule(20)
def test_windows_of_each_kind_survive_restarts_and_crashes(test_run: MakeRun) -> None:
    events = [event(second, View(float(second))) for second in (-5, -4, 1, 3, 2, 8)]
    run = (
        test_run(job(WindowsOfEachKind(), watermark_delay=10))
        .add_records(events[:2])
        .restart()
        .add_records(events[2:4])
        .crash(1)
    )
    run.add_records(events[4:]).add_watermark(at(100))
    result = run.run()
    results: dict[str, list[Any]] = {}
    for what, _, *rest in result.records("results"):
        results.setdefault(what, []).append(tuple(rest))
    assert results == {
        "tumbling": [
            (-13, -3, False, {"n": 2, "mean": -4.5}),
            (-3, 7, False, {"n": 3, "mean": 2.0}),
            (7, 17, False, {"n": 1, "mean": 8.0}),
        ],
        "hopping": [
            (-12, -2, False, -9.0),
            (-8, 2, False, -8.0),
            (-4, 6, False, 2.0),
            (0, 10, False, 14.0),
            (4, 14, False, 8.0),
            (8, 18, False, 8.0),
        ],
        "sliding": [
            (-7, -5, False, -5.0),
            (-6, -4, False, -4.0),
            (-1, 1, False, 1.0),
            (0, 2, False, 2.0),
            (1, 3, False, 3.0),
            (6, 8, False, 8.0),
        ],
        "session": [(-5, -1, False, [-5.0, -4.0]), (1, 6, False, [1.0, 3.0, 2.0]), (8, 11, False, [8.0])],
        "counted": [(-5, -4, False, 2), (-4, 1, False, 2), (1, 3, False, 2), (2, 3, False, 2), (2, 8, False, 2)],
    }
    assert list(result.state("counted", "k").values()) == [1]
    assert [result.state(name, "k") for name in ("tumbling", "hopping", "sliding", "session")] == [{}] * 4


class InOrder(Recorded):
    """Has windows that consist of several panes, with aggregates that depend on the order of the stream."""

    hopping = HoppingWindow(timedelta(seconds=20), timedelta(seconds=10), {"all": Collect(), "last": Last()})
    sliding = SlidingWindow(timedelta(seconds=20), {"all": Collect(), "last": Last()})
    session = SessionWindow(timedelta(seconds=6), {"all": Collect(), "last": Last()})

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for window in (self.hopping, self.sliding, self.session):
            window.add(subject, event)

    @hopping.on_close
    @sliding.on_close
    @session.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("closed", subject, window, value)


def test_order_dependent_aggregates_see_the_order_of_the_stream_in_windows_of_several_panes(test_run: MakeRun) -> None:
    run = test_run(job(InOrder(), watermark_delay=100)).add_record(event(15, "a")).restart()
    run.add_records([event(5, "b"), event(10, "c")]).add_watermark(at(100))
    results = [tuple(record[2:4]) for record in run.run().records("results") if record[-1]["all"] == ["a", "b", "c"]]
    assert results == [(-5, 15), (0, 20), (5, 21)]
    assert all(record[-1]["last"] == record[-1]["all"][-1] for record in run.run().records("results"))


class EarlyResults(Recorded):
    """Has windows that emit early results."""

    by_time = TumblingWindow(timedelta(seconds=10), early=timedelta(seconds=3))
    by_count = HoppingWindow(timedelta(seconds=10), timedelta(seconds=5), early=2)
    chosen = SessionWindow(timedelta(seconds=5), early=lambda event: event.value == "emit")

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        getattr(self, subject.key).add(subject, event)  # type: ignore[call-overload]

    @by_time.on_close
    @by_count.on_close
    @chosen.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("closed", subject, window, value)

    @chosen.on_early
    def early_result(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("early", subject, window, value)


def test_early_results_are_marked_partial_and_the_last_result_is_complete(test_run: MakeRun) -> None:
    run = test_run(job(EarlyResults(), watermark_delay=100))
    run.add_records([event(1, key="by_time"), event(1, key="by_count"), event(6, key="by_count")])
    run.add_records([event(1, "quiet", "chosen"), event(2, "emit", "chosen")])
    run.add_watermark(at(4)).add_record(event(4, key="by_time")).add_watermark(at(9.5)).add_watermark(at(100))
    results: dict[str, list[Any]] = {}
    for what, key, *rest in run.run().records("results"):
        results.setdefault(key, []).append((what, *rest))
    assert results == {
        "by_count": [
            ("closed", 0, 10, True, 2),
            ("closed", -5, 5, False, 1),
            ("closed", 0, 10, False, 2),
            ("closed", 5, 15, False, 1),
        ],
        "by_time": [("closed", 0, 10, True, 1), ("closed", 0, 10, True, 2), ("closed", 0, 10, False, 2)],
        "chosen": [("early", 1, 7, True, 2), ("closed", 1, 7, False, 2)],
    }


class EarlyResultsByTime(Recorded):
    window = HoppingWindow(timedelta(seconds=20), timedelta(seconds=10), early=timedelta(seconds=4))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("closed", subject, window, value)


def test_each_open_window_emits_early_results_when_the_watermark_passes_their_times(test_run: MakeRun) -> None:
    run = test_run(job(EarlyResultsByTime(), watermark_delay=1000)).add_records([event(1), event(11), event(12)])
    result = run.add_watermark(at(15)).add_watermark(at(17)).run()
    assert [record[2:] for record in result.records("results")] == [
        (-10, 10, False, 1),
        (0, 20, True, 3),
        (10, 30, True, 2),
        (0, 20, True, 3),
    ]
    assert [(entry.timestamp - START) / SECOND for entry in result.trace if entry.outputs] == [10, 12, 14, 16]


class TwoActiveWindows(Recorded):
    """Has at most two open windows of a key."""

    window = TumblingWindow(timedelta(seconds=10), max_active=2)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("closed", subject, window, value)


def test_windows_beyond_max_active_are_evicted(test_run: MakeRun) -> None:
    run = test_run(job(TwoActiveWindows(), watermark_delay=1000)).add_records(
        [event(second) for second in (1, 11, 12, 21)]
    )
    run.add_record(event(2)).add_watermark(at(100))
    result = run.run()
    assert [record[2:] for record in result.records("results")] == [
        (0, 10, True, 1),
        (10, 20, False, 2),
        (20, 30, False, 1),
    ]
    assert result.counters == {"window.evicted": 1, "window.late": 1}


def test_an_event_of_an_evicted_window_is_diverted_before_the_first_watermark(test_run: MakeRun) -> None:
    class Diverting(TwoActiveWindows):
        window = TumblingWindow(timedelta(seconds=10), max_active=1, late="divert")

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event)

        @window.on_close
        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.record("closed", subject, window, value)

    sinks = {"results": MemorySink(), "late_events": MemorySink()}
    run = test_run(Job("diverting", Diverting(), {"events": MemorySource()}, sinks))
    result = run.add_records([event(1), event(11), event(2)]).run(flush=True)
    (late,) = result.records("late_events")
    assert (late.timestamp, late.watermark, late.by) == (at(2), None, "window")


class FailingClose(Traffic):
    """Overrides the callback, which fails for one minute."""

    def minute_closed(self, subject: Subject, window: Window, count: int) -> None:
        super().minute_closed(subject, window, count)
        if window.start == START:
            raise Mistake("the first minute")


@pytest.mark.rule(19)
def test_a_failing_on_close_is_a_dead_letter_and_other_windows_close(test_run: MakeRun) -> None:
    run = (
        test_run(job(FailingClose(), on_error="dead_letter")).add_records([event(1), event(61)]).add_watermark(at(200))
    )
    result = run.run()
    assert [record for record in result.records("results") if record[0] == "closed"] == [
        ("closed", "k", 60, 120, False, 1)
    ]
    (dead_letter,) = result.dead_letters
    assert (dead_letter.callback, dead_letter.error, dead_letter.timestamp) == (
        "minute_closed",
        "Mistake: the first minute",
        at(90),
    )
    assert "Window(start=" in dead_letter.shown
    assert result.keys() == []


class WindowsByName(Recorded):
    """Creates a window with the name and size in an event's value."""

    def __init__(self) -> None:
        self.windows: dict[str, WindowSpec] = {}

    def window(self, name: str) -> WindowSpec:
        if name not in self.windows:
            size = timedelta(seconds=int(name.partition("-")[2]))
            self.windows[name] = TumblingWindow(size, name=name, on_close=self.closed, late="divert")
        return self.windows[name]

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.window(event.value).add(subject, event)

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("closed", subject, window, value)

    def on_recover_window(self, name: str, subject: Subject) -> None:
        self.window(name)


def test_windows_created_at_run_time_close_with_their_full_value_after_a_restart(test_run: MakeRun) -> None:
    run = test_run(job(WindowsByName(), late_events="divert", watermark_delay=100))
    run.add_records([event(1, "a-10"), event(2, "b-20"), event(3, "a-10")]).restart()
    run.add_record(event(4, "b-20")).add_watermark(at(15)).restart().add_watermark(at(20))
    result = run.run()
    assert [record[2:] for record in result.records("results")] == [(0, 10, False, 2), (0, 20, False, 2)]
    assert result.keys() == []


def test_a_window_created_at_run_time_can_divert_late_events_only_if_the_job_has_the_output(test_run: MakeRun) -> None:
    def late(windows_job: Job) -> TestResult:
        return (
            test_run(windows_job).add_record(event(1, "a-10")).add_watermark(at(10)).add_record(event(2, "a-10")).run()
        )

    with pytest.raises(CallbackError, match="PortError"):
        late(job(WindowsByName()))
    job_with_output = attrs.evolve(job(WindowsByName()), sinks={"results": MemorySink(), "late_events": MemorySink()})
    assert [event.value for event in late(job_with_output).records("late_events")] == ["a-10"]


class RecoversOtherName(WindowsByName):
    def on_recover_window(self, name: str, subject: Subject) -> Any:
        return TumblingWindow(timedelta(seconds=10), name=name.upper(), on_close=self.closed)


def test_on_recover_window_must_return_a_window_with_the_name_of_the_due_window(test_run: MakeRun) -> None:
    run = test_run(job(RecoversOtherName(), late_events="divert")).add_record(event(1, "a-10")).restart()
    with pytest.raises(
        AmadouError,
        match=r"'a-10' .* is due, but on_recover_window of RecoversOtherName returned a window named 'A-10'",
    ):
        run.add_watermark(at(20)).run()


class FailingRecovery(WindowsByName):
    def __init__(self, returns_window: bool) -> None:
        super().__init__()
        self.returns_window = returns_window

    def on_recover_window(self, name: str, subject: Subject) -> Any:
        return TumblingWindow(timedelta(seconds=10), name=name) if self.returns_window else {}[name]


@pytest.mark.parametrize(
    ("returns_window", "message"),
    [(False, "KeyError: 'a-10'"), (True, "no function receives the window's results: mark")],
)
def test_the_error_of_on_recover_window_says_how_to_retire_the_window(returns_window: bool, message: str) -> None:
    failing = job(FailingRecovery(returns_window), late_events="divert", on_error="dead_letter")
    run = TestRun(failing, engine="embedded").add_record(event(1, "a-10")).restart().add_watermark(at(20))
    with pytest.raises(
        CallbackError, match=rf"(?s)FailingRecovery.on_recover_window failed: .*{message}.*key +'k'"
    ) as failed:
        run.run()
    assert "If you removed 'a-10' on purpose, use Job(retired={'a-10'" in str(failed.value)


class Expiring(Recorded):
    """Has windows that expire after a minute."""

    window = TumblingWindow(timedelta(seconds=10), ttl=timedelta(minutes=1))
    counted = CountWindow(2, ttl=timedelta(minutes=1))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)
        self.counted.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("closed", subject, window, value)
        self.counted.add(subject, KeyedEvent(subject.key, subject.timestamp, value))

    @counted.on_close
    def full(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("full", subject, window, value)


@pytest.mark.rule(16)
def test_due_windows_close_before_their_state_expires_in_any_watermark_step(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_record(event(1)).add_watermark(at(3600)).add_record(event(3600))
    result = run.add_watermark(at(9000)).run(flush=True)
    assert [record[2:] for record in result.records("results")] == [
        (0, 10, False, 1),
        (1, 10, False, 2),
        (3600, 3610, False, 1),
        (3600, 3610, False, 2),
    ]
    assert result.keys() == []


class InMemory(Recorded):
    """Has the same window in memory and in stored state."""

    window = TumblingWindow(timedelta(seconds=10), Collect(), storage="memory")
    stored = TumblingWindow(timedelta(seconds=10), Collect())

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)
        self.stored.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("memory", subject, window, value)

    @stored.on_close
    def stored_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("stored", subject, window, value)


def in_memory_run(test_run: MakeRun) -> TestRun:
    return test_run(job(InMemory(), watermark_delay=100)).add_records([event(1, 1), event(2, 2, "b")]).end_batch()


def values_of(result: TestResult, what: str) -> list[Any]:
    return [(record[1], record[-1]) for record in result.records("results") if record[0] == what]


def test_windows_in_memory_give_the_same_results_as_stored_windows_without_a_restart(test_run: MakeRun) -> None:
    result = in_memory_run(test_run).add_record(event(3, 3)).end_batch().add_watermark(at(10)).run()
    assert values_of(result, "memory") == values_of(result, "stored") == [("b", [2]), ("k", [1, 3])]
    assert (result.keys(), result.counters) == ([], {})


def test_a_test_result_shows_windows_in_memory_like_stored_windows(test_run: MakeRun) -> None:
    result = in_memory_run(test_run).run()
    assert result.state("window", "b") == result.state("stored", "b") == {at(0): [2]}


def test_windows_in_memory_are_lost_at_a_restart_and_counted_once(test_run: MakeRun) -> None:
    run = in_memory_run(test_run).restart().add_record(event(3, 3)).end_batch()
    assert run.run().counters == {"window.lost": 2}
    result = run.add_watermark(at(10)).run()
    assert (values_of(result, "memory"), values_of(result, "stored")) == ([("k", [3])], [("b", [2]), ("k", [1, 3])])
    assert (result.keys(), result.counters) == ([], {"window.lost": 2})


def test_windows_in_memory_are_lost_in_a_crash_except_for_the_reprocessed_batch(test_run: MakeRun) -> None:
    run = in_memory_run(test_run).add_records([event(3, 3), event(4, 4, "c")]).crash(after=1).add_watermark(at(10))
    result = run.run()
    assert values_of(result, "memory") == [("c", [4]), ("k", [3])]
    assert values_of(result, "stored") == [("b", [2]), ("c", [4]), ("k", [1, 3])]
    assert result.counters == {"window.lost": 2}


@pytest.mark.rule(3)
def test_the_watermark_of_a_job_with_windows_in_memory_rises_with_the_clock_after_five_seconds(
    test_run: MakeRun,
) -> None:
    run = test_run(job(InMemory())).add_records([event(1, 1), event(9, 2)]).end_batch()
    run.advance_processing_time(timedelta(seconds=5.9))
    assert run.run().records("results") == []
    result = run.advance_processing_time(timedelta(seconds=0.1)).run()
    assert values_of(result, "memory") == [("k", [1, 2])]


class DivertsLateEvents(Recorded):
    window = TumblingWindow(timedelta(seconds=10), late="divert")

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("closed", subject, window, value)


@pytest.mark.rule(13)
def test_late_events_are_diverted_with_the_name_of_the_window(test_run: MakeRun) -> None:
    run = test_run(job(DivertsLateEvents())).add_record(event(1)).add_watermark(at(10)).add_record(event(9, "late"))
    result = run.run()
    (late,) = result.records("late_events")
    assert (late.by, late.key, late.timestamp, late.value, late.watermark) == ("window", "k", at(9), "late", at(10))
    assert result.counters == {"window.late": 1}


@pytest.mark.rule(13)
def test_late_events_that_the_job_drops_are_not_diverted_by_a_window(test_run: MakeRun) -> None:
    run = test_run(job(DivertsLateEvents(), late_events="drop", watermark_delay=5)).add_record(event(20)).end_batch()
    result = run.add_records([event(14, "dropped"), event(15, "taken")]).add_watermark(at(16)).run()
    assert result.records("late_events") == []
    run.add_record(event(16, "on time, and its window is open")).add_watermark(at(20)).run()
    result = run.add_records([event(19, "dropped"), event(20, "taken")]).run()
    assert (result.records("late_events"), result.counters) == ([], {})


@pytest.mark.parametrize("order", [(1, 7, 4), (7, 4, 1), (4, 7, 1)])
def test_an_event_between_two_sessions_merges_them(test_run: MakeRun, order: tuple[int, ...]) -> None:
    run = test_run(job(WindowsOfEachKind(), watermark_delay=100)).add_records(
        [event(second, View(1.0)) for second in order]
    )
    results = [record for record in run.add_watermark(at(50)).run().records("results") if record[0] == "session"]
    assert results == [("session", "k", 1, 10, False, [1.0] * 3)]


class FailingCount(Count):
    """Fails for the result of two events."""

    def result(self, accumulator: int) -> int:
        if accumulator == 2:
            raise Mistake("two")
        return accumulator


class CountsWithFailures(Recorded):
    window = TumblingWindow(10 * SECOND, FailingCount())

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.record("closed", subject, window, value)


@pytest.mark.rule(31)
def test_a_failing_result_of_an_aggregate_is_a_dead_letter_and_other_windows_close(test_run: MakeRun) -> None:
    run = test_run(job(CountsWithFailures(), on_error="dead_letter")).add_records([event(1), event(2), event(11)])
    result = run.add_watermark(at(60)).run()
    assert [record[2:] for record in result.records("results")] == [(10, 20, False, 1)]
    (dead_letter,) = result.dead_letters
    assert (dead_letter.key, dead_letter.error, dead_letter.timestamp) == ("k", "Mistake: two", at(10))
    assert result.keys() == []


class EndsAtEvents(Recorded):
    """Has windows whose ends are inclusive."""

    plain = SessionWindow(5 * SECOND)
    bounded = SessionWindow(5 * SECOND, max_duration=100 * SECOND)
    few = SessionWindow(5 * SECOND, max_active=3)
    unstored = SessionWindow(5 * SECOND, storage="memory")
    sliding = SlidingWindow(5 * SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for window in (self.plain, self.bounded, self.few, self.unstored, self.sliding):
            window.add(subject, event)

    @plain.on_close
    def plain_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.record("plain", subject, window, count)

    @bounded.on_close
    def bounded_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.record("bounded", subject, window, count)

    @few.on_close
    def few_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.record("few", subject, window, count)

    @unstored.on_close
    def unstored_closed(self, subject: Subject, window: Window, count: int) -> None:
        self.record("unstored", subject, window, count)

    @sliding.on_close
    def slid(self, subject: Subject, window: Window, count: int) -> None:
        self.record("sliding", subject, window, count)


@pytest.mark.parametrize("size", [4, 7, 36])
@pytest.mark.rule(13, 21)
def test_an_event_at_the_watermark_is_in_the_windows_that_end_there(test_run: MakeRun, size: int) -> None:
    events = [event(second, None, key) for second in range(0, 60, 5) for key in ("a", "b", "c")]
    run = test_run(job(EndsAtEvents()))
    for start in range(0, len(events), size):
        run.add_records(events[start : start + size]).end_batch()
    result = run.run(flush=True)
    for what in ("plain", "bounded", "few", "unstored"):
        sessions = [record[1:] for record in result.records("results") if record[0] == what]
        assert sorted(sessions) == [(key, 0, 60, False, 12) for key in "abc"]
    slid = [record[1:] for record in result.records("results") if record[0] == "sliding"]
    ends = [(key, second - 5, second, False, 1 if second == 0 else 2) for key in "abc" for second in range(0, 60, 5)]
    assert sorted(slid) == ends
    assert (result.counters, result.late) == ({}, [])


@pytest.mark.rule(13, 21)
def test_the_events_of_a_sliding_window_at_one_time_can_come_in_several_batches(test_run: MakeRun) -> None:
    run = test_run(job(EndsAtEvents())).add_record(event(1)).end_batch()
    run.add_records([event(1), event(2)]).end_batch().add_records([event(2), event(3)])
    slid = [record for record in run.run(flush=True).records("results") if record[0] == "sliding"]
    assert [(record[3], record[5]) for record in slid] == [(1, 2), (1, 2), (2, 4), (2, 4), (3, 5)]


@pytest.mark.parametrize("kind", [SessionWindow, SlidingWindow])
@pytest.mark.rule(13, 21)
def test_an_event_at_the_watermark_is_in_the_window_of_windowed(test_run: MakeRun, kind: Any) -> None:
    handler = windowed(key="k", timestamp="t", window=kind(5 * SECOND))
    run = test_run(Job("windowed", handler, {"in": MemorySource()}, {"results": MemorySink()}))
    run.add_records([{"k": "a", "t": at(10)}, {"k": "b", "t": at(15)}]).end_batch().add_record({"k": "a", "t": at(15)})
    values = [(result.key, result.value) for result in run.run(flush=True).records("results")]
    assert sorted(values) == ([("a", 2), ("b", 1)] if kind is SessionWindow else [("a", 1), ("a", 2), ("b", 1)])


@pytest.mark.parametrize(("second", "near"), [(1.001, True), (3, True), (5, True), (0.5, False)])
@pytest.mark.rule(13)
def test_a_late_event_opens_a_session_near_a_closed_one_and_is_counted(
    test_run: MakeRun, second: float, near: bool
) -> None:
    class Sessions(Recorded):
        window = SessionWindow(5 * SECOND)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.window.add(subject, event)

        @window.on_close
        def closed(self, subject: Subject, window: Window, count: int) -> None:
            self.record("closed", subject, window, count)

    run = test_run(job(Sessions())).add_record(event(0)).add_watermark(at(6)).add_record(event(second))
    result = run.run(flush=True)
    opened = [(second, round(second + 5, 6))] if near else []
    assert [record[2:4] for record in result.records("results")] == [(0, 5), *opened]
    assert result.counters == ({"window.late_sessions": 1} if near else {"window.late": 1})


class AddsNotifications(Recorded):
    """Adds notifications of a changed reference to windows, which expire soon after they close."""

    limits = ReferenceSpec(str, int, source="limits")
    window = TumblingWindow(10 * SECOND, ttl=12 * SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.limits.watch(subject)
        self.window.add(subject, event)

    def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
        self.window.add(subject, KeyedEvent(subject.key, change.timestamp))

    @window.on_close
    def closed(self, subject: Subject, window: Window, count: int) -> None:
        self.record("closed", subject, window, count)


@pytest.mark.rule(16)
@pytest.mark.parametrize("is_notified", [False, True], ids=["without an update", "with an update"])
def test_a_window_closes_with_its_result_if_a_callback_adds_to_another_after_its_ttl(
    test_run: MakeRun, is_notified: bool
) -> None:
    sources = {"in": MemorySource(), "limits": MemorySource()}
    run = test_run(Job("limits", AddsNotifications(), sources, {"results": MemorySink()}))
    run.add_record(event(1), "in").end_batch().add_record(event(50, key="other"), "in").end_batch()
    if is_notified:
        run.add_record(event(55, 1, "DE"), "limits")
    result = run.end_batch().run()
    assert result.records("results") == [("closed", "k", 0, 10, False, 1)]
    assert result.counters == {}
