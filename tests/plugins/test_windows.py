"""Each kind of window against a simple computation over the whole input, for any division into batches."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.windows import (
    SECOND,
    Recording,
    at,
    by_key,
    count,
    event,
    few_inputs,
    job,
    outcome_of,
    outcome_of_script,
    results,
    scripts,
    seconds,
    starts,
    streams,
    windowing,
)

from amadou import KeyedEvent, Subject
from amadou_plugins.aggregates import Collect, Count, Latest, Mean, StdDev, Sum
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow, Window
from amadou_runtime import TestRun
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.group_batch import GroupBatch
from amadou_runtime.core.operator import Operator
from amadou_runtime.store.packed_group import PackedGroup

DISORDER = 5
sizes = st.integers(1, 12)


def recorded(result: Any) -> Any:
    return count((key, seconds(start), seconds(end), value) for start, end, key, _, value in result.records("results"))


@few_inputs
@given(streams(DISORDER), sizes, sizes, st.integers(-3, 3))
def test_hopping_windows_aggregate_the_events_in_them(batches: Any, size: int, hop: int, offset: int) -> None:
    aggregates = {"n": Count(), "sum": Sum(), "all": Collect()}
    window = windowing(HoppingWindow, size * SECOND, hop * SECOND, aggregates, offset=offset * SECOND)
    result = outcome_of(window, batches, watermark_delay=DISORDER)
    expected = []
    for events in by_key(batches).values():
        counted: dict[float, list[int]] = {}
        for one in events:
            for start in starts(seconds(one.timestamp), size, hop, offset):
                counted.setdefault(start, []).append(one.value)
        expected += [
            (events[0].key, start, start + size, {"n": len(values), "sum": sum(values), "all": values})
            for start, values in counted.items()
        ]
    assert recorded(result) == count((key, float(start), float(end), value) for key, start, end, value in expected)
    assert (result.keys(), result.records("late")) == ([], [])


@few_inputs
@given(scripts(), st.integers(4, 12), sizes, st.integers(0, 6), st.integers(1, 4))
def test_open_windows_give_early_results_when_the_watermark_passes_their_times(
    script: Any, size: int, hop: int, lateness: int, early: int
) -> None:
    settings = {"allowed_lateness": lateness * SECOND, "early": early * SECOND}
    result = outcome_of_script(windowing(HoppingWindow, size * SECOND, hop * SECOND, **settings), script)
    counted: dict[tuple[str, float], int] = {}
    expected = []
    marks = [mark for mark, _ in script[1:]]
    for (before, events), mark in zip(script, marks, strict=False):
        for one in events:
            for start in starts(seconds(one.timestamp), size, hop):
                if before is None or start + size + lateness > before:
                    counted[repr(one.key), start] = counted.get((repr(one.key), start), 0) + 1
        for (key, start), number in counted.items():
            times = [start + early * step for step in range(1, size) if early * step < size]
            if mark < start + size + lateness and any(
                time <= mark and (before is None or time > before) for time in times
            ):
                expected.append((key, float(start), number))
    records = [record for record in result.records("results") if record[3]]
    assert count((repr(key), seconds(start), value) for start, _, key, _, value in records) == count(expected)
    times = [entry.timestamp for entry in result.trace if entry.outputs and entry.callback == "window"]
    assert [time for time in times if time is not None] == sorted(time for time in times if time is not None)


@few_inputs
@given(scripts(), sizes, sizes, st.integers(0, 6))
def test_events_are_late_for_windows_that_the_watermark_has_closed(
    script: Any, size: int, hop: int, lateness: int
) -> None:
    window = windowing(HoppingWindow, size * SECOND, hop * SECOND, allowed_lateness=lateness * SECOND)
    result = outcome_of_script(window, script)
    expected: dict[Any, int] = {}
    late = []
    for watermark, events in script:
        for one in events:
            own = starts(seconds(one.timestamp), size, hop)
            left = [start for start in own if watermark is None or start + size + lateness > watermark]
            if own and not left:
                late.append(tuple(one))
            for start in left:
                expected[repr((one.key, float(start), float(start + size)))] = (
                    expected.get(repr((one.key, float(start), float(start + size))), 0) + 1
                )
    counted = {
        repr((key, seconds(start), seconds(end))): value for start, end, key, _, value in result.records("results")
    }
    assert len(counted) == len(result.records("results")), "each closes once"
    assert counted == expected
    assert count(result.records("late")) == count(late)
    assert result.counters.get("window.late", 0) == len(late)
    assert result.keys() == []


@few_inputs
@given(streams(DISORDER), sizes)
def test_sliding_windows_contain_the_events_before_each_event(batches: Any, size: int) -> None:
    result = outcome_of(windowing(SlidingWindow, size * SECOND, Collect()), batches, watermark_delay=DISORDER)
    expected = []
    for events in by_key(batches).values():
        for one in events:
            back = one.timestamp - size * SECOND
            values = [other.value for other in events if back <= other.timestamp <= one.timestamp]
            expected.append((one.key, seconds(back), seconds(one.timestamp), values))
    assert recorded(result) == count(expected)
    assert result.keys() == []


@few_inputs
@given(scripts(), sizes, st.integers(0, 6))
def test_sliding_windows_accept_events_until_they_are_closed(script: Any, size: int, lateness: int) -> None:
    window = windowing(SlidingWindow, size * SECOND, allowed_lateness=lateness * SECOND)
    result = outcome_of_script(window, script)
    events = [(watermark, one) for watermark, batch in script for one in batch]

    def is_accepted(end: Any, watermark: Any) -> bool:
        return watermark is None or end + lateness * SECOND >= at(watermark)

    expected = [
        (one.key, seconds(one.timestamp) - size, seconds(one.timestamp), sum(
            repr(other.key) == repr(one.key)
            and one.timestamp - size * SECOND <= other.timestamp <= one.timestamp
            and is_accepted(one.timestamp, theirs)
            for theirs, other in events
        ))
        for watermark, one in events
        if is_accepted(one.timestamp, watermark)
    ]  # fmt: skip
    assert recorded(result) == count(expected)
    assert len(result.records("late")) == len(events) - len(expected)
    assert result.keys() == []


def test_an_event_at_the_watermark_is_in_the_session_that_ends_there() -> None:
    window = windowing(SessionWindow, 5 * SECOND)
    for cut in (False, True):
        run = TestRun(job(window)).add_record(event(10)).add_record(event(15, key="b"))
        if cut:
            run.end_batch()
        run.add_record(event(15)).add_record(event(100, key="c"))
        assert (10, 20, 2) in results(run.end_batch().run())


@pytest.mark.parametrize(("settings", "counted"), [({}, 1), ({"allowed_lateness": 5 * SECOND}, 0)])
def test_late_events_that_open_a_session_near_a_closed_one_are_counted(settings: Any, counted: int) -> None:
    run = TestRun(job(windowing(SessionWindow, 5 * SECOND, **settings))).add_record(event(0)).add_watermark(at(6))
    result = run.add_records([event(3), event(7)]).run(flush=True)
    assert results(result) == ([(0, 5, 1), (3, 12, 2)] if counted else [(0, 12, 3)])
    assert result.counters == ({"window.late_sessions": 1} if counted else {})


def test_a_late_event_before_the_end_of_a_cut_session_is_only_late() -> None:
    window = windowing(SessionWindow, 5 * SECOND, max_duration=7 * SECOND, allowed_lateness=SECOND)
    run = TestRun(job(window)).add_records([event(0), event(5), event(10)]).add_watermark(at(10)).add_record(event(4))
    assert run.run().counters == {"window.late": 1}


def test_an_event_at_the_watermark_is_in_the_sliding_windows_that_end_there() -> None:
    run = TestRun(job(windowing(SlidingWindow, 10 * SECOND))).add_record(event(1)).end_batch()
    run.add_records([event(1), event(2)]).end_batch().add_records([event(2), event(3)])
    result = run.run(flush=True)
    assert [(end, value) for _, end, value in results(result)] == [(1, 2), (1, 2), (2, 4), (2, 4), (3, 5)]
    assert result.counters == {}


class Timed(Recording):
    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.results.collect(subject, (window.end, subject.timestamp))


def test_an_early_result_has_the_time_of_its_timer_also_after_a_final_one() -> None:
    window = windowing(SlidingWindow, 5 * SECOND, early=SECOND).window
    run = TestRun(job(Timed(window), watermark_delay=2 * SECOND)).add_records([event(10), event(12.000001)]).end_batch()
    assert run.run().records("results") == [(at(10), at(10)), (at(12.000001), at(10.000001))]


def test_the_callback_of_a_window_sees_its_end() -> None:
    for kind in (SessionWindow, SlidingWindow):
        window = windowing(kind, 5 * SECOND, allowed_lateness=2 * SECOND).window
        run = TestRun(job(Timed(window))).add_record(event(10)).add_record(event(11, key="b"))
        ends = dict(run.run(flush=True).records("results"))
        assert all(seen - end == 2 * SECOND for end, seen in ends.items())
        assert len(ends) == 2


@pytest.mark.parametrize("early", [2, lambda event: event.value % 2 == 1])
def test_an_early_result_is_that_of_the_window_after_a_cut_at_max_duration(early: Any) -> None:
    window = windowing(SessionWindow, 5 * SECOND, max_duration=10 * SECOND, early=early)
    times = (0, 4, 8, 12, 16)  # the window that begins at 12 is the rest of the same session
    run = TestRun(job(window)).add_records([event(time, value) for value, time in enumerate(times, 1 - (early != 2))])
    expected = [(0, 9, 2), (12, 21, 2) if early == 2 else (12, 17, 1), (0, 10, 3)]
    assert results(run.end_batch().run()) == expected


def test_each_window_of_a_session_emits_early_results_at_its_interval() -> None:
    settings = {"max_duration": 10 * SECOND, "early": 3 * SECOND, "allowed_lateness": 60 * SECOND}
    run = TestRun(job(windowing(SessionWindow, 5 * SECOND, **settings)))
    for time in (0, 4, 8, 12, 16):
        run.add_record(event(time)).end_batch()
    result = run.run()
    assert results(result) == [(0, 9, 2), (0, 10, 3), (0, 10, 3), (12, 21, 2)]
    assert result.state("window", "a") == {at(0): 3, at(12): 2}


def test_early_results_of_a_timer_do_not_contain_what_an_earlier_callback_of_it_adds() -> None:
    class Adding(Recording):
        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.results.collect(subject, (*window, list(value)))
            if not window.partial and value == [0]:
                for second in (16, 20, 24):
                    self.window.add(subject, event(second, second))

    settings = {"max_duration": 20 * SECOND, "early": 5 * SECOND, "allowed_lateness": 10 * SECOND}
    window = windowing(SessionWindow, 5 * SECOND, Collect(), **settings).window
    run = TestRun(job(Adding(window)))
    run.add_records([event(second, second) for second in (0, 5.000001, 8, 12)]).add_watermark(at(20))
    early = [value for *_, partial, value in run.run().records("results") if partial]
    assert early
    assert all(16 not in value for value in early)


@pytest.mark.parametrize("cut", [False, True])
def test_a_count_window_has_an_event_whose_predicate_of_early_results_fails(cut: bool) -> None:
    class Catching(Recording):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            with suppress(ZeroDivisionError):
                self.window.add(subject, event)

    window = windowing(CountWindow, 3, Collect(), early=lambda event: 1 / event.value > 1).window
    run = TestRun(job(Catching(window)))
    for value in (1, 0, 3):
        run.add_record(event(value, value))
        if cut:
            run.end_batch()
    assert [value for *_, value in run.run().records("results")] == [[1, 0, 3]]


def test_a_count_window_that_a_callback_adds_to_emits_no_early_result_after_its_final_one() -> None:
    class Adding(Recording):
        def closed(self, subject: Subject, window: Window, value: Any) -> None:
            self.results.collect(subject, (*window, list(value)))
            if value == [1, 2]:
                self.window.add(subject, event(2, 99))

    window = windowing(CountWindow, 2, Collect(), hop=1, early=1).window
    result = TestRun(job(Adding(window))).add_records([event(1, 1), event(2, 2)]).run()
    given = [(partial, value) for *_, partial, value in result.records("results")]
    assert given == [(True, [1]), (False, [1, 2]), (False, [2, 99]), (True, [99])]


def sessions_of(times: list[float], gap: int, longest: int | None) -> list[list[float]]:
    counted: list[list[float]] = []
    for time in sorted(times):
        near = bool(counted) and round(time - counted[-1][-1], 6) <= gap
        if near and (longest is None or round(time - counted[-1][0], 6) < longest):
            counted[-1].append(time)
        else:
            counted.append([time])
    return counted


@few_inputs
@given(streams(DISORDER), st.integers(1, 6), st.none() | st.integers(6, 15))
def test_sessions_contain_events_with_gaps_below_the_setting(batches: Any, gap: int, longest: int | None) -> None:
    duration = None if longest is None else longest * SECOND
    window = windowing(SessionWindow, gap * SECOND, Collect(), max_duration=duration)
    result = outcome_of(window, batches, watermark_delay=DISORDER)
    expected = []
    for events in by_key(batches).values():
        for times in sessions_of([seconds(one.timestamp) for one in events], gap, longest):
            end = times[-1] + gap if longest is None else min(times[-1] + gap, times[0] + longest)
            values = [one.value for one in events if times[0] <= seconds(one.timestamp) <= times[-1]]
            expected.append((events[0].key, times[0], round(end, 6), values))
    assert recorded(result) == count(expected)
    assert (result.keys(), result.records("late")) == ([], [])


@few_inputs
@given(scripts(), st.integers(1, 6), st.integers(0, 6))
def test_sessions_accept_late_events_that_belong_to_an_open_session(script: Any, gap: int, lateness: int) -> None:
    window = windowing(SessionWindow, gap * SECOND, allowed_lateness=lateness * SECOND)
    result = outcome_of_script(window, script)
    expected, late = [], []
    for key in {repr(one.key): one.key for _, batch in script for one in batch}.values():
        open_: list[float] = []
        for watermark, batch in [*script, (10**6, [])]:
            counted = []
            for times in sessions_of(open_, gap, None):
                if watermark is None or times[-1] + gap + lateness >= watermark:
                    counted.append(times)
                else:
                    expected.append((key, times[0], times[-1] + gap, len(times)))
            open_ = [time for times in counted for time in times]
            for one in batch:
                if repr(one.key) != repr(key):
                    continue
                time = seconds(one.timestamp)
                near = any(times[0] - gap <= time <= times[-1] + gap for times in counted)
                if near or watermark is None or time + gap + lateness >= watermark:
                    open_.append(time)
                else:
                    late.append((key, time))
    assert recorded(result) == count(expected)
    assert len(result.records("late")) == len(late)
    assert result.keys() == []


@few_inputs
@given(streams(DISORDER), st.integers(1, 6), st.integers(1, 8))
def test_count_windows_contain_the_number_of_events_of_the_setting(batches: Any, size: int, hop: int) -> None:
    result = outcome_of(windowing(CountWindow, size, Collect(), hop=hop), batches)
    expected = []
    for events in by_key(batches).values():
        for first in range(0, len(events) - size + 1, hop):
            inside = events[first : first + size]
            times = [seconds(one.timestamp) for one in inside]
            expected.append((inside[0].key, min(times), max(times), [one.value for one in inside]))
    assert recorded(result) == count(expected)


@few_inputs
@given(
    streams(DISORDER),
    st.sampled_from([TumblingWindow, SlidingWindow, SessionWindow]),
    st.randoms(use_true_random=False),
    st.lists(st.floats(allow_infinity=False), min_size=31, max_size=31),
)
def test_results_of_windows_do_not_depend_on_the_order_of_events_in_a_batch(
    batches: Any, kind: Any, random: Any, numbers: list[float]
) -> None:
    numbered = [[one._replace(value=numbers[one.value]) for one in batch] for batch in batches]
    shuffled = [random.sample(batch, len(batch)) for batch in numbered]
    settings = {"value": {"mean": Mean(), "deviation": StdDev(), "last": Latest()}}
    one, other = (
        outcome_of(windowing(kind, 5 * SECOND, **settings), each, watermark_delay=DISORDER)
        for each in (numbered, shuffled)
    )
    assert recorded(one) == recorded(other)


def test_a_full_count_window_leaves_no_state() -> None:
    run = TestRun(job(windowing(CountWindow, 2, hop=3))).add_records([event(1), event(2), event(3)])
    assert run.run().keys() == []
    assert run.add_record(event(4)).run().keys() == ["a"]


@few_inputs
@given(streams(DISORDER), st.integers(1, 6), st.integers(1, 8), st.integers(1, 4))
def test_a_key_has_at_most_max_active_open_count_windows(batches: Any, size: int, hop: int, most: int) -> None:
    window = windowing(CountWindow, size, Collect(), hop=hop, max_active=most)
    expected, evicted = [], 0
    for events in by_key(batches).values():
        opened: list[list[int]] = []
        for number, one in enumerate(events):
            if number % hop == 0:
                opened.append([])
            for inside in opened:
                inside.append(one.value)
            if opened and len(opened[0]) == size:
                expected.append((one.key, False, opened.pop(0)))
            elif len(opened) > most:
                expected.append((one.key, True, opened.pop(0)))
                evicted += 1
    result = outcome_of(window, batches)
    assert count((key, partial, value) for _, _, key, partial, value in result.records("results")) == count(expected)
    assert result.counters.get("window.evicted", 0) == evicted


@few_inputs
@given(streams(DISORDER), st.integers(2, 5), st.integers(1, 5), st.integers(1, 3))
def test_each_open_count_window_emits_early_results(batches: Any, size: int, hop: int, early: int) -> None:
    expected = []
    for events in by_key(batches).values():
        opened: list[list[int]] = []
        for number, one in enumerate(events):
            opened += [[]] if number % hop == 0 else []
            for inside in opened:
                inside.append(one.value)
            given = [(len(inside) < size, inside) for inside in opened if len(inside) in (size, *range(0, size, early))]
            expected += [(one.key, partial, list(inside)) for partial, inside in given]
            opened = [inside for inside in opened if len(inside) < size]
    result = outcome_of(windowing(CountWindow, size, Collect(), hop=hop, early=early), batches)
    assert count((key, partial, value) for _, _, key, partial, value in result.records("results")) == count(expected)


def test_no_event_is_late_for_a_count_window() -> None:
    window = windowing(CountWindow, 2, Collect(), allowed_lateness=SECOND, late="drop")
    run = TestRun(job(window)).add_record(event(10, 1)).add_watermark(at(10)).add_record(event(0, 2))
    assert (results(run.run()), run.run().records("late")) == ([(0, 10, [1, 2])], [])
    assert CountWindow(2, allowed_lateness=SECOND).structure() == CountWindow(2).structure()


def test_sliding_windows_give_early_results_as_the_watermark_advances() -> None:
    window = windowing(SlidingWindow, 10 * SECOND, early=4 * SECOND, allowed_lateness=SECOND)
    run = TestRun(job(window, watermark_delay=1000))
    run.add_records([event(10), event(12)]).add_watermark(at(3)).add_watermark(at(4)).add_record(event(5))
    run.add_watermark(at(6)).add_watermark(at(8)).add_watermark(at(100))
    closed = [(seconds(end), partial, value) for _, end, _, partial, value in run.run().records("results")]
    assert closed == [
        (10, True, 1),
        (12, True, 3),
        (5, False, 1),
        (10, True, 2),
        (10, False, 2),
        (12, False, 3),
    ]
    assert run.run().keys() == []


class Merges(Count):
    """Counts calls of `merge`."""

    merges = 0

    def merge(self, left: int, right: int) -> int:
        Merges.merges += 1
        return super().merge(left, right)


@pytest.mark.parametrize(
    ("kind", "lengths", "settings"),
    [
        (SessionWindow, [5 * SECOND], {"max_duration": 1000 * SECOND}),
        (HoppingWindow, [60 * SECOND, SECOND], {"early": 1000}),
        (SlidingWindow, [1000 * SECOND], {"early": 1000}),
    ],
)
def test_windows_merge_their_parts_only_for_results(kind: Any, lengths: Any, settings: Any) -> None:
    Merges.merges = 0
    chunk = Chunk("in", b"", pack_events([field for second in range(50) for field in ("a", at(second), None)]))
    Operator(job(windowing(kind, *lengths, Merges(), **settings))).process(GroupBatch(PackedGroup(None), [chunk], None))
    assert Merges.merges == 0


def test_a_count_window_drops_no_late_events() -> None:
    assert not CountWindow(3).drops_late
