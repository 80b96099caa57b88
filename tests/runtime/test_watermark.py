"""What `Watermark` foretells is what comes."""

import json
from typing import TypeAlias

from hypothesis import example, given
from hypothesis import strategies as st
from tests.conformance.handlers import Recorder, job

from amadou_runtime._watermark import END_OF_TIME, Watermark

SECOND = 1_000_000
SOURCES = ("a", "b", "c")
Idle: TypeAlias = int | dict[str, int] | None

seconds = st.integers(0, 30)
timeouts = st.integers(1, 20) | st.dictionaries(st.sampled_from(SOURCES), st.integers(1, 20), min_size=1)
brought = st.lists(st.tuples(seconds, st.dictionaries(st.sampled_from(SOURCES), seconds, min_size=1)), max_size=5)


def watermark_after(script: list[tuple[int, dict[str, int]]], idle: Idle) -> tuple[Watermark, int]:
    """A watermark after some batches, each a time after the one before it, and the clock's time."""
    delays = {"a": 2, "b": 2, "c": 0}
    watermark, now = Watermark(job(Recorder(), *SOURCES, watermark_delay=delays, idle_timeout=idle)), 0
    for after, newest in script:
        now += after * SECOND
        watermark.follow(now)
        watermark.observe({source: at * SECOND for source, at in newest.items()}, now)
    return watermark, now


@example([(0, {"a": 5}), (2, {"b": 20})], 5, 18)  # when a is idle the watermark comes to the target
@example([(0, {"a": 5}), (2, {"b": 20})], 5, 10)  # when a is idle the watermark goes past the target
@example([(0, {"a": 5, "b": 20})], {"b": 5}, 18)  # a is waited for
@given(brought, st.none() | timeouts, st.integers(-5, 60))
def test_a_time_is_reached_when_it_was_foretold_and_not_before(
    script: list[tuple[int, dict[str, int]]], idle: Idle, target: int
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
@given(brought, timeouts, st.lists(seconds, max_size=4))
def test_looking_in_between_changes_nothing(
    script: list[tuple[int, dict[str, int]]], idle: Idle, looks: list[int]
) -> None:
    looked, now = watermark_after(script, idle)
    alone, _ = watermark_after(script, idle)
    for after in looks:
        now += after * SECOND
        looked.follow(now)
    assert looked.follow(now) == alone.follow(now)


@given(brought, timeouts, seconds)
def test_a_watermark_goes_on_from_what_was_kept(
    script: list[tuple[int, dict[str, int]]], idle: Idle, after: int
) -> None:
    kept, now = watermark_after(script, idle)
    resumed, _ = watermark_after([], idle)
    resumed.load(json.loads(json.dumps(kept.to_json())))
    later = now + after * SECOND
    assert resumed.follow(later) == kept.follow(later)


def test_a_source_that_the_job_no_longer_has_holds_nothing_back() -> None:
    kept, now = watermark_after([(0, {"a": 10, "b": 3})], None)
    resumed = Watermark(job(Recorder(), "a", watermark_delay=2))
    resumed.load(kept.to_json())
    assert resumed.follow(now) == 8 * SECOND


def test_what_is_held_has_not_come() -> None:
    watermark, now = watermark_after([(0, {"a": 10, "b": 30})], None)
    assert watermark.newest == 30 * SECOND
    watermark.hold({"b": (1, 7 * SECOND)})
    assert watermark.newest == 10 * SECOND
    assert watermark.reaches(100 * SECOND, now) is None
    before = watermark.follow(now)
    assert before == 5 * SECOND
    watermark.hold({})
    assert watermark.follow(now) == 8 * SECOND


def test_a_watermark_of_sources_that_are_gone_rises_and_comes_when_it_was_foretold() -> None:
    kept, now = watermark_after([(0, {"a": 10}), (1, {"a": 10})], None)
    kept.follow(now)
    resumed = Watermark(job(Recorder(), "b", watermark_delay=2, idle_timeout=5))
    resumed.load(kept.to_json())
    at = resumed.reaches(60 * SECOND, now)
    assert at == now + 52 * SECOND
    assert resumed.follow(at) == 60 * SECOND


def test_the_watermark_ends_with_time() -> None:
    watermark, now = watermark_after([(0, {"a": 1})], 1)
    assert watermark.follow(now + END_OF_TIME * 2) == END_OF_TIME
