"""A handler that adds all events to a window gives the same results in the vectorized path as event by event."""

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.windows import SECOND, Recording, at, job, scripts, windowing

from amadou import Job, KeyedEvent, MemorySink, MemorySource, Subject, ValueSpec
from amadou.errors import CallbackError, RecoverError
from amadou.event_time import to_micros
from amadou_plugins.aggregates import Collect, Count, Last, Mean, Min, Sum
from amadou_plugins.windows import HoppingWindow, SessionWindow, TumblingWindow, Window, WindowSpec, windowed
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupBatch, ProcessedGroup
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.packed_group import PackedGroup

values = st.sampled_from(
    [
        None,
        Mean(),
        {"n": Count(), "all": Collect()},
        {"least": Min(), "sum": Sum(), "last": Last(), "there": {"n": Count(lambda event: event.value or None)}},
    ]
)
lengths = st.integers(1, 12).map(lambda seconds: seconds * SECOND)
latenesses = st.integers(0, 6).map(lambda seconds: seconds * SECOND)


@st.composite
def windows(draw: st.DrawFn) -> Callable[[], Recording]:
    """Draw a function that makes a handler with a window that can be processed in the vectorized path."""
    value, lateness = draw(values), draw(latenesses)
    size, hop = sorted((draw(lengths), draw(lengths)), reverse=True)
    kind = draw(st.sampled_from([TumblingWindow, HoppingWindow, HoppingWindow, SessionWindow]))
    lengths_ = (size, hop) if kind is HoppingWindow else (size,)
    storage = draw(st.sampled_from(["persistent", "memory"]))
    return lambda: windowing(kind, *lengths_, value, allowed_lateness=lateness, storage=storage)


def batches_of(
    handler: Recording, script: Any, late_events: Any, vectorized: Callable[[], bool]
) -> list[tuple[ProcessedGroup, Any]]:
    """Return the results and the state of the operator after each batch of a script.

    :param vectorized: returns for each batch whether it is processed in the vectorized path
    """
    handler.delegates_to = "window"
    sinks = {"results": MemorySink(), "late": MemorySink()}
    if late_events == "divert":
        sinks["late_events"] = MemorySink()
    sources = {"in": MemorySource(), "other": MemorySource()}
    operator = Operator(Job("windows", handler, sources, sinks, late_events=late_events))
    operator.open()
    state: bytes | None = None
    batches: list[tuple[ProcessedGroup, Any]] = []
    for watermark, events in [*script, (1000, [])]:
        fields_by_source: dict[str, list[Any]] = {}
        for key, timestamp, number in events:
            value = (0, 0.5, None, 2**70, -1)[number % 5]
            fields_by_source.setdefault("other" if number == 3 else "in", []).extend((key, timestamp, value))
        chunks = [Chunk(source, b"", pack_events(fields)) for source, fields in fields_by_source.items()]
        mark = None if watermark is None else to_micros(at(watermark))
        processed: ProcessedGroup | None
        if vectorized():
            assert operator.vectorized_component is not None
            processed = operator.vectorized(operator.vectorized_component, GroupBatch(PackedGroup(state), chunks, mark))
            assert processed is not None
        else:
            processed = operator.per_event(GroupBatch(PackedGroup(state), chunks, mark))
        state = processed.changes.packed
        group = KeyGroup(PackedGroup(state))
        group.by_subject(handler.window)
        stored = {
            name: (column.unpacked(column.packed, name), column.next_timers) for name, column in group.tables.items()
        }
        # keys may be stored in another order, and `touched` is approximate
        batches.append((processed._replace(group=None, changes=None, touched=0), stored))
    return batches


@given(windows(), scripts(), st.sampled_from(["deliver", "drop", "divert"]), st.randoms(use_true_random=False))
def test_the_vectorized_path_gives_the_results_of_processing_event_by_event(
    make: Callable[[], Recording], script: Any, late_events: str, chance: Random
) -> None:
    expected = batches_of(make(), script, late_events, lambda: False)
    assert batches_of(make(), script, late_events, lambda: True) == expected
    assert batches_of(make(), script, late_events, lambda: chance.random() < 0.5) == expected


@pytest.mark.parametrize("vectorized", [False, True])
@pytest.mark.parametrize("script", [[(8, 0), (5, 1)], [(5, 0), (8, 1)], [(9, 0), (8, 3), (5, 1)]])
def test_a_late_event_is_late_even_if_an_event_of_its_batch_extends_its_session(script: Any, vectorized: bool) -> None:
    events = [KeyedEvent("a", at(time), number) for time, number in script]
    batches = batches_of(windowing(SessionWindow, 5 * SECOND), [(12, events)], "deliver", lambda: vectorized)
    assert [processed.counts.counters.get("window.late", 0) for processed, _ in batches] == [1, 0]


def test_handlers_with_state_timers_or_early_results_are_processed_event_by_event() -> None:
    class WithState(Recording):
        delegates_to = "window"
        seen = ValueSpec(int, 0)

    class Waiting(Recording):
        delegates_to = "window"

        def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None: ...

    class Making(Recording):
        delegates_to = "window"

        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            super().closed(subject, window, value)
            ValueSpec(int, 0, name="seen").state_for(subject).value = value

    def made(kind: type[Recording], **settings: Any) -> Operator:
        handler = kind(windowing(TumblingWindow, SECOND, **settings).window)
        return Operator(job(handler))

    assert made(Making).vectorized_component is not None
    for other in (made(WithState), made(Waiting), made(Making, early=2), made(Making, max_active=2)):
        assert other.vectorized_component is None
    operator = made(Making)
    state = operator.process(
        GroupBatch(PackedGroup(None), [Chunk("in", b"", pack_events(["a", at(0), 1]))], None)
    ).changes.packed
    assert (
        operator.vectorized(operator.vectorized_component, GroupBatch(PackedGroup(state), [], to_micros(at(1)))) is None
    )  # type: ignore[arg-type]
    closed = operator.process(GroupBatch(PackedGroup(state), [], to_micros(at(1))))
    assert (len(closed.outputs["results"]), list(KeyGroup(PackedGroup(closed.changes.packed)).tables)) == (1, ["seen"])


@pytest.mark.parametrize("kind", [TumblingWindow, SessionWindow])
def test_results_of_windows_with_the_same_time_are_in_the_order_of_keys(kind: type[WindowSpec]) -> None:
    script = [(None, [KeyedEvent(key, at(0), 0) for key in ("b", 2, "a", b"c", 1)])]
    one_by_one = batches_of(windowing(kind, SECOND), script, "deliver", lambda: False)
    assert batches_of(windowing(kind, SECOND), script, "deliver", lambda: True) == one_by_one


class Clipped(Sum):
    def add(self, accumulator: Any, event: KeyedEvent[Any]) -> Any:
        return super().add(accumulator, event._replace(value=min(event.value, 1)))


class Rounded(Mean):
    def result(self, accumulator: Any) -> Any:
        return round(super().result(accumulator))


class Doubled(Count):
    def merge(self, left: int, right: int) -> int:
        return 2 * super().merge(left, right)


class Beginning(Count):
    def create(self) -> int:
        return 100


@pytest.mark.parametrize("aggregate", [Clipped(), Rounded(), Doubled(), Beginning(), {"n": Clipped()}])
def test_overridden_methods_of_aggregates_are_called_in_the_vectorized_path(aggregate: Any) -> None:
    script = [(None, [KeyedEvent("a", at(second), second) for second in (1, 6, 6)])]
    make = lambda: windowing(HoppingWindow, 10 * SECOND, 5 * SECOND, aggregate)  # noqa: E731
    assert batches_of(make(), script, "deliver", lambda: True) == batches_of(make(), script, "deliver", lambda: False)


def test_a_window_whose_early_results_were_removed_closes_in_the_vectorized_path() -> None:
    def state_of(handler: Recording) -> bytes | None:
        events = ["a", at(30), 1, "b", at(100), 1]
        return (
            Operator(job(handler))
            .process(GroupBatch(PackedGroup(None), [Chunk("in", b"", pack_events(events))], None))
            .changes.packed
        )

    before = state_of(windowing(HoppingWindow, 90 * SECOND, 60 * SECOND, early=60 * SECOND))
    handler = windowing(HoppingWindow, 90 * SECOND, 60 * SECOND)
    operator = Operator(job(handler))
    one_by_one = operator.per_event(GroupBatch(PackedGroup(before), [], to_micros(at(1000))))
    handler.delegates_to = "window"
    operator = Operator(job(handler))
    assert operator.vectorized_component is not None
    vectorized = operator.vectorized(
        operator.vectorized_component, GroupBatch(PackedGroup(before), [], to_micros(at(1000)))
    )
    assert vectorized is not None
    assert vectorized.outputs == one_by_one.outputs
    assert len(one_by_one.outputs["results"]) == 2


def test_a_batch_that_fails_in_the_vectorized_path_is_processed_event_by_event_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Moody(Recording):
        delegates_to = "window"
        calls: list[Any] = []

        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.calls.append(value)
            if len(self.calls) == 2:
                raise ConnectionError("not now")
            super().closed(subject, window, value)

    operator = Operator(job(Moody(windowing(TumblingWindow, SECOND).window)))
    chunk = Chunk("in", b"", pack_events(["a", at(0), 1, "b", at(0), 2]))
    state = operator.process(GroupBatch(PackedGroup(None), [chunk], None)).changes.packed
    processed = operator.process(GroupBatch(PackedGroup(state), [], to_micros(at(1))))
    assert len(processed.outputs["results"]) == 2
    assert "job windows: the vectorised path of window failed" in caplog.text
    assert processed.counts.vectorized_fallbacks == {"window": 1}
    assert "not now" in caplog.text


def test_a_class_that_overrides_on_event_is_processed_event_by_event() -> None:
    class Base(Recording):
        delegates_to = "window"

    class Choosy(Base):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value != 1:
                super().on_event(subject, event)

    operator = Operator(job(Choosy(windowing(TumblingWindow, SECOND).window)))
    chunk = Chunk("in", b"", pack_events(["a", at(0), 1, "b", at(0), 2]))
    assert (
        operator.vectorized_component,
        operator.process(GroupBatch(PackedGroup(None), [chunk], None)).counts.keys,
    ) == (None, 1)


def test_in_memory_state_of_a_window_that_is_not_made_yet_is_retained() -> None:
    handler = windowing(TumblingWindow, SECOND, storage="memory")
    before = Operator(job(handler)).process(
        GroupBatch(PackedGroup(None), [Chunk("in", b"", pack_events(["a", at(0), 1]))], None)
    )
    assert before.changes.has_in_memory

    class WithoutWindow(Recording):
        def __init__(self) -> None: ...

    sinks = {"results": MemorySink(), "late": MemorySink()}
    without_window = Operator(Job("windows", WithoutWindow(), sources={"in": MemorySource()}, sinks=sinks))
    after = without_window.process(GroupBatch(PackedGroup(before.changes.packed), [], to_micros(at(0))))
    assert (after.changes.packed, after.changes.has_in_memory) == (before.changes.packed, True)


def test_a_handler_without_a_stored_window_must_recover_it() -> None:
    handler = windowing(TumblingWindow, SECOND)
    handler.delegates_to = "window"
    events = ["a", at(0), 1, "b", at(0), 2]
    changes = (
        Operator(job(handler))
        .process(GroupBatch(PackedGroup(None), [Chunk("in", b"", pack_events(events))], None))
        .changes
    )
    assert (changes.keys, changes.pending) == (2, 2)
    state = changes.packed

    class WithoutWindow(Recording):
        def __init__(self) -> None: ...

    sinks = {"results": MemorySink(), "late": MemorySink()}
    other = Job("windows", WithoutWindow(), sources={"in": MemorySource()}, sinks=sinks)
    without_window = Operator(other)
    before = without_window.process(GroupBatch(PackedGroup(state), [], to_micros(at(0))))
    assert (before.counts.keys, before.counts.timers_pending, before.changes.next_time) == (2, 2, to_micros(at(1)))
    with pytest.raises(RecoverError, match="the window 'window' of key 'a' is due"):
        without_window.process(GroupBatch(PackedGroup(before.changes.packed), [], to_micros(at(1))))
    other.handler.on_recover_window = lambda name, subject: windowing(TumblingWindow, SECOND).window
    assert (
        len(
            Operator(other)
            .process(GroupBatch(PackedGroup(before.changes.packed), [], to_micros(at(1))))
            .outputs["results"]
        )
        == 2
    )


@pytest.mark.parametrize("window", [TumblingWindow(SECOND, Mean("ms")), SessionWindow(SECOND, Mean("ms"))])
def test_the_error_of_an_event_in_the_vectorized_path_names_its_key(window: WindowSpec) -> None:
    handler = windowed(key="page", timestamp="timestamp", window=window)
    operator = Operator(Job("windows", handler, sources={"in": MemorySource()}, sinks={"results": MemorySink()}))
    events = ["a", at(1), {"ms": 1}, "b", at(2), {"ms": "fast"}, "c", at(3), {}]
    with pytest.raises(CallbackError) as caught:
        operator.process(GroupBatch(PackedGroup(None), [Chunk("in", b"", pack_events(events))], None))
    assert (caught.value.callback, caught.value.key) == ("on_event", "b")
    assert "'fast'" in caught.value.error
