"""Windows at the beginning of the year 1 and at the end of the year 9999."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from tests.plugins.windows import job, windowing

from amadou import KeyedEvent
from amadou.errors import CallbackError
from amadou.event_time import to_micros
from amadou_plugins.windows import HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, WindowSpec
from amadou_runtime import TestRun
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupBatch
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.packed_group import PackedGroup

MINUTE = timedelta(minutes=1)
WEEK = timedelta(days=7)
FIRST = datetime.min.replace(tzinfo=timezone.utc)
LAST = datetime.max.replace(tzinfo=timezone.utc)
NOW = datetime(2025, 1, 1, tzinfo=timezone.utc)

out_of_time = pytest.mark.parametrize(
    ("kind", "lengths", "timestamp"),
    [
        (TumblingWindow, [WEEK], FIRST),
        (HoppingWindow, [5 * MINUTE, MINUTE], FIRST),
        (HoppingWindow, [5 * MINUTE, MINUTE], FIRST + 4 * MINUTE - timedelta(microseconds=1)),
        (SlidingWindow, [MINUTE], FIRST + MINUTE - timedelta(microseconds=1)),
        (TumblingWindow, [WEEK], LAST),
        (HoppingWindow, [5 * MINUTE, MINUTE], LAST - 5 * MINUTE + timedelta(microseconds=1)),
        (SessionWindow, [MINUTE], LAST - MINUTE + timedelta(microseconds=1)),
    ],
)
within_time = pytest.mark.parametrize(
    ("kind", "lengths", "timestamp"),
    [
        (HoppingWindow, [5 * MINUTE, MINUTE], FIRST + 4 * MINUTE),
        (HoppingWindow, [MINUTE, 5 * MINUTE], FIRST),
        (SlidingWindow, [MINUTE], FIRST + MINUTE),
        (SessionWindow, [MINUTE], FIRST),
        (TumblingWindow, [MINUTE], LAST - MINUTE),
        (HoppingWindow, [5 * MINUTE, MINUTE], LAST - 5 * MINUTE),
        (SlidingWindow, [MINUTE], LAST),
        (SessionWindow, [MINUTE], LAST - MINUTE),
    ],
)


@out_of_time
@pytest.mark.parametrize("delegates_to", [None, "window"])
def test_the_error_for_an_event_whose_window_is_out_of_range_names_its_time(
    kind: type[WindowSpec], lengths: Any, timestamp: datetime, delegates_to: str | None
) -> None:
    handler = windowing(kind, *lengths)
    handler.delegates_to = delegates_to
    chunk = Chunk("in", b"", pack_events(["a", NOW, 1, "b", timestamp, 2]))
    with pytest.raises(CallbackError) as caught:
        Operator(job(handler)).process(GroupBatch(PackedGroup(None), [chunk], None))
    message = (
        f"WindowEventError: the window 'window' cannot accept the event at {timestamp.isoformat()}: its window would"
    )
    assert (caught.value.callback, caught.value.key) == ("on_event", "b")
    assert caught.value.error.startswith(message)


@out_of_time
def test_an_event_whose_window_is_out_of_range_becomes_a_dead_letter(
    kind: type[WindowSpec], lengths: Any, timestamp: datetime
) -> None:
    run = TestRun(job(windowing(kind, *lengths), on_error="dead_letter", watermark_delay=timedelta(days=3650000)))
    result = run.add_records([KeyedEvent("a", timestamp), KeyedEvent("a", NOW)]).run(flush=True)
    assert [letter.timestamp for letter in result.dead_letters] == [timestamp]
    assert {value for _, _, _, _, value in result.records("results")} == {1}
    assert result.keys() == []


@within_time
@pytest.mark.parametrize("lateness", [timedelta(0), WEEK, timedelta.max])
def test_windows_near_the_first_and_the_last_time_close_at_a_flush(
    kind: type[WindowSpec], lengths: Any, timestamp: datetime, lateness: timedelta
) -> None:
    run = TestRun(job(windowing(kind, *lengths, allowed_lateness=lateness))).add_record(KeyedEvent("a", timestamp))
    result = run.run(flush=True)
    closed = result.records("results")
    assert len(closed) == (5 if lengths[0] == 5 * MINUTE else 1)
    assert all((partial, value) == (False, 1) for _, _, _, partial, value in closed)
    assert result.keys() == []
    result = run.add_record(KeyedEvent("a", timestamp)).run(flush=True)
    assert (result.records("results"), result.keys()) == (closed, [])
    assert result.counters == {"window.late": 1}


@pytest.mark.parametrize(
    ("kind", "lengths"),
    [(TumblingWindow, [MINUTE]), (HoppingWindow, [5 * MINUTE, MINUTE]), (SessionWindow, [MINUTE])],
)
@pytest.mark.parametrize("lateness", [timedelta(0), WEEK, timedelta.max])
def test_vectorized_windows_close_at_the_end_of_time_like_others(
    kind: type[WindowSpec], lengths: Any, lateness: timedelta
) -> None:
    events = [field for minute in (5, 9, 7) for key in "ab" for field in (key, LAST - minute * MINUTE, None)]

    def outputs(is_vectorized: bool) -> list[Any]:
        handler = windowing(kind, *lengths, allowed_lateness=lateness)
        handler.delegates_to = "window"
        operator = Operator(job(handler))
        batches, state = [], None
        for watermark, fields in ((None, events), (to_micros(LAST), []), (to_micros(LAST), events)):
            chunks = [Chunk("in", b"", pack_events(fields))] if fields else []
            if is_vectorized:
                assert operator.vectorized_component is not None
                processed = operator.vectorized(
                    operator.vectorized_component, GroupBatch(PackedGroup(state), chunks, watermark)
                )
            else:
                processed = operator.per_event(GroupBatch(PackedGroup(state), chunks, watermark))
            assert processed is not None
            state = processed.changes.packed
            results = sorted(map(repr, processed.outputs.get("results", [])))
            counts = processed.counts
            batches.append((results, counts.counters, counts.keys, processed.changes.next_time))
        return batches

    assert outputs(True) == outputs(False)
    assert outputs(True)[2] == ([], {"window.late": 6}, 0, None)


def test_sessions_with_a_maximum_duration_close_at_the_end_of_time() -> None:
    handler = windowing(SessionWindow, MINUTE, max_duration=MINUTE, allowed_lateness=WEEK)
    events = [KeyedEvent("a", LAST - seconds * timedelta(seconds=1)) for seconds in (170, 130, 90, 60)]
    result = TestRun(job(handler)).add_records(events).run(flush=True)
    assert [value for _, _, _, _, value in result.records("results")] == [2, 2]
    assert result.keys() == []
