"""A range of key groups gives the results of one key group with the same keys."""

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.components import Component, Invoke
from amadou.errors import StateDecodeError
from amadou.event_time import to_micros
from amadou_runtime.core.batch_driver import BatchDriver
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.group_batch import GroupBatch, GroupResult
from amadou_runtime.core.key_range import range_count
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.operator import Operator
from amadou_runtime.formats.compressed import pack_compressed
from amadou_runtime.store.packed_group import PackedGroup
from amadou_runtime.store.packed_range import PackedRange

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
GROUPS = 5
KEYS = st.integers(0, 7)
BATCHES = st.lists(st.tuples(st.lists(st.tuples(KEYS, st.integers(0, 9))), st.integers(0, 9)))


class Reminder(Handler):
    """Counts events, collects the count some seconds later, and clears it."""

    count = ValueSpec(int, 0)
    collected = SinkSpec(list)

    def key_event(self, record: tuple[int, int]) -> KeyedEvent:
        key, second = record
        return KeyedEvent(key, START + timedelta(seconds=second))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.count.state_for(subject).value += 1
        subject.set_timer(
            event.timestamp + timedelta(seconds=int(subject.key) % 3), tag="x" if subject.key == 1 else ""
        )

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        count = self.count.state_for(subject)
        self.collected.collect(subject, [subject.key, count.value, timestamp.second, subject.timer_tag])
        count.clear()


JOB = Job("reminder", Reminder(), {"records": MemorySource()}, {"collected": MemorySink()})


@settings(deadline=None)  # the first example imports pyarrow
@given(BATCHES)
def test_a_range_of_key_groups_gives_the_results_of_one_key_group(
    batches: list[tuple[list[tuple[int, int]], int]],
) -> None:
    operator, stored, state, watermark = Operator(JOB), None, None, None
    for records, reached in batches:
        key_range = PackedRange(stored)
        results = BatchDriver(operator, key_range).process_groups(chunks(records, GROUPS), watermark)
        alone = operator.process(GroupBatch(PackedGroup(state), [chunk for _, chunk in chunks(records, 1)], watermark))

        assert all(processed.counts.events or processed.counts.timers_fired for processed in results.values())
        assert outputs(*results.values()) == outputs(alone)
        assert sum(each.counts.timers_fired for each in results.values()) == alone.counts.timers_fired
        holds = key_range.status(None)
        assert (holds.keys, holds.timers_pending, holds.next_timer) == (
            alone.counts.keys,
            alone.counts.timers_pending,
            alone.changes.next_time,
        )
        stored, state = key_range.pack(), alone.changes.packed
        assert (stored is None) == (state is None)
        watermark = max(watermark or 0, to_micros(START + timedelta(seconds=reached)))


class Sum(Component):
    """Sums up values in memory, and sets a timer a second after the first event."""

    in_memory = True

    def add(self, subject: Subject, event: KeyedEvent) -> None:
        part = self.state_for(subject)
        part.store((part.value or 0) + event.value, part.next_timer or to_micros(subject.timestamp) + 1_000_000)

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        part = self.state_for(subject)
        call(subject, subject.handler.summed, part.value)
        part.store(None, None)


class Summing(Handler):
    sum = Sum()
    collected = SinkSpec(list)

    def key_event(self, record: int) -> KeyedEvent:
        return KeyedEvent(record, START, 1)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.sum.add(subject, event)

    def summed(self, subject: Subject, value: int) -> None:
        self.collected.collect(subject, [subject.key, value])


def test_in_memory_state_is_read_by_the_run_that_stored_it_and_lost_in_the_next_run() -> None:
    job = Job("summing", Summing(), {"records": MemorySource()}, {"collected": MemorySink()})
    keying = Keying(job, "records", job.handler.key_event, 3)
    pending = [(group, Chunk("records", b"", packed)) for group, packed in keying.pack(range(30), 0).events.items()]
    keys = {
        group: Operator(job).process(GroupBatch(PackedGroup(None), [chunk], None)).counts.keys
        for group, chunk in pending
    }
    first, next_run, due = Operator(job, run="first"), Operator(job, run="next"), to_micros(START) + 1_000_000
    key_range = PackedRange(None)
    assert BatchDriver(first, key_range).process_groups(pending, None).keys() == {0, 1, 2}
    stored = key_range.pack()
    again = PackedRange(stored)
    holds = again.status(None)
    assert (holds.keys, holds.timers_pending) == (30, 30)
    assert BatchDriver(first, again).process_groups([], None) == {}
    processed = BatchDriver(first, again).process_groups([], due)
    assert len(outputs(*processed.values())) == 30
    assert not any(each.counts.counters for each in processed.values())
    assert again.pack() is None

    taken_over = PackedRange(stored)
    processed = BatchDriver(next_run, taken_over).process_groups([], None)
    assert {group: each.counts.counters for group, each in processed.items()} == {
        group: {"sum.lost": number} for group, number in keys.items()
    }
    assert taken_over.pack() is None
    mixed = PackedRange(stored)
    processed = BatchDriver(next_run, mixed).process_groups(pending[:1], None)
    assert sum(each.counts.counters["sum.lost"] for each in processed.values()) == 30
    restored = PackedRange(mixed.pack())
    assert restored.status(None).keys == keys[pending[0][0]]
    processed = BatchDriver(next_run, restored).process_groups([], due)
    assert len(outputs(*processed.values())) == keys[pending[0][0]]
    assert not any(each.counts.counters for each in processed.values())


def test_the_number_of_ranges_depends_on_key_groups_cores_and_store() -> None:
    assert [range_count("groups", *counts) for counts in ((256, 2), (4, 2), (1, 1))] == [16, 4, 1]
    assert [range_count("log", *counts) for counts in ((256, 2), (4, 2), (1, 1))] == [4, 4, 1]


def test_the_error_for_a_range_of_another_release_names_the_version() -> None:
    with pytest.raises(StateDecodeError, match="this release reads only version 5"):
        PackedRange(pack_compressed([1, {}]))


def chunks(records: list[tuple[int, int]], groups: int) -> list[tuple[int, Chunk]]:
    packed = Keying(JOB, "records", JOB.handler.key_event, groups).pack(records, 0)
    return [(group, Chunk("records", b"", events)) for group, events in packed.events.items()]


def outputs(*processed: GroupResult) -> list[Any]:
    return sorted(encoded for group in processed for encoded in group.outputs.get("collected", []))
