"""Random scripts give the results of a simple model of `semantics.md`, and the same results on each engine.

The scripts do not cover rules 1 (all times are whole seconds), 4 (`max_ahead`), 16 (`ttl`), 17 (older versions), 18
(`on_error="fail"`), and 22 and above.
"""

import math
from collections import Counter
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from attrs import frozen
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.conformance.handlers import SECOND, START, EventHandler, at, event, job
from tests.conformance.model import UNPARSABLE, Key, Mistake, Model, Program, Results, Step, program_of
from tests.conformance.stores import IN_PROCESS, embedded_on

from amadou import DeadLetter, Handler, KeyedEvent, ListSpec, MapSpec, MemorySink, SinkSpec, Subject, ValueSpec
from amadou_runtime import TestResult, TestRun

KEYS: tuple[Key, ...] = ("a", "b", "1", 1, 2, b"1", ("a", 1), (1, "a"))
BOUNDARIES = ("end_batch", "add_watermark", "advance_processing_time", "run")
END_OF_TIME = datetime.max.replace(tzinfo=timezone.utc)


def seconds(timestamp: datetime | None) -> float | None:
    """Return a time in seconds after `START`, or infinity for the end of time."""
    if timestamp is None:
        return None
    return math.inf if timestamp == END_OF_TIME else (timestamp - START) / SECOND


class ProgramHandler(Handler):
    """Executes the program of an event or of a timer's tag, and collects the results of its instructions."""

    total = ValueSpec(int, default=0)
    names = MapSpec(str, int)
    history = ListSpec(int)
    collected = SinkSpec(list)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        if record.value == UNPARSABLE:
            raise Mistake
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Program]) -> None:
        self.execute("on_event", subject, event.timestamp, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        now = (timestamp - START) / SECOND
        self.execute("on_timer_expired", subject, timestamp, program_of(subject.timer_tag, now))

    def execute(self, callback: str, subject: Subject, timestamp: datetime, program: Program) -> None:
        assert subject.timestamp == timestamp
        answers = [getattr(self, name)(subject, *arguments) for name, *arguments in program]
        now, mark = seconds(timestamp), seconds(subject.watermark)
        call = [callback, subject.key, now, mark, subject.source, subject.is_late, subject.timer_tag, answers]
        self.collected.collect(subject, call)

    def set_timer(self, subject: Subject, when: float, tag: str) -> bool:
        return subject.set_timer(at(when), tag)

    def delete_timer(self, subject: Subject, when: float, tag: str) -> bool:
        return subject.delete_timer(at(when), tag)

    def add(self, subject: Subject, number: int) -> None:
        self.total.state_for(subject).value += number

    def put(self, subject: Subject, name: str, number: int) -> None:
        self.names.state_for(subject)[name] = number

    def drop(self, subject: Subject, name: str) -> Any:
        return self.names.state_for(subject).pop(name, None)

    def append(self, subject: Subject, number: int) -> None:
        self.history.state_for(subject).append(number)

    def pop(self, subject: Subject) -> int | None:
        history = self.history.state_for(subject)
        return history.pop() if history else None

    def clear(self, subject: Subject) -> None:
        self.total.state_for(subject).clear()
        self.names.state_for(subject).clear()
        self.history.state_for(subject).clear()

    def collect(self, subject: Subject) -> None:
        total, names = self.total.state_for(subject), self.names.state_for(subject)
        parts = [total.value, list(names.items()), list(self.history.state_for(subject))]
        timers = [(seconds(timestamp), tag) for timestamp, tag in subject.timers()]
        self.collected.collect(subject, ["collect", subject.key, total.exists, *parts, timers])

    def fail(self, subject: Subject) -> None:
        raise Mistake


@frozen
class Script:
    """A script, and the settings of its job."""

    steps: list[Step]
    sources: tuple[str, ...]
    watermark_delay: int
    idle_timeout: int | None
    late_events: str
    on_error: str


def results_of_model(script: Script) -> Results:
    model = Model(script.sources, script.watermark_delay, script.idle_timeout, script.late_events)
    return model.process(script.steps)


def results_of_engine(script: Script, **engine: Any) -> Results:
    test_job = job(
        ProgramHandler(),
        *script.sources,
        watermark_delay=script.watermark_delay,
        idle_timeout=script.idle_timeout,
        late_events=script.late_events,
        on_error=script.on_error,
    )
    run = TestRun(test_job, processing_time=START, **engine)
    try:
        for step in script.steps:
            apply_step(run, *step)
        result = run.run()
    finally:
        run.close()
    sink = test_job.sinks["collected"]
    assert isinstance(sink, MemorySink)
    assert sink.records == result.records("collected")
    if script.late_events == "divert":
        assert [(late.key, late.timestamp, late.value) for late in result.records("late_events")] == result.late
    return Results(
        collected=result.records("collected"),
        subjects={key: subject_of(result, key) for key in result.keys()},  # noqa: SIM118 - a method of its own
        late=[[key, seconds(timestamp), program] for key, timestamp, program in result.late],
        dead_letters=[fields(dead_letter) for dead_letter in result.dead_letters],
        watermark=seconds(result.watermark),
    )


def apply_step(run: TestRun, name: str, *arguments: Any) -> None:
    """Call the method of a test run that a step of a script names."""
    if name == "add_record":
        source, partition, key, when, program = arguments
        run.add_record(event(when, program, key), source, partition=partition)
    elif name == "add_watermark":
        (when,) = arguments
        run.add_watermark(None if when is None else at(when))
    elif name == "advance_processing_time":
        run.advance_processing_time(timedelta(seconds=arguments[0]))
    elif name == "run":
        run.run(flush="flush" in arguments)
    else:
        getattr(run, name)(*arguments)


def subject_of(result: TestResult, key: Key) -> list[Any]:
    """Return a key's state and timers in the form of `model.Subject.shown`."""
    timers = [(seconds(timestamp), tag) for timestamp, tag in result.timers(key)]
    return [
        result.state("total", key),
        list(result.state("names", key).items()),
        result.state("history", key),
        timers,
    ]


def fields(dead_letter: DeadLetter) -> list[Any]:
    """Return the fields of a dead letter in the form of the model."""
    before = None
    if dead_letter.callback != "key_event":
        state, timers = dead_letter.state, [(seconds(timestamp), tag) for timestamp, tag in dead_letter.timers]
        before = [state.get("total", 0), list(state.get("names", {}).items()), state.get("history", []), timers]
    mark = seconds(dead_letter.watermark)
    return [
        dead_letter.callback,
        dead_letter.source,
        dead_letter.key,
        seconds(dead_letter.timestamp),
        dead_letter.tag,
        mark,
        before,
    ]


times = st.integers(0, 20)
numbers = st.integers(0, 3)
names = st.sampled_from("abc")
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "add_watermark": st.none() | times,
    "advance_processing_time": st.integers(0, 12),
    "crash": st.none() | st.integers(0, 4),
}


def programs(tags: tuple[str, ...], *more: st.SearchStrategy[Any]) -> st.SearchStrategy[Program]:
    """Generate programs of events.

    :param tags: tags of timers
    :param more: additional instructions
    """
    tag = st.sampled_from(tags)
    instructions: list[st.SearchStrategy[Any]] = [
        st.tuples(st.just("collect")),
        st.tuples(st.just("set_timer"), times, tag),
        st.tuples(
            st.just("set_timer"), st.sampled_from([6, 12]), st.just("")
        ),  # so that several keys have timers of the same time
        st.tuples(st.just("delete_timer"), times, tag),
        st.tuples(st.just("add"), numbers),
        st.tuples(st.just("put"), names, numbers),
        st.tuples(st.just("drop"), names),
        st.tuples(st.just("append"), numbers),
        st.tuples(st.just("pop")),
        st.tuples(st.just("clear")),
    ]
    return st.lists(st.one_of(*instructions, *more).map(list), max_size=4)


TAGS = ("", "chain", "put", "cancel", "clear")
failing = programs((*TAGS, "fail", "fail"), st.tuples(st.just("fail")))
PROGRAMS = {
    "fail": programs(TAGS),
    "dead_letter": st.integers(0, 9).flatmap(lambda luck: st.just(UNPARSABLE) if luck == 9 else failing),
}


@st.composite
def scripts(draw: st.DrawFn, boundaries: tuple[str, ...], batches: int, records: int) -> Script:
    """Generate scripts with at most some batches, at most some records in each, and some kinds of boundaries."""
    sources = draw(st.sampled_from([("events",), ("b", "a")]))
    partition = st.sampled_from(draw(st.sampled_from([("",), ("0", "1")])))
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
    idle_timeout = draw(st.none() | st.integers(1, 6))
    on_error = draw(st.sampled_from(["fail", "dead_letter"]))
    source, key, program = st.sampled_from(sources), st.sampled_from(keys), PROGRAMS[on_error]
    steps: list[Step] = []
    for number in range(draw(st.integers(2, batches))):
        when = st.integers(max(2 * number - 4, 0), 2 * number + 6)  # so that some events are late, but not most
        record = st.tuples(st.just("add_record"), source, partition, key, when, program)
        steps += draw(st.lists(record, max_size=records))
        boundary = draw(st.sampled_from(boundaries))
        arguments = [draw(ARGUMENTS[boundary])] if boundary in ARGUMENTS else []
        steps.append((boundary, *arguments))
    steps.append(draw(st.sampled_from([("run",), ("run", "flush")])))
    return Script(
        steps,
        sources,
        watermark_delay=draw(st.integers(0, 4)),
        idle_timeout=idle_timeout,
        late_events=draw(st.sampled_from(["deliver", "drop", "divert"])),
        on_error=on_error,
    )


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scripts((*BOUNDARIES, "restart", "crash"), batches=8, records=5), st.sampled_from(IN_PROCESS))
@pytest.mark.rule(2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19, 20)
def test_random_scripts_give_the_results_of_the_model_on_each_store(script: Script, store: str) -> None:
    with embedded_on(store):
        assert results_of_engine(script) == results_of_model(script)


@pytest.mark.qualify  # scripts/qualify fuzz runs more random scripts on Spark
@pytest.mark.spark
@settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a script takes seconds: failing scripts are not shrunk
    suppress_health_check=list(HealthCheck),
)
@given(script=scripts((*BOUNDARIES * 4, "restart", "crash"), batches=4, records=6))
@pytest.mark.rule(2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19, 20)
def test_random_scripts_give_the_same_results_on_spark_as_on_the_embedded_engine(spark: Any, script: Script) -> None:
    assert results_of_engine(script, engine="spark", spark=spark) == results_of_engine(script)


WINDOW = 5


class WindowCounter(EventHandler):
    """Counts the events of each key in windows of five seconds, and emits each count when its window ends."""

    counts = MapSpec(int, int)
    windows = SinkSpec(list)

    def on_event(self, subject: Subject, event: KeyedEvent[None]) -> None:
        window = int((event.timestamp - START) / SECOND) // WINDOW
        counts = self.counts.state_for(subject)
        counts[window] = counts.get(window, 0) + 1
        subject.set_timer(at((window + 1) * WINDOW), str(window))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        window = int(subject.timer_tag)
        self.windows.collect(subject, [subject.key, window, self.counts.state_for(subject).pop(window)])


CUTS = st.sampled_from([(), (), (), ("end_batch",), ("run",), ("restart",), ("crash",), ("crash", 1)])


@st.composite
def cut_inputs(draw: st.DrawFn, delay: int) -> list[tuple[Step, Step]]:
    """Generate records that are at most a delay older than earlier records, each with an optional boundary after it."""
    source, step = st.sampled_from(["b", "a"]), st.integers(-delay, 4)
    cut_records: list[tuple[Step, Step]] = []
    newest = 0
    for name, key, after, cut in draw(st.lists(st.tuples(source, st.sampled_from(KEYS), step, CUTS), max_size=30)):
        when = max(newest + after, 0)
        newest = max(newest, when)
        cut_records.append((("add_record", name, "", key, when, None), cut))
    return cut_records


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cut_inputs(delay=3), st.sampled_from(IN_PROCESS))
@pytest.mark.rule(21)
def test_window_results_do_not_depend_on_how_the_input_is_cut_into_batches(
    steps: list[tuple[Step, Step]], store: str
) -> None:
    with embedded_on(store), TestRun(job(WindowCounter(), "b", "a", watermark_delay=3)) as run:
        for record, cut in steps:
            apply_step(run, *record)
            if cut:
                apply_step(run, *cut)
        result = run.run(flush=True)
    expected = Counter((key, when // WINDOW) for (_, _, _, key, when, _), _ in steps)
    assert Counter(map(tuple, result.records("windows"))) == Counter((*which, n) for which, n in expected.items())
    assert (result.late, result.keys()) == ([], [])
