"""Dead letters: only the failing callback is undone."""

import time
from datetime import datetime
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import (
    SECOND,
    EventHandler,
    Fragile,
    Leaking,
    Mistake,
    Recorder,
    at,
    details,
    event,
    job,
)

from amadou import KeyedEvent, MapSpec, MemorySink, MemorySource, Subject, ValueSpec
from amadou_runtime import TestRun, run


def failing_run(test_run: MakeRun, *records: Any) -> TestRun:
    return test_run(job(Fragile(), on_error="dead_letter")).add_records(records)


@pytest.mark.parametrize("mistake", ["fail", "unpackable"])
@pytest.mark.rule(19)
def test_a_failing_event_undoes_only_its_own_state_timers_and_outputs(test_run: MakeRun, mistake: str) -> None:
    records = [
        event(1, "set"),
        event(2, mistake),
        event(3, "after"),
        event(4, mistake, "other"),
        event(5, "b", "third"),
    ]
    result = failing_run(test_run, *records).run()
    assert details(result) == ["set", "after", "b"]
    assert (result.state("total", "k"), result.state("seconds", "k")) == (2, {1.0: "set", 3.0: "after"})
    assert [tuple(timer) for timer in result.timers("k")] == [(at(100), "fail"), (at(101), "")]
    assert sorted(result.keys()) == ["k", "third"]


class Expiring(EventHandler):
    """Remembers the values of the last ten seconds. The value `fail` fails."""

    last = ValueSpec(str, default="none", ttl=10 * SECOND)
    seconds = MapSpec(str, int, ttl=10 * SECOND)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        if event.value == "fail":
            raise ValueError
        self.last.state_for(subject).value = event.value
        self.seconds.state_for(subject)[event.value] = 1


@pytest.mark.rule(16)
@pytest.mark.rule(19)
@pytest.mark.parametrize(("second", "last", "seconds"), [(12, "b", {"b": 1}), (15, "none", {})])
def test_a_dead_letter_shows_the_state_that_the_callback_sees(
    test_run: MakeRun, second: int, last: str, seconds: dict[str, int]
) -> None:
    """All is still stored: a timer could see it."""
    test = test_run(job(Expiring(), on_error="dead_letter"))
    test.add_records([event(1, "a"), event(5, "b"), event(second, "fail")])
    (dead_letter,) = test.run().dead_letters
    assert dead_letter.state == {"last": last, "seconds": seconds}


@pytest.mark.rule(19)
def test_changes_of_a_failing_event_stay_undone_in_later_batches(test_run: MakeRun) -> None:
    run = failing_run(test_run, event(1, "set")).end_batch().add_records([event(2, "fail"), event(3, "a")]).end_batch()
    result = run.add_records([event(4, "fail"), event(5, "b")]).run()
    assert details(result) == ["set", "a", "b"]
    assert result.state("seconds", "k") == {1.0: "set", 3.0: "a", 5.0: "b"}
    assert len(result.dead_letters) == 2


@pytest.mark.rule(19)
def test_a_failing_timer_is_a_dead_letter_and_other_timers_fire(test_run: MakeRun) -> None:
    result = failing_run(test_run, event(1, "set")).add_watermark(at(200)).run()
    assert details(result) == ["set", ""]
    assert (result.state("total", "k"), result.timers("k")) == (2, [])
    (dead_letter,) = result.dead_letters
    assert (dead_letter.callback, dead_letter.key, dead_letter.timestamp, dead_letter.tag) == (
        "on_timer_expired",
        "k",
        at(100),
        "fail",
    )
    assert (dead_letter.watermark, dead_letter.source, dead_letter.record) == (at(200), None, None)
    assert dead_letter.timers == [(at(101), "")]


@pytest.mark.on_spark("dead letters of workers")
@pytest.mark.rule(19)
def test_a_dead_letter_contains_the_record_the_error_and_the_state_of_the_key(test_run: MakeRun) -> None:
    run = failing_run(test_run, event(1, "set")).add_watermark(at(1)).add_record(event(2, "fail"))
    (dead_letter,) = run.run().dead_letters
    assert (dead_letter.job, dead_letter.callback, dead_letter.source, dead_letter.key) == (
        "conformance",
        "on_event",
        "events",
        "k",
    )
    assert dead_letter.handler.endswith(":Fragile")
    assert dead_letter.error == "Mistake: not this one"
    assert 'raise Mistake("not this one")' in dead_letter.traceback
    assert "amadou_runtime" not in dead_letter.traceback
    assert dead_letter.record == KeyedEvent("k", at(2), "fail")
    assert dead_letter.shown == repr(dead_letter.record)
    assert (dead_letter.timestamp, dead_letter.watermark) == (at(2), at(1))
    assert dead_letter.state == {"total": 1, "seconds": {1.0: "set"}}
    assert dead_letter.timers == [(at(100), "fail"), (at(101), "")]


@pytest.mark.rule(19)
def test_a_record_that_key_event_cannot_convert_is_one_dead_letter_and_has_no_events(test_run: MakeRun) -> None:
    several = [event(50, "undone"), event(51, "undone", "other"), "unparsable"]
    wrong_key = [event(60, "undone"), event(61, "undone", 1.5)]
    cannot_travel = [event(70, "undone"), event(71, object())]
    run = failing_run(
        test_run, event(1, "a"), "unparsable", several, event(2, "b"), wrong_key, cannot_travel, event(3, "c")
    )
    result = run.end_batch().add_record(event(4, "d")).run()
    assert details(result) == ["a", "b", "c", "d"]
    assert [record[3] for record in result.records("seen")] == [None, None, None, 3], "undone events move no watermark"
    dead_letters = result.dead_letters
    assert [dead_letter.callback for dead_letter in dead_letters] == ["key_event"] * 4
    assert [dead_letter.error.partition(":")[0] for dead_letter in dead_letters] == [
        "Mistake",
        "Mistake",
        "KeyTypeError",
        "EncodeError",
    ]
    assert dead_letters[0].record == "unparsable"
    assert "undone" in str(dead_letters[1].record)
    assert dead_letters[0].source == "events"


@pytest.mark.rule(19)
def test_events_of_a_record_are_discarded_if_a_later_event_of_the_record_is_invalid(test_run: MakeRun) -> None:
    wrong_key = [event(60, "undone"), event(60, "undone", "other"), event(61, "undone", 1.5)]
    run = failing_run(test_run, event(1, "a"), event(1, "a"), event(1, "a"), wrong_key, event(2, "b")).end_batch()
    result = run.add_record(event(3, "c")).run()
    seen = [(record[3], record[4]) for record in result.records("seen")]
    assert seen == [(None, "a"), (None, "a"), (None, "a"), (None, "b"), (2, "c")]
    assert [dead_letter.error.partition(":")[0] for dead_letter in result.dead_letters] == ["KeyTypeError"]


@pytest.mark.rule(19)
def test_processing_continues_if_most_events_fail(test_run: MakeRun) -> None:
    records = [event(second, "fail" if second % 3 else "good", f"key-{second % 5}") for second in range(60)]
    result = failing_run(test_run, *records).run()
    assert details(result) == ["good"] * 20
    assert len(result.dead_letters) == 40
    keys = result.keys()
    assert sum(result.state("total", key) for key in keys) == 20


@pytest.mark.rule(19)
def test_the_trace_shows_failed_callbacks_with_their_errors(test_run: MakeRun) -> None:
    result = failing_run(test_run, "unparsable", event(1, "fail")).run()
    assert [(entry.callback, entry.error) for entry in result.trace] == [
        ("key_event", "Mistake: no such record"),
        ("on_event", "Mistake: not this one"),
    ]
    assert [[port for port, _ in entry.outputs] for entry in result.trace] == [["dead_letters"]] * 2


@pytest.mark.rule(19)
def test_dead_letters_of_key_event_come_before_other_dead_letters_of_the_batch(engine: str) -> None:
    dead_letters = MemorySink()
    source = MemorySource([event(1, "fail"), event(2, "a"), "unparsable"])
    sinks = {"seen": MemorySink(), "dead_letters": dead_letters}
    run(attrs.evolve(job(Fragile(), on_error="dead_letter"), sources={"events": source}, sinks=sinks), engine=engine)
    assert [dead_letter.callback for dead_letter in dead_letters.records] == ["key_event", "on_event"]


@pytest.mark.on_spark("secrets in workers")
@pytest.mark.rule(19)
def test_a_dead_letter_does_not_contain_secrets(test_run: MakeRun) -> None:
    run = test_run(job(Leaking(), on_error="dead_letter"), params={"TOKEN": "sesame-4711"})
    dead_letters = run.add_records([event(1, "fail"), event(2, "unparsable")]).run().dead_letters
    assert [dead_letter.error for dead_letter in dead_letters] == ["ValueError: no login with ***"] * 2
    assert "sesame-4711" not in repr(dead_letters)


MANY = 16_000


class ManyTimers(Recorder):
    """An event sets very many timers; some timers set and delete other timers, and then fail."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for second in range(1, MANY + 1):
            subject.set_timer(at(second), "fail" if second in event.value else "")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        if subject.timer_tag == "fail":
            subject.set_timer(at(MANY * 2))
            subject.delete_timer(at(MANY * 2))
            subject.delete_timer(at(MANY))
            subject.set_timer(at(MANY), "again")
            raise Mistake("not now")
        self.report("timer", subject, timestamp, "")


@pytest.mark.parametrize("settings", [{"on_error": "dead_letter"}, {}])
def test_a_key_with_16_000_timers_is_processed_in_seconds(settings: dict[str, Any]) -> None:
    failing = {5, MANY - 1} if settings else set()
    run = TestRun(job(ManyTimers(), **settings)).add_record(event(0, failing)).add_watermark(at(MANY))
    began = time.monotonic()
    result = run.run()
    assert time.monotonic() - began < 10  # an earlier version took 195 seconds
    assert len(result.records("seen")) == MANY - len(failing)
    assert result.timers("k") == []
    assert [len(dead_letter.timers) for dead_letter in result.dead_letters] == [
        MANY - failed for failed in sorted(failing)
    ]
