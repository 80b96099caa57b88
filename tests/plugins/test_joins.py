"""Each kind of join against a naive computation over the whole input, however it is cut; and what they refuse."""

import pickle
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.windows import KEYS, SECOND, at, count, few_inputs

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou.errors import AmadouError, CallbackError, JobError, SpecError
from amadou.event_time import from_micros, to_micros
from amadou_plugins.joins import AsOfJoin, IntervalJoin, JoinSourceError, JoinSpec, LatestJoin
from amadou_runtime import TestResult, TestRun

MICROS = 1_000_000
DISORDER = 5
SIDES: dict[str, Any] = {"left": "l", "right": "r"}
TICK = timedelta(microseconds=1)

SourcedEvent = tuple[str, KeyedEvent[int]]
"""A source and one of its events."""

distances = st.integers(0, 7) | st.sampled_from([0.000001, 2.000001])
latenesses = st.sampled_from([0, 0, 2, 0.000001])


class Joining(Handler):
    """Adds each event to its join. Collects matches, late events, and all events in order of arrival."""

    matches = SinkSpec(tuple)
    late = SinkSpec(tuple)
    seen = SinkSpec(tuple)

    def __init__(self, join: JoinSpec) -> None:
        self.join = join

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.seen.collect(subject, (subject.source, event, subject.watermark_micros))
        self.join.add(subject, event)


def _matched(subject: Subject, left: KeyedEvent[Any] | None, right: KeyedEvent[Any] | None) -> None:
    events = [event for event in (left, right) if event is not None]
    assert all(repr(event.key) == repr(subject.key) and event.timestamp.tzinfo is timezone.utc for event in events)
    values = [None if event is None else event.value for event in (left, right)]
    if "fail" in values:
        raise ValueError("not this one")
    subject.handler.matches.collect(subject, (subject.key, *values))


def _too_late(subject: Subject, event: KeyedEvent[Any]) -> None:
    subject.handler.late.collect(subject, (subject.source, *event))


def joining(kind: type[JoinSpec], **settings: Any) -> Joining:
    """Make a handler with a join of a kind, called `join`."""
    return Joining(kind(**SIDES, name="join", on_match=_matched, on_late=_too_late, **settings))


def job(handler: Handler, **settings: Any) -> Job:
    sinks = {port: MemorySink() for port in ("matches", "late", "seen")}
    return Job("joins", handler, {"l": MemorySource(), "r": MemorySource(), "x": MemorySource()}, sinks, **settings)


def event(second: float, value: Any = None, key: Any = "a") -> KeyedEvent[Any]:
    return KeyedEvent(key, at(second), value)


def micros(length: float) -> int:
    return round(length * MICROS)


@st.composite
def times(draw: st.DrawFn, first: int, last: int) -> int:
    """Draw a time in microseconds, often at a full second or next to one."""
    return draw(st.integers(first, last)) * MICROS + draw(st.sampled_from([0, 0, 0, -1, 1]))


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[str, list[SourcedEvent]]]:
    """Draw batches of events and the ways in which they end. Events are out of order by at most `DISORDER`."""
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique_by=repr))
    newest = draw(st.sampled_from([-1000, 0, 10**6])) * MICROS
    ends = st.sampled_from(["", "", "", "end_batch", "restart", "crash"])
    after_newest = times(-DISORDER, 4) | st.sampled_from([-DISORDER * MICROS, 20 * MICROS])
    one = st.tuples(st.sampled_from("lr"), st.sampled_from(keys), after_newest, ends)
    batches: list[tuple[str, list[SourcedEvent]]] = []
    batch: list[SourcedEvent] = []
    for number, (source, key, after, end) in enumerate(draw(st.lists(one, max_size=25))):
        time = newest + max(after, -DISORDER * MICROS)
        newest = max(newest, time)
        batch.append((source, KeyedEvent(key, from_micros(time), number)))
        if end:
            batches.append((end, batch))
            batch = []
    return [*batches, ("end_batch", batch)]


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[int | None, list[SourcedEvent]]]:
    """Draw batches of events with the watermark of each in microseconds. Many events are behind the watermark."""
    script: list[tuple[int | None, list[SourcedEvent]]] = []
    watermark: int | None = None
    number = 0
    for position in range(draw(st.integers(1, 5))):
        events = []
        for source, time in draw(
            st.lists(st.tuples(st.sampled_from("lr"), times(5 * position - 12, 5 * position + 8)))
        ):
            number += 1
            events.append((source, KeyedEvent("a", from_micros(time), number)))
        script.append((watermark, events))
        reached = draw(times(5 * position - 8, 5 * position + 6))
        watermark = reached if watermark is None else max(watermark, reached)
    return script


def outcome_of(handler: Handler, batches: list[tuple[str, list[SourcedEvent]]], **settings: Any) -> TestResult:
    """Return the results of batches, for the highest watermark that no event is behind."""
    run = TestRun(job(handler, watermark_delay=DISORDER, **settings))
    newest = None
    for end, batch in batches:
        for source, one in batch:
            run.add_record(one, source)
            newest = one.timestamp if newest is None else max(newest, one.timestamp)
        getattr(run, end)()
        if newest is not None:
            run.add_watermark(newest - DISORDER * SECOND)
    return run.run(flush=True)


def outcome_of_script(handler: Handler, script: list[tuple[int | None, list[SourcedEvent]]]) -> TestResult:
    """Return the results of batches with their watermarks."""
    run = TestRun(job(handler, watermark_delay=10**6))  # only the script advances the watermark
    for watermark, batch in script:
        if watermark is not None:
            run.add_watermark(from_micros(watermark))
        for source, one in batch:
            run.add_record(one, source)
    return run.run(flush=True)


def by_key(events: list[SourcedEvent]) -> list[tuple[Any, list[tuple[int, int]], list[tuple[int, int]]]]:
    """Return each key with times and values of its left and right events. Equal keys of different types differ."""
    keys = {repr(one.key): one.key for _, one in events}
    return [
        (
            key,
            *(
                [
                    (to_micros(one.timestamp), one.value)
                    for side, one in events
                    if repr(one.key) == text and side == source
                ]
                for source in "lr"
            ),
        )  # type: ignore[misc]
        for text, key in keys.items()
    ]


def nearest(time: int, rights: list[tuple[int, int]], tolerance: int | None, direction: str) -> int | None:
    """Return the value of the right event that matches a left event, by comparing all right events."""
    best: tuple[int, int] | None = None
    answer = None
    for there, value in rights:
        if (there > time and direction == "backward") or (there < time and direction == "forward"):
            continue
        rank = (abs(there - time), there)
        if (tolerance is None or rank[0] <= tolerance) and (best is None or rank <= best):
            best, answer = rank, value
    return answer


@st.composite
def as_of_settings(draw: st.DrawFn) -> dict[str, Any]:
    direction = draw(st.sampled_from(["backward", "forward", "nearest"]))
    tolerance = draw(distances if direction != "backward" else st.none() | distances)
    return {
        "direction": direction,
        "tolerance": None if tolerance is None else tolerance * SECOND,
        "how": draw(st.sampled_from(["left", "inner"])),
        "allowed_lateness": draw(latenesses) * SECOND,
    }


@few_inputs
@given(streams(), as_of_settings())
def test_as_of_joins_match_the_nearest_event_for_any_division_into_batches(batches: Any, settings: Any) -> None:
    result = outcome_of(joining(AsOfJoin, **settings), batches)
    tolerance = None if settings["tolerance"] is None else settings["tolerance"] // TICK
    expected = []
    for key, lefts, rights in by_key([one for _, batch in batches for one in batch]):
        for time, value in lefts:
            match = nearest(time, rights, tolerance, settings["direction"])
            if match is not None or settings["how"] == "left":
                expected.append((key, value, match))
    assert count(result.records("matches")) == count(expected)
    assert result.records("late") == []
    if tolerance is not None:
        assert result.keys() == []


@few_inputs
@given(scripts(), as_of_settings())
def test_as_of_joins_accept_late_events_until_no_answer_can_change(script: Any, settings: Any) -> None:
    result = outcome_of_script(joining(AsOfJoin, **settings), script)
    tolerance = None if settings["tolerance"] is None else settings["tolerance"] // TICK
    direction = settings["direction"]
    wait = settings["allowed_lateness"] // TICK + (tolerance if direction != "backward" else 0)
    back = 0 if direction == "forward" else tolerance
    lefts, rights, late = [], [], []
    for number, (watermark, batch) in enumerate(script):
        for source, one in batch:
            time = to_micros(one.timestamp)
            own = 0 if source == "l" else back
            if watermark is not None and own is not None and time + own + wait < watermark:
                late.append((source, *one))
            elif source == "l":
                lefts.append((time, one.value))
            else:
                rights.append((number, time, one.value))
    expected = []
    for time, value in lefts:
        answered = [number for number, (mark, _) in enumerate(script) if mark is not None and mark > time + wait]
        end = min(answered, default=len(script))  # what comes in the batch that answers comes after the answer
        match = nearest(time, [(there, right) for number, there, right in rights if number < end], tolerance, direction)
        if match is not None or settings["how"] == "left":
            expected.append(("a", value, match))
    assert count(result.records("matches")) == count(expected)
    assert count(result.records("late")) == count(late)
    assert result.counters.get("join.late", 0) == len(late)


@st.composite
def interval_settings(draw: st.DrawFn) -> dict[str, Any]:
    bounds = sorted(draw(st.lists(st.integers(-7, 7) | st.sampled_from([-0.000001, 2.000001]), min_size=2, max_size=2)))
    return {
        "lower": bounds[0] * SECOND,
        "upper": bounds[1] * SECOND,
        "how": draw(st.sampled_from(["inner", "left", "right", "outer"])),
        "allowed_lateness": draw(latenesses) * SECOND,
    }


def with_lone(how: str, key: Any, pairs: list[tuple[int, int]], lefts: list[int], rights: list[int]) -> list[Any]:
    """Return the results of a key from its pairs and the values of both sides."""
    results: list[Any] = [(key, *pair) for pair in pairs]
    if how in ("left", "outer"):
        results += [(key, left, None) for left in lefts if left not in [pair[0] for pair in pairs]]
    if how in ("right", "outer"):
        results += [(key, None, right) for right in rights if right not in [pair[1] for pair in pairs]]
    return results


@few_inputs
@given(streams(), interval_settings())
def test_interval_joins_return_each_pair_once_for_any_division_into_batches(batches: Any, settings: Any) -> None:
    result = outcome_of(joining(IntervalJoin, **settings), batches)
    lower, upper = settings["lower"] // TICK, settings["upper"] // TICK
    expected = []
    for key, lefts, rights in by_key([one for _, batch in batches for one in batch]):
        pairs = [(left, right) for t, left in lefts for there, right in rights if t + lower <= there <= t + upper]
        expected += with_lone(settings["how"], key, pairs, [one[1] for one in lefts], [one[1] for one in rights])
    assert count(result.records("matches")) == count(expected)
    assert (result.keys(), result.records("late")) == ([], [])


@few_inputs
@given(scripts(), interval_settings())
def test_interval_joins_accept_late_events_while_a_pair_is_possible(script: Any, settings: Any) -> None:
    result = outcome_of_script(joining(IntervalJoin, **settings), script)
    lower, upper, lateness = (settings[name] // TICK for name in ("lower", "upper", "allowed_lateness"))
    last = {"l": max(upper, 0) + lateness, "r": max(-lower, 0) + lateness}
    taken: dict[str, list[Any]] = {"l": [], "r": []}
    late = []
    for watermark, batch in script:
        for source, one in batch:
            until = to_micros(one.timestamp) + last[source]
            if watermark is not None and until < watermark:
                late.append((source, *one))
            else:
                taken[source].append((to_micros(one.timestamp), until, watermark, one.value))
    pairs = [
        (left, right)
        for time, left_until, left_mark, left in taken["l"]
        for there, right_until, right_mark, right in taken["r"]
        if time + lower <= there <= time + upper
        and (right_mark is None or left_until >= right_mark)
        and (left_mark is None or right_until >= left_mark)
    ]
    expected = with_lone(settings["how"], "a", pairs, *([one[3] for one in taken[side]] for side in "lr"))
    assert count(result.records("matches")) == count(expected)
    assert count(result.records("late")) == count(late)
    assert result.keys() == []


@few_inputs
@given(scripts(), st.none() | st.integers(1, 9), st.sampled_from(["left", "inner"]), latenesses)
def test_latest_joins_match_the_newest_event_so_far(script: Any, ttl: int | None, how: str, lateness: Any) -> None:
    life = None if ttl is None else ttl * SECOND
    result = outcome_of_script(joining(LatestJoin, how=how, ttl=life, allowed_lateness=lateness * SECOND), script)
    expected: list[Any] = []
    late = []
    newest: tuple[int, int, int] | None = None  # time, value, written
    for source, (key, timestamp, value), watermark in result.records("seen"):
        time = to_micros(timestamp)
        now = time if watermark is None else max(time, watermark)
        seen = newest if newest is None or ttl is None or now < newest[2] + ttl * MICROS else None
        if source == "l":
            if seen is not None or how == "left":
                expected.append((key, value, None if seen is None else seen[1]))
        elif ttl is not None and watermark is not None and time + ttl * MICROS + micros(lateness) <= watermark:
            late.append((source, key, timestamp, value))
        elif seen is None or time >= seen[0]:
            newest = (time, value, now if seen is None else max(now, seen[2]))
    assert result.records("matches") == expected
    assert result.records("late") == late
    assert ttl is None or result.keys() == []


def test_as_of_joins_answer_when_the_watermark_passes_the_tolerance_and_allowed_lateness() -> None:
    handler = joining(AsOfJoin, tolerance=2 * SECOND, direction="nearest", allowed_lateness=SECOND)
    run = TestRun(job(handler, watermark_delay=1000)).add_record(event(10, "left"), "l").add_watermark(at(13))
    run.add_record(event(12, "right"), "r")  # within allowed_lateness
    assert run.run().records("matches") == []
    result = run.add_watermark(at(13.000001)).run()
    assert result.records("matches") == [("a", "left", "right")]
    assert result.trace[-1].timestamp == at(13.000001)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_as_of_joins_match_the_last_of_several_events_with_the_same_time(direction: Any) -> None:
    run = TestRun(job(joining(AsOfJoin, tolerance=SECOND, direction=direction)))
    run.add_records([event(10, "at, first"), event(9.5, "before"), event(10, "at, last"), event(10.5, "after")], "r")
    result = run.add_record(event(10, "left"), "l").run(flush=True)
    assert result.records("matches") == [("a", "left", "at, last")]


def test_as_of_joins_match_the_earlier_of_two_equally_near_events() -> None:
    run = TestRun(job(joining(AsOfJoin, tolerance=SECOND, direction="nearest")))
    run.add_records([event(11, "after"), event(9, "before")], "r").add_record(event(10, "left"), "l")
    assert run.run(flush=True).records("matches") == [("a", "left", "before")]


def test_interval_joins_return_pairs_at_once_and_single_events_when_no_pair_is_possible() -> None:
    handler = joining(IntervalJoin, lower=-2 * SECOND, upper=SECOND, how="outer")
    run = TestRun(job(handler)).add_record(event(10, "l1"), "l").add_record(event(20, "l2"), "l")
    run.add_record(event(11, "r1"), "r").add_record(event(17, "r2"), "r")
    assert run.run().records("matches") == [("a", "l1", "r1")]
    assert run.add_watermark(at(19)).run().records("matches", new=True) == []
    assert run.add_watermark(at(21)).run().records("matches", new=True) == [("a", None, "r2")]
    assert run.add_watermark(at(21.000001)).run().records("matches", new=True) == [("a", "l2", None)]
    assert run.run().keys() == []


@pytest.mark.parametrize("before", [[], [event(30)]])
def test_interval_joins_pair_late_events_in_either_order_of_arrival(before: list[Any]) -> None:
    handler = joining(IntervalJoin, lower=-10 * SECOND, upper=-5 * SECOND)
    run = TestRun(job(handler, watermark_delay=1000)).add_watermark(at(10)).add_record(event(10, "left"), "l")
    result = run.add_records([*before, event(2, "right")], "r").run()  # sources are merged by time
    arrived = [one[1] for one in result.records("seen") if one[1].value]
    assert [one.value for one in arrived] == (["left", "right"] if before else ["right", "left"])
    assert result.records("matches") == [("a", "left", "right")]


def stored(run: TestRun) -> list[int]:
    """Return the numbers of left and right events that the join stores."""
    return [len(events) for events in run.run().state("join", "a").values()]


def steady(handler: Handler, sources: str, seconds: int = 50, **settings: Any) -> TestRun:
    """Return a run with one event of each source per second, each second in its own batch."""
    run = TestRun(job(handler, **settings))
    for second in range(seconds):
        for source in sources:
            run.add_record(event(second, second), source)
        run.add_watermark(at(second))
    return run


@pytest.mark.parametrize(
    ("kind", "settings", "most"),
    [
        (LatestJoin, {}, [0, 1]),
        (AsOfJoin, {}, [1, 2]),
        (AsOfJoin, {"tolerance": 3 * SECOND}, [1, 2]),
        (AsOfJoin, {"tolerance": 3 * SECOND, "allowed_lateness": 2 * SECOND}, [3, 4]),
        (AsOfJoin, {"tolerance": 3 * SECOND, "direction": "forward"}, [4, 4]),
        (AsOfJoin, {"tolerance": 3 * SECOND, "direction": "nearest"}, [4, 5]),
        (IntervalJoin, {"lower": -2 * SECOND, "upper": 4 * SECOND}, [6, 4]),
        (IntervalJoin, {"lower": -2 * SECOND, "upper": 4 * SECOND, "how": "outer"}, [5, 3]),
        (IntervalJoin, {"lower": 2 * SECOND, "upper": 4 * SECOND, "how": "left"}, [5, 1]),
    ],
)
def test_joins_store_only_events_that_later_events_can_match(kind: Any, settings: Any, most: list[int]) -> None:
    assert stored(steady(joining(kind, **settings), "lr")) == most


def test_as_of_joins_remove_right_events_that_nothing_can_match_without_left_events() -> None:
    assert stored(steady(joining(AsOfJoin, tolerance=3 * SECOND), "r")) == [0, 2]
    assert stored(steady(joining(AsOfJoin), "r", watermark_delay=1)) == [0, 2]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (LatestJoin, {"ttl": 5 * SECOND}),
        (AsOfJoin, {"ttl": 5 * SECOND}),
        *[(AsOfJoin, {"tolerance": 3 * SECOND, "direction": way}) for way in ("backward", "forward", "nearest")],
        *[
            (IntervalJoin, {"lower": -1 * SECOND, "upper": 3 * SECOND, "how": how})
            for how in ("inner", "left", "right", "outer")
        ],
    ],
)
@pytest.mark.parametrize("sources", ["l", "r", "lr"])
def test_joins_store_nothing_when_the_watermark_is_past_all_matches(kind: Any, settings: Any, sources: str) -> None:
    run = steady(joining(kind, **settings), sources, seconds=3)
    assert run.run().keys() == ([] if (kind, sources) == (LatestJoin, "l") else ["a"])
    assert run.add_watermark(at(9)).run().keys() == []


@pytest.mark.parametrize(
    ("kind", "settings"),
    [(AsOfJoin, {"tolerance": 3 * SECOND}), (IntervalJoin, {"lower": -1 * SECOND, "upper": 3 * SECOND})],
)
def test_joins_remove_events_that_nothing_can_match_in_one_call(kind: Any, settings: Any) -> None:
    run = TestRun(job(joining(kind, **settings))).add_records([event(second) for second in range(20)], "r")
    result = run.add_watermark(at(100)).run()
    assert [entry.callback for entry in result.trace].count("join") == 1
    assert result.keys() == []


def test_joins_answer_all_events_at_the_end_of_time() -> None:
    for settings in ({}, {"tolerance": timedelta.max, "direction": "nearest"}):
        run = TestRun(job(joining(AsOfJoin, **settings))).add_record(event(1, "right"), "r")
        run.add_records([event(2, "left"), KeyedEvent("a", datetime.max.replace(tzinfo=timezone.utc), "last")], "l")
        result = run.run(flush=True)
        assert result.records("matches") == [("a", "left", "right"), ("a", "last", "right")]
        assert result.keys() == []
    run = TestRun(job(joining(IntervalJoin, lower=timedelta.min, upper=timedelta.max, how="outer")))
    result = run.add_record(event(1, "left"), "l").run(flush=True)
    assert (result.records("matches"), result.keys()) == ([("a", "left", None)], [])


@pytest.mark.parametrize(
    ("kind", "settings", "lasts"),
    [
        (AsOfJoin, {}, (0, None)),
        (AsOfJoin, {"tolerance": 3 * SECOND}, (0, 3)),
        (AsOfJoin, {"tolerance": 3 * SECOND, "direction": "forward"}, (3, 3)),
        (AsOfJoin, {"tolerance": 3 * SECOND, "direction": "nearest"}, (3, 6)),
        (IntervalJoin, {"lower": -2 * SECOND, "upper": 4 * SECOND}, (4, 2)),
        (IntervalJoin, {"lower": 2 * SECOND, "upper": 4 * SECOND}, (4, 0)),
        (IntervalJoin, {"lower": -4 * SECOND, "upper": -2 * SECOND}, (0, 4)),
        (LatestJoin, {}, (None, None)),
        (LatestJoin, {"ttl": 4 * SECOND}, (None, 4 - 0.000001)),
    ],
)
@pytest.mark.parametrize("lateness", [0, 2])
def test_an_event_of_a_join_is_late_when_the_watermark_is_past_its_last_match(
    kind: Any, settings: Any, lasts: tuple[float | None, float | None], lateness: int
) -> None:
    for source, last in zip("lr", lasts, strict=True):
        handler = joining(kind, **settings, allowed_lateness=lateness * SECOND)
        run = TestRun(job(handler, watermark_delay=10**6)).add_watermark(at(10))
        boundary = -1000 if last is None else 10 - last - lateness
        result = run.add_records([event(boundary, "taken"), event(boundary - 0.000001, "before")], source).run()
        assert [late[3] for late in result.records("late")] == ([] if last is None else ["before"]), source


def test_late_events_of_joins_are_counted_and_diverted() -> None:
    handler = joining(IntervalJoin, lower=0 * SECOND, upper=2 * SECOND, late="divert")
    sinks = {port: MemorySink() for port in ("matches", "late", "seen", "late_events")}
    run = TestRun(Job("joins", handler, {"l": MemorySource(), "r": MemorySource()}, sinks)).add_watermark(at(10))
    run.add_records([event(7, "late"), event(8)], "l").add_records([event(9, "late, too"), event(10)], "r")
    result = run.run()
    assert [(late.by, late.source, late.value) for late in result.records("late_events")] == [
        ("join", "l", "late"),
        ("join", "r", "late, too"),
    ]
    assert result.counters == {"join.late": 2}


@pytest.mark.parametrize("kind", [AsOfJoin, IntervalJoin])
def test_a_failed_result_of_a_join_becomes_a_dead_letter_without_affecting_others(kind: Any) -> None:
    settings = {"lower": 0 * SECOND, "upper": 2 * SECOND, "how": "left"} if kind is IntervalJoin else {}
    sinks = {port: MemorySink() for port in ("matches", "late", "seen", "dead_letters")}
    handler = joining(kind, **settings)
    run = TestRun(Job("joins", handler, {"l": MemorySource(), "r": MemorySource()}, sinks, on_error="dead_letter"))
    run.add_records([event(1, "one"), event(1, "fail"), event(1, "two"), event(9, "three")], "l").add_watermark(at(5))
    result = run.run()
    assert result.records("matches") == [("a", "one", None), ("a", "two", None)]
    (letter,) = result.dead_letters
    assert (letter.error, letter.key) == ("ValueError: not this one", "a")
    assert [one[2] for one in letter.state["join"]["l"]] == ["one", "fail", "two", "three"]
    assert run.run(flush=True).records("matches", new=True) == [("a", "three", None)]


def test_a_failed_pair_of_an_interval_join_becomes_a_dead_letter_of_the_event_that_completed_it() -> None:
    sinks = {port: MemorySink() for port in ("matches", "late", "seen", "dead_letters")}
    handler = joining(IntervalJoin, lower=0 * SECOND, upper=2 * SECOND, how="outer")
    run = TestRun(Job("joins", handler, {"l": MemorySource(), "r": MemorySource()}, sinks, on_error="dead_letter"))
    run.add_record(event(1, "left"), "l").add_record(event(2, "fail"), "r").add_record(event(3, "right"), "r")
    result = run.run(flush=True)
    assert result.records("matches") == [("a", "left", "right")]
    assert [(letter.callback, letter.record.value) for letter in result.dead_letters] == [("on_event", "fail")]


def test_the_error_for_an_event_of_another_source_names_both_sources_of_the_join() -> None:
    run = TestRun(job(joining(LatestJoin))).add_record(event(1), "x")
    with pytest.raises(CallbackError, match="the join 'join' received an event from the source 'x'") as caught:
        run.run()
    error = caught.value.__cause__
    assert isinstance(error, JoinSourceError)
    assert isinstance(error, AmadouError)
    assert (error.join, error.source, error.expected) == ("join", "x", ("l", "r"))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "outside on_event" in str(JoinSourceError("join", None, ("l", "r")))


def test_a_join_without_a_function_for_matches_is_an_error_of_the_job() -> None:
    class Unmarked(Joining):
        quote = LatestJoin(**SIDES)

    with pytest.raises(
        JobError, match=r"Unmarked.quote: no function receives the join's results: mark a method with @quote.on_match"
    ):
        job(Unmarked(LatestJoin(**SIDES, name="join", on_match=_matched)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LatestJoin(left="a", right="a"), "left and right must be two different sources, not both 'a'"),
        (lambda: LatestJoin(left="", right="a"), "left must be the name of a source, not ''"),
        (lambda: LatestJoin(left="a", right=1), "right must be the name of a source, not 1"),  # type: ignore[arg-type]
        (lambda: LatestJoin(**SIDES, how="outer"), "how must be one of 'left', 'inner', not 'outer'"),  # type: ignore[arg-type]
        (lambda: AsOfJoin(**SIDES, how="right"), "how must be one of 'left', 'inner', not 'right'"),  # type: ignore[arg-type]
        (lambda: AsOfJoin(**SIDES, tolerance=-SECOND), "tolerance must be a timedelta of zero or more"),
        (lambda: AsOfJoin(**SIDES, tolerance=5), "tolerance must be a timedelta of zero or more, not 5"),  # type: ignore[arg-type]
        (lambda: AsOfJoin(**SIDES, direction="up"), "direction must be one of 'backward', 'forward', 'nearest'"),  # type: ignore[arg-type]
        (lambda: AsOfJoin(**SIDES, direction="nearest"), "direction='nearest' needs a tolerance"),
        (lambda: AsOfJoin(**SIDES, direction="forward"), "direction='forward' needs a tolerance"),
        (lambda: IntervalJoin(**SIDES, lower=SECOND, upper=0 * SECOND), "lower must not be above upper"),
        (lambda: IntervalJoin(**SIDES, lower=1, upper=SECOND), "lower must be a timedelta, not 1"),  # type: ignore[arg-type]
        (lambda: IntervalJoin(**SIDES, lower=SECOND, upper=None), "upper must be a timedelta, not None"),  # type: ignore[arg-type]
        (lambda: IntervalJoin(**SIDES, lower=SECOND, upper=SECOND, how="full"), "how must be one of 'inner', 'left', "),  # type: ignore[arg-type]
        (lambda: AsOfJoin(**SIDES, allowed_lateness=-SECOND), "allowed_lateness must be a timedelta of zero or more"),
        (lambda: AsOfJoin(**SIDES, late="keep"), 'late must be "drop" or "divert"'),
    ],
)
def test_invalid_settings_of_joins_are_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        make()
    assert str(caught.value).startswith(message)


def test_the_text_of_a_join_shows_settings_that_change_its_state() -> None:
    assert LatestJoin(**SIDES).shown_type() == "LatestJoin(left='l', right='r', how='left')"
    assert AsOfJoin(**SIDES, how="inner").shown_type() == (
        "AsOfJoin(left='l', right='r', how='inner', direction='backward')"
    )
    assert AsOfJoin(**SIDES, tolerance=SECOND, direction="nearest").shown_type() == (
        "AsOfJoin(left='l', right='r', how='left', direction='nearest', tolerance=0:00:01)"
    )
    assert IntervalJoin(**SIDES, lower=SECOND, upper=2 * SECOND, allowed_lateness=SECOND).shown_type() == (
        "IntervalJoin(left='l', right='r', how='inner', lower=0:00:01, upper=0:00:02, allowed_lateness=0:00:01)"
    )


def test_the_state_of_a_join_shows_stored_events_by_source() -> None:
    for handler in (
        joining(AsOfJoin, tolerance=SECOND),
        joining(IntervalJoin, lower=-SECOND, upper=0 * SECOND),
        joining(LatestJoin),
    ):
        run = TestRun(job(handler, watermark_delay=100)).add_record(event(1, "r"), "r").add_record(event(2, "l"), "l")
        lefts = [] if isinstance(handler.join, LatestJoin) else [event(2, "l")]
        assert run.run().state("join", "a") == {"l": lefts, "r": [event(1, "r")]}
        assert run.run().state("join", "b") == {"l": [], "r": []}


def test_a_join_of_a_source_that_the_job_does_not_have_is_an_error_of_the_job() -> None:
    class Misspelt(Handler):
        quote = AsOfJoin(left="trades", right="qoutes", tolerance=SECOND, on_match=print)

        def key_event(self, record: Any) -> Any:
            return record

        def on_event(self, subject: Subject, event: Any) -> None:
            self.quote.add(subject, event)

    sources = {"trades": MemorySource(), "quotes": MemorySource()}
    with pytest.raises(
        JobError,
        match=r"Misspelt.quote needs the source 'qoutes', but the job has no source with this name "
        r"\(sources: trades, quotes\): correct the name, or add the source",
    ):
        Job("misspelt", Misspelt(), sources=sources, sinks={})
