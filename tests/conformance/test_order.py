"""The order inside a batch."""

from typing import Any

import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Recorder, TimerSetter, at, details, event, job


class Both(TimerSetter):
    """Sets timers, and also reports each event."""

    def on_event(self, subject, event):  # type: ignore[no-untyped-def]
        Recorder.on_event(self, subject, event)
        super().on_event(subject, event)


@pytest.mark.rule(5)
def test_due_timers_fire_before_the_events_of_their_batch(test_run: MakeRun) -> None:
    run = test_run(job(Both())).add_record(event(0, [3]))
    run.add_watermark(at(5)).add_record(event(1)).add_record(event(9))
    assert [seen[0] for seen in run.run().records("seen")] == ["event", "timer", "event", "event"]


@pytest.mark.rule(5)
def test_a_timer_that_an_event_of_the_batch_makes_due_fires_in_the_next_batch(test_run: MakeRun) -> None:
    run = test_run(job(Both())).add_record(event(0, [3])).add_record(event(9)).end_batch()
    run.add_record(event(10))
    assert [seen[:3] for seen in run.run().records("seen")] == [
        ("event", "k", 0),
        ("event", "k", 9),
        ("timer", "k", 3),
        ("event", "k", 10),
    ]


@pytest.mark.rule(6)
def test_timers_of_a_key_fire_by_timestamp_then_tag(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter()))
    run.add_record(event(0, [(2, "b"), (1, "z"), (2, ""), (2, "a"), (1.5, "")])).add_watermark(at(5))
    fired = [(seen[2], seen[4]) for seen in run.run().records("seen")]
    assert fired == [(1, "z"), (1.5, ""), (2, ""), (2, "a"), (2, "b")]


@pytest.mark.on_spark("order across partitions")
@pytest.mark.rule(6)
def test_timers_of_all_keys_fire_by_timestamp_key_and_tag(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_record(event(0, [7, 5], "b"))
    run.add_record(event(0, [6], "c")).add_record(event(0, [(5, "x"), 5], "a")).add_record(event(0, [5], "0"))
    seen = run.add_watermark(at(10)).run().records("seen")
    assert [(entry[2], entry[1], entry[4]) for entry in seen] == [
        (5, "0", ""),
        (5, "a", ""),
        (5, "a", "x"),
        (5, "b", ""),
        (6, "c", ""),
        (7, "b", ""),
    ]


@pytest.mark.rule(7)
def test_events_of_a_key_are_processed_in_the_order_of_their_source_not_of_their_time(test_run: MakeRun) -> None:
    run = test_run(job(Recorder())).add_records([event(5, 0), event(1, 1), event(9, 2), event(1, 3)])
    assert details(run.run()) == [0, 1, 2, 3]


@pytest.mark.on_spark("order across partitions")
@pytest.mark.rule(7)
def test_many_events_keep_their_order_for_each_key(test_run: MakeRun) -> None:
    run = test_run(job(Recorder()))
    run.add_records([event(number % 7, number, f"key-{number % 10}") for number in range(300)])
    seen = run.run().records("seen")
    for key in range(10):
        assert [entry[4] for entry in seen if entry[1] == f"key-{key}"] == list(range(key, 300, 10))


@pytest.mark.on_spark("order across partitions")
@pytest.mark.rule(7)
def test_sources_are_merged_by_event_time_with_ties_by_source_name(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "b", "a"))
    run.add_records([event(1, "b1"), event(3, "b3"), event(4, "b4")], source="b")
    run.add_records([event(1, "a1"), event(2, "a2"), event(4, "a4")], source="a")
    assert details(run.run()) == ["a1", "b1", "a2", "b3", "a4", "b4"]


@pytest.mark.rule(7)
def test_the_order_of_a_keys_events_does_not_depend_on_other_keys(test_run: MakeRun) -> None:
    for others in ([], [event(5, "other", "other")]):
        run = test_run(job(Recorder(), "a", "b")).add_records([*others, event(1, "a1")], source="a")
        run.add_record(event(2, "b2"), source="b")
        assert [seen[4] for seen in run.run().records("seen") if seen[1] == "k"] == ["a1", "b2"]


@pytest.mark.rule(7)
def test_merging_sources_keeps_the_order_of_each_source(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "a", "b"))
    run.add_records([event(5, "a5"), event(1, "a1")], source="a")
    run.add_records([event(2, "b2"), event(6, "b6"), event(3, "b3")], source="b")
    seen = details(run.run())
    assert [name for name in seen if name[0] == "a"] == ["a5", "a1"]
    assert [name for name in seen if name[0] == "b"] == ["b2", "b6", "b3"]
    assert seen == ["b2", "a5", "a1", "b6", "b3"]


@pytest.mark.rule(6)
def test_timers_of_the_same_time_fire_in_order_of_key(test_run: MakeRun) -> None:
    run = test_run(job(TimerSetter())).add_records([event(0, [5], key) for key in ("b", "c", "a")]).add_watermark(at(5))
    assert [seen[1] for seen in run.run().records("seen")] == ["a", "b", "c"]


@pytest.mark.rule(7)
def test_three_sources_are_merged_by_event_time(test_run: MakeRun) -> None:
    run = test_run(job(Recorder(), "a", "b", "c"))
    for source, second in (("c", 1), ("a", 4), ("b", 2), ("c", 3), ("a", 5)):
        run.add_record(event(second), source=source)
    assert [record[2] for record in run.run().records("seen")] == [1, 2, 3, 4, 5]


class NoneOneOrSeveral(Recorder):
    """Returns no event for some records, and several events for others."""

    def key_event(self, record: Any) -> Any:
        return {"none": None, "empty": [], "two": [event(1, "a"), event(2, "b")]}.get(record, record)


@pytest.mark.rule(7)
def test_key_event_can_return_no_event_one_event_or_several(test_run: MakeRun) -> None:
    records = ["none", event(0, "first"), "none", "empty", "two", "none", event(3, "last")]
    run = test_run(job(NoneOneOrSeveral())).add_records(records)
    assert details(run.run()) == ["first", "a", "b", "last"]
