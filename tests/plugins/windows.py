"""Shared by tests of windows: a handler that collects results, scripts of events, and simple computations."""

import math
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou.components import VectorizedHandler
from amadou_plugins.windows import Window, WindowSpec
from amadou_runtime import TestResult, TestRun

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
few_inputs = settings(max_examples=40)
"""For costly properties: `scripts/qualify fuzz` tries windows and joins with many more random inputs."""
KEYS: tuple[Any, ...] = ("a", "1", 1, b"1", ("a", 1))


def at(seconds: float) -> datetime:
    """Return the time at a second since 1970."""
    return EPOCH + seconds * SECOND


def seconds(timestamp: datetime) -> float:
    return (timestamp - EPOCH) / SECOND


class Recording(VectorizedHandler):
    """Adds each event to its window, and collects results and late events."""

    results = SinkSpec(tuple)
    late = SinkSpec(tuple)

    def __init__(self, window: WindowSpec) -> None:
        self.window = window

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        assert subject.key == window.key
        assert type(subject.key) is type(window.key)
        self.results.collect(subject, (*window, value))

    def too_late(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.late.collect(subject, tuple(event))


def windowing(kind: type[WindowSpec], *args: Any, **settings: Any) -> Recording:
    """Make a handler with a window of a kind, called `window`."""
    return Recording(kind(*args, name="window", on_close=_closed, on_late=_too_late, **settings))


def _closed(subject: Subject, window: Window, value: Any) -> None:
    subject.handler.closed(subject, window, value)


def _too_late(subject: Subject, event: KeyedEvent[Any]) -> None:
    subject.handler.too_late(subject, event)


def job(handler: Handler, **settings: Any) -> Job:
    sinks = {"results": MemorySink(), "late": MemorySink()}
    if isinstance(handler, Recording) and handler.window.diverts:
        sinks["late_events"] = MemorySink()
    return Job("windows", handler, sources={"in": MemorySource()}, sinks=sinks, **settings)


def event(second: float, value: Any = None, key: Any = "a") -> KeyedEvent[Any]:
    return KeyedEvent(key, at(second), value)


def results(result: TestResult, port: str = "results") -> list[Any]:
    """Return the start and the end in seconds and the value of each collected result."""
    return [(seconds(start), seconds(end), value) for start, end, _, _, value in result.records(port)]


def count(values: Iterable[Any]) -> Counter[Any]:
    """Count equal values. Values of different types differ."""
    return Counter(map(repr, values))


@st.composite
def streams(draw: st.DrawFn, disorder: int, most: int = 30) -> list[list[KeyedEvent[int]]]:
    """Draw batches of events that are out of order by at most `disorder` seconds."""
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique_by=repr))
    newest = draw(st.sampled_from([-1000, -1, 0, 10**6]))
    fraction = draw(st.sampled_from([0, 0.5, 0.000001]))
    step = st.integers(-disorder, 4) | st.sampled_from([30, 100])
    batches: list[list[KeyedEvent[int]]] = [[]]
    for key, after, cut in draw(st.lists(st.tuples(st.sampled_from(keys), step, st.integers(0, 3)), max_size=most)):
        when = newest + after
        newest = max(newest, when)
        batches[-1].append(KeyedEvent(key, at(when + fraction), len(batches[-1])))
        if cut == 0:
            batches.append([])
    return batches


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[int | None, list[KeyedEvent[int]]]]:
    """Draw batches of events with the watermark of each in seconds. Many events are late."""
    script: list[tuple[int | None, list[KeyedEvent[int]]]] = []
    watermark: int | None = None
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique_by=repr))
    for number in range(draw(st.integers(1, 6))):
        when = st.integers(5 * number - 10, 5 * number + 10)
        times = draw(st.lists(st.tuples(st.sampled_from(keys), when), max_size=6))
        script.append((watermark, [KeyedEvent(key, at(time), position) for position, (key, time) in enumerate(times)]))
        reached = draw(st.integers(5 * number - 10, 5 * number + 5))
        watermark = reached if watermark is None else max(watermark, reached)
    return script


def outcome_of(handler: Handler, batches: list[list[KeyedEvent[int]]], **settings: Any) -> TestResult:
    """Return the results of batches."""
    run = TestRun(job(handler, **settings))
    for batch in batches:
        run.add_records(batch).end_batch()
    return run.run(flush=True)


def outcome_of_script(handler: Handler, script: list[tuple[int | None, list[KeyedEvent[int]]]]) -> TestResult:
    """Return the results of batches with their watermarks."""
    run = TestRun(job(handler, watermark_delay=1000))  # only the script advances the watermark
    for watermark, batch in script:
        if watermark is not None:
            run.add_watermark(at(watermark))
        run.add_records(batch)
    return run.run(flush=True)


def by_key(batches: Iterable[list[KeyedEvent[int]]]) -> dict[Any, list[KeyedEvent[int]]]:
    """Return each key's events in their order. Equal keys of different types differ."""
    events: dict[Any, list[KeyedEvent[int]]] = {}
    for batch in batches:
        for event in batch:
            events.setdefault(repr(event.key), []).append(event)
    return events


def starts(time: float, size: float, hop: float, offset: float = 0) -> list[float]:
    """Return the starts of the windows that contain a time, by trying each."""
    first = math.floor((time - size - offset) / hop) - 1
    tried = [offset + number * hop for number in range(first, first + int(size / hop) + 5)]
    return [start for start in tried if start <= time < start + size]
