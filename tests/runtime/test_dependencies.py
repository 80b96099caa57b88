"""Events that wait for a dependency, for random input. `tests/conformance/test_dependencies.py` has the rules."""

from collections import defaultdict
from datetime import datetime, timedelta, timezone
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amadou import DependencyChange, DependsOn, Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou.event_time import to_micros
from amadou_plugins.aggregates import Count
from amadou_plugins.dependencies import Checkpoint, Dependency, run_sync
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime import TestRun, run
from amadou_runtime.core.dependencies import HOLD_ALL, evaluate

BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
THRESHOLD = 10
Record = tuple[str, int]


def at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


class Seen(Handler):
    seen = SinkSpec(tuple[str, int, bool])

    def key_event(self, record: Record) -> KeyedEvent[int]:
        key, minute = record
        return KeyedEvent(key, at(minute), minute)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        if subject.source == "activities":
            self.seen.collect(subject, (str(subject.key), event.value, subject.is_late))


JOB = Job(
    "seen",
    Seen(),
    {"activities": MemorySource(), "weather": MemorySource()},
    {"seen": MemorySink()},
    dependencies=[DependsOn("activities", on="weather", threshold=timedelta(minutes=THRESHOLD))],
)
records = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=5)
batches = st.lists(st.tuples(records, records), min_size=1, max_size=8)


def by_key(records: list[Any]) -> dict[str, list[int]]:
    minutes: defaultdict[str, list[int]] = defaultdict(list)
    for key, minute, *_ in records:
        minutes[key].append(minute)
    return dict(minutes)


@given(batches)
@settings(max_examples=50)
def test_waiting_events_are_processed_once_in_order_never_too_far_ahead_and_never_late_by_waiting(
    script: list[tuple[list[Record], list[Record]]],
) -> None:
    test = TestRun(JOB)
    brought: list[Record] = []
    ran: list[tuple[str, int, bool]] = []
    late_when_brought: set[Record] = set()
    began: int | None = None
    weather: int | None = None
    for activities, reports in script:
        watermark = test.run().watermark
        late_when_brought |= {record for record in activities if watermark is not None and at(record[1]) < watermark}
        brought += activities
        if activities and began is None:
            began = min(minute for _, minute in activities)
        weather = max([*([] if weather is None else [weather]), *(minute for _, minute in reports)], default=None)
        reached = began if weather is None else weather
        result = test.add_records(activities, "activities").add_records(reports, "weather").end_batch().run()
        new = result.records("seen", new=True)
        ran += new
        held = [(str(event.key), event.value) for event in result.held("activities")]
        waiting = by_key(held)
        assert {key: [*by_key(ran).get(key, []), *waiting.get(key, [])] for key in by_key(brought)} == by_key(brought)
        assert all(minute <= (reached or 0) + THRESHOLD for _, minute, _ in new)
    assert {(key, minute) for key, minute, is_late in ran if is_late} <= late_when_brought
    test.add_record(("a", 1000), "weather").run()
    assert by_key(test.run().records("seen")) == by_key(brought)


minutes = st.none() | st.integers(0, 60)


@given(st.lists(st.tuples(minutes, minutes, minutes), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_a_job_decides_that_dependencies_are_down_as_the_checkpoint_of_the_plugin_does(
    script: list[tuple[int | None, int | None, int | None]],
) -> None:
    thresholds = {"weather": THRESHOLD, "roads": 3 * THRESHOLD}
    needs = [DependsOn("activities", on=name, threshold=60 * minutes) for name, minutes in thresholds.items()]
    names = ["activities", *thresholds]
    job = Job("seen", Seen(), {name: MemorySource() for name in names}, {"seen": MemorySink()}, dependencies=needs)
    expected: list[DependencyChange] = []

    def note(checkpoint: Checkpoint, dependency: Dependency) -> None:
        markers = dependency.down_marker, checkpoint.state_marker, dependency.checkpoint_marker
        batches = dependency.down_state["batch"], checkpoint.state["batch"]
        expected.append(DependencyChange(dependency.name, "activities", dependency.is_down, *markers, *batches))

    on = [Dependency(name, None, timedelta(minutes=threshold)) for name, threshold in thresholds.items()]
    checkpoint, state = Checkpoint("activities", None, on, note, note), None
    newest: dict[str, int] = {}
    brought_in = 0
    for number, brought in enumerate(script):
        expected.clear()
        fresh = {name: minute for name, minute in zip(names, brought, strict=True) if minute is not None}
        for name, minute in fresh.items():
            if minute > newest.get(name, -1):
                newest[name] = minute
                if name == "activities":
                    brought_in = number
                else:
                    run_sync(checkpoint.heartbeat(at(minute), name, batch=number))
        was_down = checkpoint.is_paused
        if "activities" in newest and not was_down:
            run_sync(checkpoint.check_pulse(at(newest["activities"]), batch=brought_in))

        times = {name: to_micros(at(minute)) for name, minute in fresh.items()}
        decided = evaluate(job, state, times, times, number)
        state = decided.state
        assert decided.changes == expected
        assert decided.down == {("activities", each.name) for each in on if each.is_down}
        ahead = [to_micros(each.checkpoint_marker + each.downtime_threshold) for each in on if checkpoint.is_paused]
        assert decided.limits.get("activities") == (HOLD_ALL if was_down else min(ahead, default=None))


def test_events_of_a_vectorized_handler_wait_for_a_dependency() -> None:
    counted = MemorySink()
    handler = windowed(key="0", timestamp="1", window=TumblingWindow(timedelta(minutes=1), value=Count()))
    sources = {
        "activities": MemorySource([("a", at(0)), ("a", at(0)), ("a", at(30))], key_event=pair),
        "weather": MemorySource([("a", at(5))], key_event=pair),
    }
    dependencies = [DependsOn("activities", on="weather", threshold=600)]
    job = Job("count", handler, sources, {"results": counted}, dependencies=dependencies)
    assert run(job, engine="embedded", flush=True).counts.held == {"activities": 1}
    assert [(result.start, result.value) for result in counted.records] == [(at(0), 2), (at(5), 1)]


def pair(record: tuple[str, datetime]) -> KeyedEvent[None]:
    return KeyedEvent(*record)
