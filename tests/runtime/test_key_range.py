"""A range of key groups gives what one key group with the same keys gives."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amadou import Call, Component, Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.errors import StateDecodeError
from amadou.event_time import to_micros
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.operator import Operator, Processed
from amadou_runtime.spark.compressed import pack_compressed
from amadou_runtime.spark.key_range import KeyRange, range_count

START = datetime(2025, 1, 1, tzinfo=UTC)
GROUPS = 5
KEYS = st.integers(0, 7)
BATCHES = st.lists(st.tuples(st.lists(st.tuples(KEYS, st.integers(0, 9))), st.integers(0, 9)))


class Reminder(Handler):
    """Counts events, tells the count some seconds later, and forgets it."""

    count = ValueSpec(int, 0)
    told = SinkSpec(list)

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
        self.told.collect(subject, [subject.key, count.value, timestamp.second, subject.timer_tag])
        count.clear()


JOB = Job("reminder", Reminder(), {"records": MemorySource()}, {"told": MemorySink()})


@settings(deadline=None)  # the first example imports pyarrow
@given(BATCHES)
def test_a_range_gives_what_one_group_gives(batches: list[tuple[list[tuple[int, int]], int]]) -> None:
    operator, stored, state, watermark = Operator(JOB), None, None, None
    for records, reached in batches:
        key_range = KeyRange(stored)
        played = key_range.process(operator, chunks(records, GROUPS), watermark)
        alone = operator.process(state, [chunk for _, chunk in chunks(records, 1)], watermark)

        assert all(processed.events or processed.fired for processed in played.values())
        assert outputs(*played.values()) == outputs(alone)
        assert sum(processed.fired for processed in played.values()) == alone.fired
        assert (key_range.keys, key_range.pending, key_range.next_timer) == (
            alone.keys,
            alone.pending,
            alone.next_timer,
        )
        stored, state = key_range.pack(), alone.state
        assert (stored is None) == (state is None)
        watermark = max(watermark or 0, to_micros(START + timedelta(seconds=reached)))


class Sum(Component):
    """Sums up, in memory, and is woken a second after the first event."""

    in_memory = True

    def add(self, subject: Subject, event: KeyedEvent) -> None:
        part = self.state_for(subject)
        part.store((part.value or 0) + event.value, part.wake_at or to_micros(subject.timestamp) + 1_000_000)

    def woken(self, subject: Subject, timestamp: datetime, call: Call) -> None:
        part = self.state_for(subject)
        call(subject, subject.handler.summed, part.value)
        part.store(None, None)


class Summing(Handler):
    sum = Sum()
    told = SinkSpec(list)

    def key_event(self, record: int) -> KeyedEvent:
        return KeyedEvent(record, START, 1)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.sum.add(subject, event)

    def summed(self, subject: Subject, value: int) -> None:
        self.told.collect(subject, [subject.key, value])


@pytest.mark.parametrize("lost", [[], [0], [0, 1, 2]])
def test_what_is_in_memory_of_some_key_groups_may_be_lost(lost: list[int]) -> None:
    job = Job("summing", Summing(), {"records": MemorySource()}, {"told": MemorySink()})
    operator, keying = Operator(job), Keying(job, "records", job.handler.key_event, 3)
    brought = [(group, Chunk("records", b"", packed)) for group, packed in keying.pack(range(30), 0).events.items()]
    keys = {group: operator.process(None, [chunk], None).keys for group, chunk in brought}
    key_range = KeyRange(None)
    assert key_range.process(operator, brought, None).keys() == {0, 1, 2}
    again, left = KeyRange(key_range.pack()), {**key_range.memory}
    assert (again.keys, again.pending) == (30, 30)
    again.memory = {group: memory for group, memory in left.items() if group not in lost}
    played = again.process(operator, [], None)
    assert {group: told.counts for group, told in played.items()} == {
        group: {"sum.lost": keys[group]} for group in lost
    }
    assert again.keys == 30 - sum(keys[group] for group in lost)
    once_more = KeyRange(again.pack())
    once_more.memory = again.memory
    played = once_more.process(operator, [], to_micros(START) + 1_000_000)
    assert len(outputs(*played.values())) == again.keys
    assert not any(told.counts for told in played.values())
    assert once_more.pack() is None


def test_there_are_no_more_ranges_than_key_groups_and_enough_for_more_cores_later() -> None:
    assert [range_count(*counts) for counts in ((256, 2), (4, 2), (1, 1))] == [16, 4, 1]


def test_state_of_another_release_is_told() -> None:
    with pytest.raises(StateDecodeError, match="this release reads version 3"):
        KeyRange(pack_compressed([1, {}]))


def chunks(records: list[tuple[int, int]], groups: int) -> list[tuple[int, Chunk]]:
    packed = Keying(JOB, "records", JOB.handler.key_event, groups).pack(records, 0)
    return [(group, Chunk("records", b"", events)) for group, events in packed.events.items()]


def outputs(*processed: Processed) -> list[Any]:
    return sorted(wire for group in processed for wire in group.outputs.get("told", []))
