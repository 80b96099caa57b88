"""`Window.first` and `Window.last`: the times of a window's oldest and newest event."""

from copy import copy, deepcopy
from pickle import dumps, loads
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.windows import SECOND, Recording, at, count, event, job, seconds, streams, windowing

from amadou import Subject
from amadou.event_time import to_micros
from amadou_plugins.aggregates import Collect
from amadou_plugins.windows import (
    CountWindow,
    HoppingWindow,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)
from amadou_runtime import TestRun
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupBatch
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.packed_group import PackedGroup

KINDS: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (TumblingWindow, (7 * SECOND,), {}),
    (HoppingWindow, (9 * SECOND, 6 * SECOND), {}),
    (HoppingWindow, (9 * SECOND, 6 * SECOND), {"early": 2}),
    (SlidingWindow, (7 * SECOND,), {}),
    (SessionWindow, (6 * SECOND,), {}),
    (SessionWindow, (6 * SECOND,), {"max_duration": 10 * SECOND, "early": 2}),
    (CountWindow, (3,), {"hop": 2}),
]


class Spanning(Recording):
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.results.collect(subject, (window.first, window.last, value))


def all_at_once(handler: Recording, batches: Any) -> list[Any]:
    """Return the results of a handler in the vectorized path."""
    handler.delegates_to = "window"
    operator = Operator(job(handler))
    assert operator.vectorized_component is not None
    state, results, times = None, [], []
    for batch in [*batches, None]:
        watermark = max(times) - 6_000_000 if times else None
        chunks = [Chunk("in", b"", pack_events([field for event in batch for field in event]))] if batch else []
        mark = to_micros(at(1e9)) if batch is None else watermark
        processed = operator.vectorized(operator.vectorized_component, GroupBatch(PackedGroup(state), chunks, mark))
        assert processed is not None
        state = processed.changes.packed
        results += [operator._codecs["results"].decode(encoded) for encoded in processed.outputs.get("results", [])]
        times += [to_micros(event.timestamp) for event in batch or ()]
    return results


@given(streams(5), st.sampled_from(KINDS))
def test_first_and_last_of_a_window_are_the_times_of_its_oldest_and_newest_event(batches: Any, kind: Any) -> None:
    of, lengths, settings = kind
    handler = Spanning(windowing(of, *lengths, Collect(lambda event: seconds(event.timestamp)), **settings).window)
    run = TestRun(job(handler, watermark_delay=6))
    for batch in batches:
        run.add_records(batch).end_batch()
    records = run.run(flush=True).records("results")
    for first, last, times in records:
        assert (seconds(first), seconds(last)) == (min(times), max(times))
    if not settings and of not in (SlidingWindow, CountWindow):
        again = Spanning(windowing(of, *lengths, Collect(lambda event: seconds(event.timestamp))).window)
        assert count(all_at_once(again, batches)) == count(records)


def test_first_and_last_of_a_session_with_a_maximum_duration_are_those_of_its_own_events() -> None:
    handler = Spanning(windowing(SessionWindow, 30 * SECOND, max_duration=100 * SECOND).window)
    run = TestRun(job(handler)).add_records([event(time) for time in range(0, 200, 20)])
    spans = [(seconds(first), seconds(last)) for first, last, _ in run.run(flush=True).records("results")]
    assert spans == [(0, 80), (100, 180)]


def test_windows_with_different_first_and_last_are_equal() -> None:
    window = Window(at(0), at(10), "a", first=at(2), last=at(3))
    assert window == Window(at(0), at(10), "a", False) == (at(0), at(10), "a", False)
    for other in (copy(window), deepcopy(window), loads(dumps(window)), window._replace(partial=True)):
        assert (other.first, other.last) == (at(2), at(3))
    assert (Window(at(0), at(10), "a").first, Window(at(0), at(10), "a").last) == (at(0), at(10))


@pytest.mark.parametrize("kind", [TumblingWindow, SessionWindow])
def test_first_and_last_of_a_window_are_restored_after_a_restart(kind: Any) -> None:
    run = TestRun(job(Spanning(windowing(kind, 10 * SECOND).window), watermark_delay=100))
    run.add_records([event(4), event(6)]).restart().add_record(event(2))
    ((first, last, _),) = run.run(flush=True).records("results")
    assert (seconds(first), seconds(last)) == (2, 6)
