"""What is held, whatever comes in whatever order; see `tests/conformance/test_dependencies.py` for what is decided."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amadou import DependsOn, Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou_plugins.aggregates import Count
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime import TestRun, run

BEGIN = datetime(2025, 1, 1, tzinfo=UTC)
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
    found: defaultdict[str, list[int]] = defaultdict(list)
    for key, minute, *_ in records:
        found[key].append(minute)
    return dict(found)


@given(batches)
@settings(max_examples=300, deadline=None)
def test_events_run_once_in_their_order_and_never_too_far_ahead_or_late_by_waiting(
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


def test_components_that_take_many_events_at_once_wait_as_well() -> None:
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
