"""State: reads and writes, keys, time to live."""

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Aging, AgingWithTimers, Keeper, Recorder, at, event, job

from amadou import Key, KeyedEvent, SinkSpec, Subject, ValueSpec


def play(test_run: MakeRun, *batches: list[str]) -> Any:
    """The result of calling methods of `Keeper`, batch by batch."""
    run = test_run(job(Keeper()))
    for batch in batches:
        run.add_records([event(0, method) for method in batch]).end_batch()
    return run.run()


@pytest.mark.parametrize("cut", [False, True], ids=["in one batch", "across batches"])
@pytest.mark.rule(14)
def test_what_was_written_is_there_for_the_next_callback(test_run: MakeRun, cut: bool) -> None:
    script = ["add_one", "add_one", "tell_total"]
    result = play(test_run, *([method] for method in script)) if cut else play(test_run, script)
    assert result.records("found") == [2]


@pytest.mark.rule(14)
def test_what_a_callback_wrote_is_there_for_its_timers_and_theirs_for_events(test_run: MakeRun) -> None:
    run = test_run(job(Keeper())).add_records([event(0, "add_one"), event(0, "set_timer")]).add_watermark(at(5))
    assert run.add_record(event(6, "tell_total")).run().records("found") == [11]


@pytest.mark.parametrize("cut", [False, True], ids=["in one batch", "across batches"])
@pytest.mark.rule(14)
def test_a_value_changed_in_place_is_not_stored(test_run: MakeRun, cut: bool) -> None:
    script = ["write_then_mutate", "mutate_in_place", "tell_names"]
    result = play(test_run, *([method] for method in script)) if cut else play(test_run, script)
    assert result.records("found") == [["kept"]]


@pytest.mark.rule(14)
def test_a_default_is_no_shared_object(test_run: MakeRun) -> None:
    assert play(test_run, ["mutate_in_place", "tell_names"]).records("found") == [[]]


@pytest.mark.rule(14)
def test_a_value_written_back_is_stored(test_run: MakeRun) -> None:
    result = play(test_run, ["read_then_write_back", "read_then_write_back"], ["tell_names"])
    assert result.records("found") == [["kept", "kept"]]


@pytest.mark.rule(14)
def test_a_maps_entry_changed_in_place_is_not_stored(test_run: MakeRun) -> None:
    result = play(test_run, ["put_list", "mutate_entry", "tell_lists"], ["tell_lists"])
    assert result.records("found") == [{"a": [1]}, {"a": [1]}]


@pytest.mark.rule(14)
def test_what_a_maps_own_methods_change_is_stored(test_run: MakeRun) -> None:
    result = play(test_run, ["use_methods", "tell_lists"], ["tell_lists"])
    assert result.records("found") == [{"c": [3], "d": [4]}] * 2


@pytest.mark.rule(14)
def test_what_a_lists_own_methods_change_is_stored_and_an_item_changed_in_place_is_not(
    test_run: MakeRun,
) -> None:
    result = play(test_run, ["extend_history", "mutate_history", "tell_history"], ["tell_history"])
    assert result.records("found") == [[[0], [9], [3]]] * 2
    assert result.state("history", "k") == [[0], [9], [3]]


@pytest.mark.rule(14)
def test_an_output_is_what_it_was_when_it_was_collected(test_run: MakeRun) -> None:
    assert play(test_run, ["mutate_output"]).records("found") == [["collected"]]


@pytest.mark.rule(15)
def test_state_of_each_key_is_its_own_whatever_the_type_of_the_key(test_run: MakeRun) -> None:
    keys: list[Key] = ["1", b"1", 1, ("1", 1), (1, "1"), ((1,), b"1"), "", b"", (), 2**70, -1]
    run = test_run(job(Keeper()))
    for count, key in enumerate(keys, start=1):
        run.add_records([event(0, "add_one", key)] * count)
    result = run.run()
    assert {key: result.state(Keeper.total, key) for key in keys} == dict(zip(keys, range(1, 12), strict=True))
    assert sorted(map(repr, result.keys())) == sorted(map(repr, keys))


@pytest.mark.on_spark("values travel")
@pytest.mark.rule(15)
def test_keys_come_back_with_their_type(test_run: MakeRun) -> None:
    keys = ["1", b"1", 1, ("1", (b"1", 1))]
    result = test_run(job(Recorder())).add_records([event(0, key=key) for key in keys]).run()
    found = [seen[1] for seen in result.records("seen")]
    assert sorted(map(repr, found)) == sorted(map(repr, keys))


@pytest.mark.rule(15)
def test_the_last_of_state_and_timers_leaves_nothing_of_the_key(test_run: MakeRun) -> None:
    run = test_run(job(Keeper())).add_records(
        [event(0, deed) for deed in ("add_one", "put_list", "write_then_mutate", "extend_history")]
    )
    run.add_record(event(0, "add_one", "other"))
    assert sorted(run.run().keys()) == ["k", "other"]
    assert run.add_record(event(0, "clear_all")).run().keys() == ["other"]


@pytest.mark.rule(15)
def test_a_pending_timer_keeps_its_key_until_it_fired(test_run: MakeRun) -> None:
    run = test_run(job(Recorder())).add_record(event(0))
    assert run.run().keys() == []
    run = test_run(job(Keeper())).add_record(event(0, "set_timer"))
    assert run.run().keys() == ["k"]
    result = run.add_watermark(datetime(2030, 1, 1, tzinfo=timezone.utc)).run()
    assert (result.timers("k"), result.state("total", "k")) == ([], 10)


@pytest.mark.rule(16)
def test_state_not_written_for_its_time_to_live_is_gone_on_the_next_access(test_run: MakeRun) -> None:
    run = test_run(job(Aging())).add_record(event(0, "a")).add_watermark(at(59))
    run.add_record(event(59, "tell")).add_watermark(at(60)).add_record(event(61, "tell"))
    assert run.run().records("found") == [("a", {"a": 1}, ["a"]), ("none", {}, [])]


@pytest.mark.rule(16)
def test_each_value_entry_and_item_ages_from_when_it_was_written(test_run: MakeRun) -> None:
    run = test_run(job(Aging())).add_record(event(0, "a")).add_record(event(0, "b")).add_watermark(at(10))
    run.add_record(event(30, "a")).add_watermark(at(70)).add_record(event(70, "tell"))
    run.add_watermark(at(89.999999)).add_record(event(90, "tell")).add_watermark(at(90)).add_record(event(90, "tell"))
    kept = ("a", {"a": 2}, ["a"])
    assert run.run().records("found") == [kept, kept, ("none", {}, [])]


@pytest.mark.rule(16)
def test_a_late_event_writes_at_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(Aging())).add_record(event(0)).add_watermark(at(100)).add_record(event(1, "a"))
    run.add_watermark(at(159)).add_record(event(159, "tell")).add_watermark(at(160)).add_record(event(160, "tell"))
    assert run.run().records("found") == [("a", {"a": 1}, ["a"]), ("none", {}, [])]


@pytest.mark.on_spark("wake-ups")
@pytest.mark.rule(16)
def test_state_is_swept_without_any_access(test_run: MakeRun) -> None:
    run = test_run(job(Aging())).add_record(event(0, "a")).add_record(event(30, "b", "other")).add_watermark(at(59))
    assert sorted(run.run().keys()) == ["k", "other"]
    assert run.add_watermark(at(60)).run().keys() == ["other"]
    assert run.add_watermark(at(95)).run().keys() == []


NOTHING = ("none", {}, [])


@pytest.mark.parametrize("steps", [[30, 60, 61, 500], [500], [31, 500], [60, 500], [61, 500]])
@pytest.mark.rule(16)
def test_a_timer_sees_what_had_not_expired_by_its_time(test_run: MakeRun, steps: list[int]) -> None:
    run = test_run(job(AgingWithTimers())).add_record(event(0, "a")).add_record(event(0, [30, 60, 61]))
    for step in steps:
        run.add_watermark(at(step))
    result = run.run()
    assert result.records("found") == [("a", {"a": 1}, ["a"])] * 2 + [NOTHING]
    assert result.keys() == []


@pytest.mark.parametrize("steps", [[30, 60, 80, 90, 91, 500], [500], [70, 500], [90, 500]])
@pytest.mark.rule(16)
def test_what_a_timer_writes_counts_from_its_time(test_run: MakeRun, steps: list[int]) -> None:
    run = test_run(job(AgingWithTimers())).add_record(event(0, "a")).add_record(event(0, [(30, "b"), 60, 80, 90, 91]))
    for step in steps:
        run.add_watermark(at(step))
    result = run.add_record(event(500, "tell")).run()
    both, later = ("b", {"a": 1, "b": 1}, ["a", "b"]), ("b", {"b": 1}, ["b"])
    assert result.records("found") == [("a", {"a": 1}, ["a"]), both, later, later, NOTHING, NOTHING]
    assert result.keys() == []


@pytest.mark.rule(16)
def test_flushed_timers_see_what_had_not_expired_by_their_times(test_run: MakeRun) -> None:
    run = test_run(job(AgingWithTimers())).add_record(event(0, "a")).add_record(event(0, [30, 61]))
    assert run.run(flush=True).records("found") == [("a", {"a": 1}, ["a"]), NOTHING]


@pytest.mark.rule(16)
def test_an_event_after_timers_sees_what_has_not_expired_by_the_watermark(test_run: MakeRun) -> None:
    run = test_run(job(AgingWithTimers())).add_record(event(0, "a")).add_record(event(40, "b"))
    run.add_record(event(0, [30])).add_watermark(at(70)).add_record(event(70, "tell"))
    kept = ("b", {"b": 1}, ["b"])
    assert run.run().records("found") == [("b", {"a": 1, "b": 1}, ["a", "b"]), kept]


@pytest.mark.rule(16)
def test_what_a_timer_wrote_is_gone_where_the_event_after_it_fails(test_run: MakeRun) -> None:
    class Breaking(AgingWithTimers):
        def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
            if event.value == "fail":
                raise ValueError
            super().on_event(subject, event)

    run = test_run(job(Breaking(), on_error="dead_letter")).add_record(event(0, [(5, "a")]))
    result = run.add_watermark(at(100)).add_record(event(100, "fail")).run()
    assert (result.records("found"), result.keys()) == ([NOTHING], [])


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


class Own:
    """Is made by its `__init__`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Own) and self.name == other.name


class OwnCodec:
    def encode(self, value: Own) -> str:
        return value.name

    def decode(self, encoded: str) -> Own:
        return Own(encoded)


VALUES: dict[str, Any] = {
    "scalars": (True, 2**70, -0.5, "text", b"bytes"),
    "times": (datetime(2025, 1, 1, 12, tzinfo=timezone.utc), date(2025, 1, 1), timedelta(microseconds=-1)),
    "others": (Decimal("1.50"), UUID(int=7), Color.RED),
    "containers": {"a": ({1, 2}, frozenset({"x"}))},
    "union": [1, None, "text"],
    "trip": Trip([Point(1), Point(2, 0.5)]),
    "doubled": Doubled(4),
    "own": Own("a"),
}
VALUES["trip"].visited = 2


class Typed(Recorder):
    """An event's value names the specs that are written; an event without one collects them all."""

    scalars = ValueSpec(tuple[bool, int, float, str, bytes])
    times = ValueSpec(tuple[datetime, date, timedelta])
    others = ValueSpec(tuple[Decimal, UUID, Color])
    containers = ValueSpec(dict[str, tuple[set[int], frozenset[str]]])
    union = ValueSpec(list[int | str | None])
    trip = ValueSpec(Trip)
    doubled = ValueSpec(Doubled)
    own = ValueSpec(Own, codec=OwnCodec())
    found = SinkSpec(dict[str, bool])

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        states = {name: getattr(self, name).state_for(subject) for name in VALUES}
        if event.value == "write":
            for name, state in states.items():
                state.value = VALUES[name]
        else:
            self.found.collect(subject, {name: state.value == VALUES[name] for name, state in states.items()})


@pytest.mark.on_spark("values travel")
@pytest.mark.rule(25)
def test_a_value_comes_back_as_it_was_whatever_its_type(test_run: MakeRun) -> None:
    run = test_run(job(Typed())).add_record(event(0, "write")).restart().add_record(event(1))
    assert run.run().records("found") == [dict.fromkeys(VALUES, True)]
