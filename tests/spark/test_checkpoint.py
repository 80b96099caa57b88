"""Runs that continue from a checkpoint, and jobs and checkpoints that do not fit."""

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.spark.counter import NOON, Counter
from tests.waits import wait_for

from amadou import Handler, Job, KeyedEvent, LateEvent, MapSpec, MemorySink, MemorySource, Subject, ValueSpec
from amadou.errors import CallbackError, CheckpointError
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import run, start

pytestmark = pytest.mark.spark


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
    """Collects a key a minute after its event."""

    def key_event(self, record: str) -> KeyedEvent:
        key, minutes = record.split()
        return KeyedEvent(key, NOON + timedelta(minutes=int(minutes)))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        subject.set_timer(event.timestamp + timedelta(minutes=1))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.counts.collect(subject, (str(subject.key), timestamp.minute))


Count = Callable[..., list[Any]]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


@pytest.fixture
def count(spark: Any, checkpoint: Path) -> Count:
    """Runs a job with records to their end, from the test's checkpoint. Returns the outputs of that run."""
    return counting(spark, checkpoint)


def counting(spark: Any, checkpoint: Path) -> Count:
    def count(*records: str, handler: Handler | None = None, name: str = "counter", **options: Any) -> list[Any]:
        sources = options.pop("sources", {"keys": MemorySource(records)}) | options.pop("more_sources", {})
        sink = MemorySink()
        job = Job(name, handler or Counter(), sources, {"counts": sink}, **{"key_groups": 4, **options})
        start(job, spark, checkpoint=str(checkpoint)).await_termination()
        return sink.records

    return count


@pytest.fixture(scope="module")
def _with_one_event(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("with-one-event")
    assert counting(spark, made / "checkpoint")("a") == [("a", 1)]
    shutil.copytree(made / "checkpoint", made / "stored")
    return made / "checkpoint"


@pytest.fixture
def with_one_event(_with_one_event: Path) -> Iterator[Path]:
    """A checkpoint of a run with one event, of the key `a`. It contains its own path, so it is put back rather than
    copied.
    """
    yield _with_one_event
    shutil.rmtree(_with_one_event)
    shutil.copytree(_with_one_event.with_name("stored"), _with_one_event)


@pytest.fixture
def count_on(spark: Any, with_one_event: Path) -> Count:
    """As `count`, from the checkpoint with one event."""
    return counting(spark, with_one_event)


def test_a_run_goes_on_where_the_last_one_ended(count_on: Count) -> None:
    assert sorted(count_on("a", "b", "a")) == [("a", 2), ("b", 1)]


def test_a_run_that_ended_between_a_batch_and_the_timers_it_made_due_fires_them_first(
    spark: Any, count: Count, checkpoint: Path
) -> None:
    records = ["a 0", "b 0", "c 9"]
    sink = MemorySink()
    job = Job("counter", LastMinute(), {"keys": MemorySource(records)}, {"counts": sink}, key_groups=4)
    running = start(job, spark, checkpoint=str(checkpoint), trigger="1 hour")
    wait_for(lambda: running.progress.batches > 0)
    running.stop()
    assert (running.status, sink.records) == ("stopped", [])

    assert sorted(count(*records, handler=LastMinute())) == [("a", 1), ("b", 1)]
    assert count(*records, handler=LastMinute()) == []


def test_dead_letters_without_a_sink_are_stored_in_the_checkpoint(count_on: Count, with_one_event: Path) -> None:
    assert count_on("a", "bad", "a", handler=Picky(), on_error="dead_letter") == [("a", 2)]
    lines = [
        json.loads(line)
        for path in (with_one_event / "dead_letters").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert [(line["callback"], line["key"], line["error"]) for line in lines] == [
        ("on_event", "bad", "ValueError: not this one")
    ]


@pytest.mark.parametrize("policy", ["divert", pytest.param("drop", marks=pytest.mark.qualify)])
def test_late_events_are_treated_by_the_policy_of_the_job_and_counted(
    spark: Any, checkpoint: Path, policy: str
) -> None:
    late, counts = MemorySink(), MemorySink()
    sinks = {"counts": counts} | ({"late_events": late} if policy == "divert" else {})
    for records in (["a 0", "c 9"], ["a 0", "c 9", "b 1", "d 9"]):
        source = MemorySource(records)
        job = Job("counter", LastMinute(), {"keys": source}, sinks, late_events=policy, key_groups=4)  # type: ignore[arg-type]
        running = start(job, spark, checkpoint=str(checkpoint))
        running.await_termination()
    summary = running.summary
    assert (summary.counts.events, summary.counts.late, summary.counts.timers_pending) == (2, 1, 2)
    minute = NOON + timedelta(minutes=1)
    diverted = [LateEvent("counter", "keys", "b", minute, None, NOON + timedelta(minutes=9))]
    assert late.records == (diverted if policy == "divert" else [])
    assert counts.records == [("a", 1)]


def test_a_source_may_be_removed_from_a_job_but_added_again_only_with_another_name(count_on: Count) -> None:
    more = {"more": MemorySource("ab")}
    assert sorted(count_on(sources=more)) == [("a", 2), ("b", 1)]
    with pytest.raises(CheckpointError, match="earlier runs read but the last run lacked: 'keys'"):
        count_on("a", "c", more_sources=more)
    assert sorted(count_on(sources=more, more_sources={"keys again": MemorySource("ac")})) == [("a", 3), ("c", 1)]


def test_flushing_fires_pending_timers_and_later_runs_continue_from_the_checkpoint(
    spark: Any, checkpoint: Path
) -> None:
    sink = MemorySink()

    def job(*records: str) -> Job:
        return Job("counter", LastMinute(), {"keys": MemorySource(records)}, {"counts": sink}, key_groups=4)

    summary = run(job("a 0", "b 0", "c 9"), checkpoint=str(checkpoint), flush=True)
    assert sorted(sink.records) == [("a", 1), ("b", 1), ("c", 10)]
    assert (summary.counts.events, summary.counts.timers_fired, summary.counts.timers_pending) == (3, 3, 0)
    summary = run(job("a 0", "b 0", "c 9", "d 20"), checkpoint=str(checkpoint))
    assert (summary.counts.events, summary.counts.late, summary.counts.timers_pending) == (1, 1, 0)


@pytest.mark.qualify  # conformance/test_state.py has the types of keys
def test_keys_keep_their_types_and_counts_over_many_key_groups(count: Count) -> None:
    keys = [f"key-{number}" for number in range(500)]
    count(*keys, key_groups=256)
    assert sorted(count(*keys, *keys, key_groups=256)) == sorted((key, 2) for key in keys)


def test_a_failed_batch_leaves_nothing_and_is_processed_again(count_on: Count) -> None:
    with pytest.raises(CallbackError, match="not this one") as caught:
        count_on("a", "a", "bad", handler=Picky())
    assert (caught.value.handler, caught.value.callback, caught.value.key) == ("Picky", "on_event", "bad")
    assert str(caught.value).startswith("Traceback (most recent call last)")
    assert sorted(count_on("a", "a", "bad")) == [("a", 2), ("bad", 1)]


def test_a_job_that_does_not_fit_is_refused(count_on: Count) -> None:
    unfit: list[tuple[dict[str, Any], str]] = [
        ({"name": "another"}, "belongs to the job 'counter', not to 'another'"),
        ({"key_groups": 8}, "key_groups is 8, but was 4 in the first run. Change it back"),
        ({"handler": TextCounter()}, "count was ValueSpec int and is now ValueSpec str"),
        ({"handler": MapCounter()}, "count was ValueSpec int and is now MapSpec str → int"),
    ]
    for options, message in unfit:
        with pytest.raises(CheckpointError, match=message):
            count_on("a", "b", **options)
    assert count_on("a", "b") == [("b", 1)]


def test_a_wider_type_and_a_new_spec_fit(count_on: Count) -> None:
    assert count_on("a", "a", handler=WiderCounter()) == [("a", 2)]


class Stumbling(Counter):
    """The same, with a migration that fails."""

    count = ValueSpec(int, 0, version=1, migrate=lambda stored, _: stored // 0)


def test_code_whose_first_batch_fails_leaves_the_checkpoint_to_the_code_before_it(count_on: Count) -> None:
    with pytest.raises(CallbackError, match="migrate= failed for version 0: ZeroDivisionError"):
        count_on("a", "a", handler=Stumbling())
    assert count_on("a", "a") == [("a", 2)]


class Windows(Counter):
    """Counts in windows that stay open."""

    window = TumblingWindow(timedelta(hours=1), on_close=print, allowed_lateness=timedelta(days=1))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.window.add(subject, event)


class LargerWindows(Windows):
    window = TumblingWindow(timedelta(hours=2), on_close=print, allowed_lateness=timedelta(days=1))


def test_a_window_of_another_size_is_refused(count: Count) -> None:
    count("a", handler=Windows())
    with pytest.raises(CheckpointError, match=r"window was TumblingWindow\(size=1:00:00"):
        count("a", "b", handler=LargerWindows())


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


@pytest.mark.qualify
def test_a_window_that_was_retired_with_keep_closes_when_it_is_declared_again(count: Count) -> None:
    records = ["a 0", "a 0", "b 5"]
    assert count(*records[:2], handler=PerHour()) == []
    assert count(*records, handler=Hourly(), retired={"window": "keep"}) == [("b", 1)]
    assert count(*records, "c 5", handler=PerHour()) == [("a", 2)]


class Profile(NamedTuple):
    name: str


class FullProfile(NamedTuple):
    name: str
    email: str


class Profiles(Counter):
    """Stores a profile of each key."""

    profile = ValueSpec(Profile)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.profile.state_for(subject).value = Profile("Ada")
        super().on_event(subject, event)


class FullProfiles(Profiles):
    profile = ValueSpec(FullProfile)  # type: ignore[assignment]


def test_a_class_that_cannot_read_the_stored_values_is_refused_and_its_field_is_named(count: Count) -> None:
    count("a", handler=Profiles(), on_error="dead_letter")
    with pytest.raises(CheckpointError, match=r"profile was .* Profile .* FullProfile: FullProfile\.email is new and"):
        count("a", "b", handler=FullProfiles(), on_error="dead_letter")


def test_a_directory_of_another_program_is_refused(count: Count, checkpoint: Path) -> None:
    checkpoint.mkdir()
    (checkpoint / "metadata").write_text('{"id":"x"}')
    with pytest.raises(CheckpointError, match="was not created by amadou"):
        count("a")


def test_an_unreadable_metadata_file_is_named(count_on: Count, with_one_event: Path) -> None:
    (with_one_event / "amadou.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"amadou\.json cannot be read"):
        count_on("a")


def test_a_batch_whose_file_spark_cannot_read_is_named(count_on: Count, with_one_event: Path) -> None:
    commits = with_one_event / "commits"
    (commits / ".1.crc").unlink()
    (commits / "1").write_text("v1\n{}")
    with pytest.raises(CheckpointError, match="cannot read batch 1: restore its files"):
        count_on("a")


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "the progress file clock/1 is missing"), ("{", "clock/1 cannot be read"), ("{}", "'watermark'")],
)
def test_a_checkpoint_without_a_readable_progress_file_is_refused(
    count_on: Count, with_one_event: Path, content: str | None, message: str
) -> None:
    clock = with_one_event / "clock"
    (clock / ".1.crc").unlink(missing_ok=True)
    (clock / "1").unlink()
    if content is not None:
        (clock / "1").write_text(content)
    with pytest.raises(CheckpointError, match=message):
        count_on("a")


def test_a_file_in_the_place_of_the_checkpoint_is_an_error(count: Count, checkpoint: Path) -> None:
    checkpoint.write_text("in the way")
    with pytest.raises(CheckpointError, match="cannot be"):
        count("a")
