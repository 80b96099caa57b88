"""Dead letters: only the failing callback is undone."""

import time
from datetime import datetime
from typing import Any

import attrs
import pytest
from tests.conformance.conftest import MakeRun
from tests.conformance.handlers import Fragile, Guarding, Mistake, Recorder, at, event, job

from amadou import KeyedEvent, MemorySink, MemorySource, Subject
from amadou_runtime import TestResult, TestRun, run


def run_of(test_run: MakeRun, *records: Any) -> TestRun:
    return test_run(job(Fragile(), on_error="dead_letter")).add_records(records)


def seen(result: TestResult) -> list[Any]:
    return [record[4] for record in result.records("seen")]


@pytest.mark.parametrize("mistake", ["fail", "unpackable"])
@pytest.mark.rule(19)
def test_state_timers_and_outputs_of_the_failing_event_are_undone_and_no_others(
    test_run: MakeRun, mistake: str
) -> None:
    records = [
        event(1, "set"),
        event(2, mistake),
        event(3, "after"),
        event(4, mistake, "other"),
        event(5, "b", "third"),
    ]
    result = run_of(test_run, *records).run()
    assert seen(result) == ["set", "after", "b"]
    assert (result.state("total", "k"), result.state("seconds", "k")) == (2, {1.0: "set", 3.0: "after"})
    assert [tuple(timer) for timer in result.timers("k")] == [(at(100), "fail"), (at(101), "")]
    assert sorted(result.keys()) == ["k", "third"]


@pytest.mark.rule(19)
def test_undone_in_one_batch_stays_undone_in_the_next(test_run: MakeRun) -> None:
    run = run_of(test_run, event(1, "set")).end_batch().add_records([event(2, "fail"), event(3, "a")]).end_batch()
    result = run.add_records([event(4, "fail"), event(5, "b")]).run()
    assert seen(result) == ["set", "a", "b"]
    assert result.state("seconds", "k") == {1.0: "set", 3.0: "a", 5.0: "b"}
    assert len(result.dead_letters) == 2


@pytest.mark.rule(19)
def test_a_failing_timer_has_fired_and_the_others_go_on(test_run: MakeRun) -> None:
    result = run_of(test_run, event(1, "set")).add_watermark(at(200)).run()
    assert seen(result) == ["set", ""]
    assert (result.state("total", "k"), result.timers("k")) == (2, [])
    (letter,) = result.dead_letters
    assert (letter.callback, letter.key, letter.timestamp, letter.tag) == ("on_timer_expired", "k", at(100), "fail")
    assert (letter.watermark, letter.source, letter.record) == (at(200), None, None)
    assert letter.timers == [(at(101), "")]


@pytest.mark.on_spark("dead letters of workers")
@pytest.mark.rule(19)
def test_a_letter_tells_the_record_the_error_and_the_keys_state(test_run: MakeRun) -> None:
    run = run_of(test_run, event(1, "set")).add_watermark(at(1)).add_record(event(2, "fail"))
    (letter,) = run.run().dead_letters
    assert (letter.job, letter.callback, letter.source, letter.key) == ("conformance", "on_event", "events", "k")
    assert letter.handler.endswith(":Fragile")
    assert letter.error == "Mistake: not this one"
    assert 'raise Mistake("not this one")' in letter.traceback
    assert "amadou_runtime" not in letter.traceback
    assert letter.record == KeyedEvent("k", at(2), "fail")
    assert letter.shown == repr(letter.record)
    assert (letter.timestamp, letter.watermark) == (at(2), at(1))
    assert letter.state == {"total": 1, "seconds": {1.0: "set"}}
    assert letter.timers == [(at(100), "fail"), (at(101), "")]


@pytest.mark.rule(19)
def test_a_record_that_cannot_be_keyed_becomes_a_letter_whole(test_run: MakeRun) -> None:
    several = [event(50, "undone"), event(51, "undone", "other"), "unparsable"]
    wrong_key = [event(60, "undone"), event(61, "undone", 1.5)]
    cannot_travel = [event(70, "undone"), event(71, object())]
    run = run_of(test_run, event(1, "a"), "unparsable", several, event(2, "b"), wrong_key, cannot_travel, event(3, "c"))
    result = run.end_batch().add_record(event(4, "d")).run()
    assert seen(result) == ["a", "b", "c", "d"]
    assert [record[3] for record in result.records("seen")] == [None, None, None, 3], "undone events move no watermark"
    letters = result.dead_letters
    assert [letter.callback for letter in letters] == ["key_event"] * 4
    assert [letter.error.partition(":")[0] for letter in letters] == [
        "Mistake",
        "Mistake",
        "KeyTypeError",
        "EncodeError",
    ]
    assert letters[0].record == "unparsable"
    assert "undone" in str(letters[1].record)
    assert letters[0].source == "events"


@pytest.mark.rule(19)
def test_events_before_a_records_bad_one_are_taken_back(test_run: MakeRun) -> None:
    wrong_key = [event(60, "undone"), event(60, "undone", "other"), event(61, "undone", 1.5)]
    run = run_of(test_run, event(1, "a"), event(1, "a"), event(1, "a"), wrong_key, event(2, "b")).end_batch()
    result = run.add_record(event(3, "c")).run()
    seen = [(record[3], record[4]) for record in result.records("seen")]
    assert seen == [(None, "a"), (None, "a"), (None, "a"), (None, "b"), (2, "c")]
    assert [letter.error.partition(":")[0] for letter in result.dead_letters] == ["KeyTypeError"]


@pytest.mark.on_spark("restart")
@pytest.mark.rule(19)
def test_the_stream_goes_on_over_restarts_of_the_handlers_luck(test_run: MakeRun) -> None:
    records = [event(second, "fail" if second % 3 else "good", f"key-{second % 5}") for second in range(60)]
    result = run_of(test_run, *records).run()
    assert seen(result) == ["good"] * 20
    assert len(result.dead_letters) == 40
    keys = result.keys()
    assert sum(result.state("total", key) for key in keys) == 20


@pytest.mark.rule(19)
def test_trace_shows_what_failed(test_run: MakeRun) -> None:
    result = run_of(test_run, "unparsable", event(1, "fail")).run()
    assert [(entry.callback, entry.error) for entry in result.trace] == [
        ("key_event", "Mistake: no such record"),
        ("on_event", "Mistake: not this one"),
    ]
    assert [[port for port, _ in entry.outputs] for entry in result.trace] == [["dead_letters"]] * 2


@pytest.mark.on_spark("dead letters of workers")
@pytest.mark.rule(19)
def test_letters_of_records_come_before_the_others_of_the_batch(engine: str) -> None:
    letters = MemorySink()
    source = MemorySource([event(1, "fail"), event(2, "a"), "unparsable"])
    sinks = {"seen": MemorySink(), "dead_letters": letters}
    run(attrs.evolve(job(Fragile(), on_error="dead_letter"), sources={"events": source}, sinks=sinks), engine=engine)
    assert [letter.callback for letter in letters.records] == ["key_event", "on_event"]


@pytest.mark.on_spark("secrets in workers")
@pytest.mark.rule(19)
def test_a_letter_does_not_tell_a_secret(test_run: MakeRun) -> None:
    run = test_run(job(Guarding(), on_error="dead_letter"), params={"TOKEN": "sesame-4711"})
    letters = run.add_records([event(1, "fail"), event(2, "unparsable")]).run().dead_letters
    assert [letter.error for letter in letters] == ["ValueError: no login with ***"] * 2
    assert "sesame-4711" not in repr(letters)


MANY = 16_000


class Patient(Recorder):
    """Its event sets very many timers, of which some delete and set others and then fail."""

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
def test_a_key_with_very_many_timers_takes_no_longer_for_each(settings: dict[str, Any]) -> None:
    failing = {5, MANY - 1} if settings else set()
    run = TestRun(job(Patient(), **settings)).add_record(event(0, failing)).add_watermark(at(MANY))
    began = time.monotonic()
    result = run.run()
    assert time.monotonic() - began < 10  # once 195 seconds
    assert len(result.records("seen")) == MANY - len(failing)
    assert result.timers("k") == []
    assert [len(letter.timers) for letter in result.dead_letters] == [MANY - failed for failed in sorted(failing)]
