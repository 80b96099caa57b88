"""A key group gives the same results whether it is stored as one value or as one entry per key."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.handlers import SECOND, at

from amadou import Handler, Job, KeyedEvent, ListSpec, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.event_time import to_micros
from amadou_plugins.windows import SessionWindow, TumblingWindow, Window
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupBatch, ProcessedGroup
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.group_by_key import GroupByKey
from amadou_runtime.store.memory import EmbeddedState
from amadou_runtime.store.packed_group import PackedGroup, packed_group
from amadou_runtime.testing.difference import in_fixed_order

LONG = "long" * 200
KEYS = ["a", b"a", 1, ("a", 1), LONG, -7]
ACTIONS = ["count", "name", "remove", "list", "timer", "tagged", "delete", "session", "tumbling", "clear", "nothing"]
EVENTS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 60), st.sampled_from(ACTIONS)), max_size=6)
BATCHES = st.lists(st.tuples(EVENTS, st.integers(0, 70), st.booleans()), max_size=12)


class Everything(Handler):
    """Has state of every kind with and without a TTL, timers, and windows in memory and in stored state."""

    count = ValueSpec(int, default=0)
    names = MapSpec(str, int, ttl=20 * SECOND)
    history = ListSpec(int, ttl=5 * SECOND)
    sessions = SessionWindow(3 * SECOND)
    tumbling = TumblingWindow(10 * SECOND, storage="memory")
    outputs = SinkSpec(list)

    def key_event(self, record: Any) -> None:
        raise NotImplementedError

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        match event.value:
            case "count":
                self.count.state_for(subject).value += 1
            case "name":
                self.names.state_for(subject)[str(event.timestamp.second % 3)] = event.timestamp.second
            case "remove":
                self.names.state_for(subject).pop("1", None)
            case "list":
                self.history.state_for(subject).append(event.timestamp.second)
            case "timer":
                subject.set_timer(event.timestamp + 7 * SECOND)
            case "tagged":
                subject.set_timer(event.timestamp + 4 * SECOND, "tag")
            case "delete":
                for timer in subject.timers()[:1]:
                    subject.delete_timer(*timer)
            case "session":
                self.sessions.add(subject, event)
            case "tumbling":
                self.tumbling.add(subject, event)
            case "clear":
                self.count.state_for(subject).clear()
                self.history.state_for(subject).clear()
        self.collect_state(subject, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        self.collect_state(subject, [timestamp, subject.timer_tag])

    @sessions.on_close
    @tumbling.on_close
    def on_window(self, subject: Subject, window: Window, value: int) -> None:
        self.collect_state(subject, [window.start, window.end, value])

    def collect_state(self, subject: Subject, what: Any) -> None:
        state = (
            self.count.state_for(subject).value,
            dict(self.names.state_for(subject)),
            list(self.history.state_for(subject)),
        )
        self.outputs.collect(subject, [subject.key, what, *state, [list(timer) for timer in subject.timers()]])


def job_of(handler: Handler, **settings: Any) -> Job:
    return Job("everything", handler, {"in": MemorySource()}, {"outputs": MemorySink()}, **settings)


def process_both_forms(
    operator: Operator, packed: bytes | None, entries: EmbeddedState, *batch: Any
) -> tuple[ProcessedGroup, ProcessedGroup]:
    """Process a batch with both forms of the same key group, and compare the results."""
    entries.load(operator.run)
    packed_result, by_key_result = (
        operator.process(GroupBatch(PackedGroup(packed), *batch)),
        operator.process(GroupBatch(GroupByKey(entries), *batch)),
    )
    entries.put(by_key_result.changes)
    assert packed_result.outputs == by_key_result.outputs
    assert packed_result.counts == by_key_result.counts
    assert packed_result.calls == by_key_result.calls
    assert packed_result.held == by_key_result.held
    assert in_fixed_order(packed_result.changes.packed) == in_fixed_order(packed_group(entries.whole()))
    return packed_result, by_key_result


def chunk_of(events: list[tuple[Any, int, str]]) -> list[Chunk]:
    flat = [field for key, second, action in events for field in (key, at(second), action)]
    return [Chunk("in", b"", pack_events(flat))] if flat else []


@settings(deadline=None)
@given(BATCHES)
def test_both_forms_of_a_key_group_give_the_same_results(
    batches: list[tuple[list[tuple[Any, int, str]], int, bool]],
) -> None:
    job = job_of(Everything())
    packed, entries, watermark, run = None, EmbeddedState(), None, 0
    for events, reached, restarts in batches:
        run += restarts
        operator = Operator(job, run=str(run))
        result, _ = process_both_forms(operator, packed, entries, chunk_of(events), watermark)
        packed = result.changes.packed
        watermark = max(watermark or 0, to_micros(at(reached)))
    assert in_fixed_order(packed_group(EmbeddedState.of(packed).whole())) == in_fixed_order(packed)


@settings(deadline=None)
@given(BATCHES, st.lists(st.sampled_from(["drop", "keep", None]), min_size=12, max_size=12))
def test_both_forms_of_a_key_group_give_the_same_results_while_specs_are_retired_and_return(
    batches: list[tuple[list[tuple[Any, int, str]], int, bool]], retirements: list[Any]
) -> None:
    class WithoutWindows(Handler):
        count = ValueSpec(int, default=0)
        history = ListSpec(int)
        outputs = SinkSpec(list)
        key_event = Everything.key_event

        def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
            self.count.state_for(subject).value += 1

        def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
            self.outputs.collect(subject, [subject.key, timestamp, subject.timer_tag])

    packed, entries, watermark = None, EmbeddedState(), None
    for (events, reached, _), retirement in zip(batches, retirements, strict=False):
        retired = {} if retirement is None else dict.fromkeys(("names", "sessions", "tumbling"), retirement)
        job = job_of(Everything()) if retirement is None else job_of(WithoutWindows(), retired=retired)
        result, _ = process_both_forms(Operator(job), packed, entries, chunk_of(events), watermark)
        packed = result.changes.packed
        watermark = max(watermark or 0, to_micros(at(reached)))


def test_a_batch_reads_and_writes_only_the_keys_of_its_events_and_timers() -> None:
    job = job_of(Everything())
    entries = EmbeddedState()
    all_keys = [(key, 1, "count") for key in range(1000)]
    operator = Operator(job)
    entries.put(operator.process(GroupBatch(GroupByKey(entries), chunk_of(all_keys), None)).changes)
    read: list[bytes] = []
    get = entries.get
    entries.get = lambda ids: read.extend(ids) or get(ids)  # type: ignore[method-assign, func-returns-value]
    changes = operator.process(GroupBatch(GroupByKey(entries), chunk_of([(7, 2, "timer")]), to_micros(at(1)))).changes
    assert len(read) == len(changes.logged) == 2  # the key's entry and the metadata
    assert (changes.keys, changes.pending) == (1000, 1)
    entries.put(changes)
    read.clear()
    operator.process(GroupBatch(GroupByKey(entries), [], to_micros(at(8))))
    assert len(read) == 1
    read.clear()
    changes = operator.process(GroupBatch(GroupByKey(entries), [], to_micros(at(9)))).changes
    assert (len(read), changes.pending) == (2, 0)


class Counting(Handler):
    """Counts the events of each key."""

    count = ValueSpec(int, default=0)
    outputs = SinkSpec(list)
    key_event = Everything.key_event

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.count.state_for(subject).value += 1


def with_window(storage: Any) -> Handler:
    class WithWindow(Counting):
        win = TumblingWindow(50 * SECOND, storage=storage)

        def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
            super().on_event(subject, event)
            if event.value == "add":
                self.win.add(subject, event)

        @win.on_close
        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.outputs.collect(subject, [subject.key, window.start])

    return WithWindow()


def outputs_per_batch(*steps: tuple[Job, str, list[tuple[Any, int, str]], int]) -> list[int]:
    """Return the number of values that each batch collects, in both forms."""
    packed, entries, counts = None, EmbeddedState(), []
    for job, run, events, reached in steps:
        result, _ = process_both_forms(
            Operator(job, run=run), packed, entries, chunk_of(events), to_micros(at(reached))
        )
        packed = result.changes.packed
        counts.append(len(result.outputs.get("outputs", ())))
    return counts


def test_windows_close_after_their_spec_was_retired_and_declared_again() -> None:
    job, without = job_of(with_window("persistent")), job_of(Counting(), retired={"win": "keep"})
    first, changed = [("a", 1, "add")], [("a", 2, "count")]
    steps = (job, "1", first, 0), (without, "2", changed, 1), (job, "3", [], 2), (job, "3", [], 100)
    assert outputs_per_batch(*steps) == [0, 0, 0, 1]


def test_windows_whose_storage_changes_to_memory_are_lost_together() -> None:
    before, after = job_of(with_window("persistent")), job_of(with_window("memory"))
    first = [("a", 1, "add"), ("b", 1, "add")]
    lost = [(before, "1", first, 0), (after, "2", [("a", 2, "add")], 1), (after, "3", [], 2)]
    assert outputs_per_batch(*lost, (after, "3", [], 100)) == [0, 0, 0, 0]
    assert outputs_per_batch(*lost, (after, "3", [("c", 3, "add")], 3), (after, "3", [], 100)) == [0, 0, 0, 0, 1]
    assert outputs_per_batch(*lost[:2], (after, "2", [], 100)) == [0, 0, 2]
