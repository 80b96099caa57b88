"""The operator processes the chunks of a batch, which arrive in any order on Spark."""

from datetime import timedelta
from itertools import permutations

import pytest
from tests.conformance.handlers import Recorder, TimerSetter, at, job

from amadou import Handler, KeyedEvent, SinkSpec, Subject, ValueSpec
from amadou.errors import CallbackError
from amadou.event_time import from_micros, to_micros
from amadou_runtime import LocalRunner
from amadou_runtime.core.events import Chunk, in_order, pack_events
from amadou_runtime.core.group_batch import GroupBatch, ProcessedGroup
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.packed_group import PackedGroup


def chunk(source: str, order: int, *values: int) -> Chunk:
    return Chunk(
        source, order.to_bytes(8, "big"), pack_events([field for value in values for field in ("k", at(1), value)])
    )


def test_events_of_a_source_are_processed_in_order_for_any_order_of_chunks() -> None:
    for chunks in permutations([chunk("s", 1, 1, 2), chunk("s", 2, 3), chunk("s", 300, 4)]):
        (run,) = in_order(chunks)
        assert (run.source, run.values) == ("s", [1, 2, 3, 4])
        assert run.micros == [to_micros(at(1))] * 4


def test_events_of_several_sources_are_processed_in_the_same_order_for_any_order_of_chunks() -> None:
    for chunks in permutations([chunk("b", 1, 3), chunk("a", 1, 1), chunk("a", 2, 2)]):
        assert [(run.source, run.values) for run in in_order(chunks)] == [("a", [1, 2]), ("b", [3])]


class Forgetful(Recorder):
    """Stores each event's value for eight minutes."""

    last = ValueSpec(int, ttl=timedelta(minutes=8))

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.last.state_for(subject).value = event.value


@pytest.mark.rule(16)
def test_expired_state_is_removed_within_an_eighth_of_its_time_to_live() -> None:
    operator = Operator(job(Forgetful()))
    stored = operator.process(GroupBatch(PackedGroup(None), [chunk("events", 1, 5)], None))
    expires = to_micros(at(1)) + 480_000_000
    assert stored.changes.next_time is not None
    assert expires <= stored.changes.next_time < expires + 60_000_000
    before = operator.process(GroupBatch(PackedGroup(stored.changes.packed), [], stored.changes.next_time - 60_000_000))
    assert (before.changes.packed, before.changes.next_time) == (stored.changes.packed, stored.changes.next_time)
    assert (
        operator.process(GroupBatch(PackedGroup(stored.changes.packed), [], stored.changes.next_time)).changes.packed
        is None
    )


def figures(processed: ProcessedGroup) -> tuple[int, ...]:
    counts = processed.counts
    return counts.events, counts.late, counts.timers_fired, counts.keys, counts.timers_pending


def test_events_late_events_timers_and_keys_of_a_batch_are_counted() -> None:
    for late_events, delivered in (("deliver", 3), ("drop", 2)):
        operator = Operator(job(TimerSetter(), late_events=late_events))
        events = [field for seconds in (9, 10, 20) for field in ("k", at(seconds), [5, 30, (30, "tag")])]
        first = operator.process(
            GroupBatch(PackedGroup(None), [Chunk("events", b"", pack_events(["other", at(1), [10, 40]]))], None)
        )
        assert figures(first) == (1, 0, 0, 1, 2)
        second = operator.process(
            GroupBatch(
                PackedGroup(first.changes.packed), [Chunk("events", b"", pack_events(events))], to_micros(at(10))
            )
        )
        assert figures(second) == (3, 1, 1, 2, 3)
        assert len(second.outputs["answers"]) == 3 * delivered


def test_a_local_runner_runs_a_handler() -> None:
    class Base(Handler):
        totals = SinkSpec(int)
        total = ValueSpec(int, default=0)

        def key_event(self, record: list[int]) -> list[KeyedEvent]:
            return [KeyedEvent("all", from_micros(0), number) for number in record]

        def on_event(self, subject: Subject, event: KeyedEvent) -> None:
            state = self.total.state_for(subject)
            state.value += event.value
            self.totals.collect(subject, state.value // (event.value != 13))

    class Sums(Base):
        """Inherits its port."""

    sums = LocalRunner("sums", Sums())
    assert sums.process([1, 2]) == {"totals": [1, 3]}
    with pytest.raises(CallbackError, match="ZeroDivisionError"):
        sums.process([5, 13])
    assert sums.process([4]) == {"totals": [7]}
    assert sums.keys() == ["all"]
    sums.close()
