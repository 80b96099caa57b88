"""Events that are combined before the shuffle lead to the same results."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.handlers import at

from amadou import FromPort, Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Stage, Subject
from amadou.errors import CallbackError
from amadou_plugins.aggregates import Count, First, Max, Mean, Sum, TopK
from amadou_plugins.windows import HoppingWindow, SessionWindow, TumblingWindow, windowed
from amadou_runtime.core.combining import COMBINED, combiner_for
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.feeding import fed_records
from amadou_runtime.core.group_batch import GroupBatch
from amadou_runtime.core.keying import Keying, key_event_of
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.group_by_key import GroupByKey
from amadou_runtime.store.memory import EmbeddedState
from amadou_runtime.store.packed_group import packed_group

AGGREGATES = {"n": Count(), "sum": Sum("v"), "mean": Mean("v"), "top": TopK(2, by="v", give="v"), "max": Max("v")}


def job(window: Any, **options: Any) -> Job:
    handler = windowed(key="k", timestamp="at", window=window)
    return Job("combined", handler, {"in": MemorySource()}, {"results": MemorySink()}, **options)


def tumbling(**options: Any) -> Job:
    return job(TumblingWindow(timedelta(seconds=10), AGGREGATES, **options))


def hopping() -> Job:
    return job(HoppingWindow(timedelta(seconds=10), timedelta(seconds=4), AGGREGATES))


def record(second: float, key: str, value: Any) -> dict[str, Any]:
    return {"at": at(second), "k": key, "v": value}


def processed(made: Job, batches: list[list[dict[str, Any]]], how: str) -> tuple[Any, ...]:
    """Return outputs and figures of batches, whose records are keyed in blocks of 20, as by several tasks.

    :param how: ``"combined"``, ``"by event"`` to combine, but to process the result key by key, or ``"plain"``
    """
    keying, operator = Keying(made, "in", key_event_of(made, "in"), 1), Operator(made)
    state, watermark, newest = EmbeddedState(), None, None
    outputs, figures, combined = [], [], 0
    for batch in [*batches, []]:
        chunks = []
        for start in range(0, len(batch), 20):
            records = batch[start : start + 20]
            keyed = keying.pack(records, 0) if how == "plain" else keying.pack_combined(records, 0, watermark)
            chunks += [Chunk("in", start.to_bytes(8, "big"), events) for events in keyed.events.values()]
            chunks += [Chunk("in", COMBINED, events) for events in keyed.combined.values()]
            combined += len(keyed.combined)
            newest = max(filter(None, (newest, keyed.newest)), default=None)
        process = operator.per_event if how == "by event" else operator.process
        result = process(GroupBatch(GroupByKey(state), chunks, watermark))
        state.put(result.changes)
        outputs.append(result.outputs)
        figures.append((result.counts.events, result.counts.late, result.counts.dropped, result.calls.get("on_event")))
        watermark = newest
    assert how != "plain" or not combined
    return outputs, figures, packed_group(state.whole()), combined


events = st.tuples(st.integers(0, 40), st.sampled_from(["a", "b"]), st.integers(-5, 5))


@pytest.mark.parametrize("make", [tumbling, hopping])
@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(events, max_size=60), max_size=4))
def test_combining_events_does_not_change_results_and_counts(
    make: Any, batches: list[list[tuple[int, str, int]]]
) -> None:
    records = [[record(*each) for each in batch] for batch in batches]
    plain = processed(make(), records, "plain")
    assert processed(make(), records, "combined")[:2] == plain[:2]
    by_event = processed(make(), records, "by event")
    assert by_event[:2] == plain[:2]


def test_events_are_combined_if_they_have_few_keys() -> None:
    few = [[record(number % 10, "a", number) for number in range(100)]]
    many = [[record(number % 10, f"k{number}", number) for number in range(100)]]
    assert processed(tumbling(), few, "combined")[3] == 5
    assert processed(tumbling(), many, "combined")[3] == 0


def test_late_events_are_not_combined() -> None:
    batches = [[record(50, "a", 1)] * 20, [*[record(1, "a", 1)] * 10, *[record(51, "a", 1)] * 10]]
    _, figures, *_, combined = processed(tumbling(), batches, "combined")
    assert figures[1] == (20, 10, 10, 20)
    assert combined == 2


def test_the_error_for_combined_values_of_different_types_names_the_key() -> None:
    batches = [[record(1, "a", 1)] * 20, [record(2, "a", "text")] * 20]
    made = job(TumblingWindow(timedelta(seconds=100), {"max": Max("v")}))
    with pytest.raises(CallbackError) as caught:
        processed(made, batches, "combined")
    assert (caught.value.callback, caught.value.key) == ("on_event", "a")


def test_the_error_for_an_event_that_cannot_be_combined_shows_its_record() -> None:
    batches = [[*[record(1, "a", 1)] * 20, record(2, "a", [])]]
    with pytest.raises(CallbackError) as caught:
        processed(tumbling(), [batches[0][1:]], "combined")
    assert "[]" in str(caught.value.record)


class Plain(Handler):
    out = SinkSpec(int)

    def key_event(self, record: Any) -> Any:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None: ...


@pytest.mark.parametrize(
    ("made", "combines"),
    [
        (tumbling(), True),
        (hopping(), True),
        (job(TumblingWindow(timedelta(seconds=1), First("v"))), False),
        (job(SessionWindow(timedelta(seconds=1), Count())), False),
        (tumbling(max_active=2), False),
        (job(TumblingWindow(timedelta(seconds=1), Count()), on_error="dead_letter"), False),
        (Job("plain", Plain(), {"in": MemorySource()}, {"out": MemorySink()}), False),
    ],
)
def test_only_events_of_windows_with_mergeable_aggregates_are_combined(made: Job, combines: bool) -> None:
    assert (combiner_for(made, "in") is not None) == combines


class Feeding(Handler):
    out = SinkSpec(dict)

    def key_event(self, record: Any) -> Any:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None: ...


def test_events_that_another_stage_feeds_are_combined() -> None:
    window = TumblingWindow(timedelta(seconds=10), {"sum": Sum("v")})
    made = Job(
        "two",
        stages={
            "first": Stage(Feeding(), {"in": MemorySource()}),
            "second": Stage(
                windowed(key="k", timestamp="at", window=window),
                {"fed": FromPort("first", "out", key="k")},
                {"results": MemorySink()},
            ),
        },
    )
    second = made.by_stage["second"]
    keying = Keying(second, "fed", key_event_of(second, "fed"), 1)
    encode = made.by_stage["first"].ports["out"].feed_codec().encode
    collected = [["x", at(number % 10), encode({"k": "all", "v": number})] for number in range(100)]
    keyed = keying.pack_combined(list(fed_records(collected)), 0, None)
    assert (keyed.events, list(keyed.combined)) == ({}, [0])
    operator = Operator(second)
    result = operator.process(
        GroupBatch(GroupByKey(EmbeddedState()), [Chunk("fed", COMBINED, keyed.combined[0])], None)
    )
    assert (result.counts.events, result.counts.keys) == (100, 1)
