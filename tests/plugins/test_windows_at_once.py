"""A handler that gives all events to a window is played many events at a time, to the same effect as one by one."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.windows import SECOND, at, scripts, windowing

from amadou import Handler, Job, MemorySink, MemorySource, to_micros
from amadou.errors import CallbackError
from amadou_plugins.aggregates import Collect, Count, Mean
from amadou_plugins.windows import HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, WindowSpec, windowed
from amadou_runtime._events import Chunk, pack_events
from amadou_runtime._group import KeyGroup
from amadou_runtime._operator import Operator, Processed

values = st.sampled_from([None, Mean(), {"n": Count(), "all": Collect()}])
lengths = st.integers(1, 12).map(lambda seconds: seconds * SECOND)
latenesses = st.integers(0, 6).map(lambda seconds: seconds * SECOND)
earlies = st.sampled_from([None, None, 2 * SECOND, 3, lambda event: event.value == 1])


@st.composite
def windows(draw: st.DrawFn) -> Callable[[], Handler]:
    """Makes a handler with a window of any kind."""
    value, lateness, early = draw(values), draw(latenesses), draw(earlies)
    most = draw(st.sampled_from([None, None, 2]))
    settings: dict[str, Any] = {"allowed_lateness": lateness, "early": early, "max_active": most}
    size, hop = draw(lengths), draw(lengths)
    kind = draw(st.sampled_from([TumblingWindow, HoppingWindow, HoppingWindow, SlidingWindow, SessionWindow]))
    if kind is SlidingWindow and isinstance(early, timedelta):
        settings["early"] = None
    lengths_ = (size, hop) if kind is HoppingWindow else (size,)
    return lambda: windowing(kind, *lengths_, value, **settings)


def played(handler: Handler, script: Any, *, at_once: bool) -> list[tuple[Processed, Any]]:
    """What the operator gives for each batch of a script, and what it keeps."""
    handler.gives_all_to = "window" if at_once else None
    sinks = {"results": MemorySink(), "late": MemorySink()}
    operator = Operator(Job("windows", handler, sources={"in": MemorySource()}, sinks=sinks))
    operator.open()
    state: bytes | None = None
    found: list[tuple[Processed, Any]] = []
    for watermark, events in [*script, (1000, [])]:
        chunks = [Chunk("in", b"", pack_events([field for event in events for field in event]))] if events else []
        mark = None if watermark is None else to_micros(at(watermark))
        taker = operator._taker
        assert (taker is not None) == at_once
        processed = operator._process(state, chunks, mark, taker)
        state = processed.state
        group = KeyGroup(state)
        kept = {name: (column.packed, column.wakes) for name, column in group.columns.items()}
        found.append((processed._replace(state=None), kept))  # keys may be stored in another order
    return found


@given(windows(), scripts())
def test_many_at_a_time_is_as_one_by_one(make: Callable[[], Handler], script: Any) -> None:
    assert played(make(), script, at_once=True) == played(make(), script, at_once=False)


@pytest.mark.parametrize("window", [TumblingWindow(SECOND, Mean("ms")), SessionWindow(SECOND, Mean("ms"))])
def test_an_event_that_fails_is_told_as_one_by_one(window: WindowSpec) -> None:
    handler = windowed(key="page", timestamp="timestamp", window=window)
    operator = Operator(Job("windows", handler, sources={"in": MemorySource()}, sinks={"results": MemorySink()}))
    events = ["a", at(1), {"ms": 1}, "b", at(2), {"ms": "fast"}, "c", at(3), {}]
    with pytest.raises(CallbackError) as caught:
        operator.process(None, [Chunk("in", b"", pack_events(events))], None)
    assert (caught.value.callback, caught.value.key) == ("on_event", "b")
    assert "'fast'" in caught.value.error
