"""Sources that need others to be up to date, on all key ranges of a real run."""

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest

from amadou import DependencyChange, DependsOn, Handler, Job, KeyedEvent, MapSpec, Param, SinkSpec, Subject
from amadou.errors import CallbackError, TooManyHeldError
from amadou.plugins import BatchReport
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import TestRun, start
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.runs.history import read_history
from amadou_runtime.spark.savepoints.rescaling import rescale

pytestmark = pytest.mark.spark

KEYS = [f"city-{number}" for number in range(60)]
BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
STEPS: list[tuple[list[int], list[int]]] = [  # minutes of activities and of weather, step by step
    ([1, 2, 3], [0]),
    ([9, 60, 61], []),
    ([62, 59], [5, 30]),
    ([], [62]),
    ([75, 80], [66]),
    ([], [90]),
    ([91], [91]),
]


class Enrich(Handler):
    weather = MapSpec(str, int)
    seen = SinkSpec(list[Any])
    notices = SinkSpec(str)
    fails_at = Param("FAILS_AT", type=int, default=-1)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        city, minute = json.loads(record)
        return KeyedEvent(city, BEGIN + timedelta(minutes=minute), minute)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        weather = self.weather.state_for(subject)
        if subject.source == "weather":
            weather["newest"] = event.value
            return
        if event.value == self.fails_at:
            raise ValueError("not today")
        self.seen.collect(subject, [subject.key, event.value, weather.get("newest"), subject.is_late])

    def on_dependency_down(self, change: DependencyChange) -> None:
        self.notify("down", change)

    def on_dependency_recovered(self, change: DependencyChange) -> None:
        self.notify("back", change)

    def notify(self, kind: str, change: DependencyChange) -> None:
        times = change.since, change.newest, change.reached
        minutes = [(time - BEGIN) // timedelta(minutes=1) for time in times]
        self.notices.collect(change.subject, f"{kind} {minutes}")


def job(directory: Path, max_held: int = 1_000_000) -> Job:
    return Job(
        "enrich",
        Enrich(),
        {name: LinesSource(str(directory / name), max_files_per_batch=1) for name in ("activities", "weather")},
        {name: JsonLinesSink(str(directory / name)) for name in ("seen", "notices")},
        dependencies=[DependsOn("activities", on="weather", max_held=max_held)],
    )


def bring(directory: Path, steps: range) -> None:
    """Write the files of some steps, each of which becomes a batch."""
    for step in steps:
        for source, records in records_of(step).items():
            (directory / source).mkdir(exist_ok=True)
            path = directory / source / f"{step}.jsonl"
            path.write_bytes(b"".join(line + b"\n" for line in records))
            os.utime(path, (1_700_000_000 + step, 1_700_000_000 + step))


def process(spark: Any, directory: Path, job: Job, **params: str) -> Any:
    """Process the files that exist."""
    running = start(job, spark, checkpoint=str(directory / "checkpoint"), trigger="available-now", params=params)
    running.await_termination()
    return running.summary


def records_of(step: int) -> dict[str, list[bytes]]:
    sources = zip(("activities", "weather"), STEPS[step], strict=True)
    return {name: [json.dumps([key, m]).encode() for m in minutes for key in KEYS] for name, minutes in sources}


def lines(directory: Path, port: str) -> list[Any]:
    return sorted(
        json.loads(line) for file in (directory / port).glob("*.jsonl") for line in file.read_text().splitlines()
    )


@pytest.mark.qualify  # conformance/test_dependencies.py has this for test runs
def test_runs_that_fail_and_are_resumed_have_the_outputs_of_a_test_run(spark: Any, tmp_path: Path) -> None:
    test = TestRun(job(tmp_path))
    for step in range(len(STEPS)):
        for source, records in records_of(step).items():
            test.add_records(records, source)
        test.end_batch()
    expected = test.run()

    bring(tmp_path, range(3))
    with pytest.raises(TooManyHeldError, match="120 events from source 'activities' are held, more than max_held=100"):
        process(spark, tmp_path, job(tmp_path, max_held=100))
    assert lines(tmp_path, "notices") == [], "nothing of the batch counts"
    assert process(spark, tmp_path, job(tmp_path)).counts.held == {"activities": 240}
    assert lines(tmp_path, "notices") == ["down [0, 0, 61]"]

    bring(tmp_path, range(3, len(STEPS)))
    with pytest.raises(CallbackError, match="not today"):
        process(spark, tmp_path, job(tmp_path), FAILS_AT="60")
    assert process(spark, tmp_path, job(tmp_path)).counts.held == {}
    assert lines(tmp_path, "seen") == sorted(expected.records("seen"))
    assert len(lines(tmp_path, "seen")) == sum(len(activities) for activities, _ in STEPS) * len(KEYS)
    assert not any(is_late for *_, is_late in lines(tmp_path, "seen"))
    assert lines(tmp_path, "notices") == sorted(expected.records("notices"))
    assert len(lines(tmp_path, "notices")) == 4


class Numbers(Enrich):
    def notify(self, kind: str, change: DependencyChange) -> None:
        self.notices.collect(change.subject, f"{kind} {change.since_batch} {change.reached_batch}")


@pytest.mark.qualify  # test_rescaling.py has the numbers of batches
@pytest.mark.needs_spark(4)
def test_callbacks_of_dependencies_get_the_reported_numbers_of_batches_after_a_checkpoint_is_rescaled(
    spark: Any, tmp_path: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    enrich = attrs.evolve(job(tmp_path), handler=Numbers())
    bring(tmp_path, range(1))
    process(spark, tmp_path, enrich)
    rescale(spark, checkpoint, partitions=1)
    bring(tmp_path, range(1, 2))
    process(spark, tmp_path, enrich)
    reported = read_history(LocalFiles(checkpoint, Path(checkpoint)))
    first, last = (batch.number for batch in reported if isinstance(batch, BatchReport) and batch.counts.events)
    assert lines(tmp_path, "notices") == [f"down {first} {last}"]
