"""`amadou replay`: each dead letter is processed by its job once, in order."""

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.handlers import SECOND

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, ReferenceSpec, SinkSpec, Subject, ValueSpec
from amadou.errors import CallbackError, CheckpointError, LoadError
from amadou_plugins.aggregates import Sum
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import start
from amadou_runtime._run import replay
from amadou_runtime.runs.dead_letter_files import read_letters
from amadou_runtime.runs.replay import Replay

pytestmark = [pytest.mark.spark, pytest.mark.rule(32), pytest.mark.usefixtures("spark")]

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Words(Handler):
    """Stores the words of each key; a word that begins with an exclamation mark is added again by a timer."""

    words = ValueSpec(list[str], default=[])
    outputs = SinkSpec(tuple[str, list[str], bool])

    def key_event(self, record: str) -> KeyedEvent[str]:
        key, second, word = record.split(",")
        return KeyedEvent(key, NOON + int(second) * SECOND, word)

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.add(subject, event.value)
        if event.value.startswith("!"):
            subject.set_timer(event.timestamp + SECOND, event.value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.add(subject, f"{subject.timer_tag} again")

    def add(self, subject: Subject, word: str) -> None:
        words = self.words.state_for(subject)
        words.value = [*words.value, word]
        self.outputs.collect(subject, (str(subject.key), words.value, subject.is_late))


class Broken(Words):
    """Fails at bad words, marked records and timers."""

    def key_event(self, record: str) -> KeyedEvent[str]:
        return super().key_event(record)

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        if event.value == "bad":
            raise ValueError("no such word")
        super().on_event(subject, event)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        raise ValueError("no timers")


class Repaired(Words):
    """Fails only at records without a word."""

    def key_event(self, record: str) -> KeyedEvent[str]:
        return super().key_event(record.removeprefix("marked,"))


RECORDS = ["a,0,one", "a,1,bad", "b,1,!two", "a,2,bad", "a,60,three", "marked,a,3", "marked,a,4,four"]


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


@pytest.fixture
def run_job(spark: Any, checkpoint: str) -> Callable[..., list[Any]]:
    """Return a function that processes records in a run of the job, and returns the outputs of the run."""

    def run_job(handler: Handler, records: list[str]) -> list[Any]:
        sink = MemorySink()
        start(words_job(handler, sink, records), spark, checkpoint=checkpoint).await_termination()
        return sink.records

    return run_job


def words_job(handler: Handler, sink: MemorySink, records: list[str], **settings: Any) -> Job:
    settings = {"on_error": "dead_letter", "late_events": "drop", **settings}
    return Job("words", handler, {"in": MemorySource(records)}, {"outputs": sink}, **settings)


def replay_all(checkpoint: str, dead_letters: str, records: list[str]) -> tuple[Replay, list[Any]]:
    sink = MemorySink()
    return replay(
        words_job(Repaired(), sink, records), read_letters([Path(dead_letters)]), checkpoint=checkpoint
    ), sink.records


def test_dead_letters_of_records_events_and_timers_are_replayed_once_on_the_state_of_the_job(
    run_job: Callable[..., list[Any]], checkpoint: str
) -> None:
    outputs = run_job(Broken(), RECORDS)
    assert sorted(outputs) == [("a", ["one"], False), ("a", ["one", "three"], False), ("b", ["!two"], False)]
    copied = f"{checkpoint}-copy"
    shutil.copytree(f"{checkpoint}/dead_letters", copied)

    outcome, outputs = replay_all(checkpoint, f"{checkpoint}/dead_letters", RECORDS)
    words = ["one", "three", "bad", "bad", "four"]
    assert sorted([record[1] for record in outputs if record[0] == "a"][-1]) == sorted(words)
    assert [record for record in outputs if record[0] == "b"] == [("b", ["!two", "!two again"], False)]
    assert all(is_late for key, _, is_late in outputs if key == "a")
    assert (outcome.letters, outcome.before) == (5, 0)
    assert outcome.summary is not None
    assert (outcome.summary.counts.late, outcome.summary.counts.outputs["dead_letters"]) == (0, 1)

    again, outputs = replay_all(checkpoint, copied, RECORDS)
    assert (again.letters, again.before, outputs) == (0, 5, [])
    assert "skipped (already replayed): 5" in str(again)
    ((key, stored, is_late),) = run_job(Repaired(), [*RECORDS, "a,61,five"])
    assert (key, sorted(stored), is_late) == ("a", sorted([*words, "five"]), False)


class Ticking(Words):
    """A timer of each of the four seconds after an event sets the next."""

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        subject.set_timer(event.timestamp + SECOND, "4")

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.add(subject, str((timestamp - NOON) // SECOND))
        if subject.timer_tag != "1":
            subject.set_timer(timestamp + SECOND, str(int(subject.timer_tag) - 1))


class BrokenTicking(Ticking):
    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        super().on_timer_expired(subject, timestamp)
        if timestamp == NOON + 2 * SECOND:
            raise ValueError


@pytest.mark.qualify
def test_a_replayed_timer_resumes_a_chain_of_timers(run_job: Callable[..., list[Any]], checkpoint: str) -> None:
    records = ["a,0,x", "b,60,x"]
    assert run_job(BrokenTicking(), records) == [("a", ["1"], False)]
    sink = MemorySink()
    dead_letters = read_letters([Path(f"{checkpoint}/dead_letters")])
    replay(words_job(Ticking(), sink, records), dead_letters, checkpoint=checkpoint)
    assert [words for _, words, _ in sink.records] == [["1", "2"], ["1", "2", "3"], ["1", "2", "3", "4"]]


def test_the_next_run_finishes_an_interrupted_replay(run_job: Callable[..., list[Any]], checkpoint: str) -> None:
    records = ["a,0,one", "a,1,bad"]
    run_job(Broken(), records)
    dead_letters = read_letters([Path(f"{checkpoint}/dead_letters")])
    with pytest.raises(CallbackError, match="no such word"):
        replay(words_job(Broken(), MemorySink(), records, on_error="fail"), dead_letters, checkpoint=checkpoint)
    assert run_job(Repaired(), records) == [("a", ["one", "bad"], False)]
    outcome, outputs = replay_all(checkpoint, f"{checkpoint}/dead_letters", records)
    assert (outcome.letters, outcome.before, outputs) == (0, 1, [])


class Sums(Handler):
    """Sums the values of each key by minute."""

    sums = SinkSpec(tuple)
    minutes = TumblingWindow(timedelta(minutes=1), value=Sum())

    def key_event(self, record: str) -> KeyedEvent[int]:
        key, second, value = record.split(",")
        return KeyedEvent(key, NOON + int(second) * SECOND, int(value))

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.minutes.add(subject, event)

    @minutes.on_close
    def minute_closed(self, subject: Subject, window: Window, value: int) -> None:
        self.sums.collect(subject, (subject.key, (window.start - NOON) // SECOND, value))


class BrokenSums(Sums):
    """Fails at large sums."""

    def minute_closed(self, subject: Subject, window: Window, value: int) -> None:
        if value > 10:
            raise ValueError("too much")
        super().minute_closed(subject, window, value)


@pytest.mark.qualify
def test_a_dead_letter_of_a_window_is_replayed_after_the_window_has_closed(spark: Any, checkpoint: str) -> None:
    def summing(handler: Handler) -> tuple[Job, MemorySink]:
        records = MemorySource(["a,0,7", "a,50,7", "b,1,5", "a,200,1"])
        sink = MemorySink()
        return Job("sums", handler, {"in": records}, {"sums": sink}, on_error="dead_letter"), sink

    broken, sink = summing(BrokenSums())
    start(broken, spark, checkpoint=checkpoint).await_termination()
    assert sink.records == [("b", 0, 5)]
    repaired, sink = summing(Sums())
    outcome = replay(repaired, read_letters([Path(f"{checkpoint}/dead_letters")]), checkpoint=checkpoint)
    assert sink.records == [("a", 0, 14)]
    assert (outcome.letters, dict(outcome.others)) == (1, {})


class Prices(Words):
    """Emits the price of each word. The price of a word is a record such as ``one=5``."""

    prices = ReferenceSpec(str, int, source="prices")

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.outputs.collect(subject, (event.value, [str(self.prices.get(subject, event.value))], False))


@pytest.mark.qualify
def test_a_dead_letter_of_an_update_is_replayed_as_an_update(spark: Any, checkpoint: str) -> None:
    def run_of(key_event: Callable[[str], KeyedEvent[int]], records: list[str]) -> tuple[Job, MemorySink]:
        sink = MemorySink()
        sources = {"in": MemorySource(records), "prices": MemorySource(["one=5", "two=!7"], key_event=key_event)}
        return Job("prices", Prices(), sources, {"outputs": sink}, on_error="dead_letter"), sink

    def price(record: str) -> KeyedEvent[int]:
        name, number = record.split("=")
        return KeyedEvent(name, NOON, int(number))

    broken, _ = run_of(price, [])
    start(broken, spark, checkpoint=checkpoint).await_termination()
    repaired, _ = run_of(lambda record: price(record.replace("!", "")), [])
    replay(repaired, read_letters([Path(f"{checkpoint}/dead_letters")]), checkpoint=checkpoint)
    after, sink = run_of(price, ["a,1,one", "b,1,two"])
    start(after, spark, checkpoint=checkpoint).await_termination()
    assert sorted(sink.records) == [("one", ["5"], False), ("two", ["7"], False)]


def test_dead_letters_of_another_job_and_an_unused_checkpoint_are_errors(
    run_job: Callable[..., list[Any]], checkpoint: str
) -> None:
    run_job(Broken(), ["a,0,one", "a,1,bad"])
    dead_letters = read_letters([Path(f"{checkpoint}/dead_letters")])
    other = Job("other", Repaired(), {"in": MemorySource()}, {"outputs": MemorySink()}, on_error="dead_letter")
    with pytest.raises(LoadError, match="the dead letters are from the job 'words'"):
        replay(other, dead_letters, checkpoint=checkpoint)
    with pytest.raises(CheckpointError, match="no run has used it"):
        replay(words_job(Repaired(), MemorySink(), []), dead_letters, checkpoint=f"{checkpoint}-elsewhere")
