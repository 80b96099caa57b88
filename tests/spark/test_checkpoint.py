"""A checkpoint is its job's alone, and tells when the job no longer fits it."""

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from amadou import Handler, Job, KeyedEvent, LateEvent, MapSpec, MemorySink, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.errors import CallbackError, CheckpointError
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import run, start

pytestmark = pytest.mark.spark

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


class Counter(Handler):
    """Counts the events of each key."""

    count = ValueSpec(int, 0)
    counts = SinkSpec(tuple[str, int])

    def key_event(self, record: str) -> KeyedEvent:
        return KeyedEvent(record, NOON)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        state = self.count.state_for(subject)
        state.value += 1
        self.counts.collect(subject, (str(subject.key), state.value))


class TextCounter(Counter):
    """The same, with a count that became a text."""

    count = ValueSpec(str, "")  # type: ignore[assignment]


class MapCounter(Counter):
    """The same, with a count that became a map."""

    count = MapSpec(str, int)  # type: ignore[assignment]


class WiderCounter(Counter):
    """The same, with a count that may also be a text, and one more spec."""

    count = ValueSpec(int | str, 0)  # type: ignore[assignment, arg-type]
    last = ValueSpec(datetime)


class Picky(Counter):
    """The same, but for the key `bad`."""

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        super().on_event(subject, event)
        if subject.key == "bad":
            raise ValueError("not this one")


class LastMinute(Counter):
    """Tells a key a minute after its event."""

    def key_event(self, record: str) -> KeyedEvent:
        key, minutes = record.split()
        return KeyedEvent(key, NOON + timedelta(minutes=int(minutes)))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        subject.set_timer(event.timestamp + timedelta(minutes=1))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.counts.collect(subject, (str(subject.key), timestamp.minute))


@pytest.fixture
def play(spark: Any, tmp_path: Path) -> Callable[..., list[Any]]:
    """Plays records to their end from the checkpoint of the test, and gives what came out of that run."""

    def play(*records: str, handler: Handler | None = None, name: str = "counter", **options: Any) -> list[Any]:
        sink = MemorySink()
        sources = options.pop("sources", {"keys": MemorySource(records)}) | options.pop("more_sources", {})
        job = Job(name, handler or Counter(), sources, {"counts": sink}, **options)
        start(job, spark, checkpoint=str(tmp_path / "checkpoint")).await_termination()
        return sink.records

    return play


def test_a_run_goes_on_where_the_last_one_ended(play: Callable[..., list[Any]]) -> None:
    assert sorted(play("a", "b", "a")) == [("a", 1), ("a", 2), ("b", 1)]
    assert play("a", "b", "a", "a") == [("a", 3)]


def test_a_run_that_ended_between_a_batch_and_the_timers_it_made_due_fires_them_first(
    spark: Any, play: Callable[..., list[Any]], tmp_path: Path
) -> None:
    records = ["a 0", "b 0", "c 9"]
    sink = MemorySink()
    job = Job("counter", LastMinute(), {"keys": MemorySource(records)}, {"counts": sink})
    running = start(job, spark, checkpoint=str(tmp_path / "checkpoint"), trigger="1 hour")
    until = time.monotonic() + 180
    while running.progress.batches == 0:
        assert time.monotonic() < until, "no batch came"
        time.sleep(0.05)
    running.stop()
    assert (running.status, sink.records) == ("stopped", [])

    assert sorted(play(*records, handler=LastMinute())) == [("a", 1), ("b", 1)]
    assert play(*records, handler=LastMinute()) == []


def test_dead_letters_without_a_sink_are_kept_in_the_checkpoint(play: Callable[..., list[Any]], tmp_path: Path) -> None:
    assert sorted(play("a", "bad", "a", handler=Picky(), on_error="dead_letter")) == [("a", 1), ("a", 2)]
    lines = [
        json.loads(line)
        for path in (tmp_path / "checkpoint" / "dead_letters").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert [(line["callback"], line["key"], line["error"]) for line in lines] == [
        ("on_event", "bad", "ValueError: not this one")
    ]
    assert play("a", "bad", "a", "a", handler=Picky(), on_error="dead_letter") == [("a", 3)]


@pytest.mark.parametrize("policy", ["divert", "drop"])
def test_late_events_go_where_the_job_says_and_are_counted(spark: Any, tmp_path: Path, policy: str) -> None:
    late, counts = MemorySink(), MemorySink()
    sinks = {"counts": counts} | ({"late_events": late} if policy == "divert" else {})
    for records in (["a 0", "c 9"], ["a 0", "c 9", "b 1", "d 9"]):
        job = Job("counter", LastMinute(), {"keys": MemorySource(records)}, sinks, late_events=policy)  # type: ignore[arg-type]
        running = start(job, spark, checkpoint=str(tmp_path / "checkpoint"))
        running.await_termination()
    summary = running.summary
    assert (summary.counts.events, summary.counts.late, summary.counts.timers_pending) == (2, 1, 2)
    minute = NOON + timedelta(minutes=1)
    diverted = [LateEvent("counter", "keys", "b", minute, None, NOON + timedelta(minutes=9))]
    assert late.records == (diverted if policy == "divert" else [])
    assert counts.records == [("a", 1)]


def test_a_source_may_come_and_another_one_go(play: Callable[..., list[Any]]) -> None:
    assert sorted(play("a", "b")) == [("a", 1), ("b", 1)]
    assert sorted(play("a", "b", "c", more_sources={"more": MemorySource("a")})) == [("a", 2), ("c", 1)]
    assert play(more_sources={"more": MemorySource("aa")}, sources={}) == [("a", 3)]


def test_a_source_that_went_and_comes_back_is_refused(play: Callable[..., list[Any]]) -> None:
    more = {"more": MemorySource("ab")}
    assert sorted(play("a", more_sources=more)) == [("a", 1), ("a", 2), ("b", 1)]
    with pytest.raises(CheckpointError, match="key_groups"):
        play("a", "c", key_groups=8)
    assert play("a", "c") == [("c", 1)]
    with pytest.raises(CheckpointError, match="earlier runs read but the last run lacked: 'more'"):
        play("a", "c", more_sources=more)
    assert sorted(play("a", "c", more_sources={"more again": MemorySource("ab")})) == [("a", 3), ("b", 2)]


def test_flushing_fires_what_is_pending_and_the_run_can_go_on(spark: Any, tmp_path: Path) -> None:
    sink = MemorySink()

    def job(*records: str) -> Job:
        return Job("counter", LastMinute(), {"keys": MemorySource(records)}, {"counts": sink})

    checkpoint = str(tmp_path / "checkpoint")
    summary = run(job("a 0", "b 0", "c 9"), checkpoint=checkpoint, flush=True)
    assert sorted(sink.records) == [("a", 1), ("b", 1), ("c", 10)]
    assert (summary.counts.events, summary.counts.timers_fired, summary.counts.timers_pending) == (3, 3, 0)
    summary = run(job("a 0", "b 0", "c 9", "d 20"), checkpoint=checkpoint)
    assert (summary.counts.events, summary.counts.late, summary.counts.timers_pending) == (1, 1, 0)


def test_keys_keep_their_types_and_counts_over_many_key_groups(play: Callable[..., list[Any]]) -> None:
    keys = [f"key-{number}" for number in range(500)]
    play(*keys)
    assert sorted(play(*keys, *keys)) == sorted((key, 2) for key in keys)


def test_a_failed_batch_leaves_nothing_and_is_played_again(play: Callable[..., list[Any]]) -> None:
    assert play("a") == [("a", 1)]
    with pytest.raises(CallbackError, match="not this one") as caught:
        play("a", "a", "bad", handler=Picky())
    assert (caught.value.handler, caught.value.callback, caught.value.key) == ("Picky", "on_event", "bad")
    assert str(caught.value).startswith("Traceback (most recent call last)")
    assert sorted(play("a", "a", "bad")) == [("a", 2), ("bad", 1)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "another"}, "belongs to the job 'counter', not to 'another'"),
        ({"key_groups": 8}, "key_groups is 8, but was 256 in the first run. Change it back"),
        ({"handler": TextCounter()}, "count was ValueSpec int and is now ValueSpec str"),
        ({"handler": MapCounter()}, "count was ValueSpec int and is now MapSpec str → int"),
    ],
)
def test_a_job_that_does_not_fit_is_refused(play: Callable[..., list[Any]], options: dict[str, Any], told: str) -> None:
    play("a")
    with pytest.raises(CheckpointError, match=told):
        play("a", "b", **options)
    assert play("a", "b") == [("b", 1)]


def test_a_wider_type_and_a_new_spec_fit(play: Callable[..., list[Any]]) -> None:
    play("a")
    assert play("a", "a", handler=WiderCounter()) == [("a", 2)]


class Stumbling(Counter):
    """The same, with a migration that fails."""

    count = ValueSpec(int, 0, version=1, migrate=lambda stored, _: stored // 0)


def test_code_whose_first_batch_fails_leaves_the_checkpoint_to_the_code_before_it(
    play: Callable[..., list[Any]],
) -> None:
    play("a")
    with pytest.raises(CallbackError, match="migrate= failed for version 0: ZeroDivisionError"):
        play("a", "a", handler=Stumbling())
    assert play("a", "a") == [("a", 2)]


class Windows(Counter):
    """Counts in windows that stay open."""

    window = TumblingWindow(timedelta(hours=1), on_close=print, allowed_lateness=timedelta(days=1))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.window.add(subject, event)


class LargerWindows(Windows):
    window = TumblingWindow(timedelta(hours=2), on_close=print, allowed_lateness=timedelta(days=1))


def test_a_window_of_another_size_does_not_take_over(play: Callable[..., list[Any]]) -> None:
    play("a", handler=Windows())
    with pytest.raises(CheckpointError, match=r"window was TumblingWindow\(size=1:00:00"):
        play("a", "b", handler=LargerWindows())
    assert play("a", "b", handler=Windows()) == []


class PerHour(Counter):
    """Counts in windows of an hour."""

    window = TumblingWindow(timedelta(hours=1))

    def key_event(self, record: str) -> KeyedEvent:
        key, hours = record.split()
        return KeyedEvent(key, NOON + timedelta(hours=int(hours)))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.window.add(subject, event)

    @window.on_close
    def closed(self, subject: Subject, window: Window, count: int) -> None:
        self.counts.collect(subject, (str(subject.key), count))


class Hourly(Counter):
    """The same without windows."""

    def key_event(self, record: str) -> KeyedEvent:
        return PerHour.key_event(self, record)  # type: ignore[arg-type]


def test_a_window_that_was_kept_closes_when_it_is_declared_again(play: Callable[..., list[Any]]) -> None:
    records = ["a 0", "a 0", "b 5"]
    assert play(*records[:2], handler=PerHour()) == []
    assert play(*records, handler=Hourly(), retired={"window": "keep"}) == [("b", 1)]
    assert play(*records, "c 5", handler=PerHour()) == [("a", 2)]


class Profile(NamedTuple):
    name: str


class FullProfile(NamedTuple):
    name: str
    email: str


class Profiles(Counter):
    """Keeps what it has seen of each key."""

    profile = ValueSpec(Profile)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.profile.state_for(subject).value = Profile("Ada")
        super().on_event(subject, event)


class FullProfiles(Profiles):
    profile = ValueSpec(FullProfile)  # type: ignore[assignment]


def test_a_class_that_cannot_read_what_is_stored_is_refused_with_its_field(play: Callable[..., list[Any]]) -> None:
    play("a", handler=Profiles(), on_error="dead_letter")
    with pytest.raises(CheckpointError, match=r"profile was .* Profile .* FullProfile: FullProfile\.email is new and"):
        play("a", "b", handler=FullProfiles(), on_error="dead_letter")
    assert play("a", "b", handler=Profiles(), on_error="dead_letter") == [("b", 1)]


def test_a_directory_of_another_program_is_refused(play: Callable[..., list[Any]], tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "metadata").write_text('{"id":"x"}')
    with pytest.raises(CheckpointError, match="was not created by amadou"):
        play("a")


def test_a_broken_identity_is_told(play: Callable[..., list[Any]], tmp_path: Path) -> None:
    play("a")
    (tmp_path / "checkpoint" / "amadou.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"amadou\.json cannot be read"):
        play("a")


def test_a_broken_file_of_spark_is_told(play: Callable[..., list[Any]], tmp_path: Path) -> None:
    play("a")
    commits = tmp_path / "checkpoint" / "commits"
    (commits / ".1.crc").unlink()
    (commits / "1").write_text("v1\n{}")
    with pytest.raises(CheckpointError, match="cannot read batch 1: restore its files"):
        play("a")


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "the progress file clock/1 is missing"), ("{", "clock/1 cannot be read"), ("{}", "'watermark'")],
)
def test_a_checkpoint_that_lost_how_far_the_run_had_come_is_refused(
    play: Callable[..., list[Any]], tmp_path: Path, content: str | None, told: str
) -> None:
    play("a")
    clock = tmp_path / "checkpoint" / "clock"
    (clock / ".1.crc").unlink(missing_ok=True)
    (clock / "1").unlink()
    if content is not None:
        (clock / "1").write_text(content)
    with pytest.raises(CheckpointError, match=told):
        play("a")


def test_a_checkpoint_under_a_file_is_told(play: Callable[..., list[Any]], tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot be"):
        play("a")
