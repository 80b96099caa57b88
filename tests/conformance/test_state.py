"""State: reads and writes, keys, time to live."""

import math
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import (
    TTL,
    EventHandler,
    Expiring,
    ExpiringWithTimers,
    Recorder,
    StateMethods,
    at,
    event,
    job,
)

from amadou import (
    Job,
    Key,
    KeyedEvent,
    MapSpec,
    MemorySink,
    MemorySource,
    ReferenceChange,
    ReferenceSpec,
    SinkSpec,
    Subject,
    ValueSpec,
)
from amadou.errors import CallbackError
from amadou_plugins.aggregates import Collect, Count, RunningSpec
from amadou_plugins.joins import AsOfJoin, LatestJoin
from amadou_plugins.windows import CountWindow, Window


def results_of(test_run: MakeRun, *batches: list[str]) -> Any:
    """Call methods of `StateMethods`, batch by batch, and return the result."""
    run = test_run(job(StateMethods()))
    for batch in batches:
        run.add_records([event(0, method) for method in batch]).end_batch()
    return run.run()


@pytest.mark.parametrize("cut", [False, True], ids=["in one batch", "across batches"])
@pytest.mark.rule(14)
def test_a_callback_reads_state_that_earlier_callbacks_wrote(test_run: MakeRun, cut: bool) -> None:
    script = ["add_one", "add_one", "collect_total"]
    result = results_of(test_run, *([method] for method in script)) if cut else results_of(test_run, script)
    assert result.records("results") == [2]


@pytest.mark.rule(14)
def test_timers_read_state_of_events_and_events_read_state_of_timers(test_run: MakeRun) -> None:
    run = test_run(job(StateMethods())).add_records([event(0, "add_one"), event(0, "set_timer")]).add_watermark(at(5))
    assert run.add_record(event(6, "collect_total")).run().records("results") == [11]


@pytest.mark.parametrize("cut", [False, True], ids=["in one batch", "across batches"])
@pytest.mark.rule(14)
def test_a_state_value_changed_in_place_is_not_stored(test_run: MakeRun, cut: bool) -> None:
    script = ["write_then_mutate", "mutate_in_place", "collect_names"]
    result = results_of(test_run, *([method] for method in script)) if cut else results_of(test_run, script)
    assert result.records("results") == [["stored"]]


@pytest.mark.rule(14)
def test_a_mutable_default_is_not_shared_between_reads(test_run: MakeRun) -> None:
    assert results_of(test_run, ["mutate_in_place", "collect_names"]).records("results") == [[]]


@pytest.mark.rule(14)
def test_a_changed_value_that_is_written_back_is_stored(test_run: MakeRun) -> None:
    result = results_of(test_run, ["read_then_write_back", "read_then_write_back"], ["collect_names"])
    assert result.records("results") == [["stored", "stored"]]


@pytest.mark.rule(14)
def test_a_map_entry_changed_in_place_is_not_stored(test_run: MakeRun) -> None:
    result = results_of(test_run, ["put_list", "mutate_entry", "collect_lists"], ["collect_lists"])
    assert result.records("results") == [{"a": [1]}, {"a": [1]}]


@pytest.mark.rule(14)
def test_changes_by_methods_of_a_map_are_stored(test_run: MakeRun) -> None:
    result = results_of(test_run, ["use_methods", "collect_lists"], ["collect_lists"])
    assert result.records("results") == [{"c": [3], "d": [4]}] * 2


class CountsKeys(EventHandler):
    numbers = MapSpec(float, int)
    anything = MapSpec(Any, int)
    seen = SinkSpec(list[Any])

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for entries in (self.numbers.state_for(subject), self.anything.state_for(subject)):
            for key in event.value:
                entries[key] = entries.get(key, 0) + 1
            self.seen.collect(subject, [(repr(key), count) for key, count in entries.items()])


@pytest.mark.on_spark("values travel")
@pytest.mark.rule(25)
def test_keys_of_a_map_are_one_key_if_they_are_equal_values_of_its_type(test_run: MakeRun) -> None:
    run = test_run(job(CountsKeys()))
    for keys in ([1, True, 1.0, -0.0], [1.0, True, 0.0]):
        run.add_record(event(0, keys)).end_batch()
    assert run.run().records("seen") == [
        [("1.0", 3), ("0.0", 1)],
        [("1", 1), ("True", 1), ("1.0", 1), ("0.0", 1)],
        [("1.0", 5), ("0.0", 2)],
        [("1", 1), ("True", 2), ("1.0", 2), ("0.0", 2)],
    ]


@pytest.mark.on_spark("errors of workers")
@pytest.mark.rule(25)
def test_nan_cannot_be_a_key_of_a_map(test_run: MakeRun) -> None:
    run = test_run(job(CountsKeys())).add_record(event(0, [math.nan]))
    with pytest.raises(CallbackError, match=r"numbers: cannot store nan .*: NaN cannot be a key"):
        run.run()


@pytest.mark.rule(14)
def test_changes_by_methods_of_a_list_are_stored_and_an_item_changed_in_place_is_not(
    test_run: MakeRun,
) -> None:
    result = results_of(test_run, ["extend_history", "mutate_history", "collect_history"], ["collect_history"])
    assert result.records("results") == [[[0], [9], [3]]] * 2
    assert result.state("history", "k") == [[0], [9], [3]]


@pytest.mark.rule(14)
def test_changing_an_output_after_it_was_collected_has_no_effect(test_run: MakeRun) -> None:
    assert results_of(test_run, ["mutate_output"]).records("results") == [["collected"]]


@pytest.mark.rule(15)
def test_keys_of_different_types_have_separate_state(test_run: MakeRun) -> None:
    keys: list[Key] = ["1", b"1", 1, ("1", 1), (1, "1"), ((1,), b"1"), "", b"", (), 2**70, -1]
    run = test_run(job(StateMethods()))
    for count, key in enumerate(keys, start=1):
        run.add_records([event(0, "add_one", key)] * count)
    result = run.run()
    assert {key: result.state(StateMethods.total, key) for key in keys} == dict(zip(keys, range(1, 12), strict=True))
    assert sorted(map(repr, result.keys())) == sorted(map(repr, keys))


@pytest.mark.on_spark("values travel")
@pytest.mark.rule(15)
def test_callbacks_receive_keys_with_their_type(test_run: MakeRun) -> None:
    keys = ["1", b"1", 1, ("1", (b"1", 1))]
    result = test_run(job(Recorder())).add_records([event(0, key=key) for key in keys]).run()
    received = [seen[1] for seen in result.records("seen")]
    assert sorted(map(repr, received)) == sorted(map(repr, keys))


@pytest.mark.rule(15)
def test_a_key_whose_state_is_cleared_is_removed(test_run: MakeRun) -> None:
    run = test_run(job(StateMethods())).add_records(
        [event(0, method) for method in ("add_one", "put_list", "write_then_mutate", "extend_history")]
    )
    run.add_record(event(0, "add_one", "other"))
    assert sorted(run.run().keys()) == ["k", "other"]
    assert run.add_record(event(0, "clear_all")).run().keys() == ["other"]


@pytest.mark.rule(15)
def test_a_pending_timer_keeps_its_key_until_the_timer_fires(test_run: MakeRun) -> None:
    run = test_run(job(Recorder())).add_record(event(0))
    assert run.run().keys() == []
    run = test_run(job(StateMethods())).add_record(event(0, "set_timer"))
    assert run.run().keys() == ["k"]
    result = run.add_watermark(datetime(2030, 1, 1, tzinfo=timezone.utc)).run()
    assert (result.timers("k"), result.state("total", "k")) == ([], 10)


NOTHING = ("none", {}, [])


@pytest.mark.rule(16)
def test_expired_state_reads_as_empty(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_record(event(0, "a")).add_watermark(at(59))
    run.add_record(event(59, "collect")).add_watermark(at(60)).add_record(event(61, "collect"))
    assert run.run().records("results") == [("a", {"a": 1}, ["a"]), ("none", {}, [])]


@pytest.mark.rule(16)
def test_the_ttl_of_each_value_entry_and_item_starts_when_it_is_written(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_record(event(0, "a")).add_record(event(0, "b")).add_watermark(at(10))
    run.add_record(event(30, "a")).add_watermark(at(70)).add_record(event(70, "collect"))
    run.add_record(event(89.999999, "collect")).add_record(event(90, "collect"))
    stored = ("a", {"a": 2}, ["a"])
    assert run.run().records("results") == [stored, stored, NOTHING]


@pytest.mark.rule(16)
def test_an_older_write_does_not_shorten_the_life_of_state(test_run: MakeRun) -> None:
    run = test_run(job(Expiring(), watermark_delay=100)).add_records([event(50, "a"), event(1, "a")])
    run.end_batch().add_record(event(109, "collect")).add_record(event(110, "collect"))
    assert run.run().records("results") == [("a", {"a": 2}, ["a"]), NOTHING]


@pytest.mark.parametrize("ends", [[], ["timer"], ["timer", "write"]])
@pytest.mark.rule(16)
def test_a_timer_does_not_shorten_the_life_of_state(test_run: MakeRun, ends: list[str]) -> None:
    run = test_run(job(ExpiringWithTimers())).add_record(event(0, [(1, "b")]))
    if "timer" in ends:
        run.end_batch()
    run.add_record(event(50, "b")).end_batch()
    if "write" in ends:
        run.restart()
    run.add_records([event(85, "collect"), event(109, "collect"), event(110, "collect")])
    stored = ("b", {"b": 2}, ["b"])
    assert run.run().records("results")[1:] == [stored, stored, NOTHING]  # after what the timer collects


@pytest.mark.rule(16)
def test_an_older_event_does_not_shorten_the_life_of_components(test_run: MakeRun) -> None:
    class Lasting(EventHandler):
        number = RunningSpec(Count(), ttl=TTL)
        window = CountWindow(3, Collect(lambda event: event.value), ttl=TTL)
        latest = LatestJoin(left="l", right="r", ttl=TTL)
        as_of = AsOfJoin(left="l", right="r", ttl=TTL)
        results = SinkSpec(tuple)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.latest.add(subject, event)
            self.as_of.add(subject, event)
            self.window.add(subject, event)
            self.results.collect(subject, ("running", self.number.add(subject, event)))

        @window.on_close
        def closed(self, subject: Subject, window: Window, values: list[Any]) -> None:
            self.results.collect(subject, ("window", values))

        @latest.on_match
        def matched(self, subject: Subject, left: KeyedEvent[Any], right: KeyedEvent[Any] | None) -> None:
            self.results.collect(subject, ("latest", right and right.value))

        @as_of.on_match
        def answered(self, subject: Subject, left: KeyedEvent[Any], right: KeyedEvent[Any] | None) -> None:
            self.results.collect(subject, ("as of", right and right.value))

    sources = {"l": MemorySource(), "r": MemorySource()}
    for second, lives in ((109, True), (110, False)):
        run = test_run(Job("lasting", Lasting(), sources, {"results": MemorySink()}, watermark_delay=100))
        run.add_records([event(50, "new"), event(1, "old")], "r").end_batch()
        result = run.add_record(event(second, "left"), "l").run(flush=True)
        joined = [("latest", "new" if lives else None), ("as of", "new" if lives else None)]
        closed = [("window", ["new", "old", "left"])] if lives else []
        running = [("running", 1), ("running", 2), ("running", 3 if lives else 1)]
        assert sorted(result.records("results"), key=repr) == sorted(joined + closed + running, key=repr)


@pytest.mark.rule(16)
def test_an_item_that_replaces_another_is_not_older(test_run: MakeRun) -> None:
    class Replacing(Expiring):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            names = self.names.state_for(subject)
            if event.value == "one":
                names[0] = "one"
            elif event.value == "all":
                names[:] = ["all"]
            else:
                super().on_event(subject, event)

    for value in ("one", "all"):
        run = test_run(job(Replacing())).add_records([event(50, "a"), event(1, value), event(109, "collect")])
        assert run.add_record(event(110, "collect")).run().records("results")[0][2] == [value]


@pytest.mark.rule(16)
def test_a_read_does_not_remove_what_earlier_events_of_the_batch_still_see(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_record(event(0, "a"))
    run.add_records([event(60, "collect"), event(59, "collect"), event(60, "b"), event(59, "collect")])
    assert run.run().records("results") == [NOTHING, ("a", {"a": 1}, ["a"]), ("b", {"a": 1, "b": 1}, ["b"])]


@pytest.mark.rule(16)
def test_a_flag_drops_duplicates_however_events_are_cut_into_batches(test_run: MakeRun) -> None:
    class Deduplicating(Expiring):
        seen = ValueSpec(bool, default=False, ttl=TTL)

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            seen = self.seen.state_for(subject)
            if not seen.value:
                seen.value = True
                self.results.collect(subject, (event.value,))

    seconds = [0, 30, 59, 60, 61, 119, 121, 200]
    for cuts in ([], [2, 4, 6], [1, 2, 3, 4, 5, 6, 7]):
        run = test_run(job(Deduplicating()))
        for place, second in enumerate(seconds):
            if place in cuts:
                run.end_batch()
            run.add_record(event(second, second))
        assert run.run().records("results") == [(0,), (60,), (121,), (200,)]


@pytest.mark.rule(16)
def test_an_entry_that_is_written_after_it_has_expired_is_the_last_one(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_records([event(0, "a"), event(30, "b"), event(70, "a"), event(71, "collect")])
    assert run.run().records("results") == [("a", {"b": 1, "a": 1}, ["b", "a"])]
    assert list(run.run().records("results")[0][1]) == ["b", "a"]


@pytest.mark.rule(16)
def test_a_test_run_shows_state_as_of_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_record(event(0, "a")).end_batch()
    assert run.add_watermark(at(59)).run().state("last", "k") == "a"
    assert run.add_watermark(at(60)).run().state("last", "k") == "none"


@pytest.mark.rule(16)
def test_a_callback_at_the_watermark_leaves_state_for_timers(test_run: MakeRun) -> None:
    class Watching(ExpiringWithTimers):
        limits = ReferenceSpec(str, int, source="limits")

        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            self.limits.watch(subject)
            super().on_event(subject, event)

        def on_reference_changed(self, subject: Subject, change: ReferenceChange) -> None:
            super().on_event(subject, KeyedEvent(subject.key, change.timestamp, "collect"))

    sources = {"in": MemorySource(), "limits": MemorySource()}
    run = test_run(Job("watching", Watching(), sources, {"results": MemorySink(), "seen": MemorySink()}))
    run.add_record(event(0, "a"), "in").add_record(event(0, [30]), "in").end_batch()
    run.add_record(event(100, None, "other"), "in").end_batch().add_record(event(200, 1, "DE"), "limits")
    assert run.run().records("results") == [NOTHING, NOTHING, ("a", {"a": 1}, ["a"])]  # two keys watch


@pytest.mark.rule(16)
def test_the_ttl_of_state_written_by_a_late_event_starts_at_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_record(event(0)).add_watermark(at(100)).add_record(event(1, "a"))
    run.add_watermark(at(159)).add_record(event(159, "collect")).add_watermark(at(160)).add_record(
        event(160, "collect")
    )
    assert run.run().records("results") == [("a", {"a": 1}, ["a"]), ("none", {}, [])]


@pytest.mark.on_spark("wake-ups")
@pytest.mark.rule(16)
def test_expired_state_is_removed_without_any_access(test_run: MakeRun) -> None:
    run = test_run(job(Expiring())).add_record(event(0, "a")).add_record(event(30, "b", "other")).add_watermark(at(59))
    assert sorted(run.run().keys()) == ["k", "other"]
    assert run.add_watermark(at(60)).run().keys() == ["other"]
    assert run.add_watermark(at(95)).run().keys() == []


@pytest.mark.parametrize("steps", [[30, 60, 61, 500], [500], [31, 500], [60, 500], [61, 500]])
@pytest.mark.rule(16)
def test_a_timer_reads_state_that_has_not_expired_at_the_time_of_the_timer(test_run: MakeRun, steps: list[int]) -> None:
    run = test_run(job(ExpiringWithTimers())).add_record(event(0, "a")).add_record(event(0, [30, 60, 61]))
    for step in steps:
        run.add_watermark(at(step))
    result = run.run()
    assert result.records("results") == [("a", {"a": 1}, ["a"])] + [NOTHING] * 2
    assert result.keys() == []


@pytest.mark.parametrize("steps", [[30, 60, 80, 90, 91, 500], [500], [70, 500], [90, 500]])
@pytest.mark.rule(16)
def test_the_ttl_of_state_written_by_a_timer_starts_at_the_time_of_the_timer(
    test_run: MakeRun, steps: list[int]
) -> None:
    run = (
        test_run(job(ExpiringWithTimers())).add_record(event(0, "a")).add_record(event(0, [(30, "b"), 60, 80, 90, 91]))
    )
    for step in steps:
        run.add_watermark(at(step))
    result = run.add_record(event(500, "collect")).run()
    later = ("b", {"b": 1}, ["b"])
    assert result.records("results") == [("a", {"a": 1}, ["a"]), later, later, NOTHING, NOTHING, NOTHING]
    assert result.keys() == []


@pytest.mark.rule(16)
def test_flushed_timers_read_state_that_has_not_expired_at_their_times(test_run: MakeRun) -> None:
    run = test_run(job(ExpiringWithTimers())).add_record(event(0, "a")).add_record(event(0, [30, 61]))
    assert run.run(flush=True).records("results") == [("a", {"a": 1}, ["a"]), NOTHING]


@pytest.mark.rule(16)
def test_an_event_after_timers_reads_state_that_has_not_expired_at_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(ExpiringWithTimers())).add_record(event(0, "a")).add_record(event(40, "b"))
    run.add_record(event(0, [30])).add_watermark(at(70)).add_record(event(70, "collect"))
    stored = ("b", {"b": 1}, ["b"])
    assert run.run().records("results") == [("b", {"a": 1, "b": 1}, ["a", "b"]), stored]


@pytest.mark.rule(16)
def test_expired_state_of_a_timer_is_removed_even_if_the_next_event_fails(test_run: MakeRun) -> None:
    class Breaking(ExpiringWithTimers):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value == "fail":
                raise ValueError
            super().on_event(subject, event)

    run = test_run(job(Breaking(), on_error="dead_letter")).add_record(event(0, [(5, "a")]))
    result = run.add_watermark(at(100)).add_record(event(100, "fail")).run()
    assert (result.records("results"), result.keys()) == ([NOTHING], [])


class Color(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float | None = None


@dataclass
class Trip:
    stops: list[Point]
    visited: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.visited = 0


@attrs.define
class Doubled:
    number: int = attrs.field(converter=lambda number: number * 2)


class PlainClass:
    """A class that is neither an attrs class nor a dataclass."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlainClass) and self.name == other.name


class PlainClassCodec:
    def encode(self, value: PlainClass) -> str:
        return value.name

    def decode(self, encoded: str) -> PlainClass:
        return PlainClass(encoded)


VALUES: dict[str, Any] = {
    "scalars": (True, 2**70, -0.5, "text", b"bytes"),
    "times": (datetime(2025, 1, 1, 12, tzinfo=timezone.utc), date(2025, 1, 1), timedelta(microseconds=-1)),
    "others": (Decimal("1.50"), UUID(int=7), Color.RED),
    "containers": {"a": ({1, 2}, frozenset({"x"}))},
    "union": [1, None, "text"],
    "trip": Trip([Point(1), Point(2, 0.5)]),
    "doubled": Doubled(4),
    "own": PlainClass("a"),
}
VALUES["trip"].visited = 2


class Typed(Recorder):
    """Writes `VALUES` at the value "write"; other events collect which values are unchanged."""

    scalars = ValueSpec(tuple[bool, int, float, str, bytes])
    times = ValueSpec(tuple[datetime, date, timedelta])
    others = ValueSpec(tuple[Decimal, UUID, Color])
    containers = ValueSpec(dict[str, tuple[set[int], frozenset[str]]])
    union = ValueSpec(list[int | str | None])
    trip = ValueSpec(Trip)
    doubled = ValueSpec(Doubled)
    own = ValueSpec(PlainClass, codec=PlainClassCodec())
    results = SinkSpec(dict[str, bool])

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        states = {name: getattr(self, name).state_for(subject) for name in VALUES}
        if event.value == "write":
            for name, state in states.items():
                state.value = VALUES[name]
        else:
            self.results.collect(subject, {name: state.value == VALUES[name] for name, state in states.items()})


@pytest.mark.on_spark("values travel")
@pytest.mark.rule(25)
def test_state_values_of_each_type_are_unchanged_after_a_restart(test_run: MakeRun) -> None:
    run = test_run(job(Typed())).add_record(event(0, "write")).restart().add_record(event(1))
    assert run.run().records("results") == [dict.fromkeys(VALUES, True)]
