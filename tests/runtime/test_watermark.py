"""Watermarks of sources and partitions, and predictions of when they reach a time."""

import json
from datetime import timedelta
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.conformance.handlers import Recorder, job
from tests.runtime.test_describe_stages import joined

from amadou import FromPort, Job, MemorySink, MemorySource, Stage
from amadou.event_time import from_micros
from amadou.plugins import PartitionOffset
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime.core.watermark import BEGINNING_OF_TIME, END_OF_TIME, Newest, Reading, Watermark

SECOND = 1_000_000
SOURCES = ("a", "b", "c")
Idle: TypeAlias = int | dict[str, int] | None

seconds = st.integers(0, 30)
timeouts = st.integers(1, 20) | st.dictionaries(st.sampled_from(SOURCES), st.integers(1, 20), min_size=1)
NewestSeconds: TypeAlias = dict[str, int]
"""Newest times in seconds by partition. The name of a partition begins with that of its source."""
partitions = st.sampled_from(["a", "a1", "a2", "b", "b1", "c"])
scripts = st.lists(st.tuples(seconds, st.dictionaries(partitions, seconds, min_size=1)), max_size=5)


def by_source(newest: NewestSeconds) -> Newest:
    return {
        source: {name[1:]: at * SECOND for name, at in newest.items() if name[0] == source}
        for source in {name[0] for name in newest}
    }


def watermark_after(script: list[tuple[int, NewestSeconds]], idle: Idle) -> tuple[Watermark, int]:
    """Return the watermark after some batches, each with its delay after the previous batch, and the clock's time."""
    delays = {"a": 2, "b": 2, "c": 0}
    watermark, now = Watermark(job(Recorder(), *SOURCES, watermark_delay=delays, idle_timeout=idle), began=0), 0
    for after, newest in script:
        now += after * SECOND
        watermark.follow(now)
        watermark.observe(by_source(newest), now)
    return watermark, now


@example([(0, {"a": 5}), (2, {"b": 20})], 5, 18)  # when a is idle the watermark comes to the target
@example([(0, {"a": 5}), (2, {"b": 20})], 5, 10)  # when a is idle the watermark goes past the target
@example([(0, {"a": 5, "b": 20})], {"b": 5}, 18)  # a is waited for
@example([(0, {"a1": 5}), (2, {"a2": 20})], 5, 18)  # when one partition of a is idle the watermark comes to the target
@given(scripts, st.none() | timeouts, st.integers(-5, 60))
def test_the_watermark_reaches_a_time_exactly_when_predicted(
    script: list[tuple[int, NewestSeconds]], idle: Idle, target: int
) -> None:
    watermark, now = watermark_after(script, idle)
    reached = watermark.reaches(target * SECOND, now)
    if reached is None:
        assert (watermark.follow(now + 10**6 * SECOND) or -SECOND * 100) < target * SECOND
        return
    before, _ = watermark_after(script, idle)
    if reached > now:
        assert (before.follow(reached - 1) or -SECOND * 100) < target * SECOND
    assert (watermark.follow(reached) or 0) >= target * SECOND


@example([(0, {"a": 5}), (2, {"b": 20})], 5, [4, 90])  # looks where a is idle and b is not
@given(scripts, timeouts, st.lists(seconds, max_size=4))
def test_reading_the_watermark_does_not_change_it(
    script: list[tuple[int, NewestSeconds]], idle: Idle, looks: list[int]
) -> None:
    looked, now = watermark_after(script, idle)
    alone, _ = watermark_after(script, idle)
    for after in looks:
        now += after * SECOND
        looked.follow(now)
    assert looked.follow(now) == alone.follow(now)


@given(scripts, timeouts, seconds)
def test_a_watermark_continues_after_it_is_stored_and_loaded(
    script: list[tuple[int, NewestSeconds]], idle: Idle, after: int
) -> None:
    before, now = watermark_after(script, idle)
    resumed, _ = watermark_after([], idle)
    resumed.load(json.loads(json.dumps(before.to_json())))
    later = now + after * SECOND
    assert resumed.follow(later) == before.follow(later)


def test_a_source_that_was_removed_does_not_hold_the_watermark_back() -> None:
    before, now = watermark_after([(0, {"a": 10, "b": 3})], None)
    resumed = Watermark(job(Recorder(), "a", watermark_delay=2))
    resumed.load(before.to_json())
    assert resumed.follow(now) == 8 * SECOND


def test_held_events_do_not_advance_the_watermark() -> None:
    watermark, now = watermark_after([(0, {"a": 10, "b": 30, "c": 29})], None)
    assert watermark.newest == 30 * SECOND
    watermark.hold({"b": (1, 7 * SECOND)})
    assert watermark.newest == 29 * SECOND
    assert watermark.reaches(100 * SECOND, now) is None
    before = watermark.follow(now)
    assert before == 5 * SECOND
    watermark.hold({})
    assert watermark.follow(now) == 8 * SECOND


def test_the_watermark_advances_when_predicted_after_its_sources_were_removed() -> None:
    before, now = watermark_after([(0, {"a": 10, "b": 10, "c": 10}), (1, {"a": 10, "b": 10, "c": 10})], None)
    before.follow(now)
    resumed = Watermark(job(Recorder(), "b", watermark_delay=2, idle_timeout=5), began=now)
    resumed.load(before.to_json())
    at = resumed.reaches(60 * SECOND, now)
    assert at == now + (5 + 52) * SECOND  # b is waited for
    assert resumed.follow(at) == 60 * SECOND


def test_the_watermark_does_not_exceed_the_end_of_time() -> None:
    watermark, now = watermark_after([(0, {"a": 1})], 1)
    assert watermark.follow(now + END_OF_TIME * 2) == END_OF_TIME


def read(**offsets: tuple[int, int]) -> dict[str, PartitionOffset]:
    """Return the positions of partitions and their ends."""
    return {name: PartitionOffset(*offset) for name, offset in offsets.items()}


class Run:
    """Processes batches of the source `a`, which reports the positions of its partitions."""

    def __init__(self, *, ends: bool, idle: Idle = None) -> None:
        self.watermark = Watermark(job(Recorder(), "a", idle_timeout=idle), ends=ends)
        self.offsets: dict[str, PartitionOffset] = {}
        self.now = 0

    def process(self, offsets: dict[str, PartitionOffset], newest: dict[str, int], after: int = 1) -> int | None:
        """Process a batch this many seconds after the previous one. Return its watermark in seconds."""
        self.now += after * SECOND
        reached = self.watermark.follow(self.now, {"a": Reading.between(self.offsets, offsets)})
        self.offsets = offsets
        self.watermark.observe({"a": {name: at * SECOND for name, at in newest.items()}}, self.now)
        return None if reached is None else reached // SECOND


def test_the_slowest_partition_with_more_to_read_holds_the_watermark_back() -> None:
    run = Run(ends=True)
    assert run.process(read(p=(10, 30), q=(10, 10)), {"p": 5, "q": 50}) is None
    assert run.process(read(p=(20, 30), q=(10, 10)), {"p": 8}) == 5
    assert run.process(read(p=(30, 30), q=(10, 10)), {"p": 20}) == 8
    assert run.process(read(p=(30, 30), q=(10, 10)), {}) == 20


def test_a_partition_at_its_end_does_not_hold_the_watermark_back_in_a_run_that_ends() -> None:
    run = Run(ends=True)
    run.process(read(p=(10, 10), q=(10, 30)), {"p": 5, "q": 6})
    assert run.process(read(p=(10, 10), q=(20, 30)), {"q": 40}) == 6
    assert run.process(read(p=(10, 10), q=(30, 30)), {"q": 60}) == 40
    assert run.process(read(p=(10, 10), q=(30, 30)), {}) == 60


def test_a_partition_at_its_end_holds_the_watermark_back_until_it_is_idle_in_a_run_without_end() -> None:
    run = Run(ends=False, idle=5)
    run.process(read(p=(10, 10), q=(10, 30)), {"p": 5, "q": 6})
    assert run.process(read(p=(10, 10), q=(20, 30)), {"q": 40}, after=4) == 5
    assert run.process(read(p=(10, 10), q=(30, 30)), {"q": 60}, after=1) == 40, "the partition p is idle"


def test_a_partition_with_more_to_read_is_not_idle() -> None:
    run = Run(ends=False, idle=5)
    run.process(read(p=(10, 30), q=(10, 30)), {"p": 5, "q": 6})
    assert run.process(read(p=(10, 30), q=(20, 30)), {"q": 40}, after=100) == 5
    assert run.watermark.reaches(6 * SECOND, 200 * SECOND) is None


def test_the_watermark_does_not_advance_before_each_partition_was_read_once() -> None:
    run = Run(ends=True)
    run.process(read(p=(10, 30), q=(0, 30)), {"p": 5})
    assert run.process(read(p=(10, 30), q=(10, 30)), {"q": 2}) is None
    assert run.process(read(p=(10, 30), q=(20, 30)), {"q": 4}) == 2
    assert run.process(read(p=(10, 30), q=(30, 30), r=(0, 10)), {"q": 30}) == 2, "a new partition"
    assert run.process(read(p=(20, 30), q=(30, 30), r=(10, 10)), {"p": 10, "r": 20}) == 2
    assert run.process(read(p=(30, 30), q=(30, 30), r=(10, 10)), {"p": 40}) == 10


def test_a_partition_without_events_does_not_hold_the_watermark_back() -> None:
    run = Run(ends=False)
    run.process(read(p=(10, 10), q=(10, 10)), {"p": 5})
    assert run.process(read(p=(20, 20), q=(20, 20)), {"p": 9}) == 5
    assert run.process(read(p=(20, 20), q=(30, 30)), {}) == 9


def test_a_partition_that_was_removed_does_not_hold_the_watermark_back() -> None:
    run = Run(ends=False)
    run.process(read(p=(10, 10), q=(10, 10)), {"p": 5, "q": 8})
    assert run.process(read(q=(20, 20)), {"q": 9}) == 8


def test_reports_name_the_partition_that_holds_the_watermark_back() -> None:
    run = Run(ends=True)
    run.process(read(p=(10, 30), q=(10, 20), r=(0, 7)), {"p": 5, "q": 50})
    assert [(each.partition, each.lag, each.holds_back) for each in run.watermark.reports(0)] == [
        ("p", 20, False),
        ("q", 10, False),
        ("r", 7, True),
    ]
    run.process(read(p=(20, 30), q=(20, 20), r=(7, 7)), {"p": 9, "q": 60, "r": 61})
    assert [each.partition for each in run.watermark.reports(0) if each.holds_back] == ["p"]


def test_the_watermark_is_not_before_the_beginning_of_time() -> None:
    watermark = Watermark(job(Recorder(), "a", watermark_delay=3600))
    watermark.observe({"a": {"": BEGINNING_OF_TIME}}, 0)
    assert watermark.follow(0) == BEGINNING_OF_TIME


def test_the_time_of_an_outage_does_not_count_as_idle() -> None:
    run = Run(ends=False, idle=5)
    run.process(read(p=(10, 10), q=(10, 10)), {"p": 5, "q": 6})
    back = from_micros(20 * SECOND)
    away = {name: PartitionOffset(10, 10, back) for name in "pq"}
    assert run.process(away, {}, after=20) == 5, "both partitions are waited for again"
    assert run.process(away, {}, after=3) == 5
    assert run.process(away, {}, after=2) == 6, "both partitions are idle"


@pytest.mark.parametrize(("web", "app", "is_holding"), [(11, 14, False), (14, None, False), (14, 13, True)])
def test_a_partition_does_not_hold_the_watermark_back_if_a_port_does(
    web: int, app: int | None, is_holding: bool
) -> None:
    watermark = Watermark(joined().by_stage["all"])
    watermark.observe({"more": {"": 12 * SECOND}}, 0)
    watermark.feed({"web": web * SECOND, "app": None if app is None else app * SECOND}, None)
    (report,) = watermark.reports(0)
    assert report.holds_back == is_holding


def brought(*sources: str) -> dict[str, Reading]:
    """Return what a batch reads from the sources a and b, which do not report the positions of partitions."""
    return {source: Reading.whole(source in sources) for source in "ab"}


def test_a_source_that_brings_only_filtered_records_becomes_idle() -> None:
    watermark = Watermark(job(Recorder(), "a", "b", idle_timeout=5), began=0)
    reached = []
    for second in range(1, 14):
        reached.append(watermark.follow(second * SECOND, brought("a", "b")))  # a goes on bringing records
        newest = {"b": {"": second * SECOND}} | ({"a": {"": SECOND}} if second == 1 else {})
        watermark.observe(newest, second * SECOND)
    assert reached[1:6] == [SECOND] * 5
    assert reached[7:] == [second * SECOND for second in range(7, 13)]


def test_a_source_that_brings_records_after_a_pause_is_not_idle_in_that_batch() -> None:
    watermark = Watermark(job(Recorder(), "a", "b", idle_timeout=5), began=0)
    watermark.follow(SECOND, brought("a", "b"))
    watermark.observe({"a": {"": SECOND}, "b": {"": SECOND}}, SECOND)
    watermark.follow(2 * SECOND, brought("b"))
    watermark.observe({"b": {"": 50 * SECOND}}, 2 * SECOND)
    assert watermark.follow(60 * SECOND, brought("a", "b")) == SECOND  # after a batch that took a minute


def test_a_backlog_of_filtered_records_holds_the_watermark_back() -> None:
    run = Run(ends=False, idle=5)
    run.process(read(p=(10, 10), q=(10, 100)), {"p": 5, "q": 4})
    for position in range(20, 100, 10):
        assert run.process(read(p=(position, position), q=(position, 100)), {"p": position}, after=10) == 4
    assert run.process(read(p=(100, 100), q=(100, 100)), {"p": 100}, after=10) == 4
    assert run.process(read(p=(110, 110), q=(100, 100)), {"p": 110}, after=10) == 100


def test_a_source_without_further_records_is_not_waited_for_in_a_run_that_ends() -> None:
    watermark = Watermark(job(Recorder(), "a", "b"), ends=True, began=0)
    watermark.follow(SECOND, brought("a", "b"))
    watermark.observe({"a": {"": 7 * SECOND}}, SECOND)
    assert watermark.follow(2 * SECOND, brought("a", "b")) is None  # b has more records
    watermark.observe({"a": {"": 8 * SECOND}}, 2 * SECOND)
    assert watermark.follow(3 * SECOND, brought("a")) == 8 * SECOND
    assert watermark.held_back_by(3 * SECOND) == "a"


def test_the_time_until_which_a_source_is_waited_for_is_predicted() -> None:
    watermark = Watermark(job(Recorder(), "a", "b", idle_timeout={"b": 30}), began=0)
    watermark.follow(SECOND, brought("a"))
    watermark.observe({"a": {"": 7 * SECOND}}, SECOND)
    assert (watermark.follow(2 * SECOND, brought()), watermark.held_back_by(2 * SECOND)) == (None, "b")
    assert watermark.reaches(5 * SECOND, 2 * SECOND) == 30 * SECOND
    assert watermark.reaches(9 * SECOND, 2 * SECOND) is None
    assert watermark.follow(30 * SECOND, brought()) == 7 * SECOND


def test_the_time_at_which_a_source_beside_a_port_becomes_idle_is_predicted() -> None:
    sources = {"fed": FromPort("first", "results"), "own": MemorySource()}
    stages = {
        "first": Stage(
            windowed(key="k", timestamp="t", window=TumblingWindow(timedelta(seconds=1))), {"in": MemorySource()}
        ),
        "second": Stage(Recorder(), sources, {"seen": MemorySink()}, idle_timeout={"own": 10}),
    }
    watermark = Watermark(Job("staged", stages=stages).by_stage["second"])
    watermark.follow(0)
    watermark.observe({"own": {"": 5 * SECOND}}, 0)
    watermark.feed({"first": 50 * SECOND}, None)
    watermark.follow(SECOND)
    assert watermark.reaches(8 * SECOND, SECOND) == 10 * SECOND
    assert watermark.follow(10 * SECOND) == 50 * SECOND
