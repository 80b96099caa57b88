"""The history of a checkpoint: reports of its last batches."""

import json
import logging
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import attrs
import pytest
from tests.conformance.handlers import Recorder, job

from amadou.errors import CheckpointError
from amadou.plugins import BatchReport, Counts, DeadLetterReport, FailedBatch, LateEventReport, PartitionReport
from amadou_runtime.jobs.job_document import job_document
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.runs.history import HistoryWriter, LastRun, read_history, read_job
from amadou_runtime.spark.checkpoint import last_batch
from amadou_runtime.spark.clock import last_commit

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
LETTER = DeadLetterReport(
    "on_event", "KeyError: 'x'", "Traceback", "{}", "in", "'a'", NOW, "tag", NOW, {"s": "1"}, [(NOW, "tag")], b"\0\xff"
)
DESCRIPTION = job_document(job(Recorder(), "events"))
LATE = LateEventReport("dropped", "in", "'a'", NOW, "1", NOW, "minutes")


def report(number: int, **more: Any) -> BatchReport:
    partition = PartitionReport("in", "0", NOW, 3, timedelta(seconds=1.5), True)
    counts = Counts(records={"in": 3}, events=3, counters={"x": 1})
    times = {"keying": 0.5}, {"on_event": 0.25}, {"on_event": 3}, {"in": True}
    return BatchReport(number, counts, NOW, 0.75, NOW + timedelta(seconds=number), *times, (partition,), **more)


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(str(tmp_path), tmp_path)


def written(files: LocalFiles, *batches: BatchReport | FailedBatch) -> None:
    writer = HistoryWriter(files, DESCRIPTION, "5 seconds")
    for batch in batches:
        writer.add(batch)
    writer.end()
    writer.end()


def test_reports_of_batches_are_read_as_they_were_written(files: LocalFiles) -> None:
    batches = [report(0), report(1, dead_letters=[LETTER, LETTER], late_events=[LATE])]
    failed = FailedBatch(2, "KeyError: 'x'", "Traceback", 0.5, NOW)
    written(files, *batches, failed)
    assert read_history(files) == [*batches, failed]
    assert read_history(files, after=0) == [batches[1], failed]
    assert read_job(files) == LastRun("5 seconds", DESCRIPTION)


def test_a_run_continues_the_history_of_the_run_before(files: LocalFiles) -> None:
    first, again = report(1), attrs.evolve(report(1), seconds=9.0)
    written(files, report(0), first, FailedBatch(2, "first", "", 0.5, NOW))
    written(files, again, FailedBatch(2, "second", "", 0.5, NOW), report(2), report(150))
    failed = FailedBatch(2, "second", "", 0.5, NOW)
    assert read_history(files) == [report(0), again, failed, report(2), report(150)]
    assert read_history(files, after=120) == [report(150)]


def test_the_history_has_at_most_5000_batches_and_100_dead_letters(files: LocalFiles) -> None:
    dead_letters = [attrs.evolve(LETTER, error=f"KeyError: {number}") for number in range(60)]
    written(files, report(0, dead_letters=dead_letters, late_events=[LATE] * 150), *map(report, range(1, 6_000)))
    written(files, report(6_000, dead_letters=dead_letters))
    history = read_history(files)
    assert [batch.number for batch in history] == [*range(1_100, 6_001)]
    assert len(list((files.directory / "history").iterdir())) == 50 + 3
    stored = (files.directory / "history" / "dead_letters").read_text().splitlines()
    assert len(stored) == 100
    assert len((files.directory / "history" / "late_events").read_text().splitlines()) == 100
    assert isinstance(history[-1], BatchReport)
    assert history[-1].dead_letters == dead_letters


def described_with(changes: dict[str, Any]) -> str:
    """Return the record of a run with another description."""
    return json.dumps({"trigger": None, "description": DESCRIPTION | changes})


@pytest.mark.parametrize(
    "damage",
    [
        "nonsense",
        '{"trigger": "5 seconds"}',
        described_with({"settings": None}),
        described_with({"specs": [{"name": 1, "kind": "ValueSpec", "type": "int", "ttl": None}]}),
        described_with({"sources": 7}),
        described_with({"stages": {"first": DESCRIPTION, "second": 3}}),
    ],
)
def test_damaged_lines_and_files_of_the_history_are_ignored(files: LocalFiles, damage: str) -> None:
    written(files, report(0, dead_letters=[LETTER]), report(1))
    history = files.directory / "history"
    (history / "0").write_text((history / "0").read_text() + '\n{"number": 2}\nnonsense\n[]')
    without_batch = json.dumps({"letter": json.loads((history / "dead_letters").read_text())["letter"]})
    (history / "dead_letters").write_text(f'nonsense\n{{"batch": 0}}\n[]\n{without_batch}')
    (history / "job").write_text(damage)
    (history / "other").write_text("nonsense")
    assert read_history(files) == [report(0), report(1)]
    assert read_job(files) == LastRun()
    written(files, report(2))
    assert [batch.number for batch in read_history(files)] == [0, 1, 2]


def test_the_history_of_a_checkpoint_without_files_is_empty(files: LocalFiles) -> None:
    assert read_history(files) == []
    assert read_job(files) == LastRun()


def test_a_history_that_cannot_be_written_does_not_end_the_run(
    files: LocalFiles, caplog: pytest.LogCaptureFixture
) -> None:
    (files.directory / "history").write_text("a file")
    with caplog.at_level(logging.WARNING, "amadou"):
        written(files, *map(report, range(10)))
    assert "the history of the run is not written" in caplog.text


@pytest.mark.parametrize("trigger", ["9" * 5000 + " seconds", "9" * 30 + " weeks"])
def test_the_last_run_is_empty_if_its_trigger_is_not_an_interval_that_python_has(
    files: LocalFiles, trigger: str
) -> None:
    files.write("history/job", json.dumps({"trigger": trigger, "description": DESCRIPTION}))
    assert read_job(files) == LastRun()


@pytest.mark.parametrize("name", ["history/0", "history/dead_letters"])
def test_a_history_with_a_pipe_is_an_error(files: LocalFiles, name: str) -> None:
    written(files, report(0))
    (files.directory / name).unlink(missing_ok=True)
    os.mkfifo(files.directory / name)
    with pytest.raises(CheckpointError, match=f"{name} is not a regular file"):
        read_history(files)


def test_a_file_of_a_checkpoint_that_does_not_fit_in_memory_is_an_error(
    files: LocalFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(files, report(0))
    monkeypatch.setattr(Path, "read_text", Mock(side_effect=MemoryError))
    with pytest.raises(CheckpointError, match="a file is too large"):
        read_history(files)


def test_files_whose_names_are_no_numbers_of_batches_are_ignored(files: LocalFiles) -> None:
    for directory in ("commits", "offsets"):
        for name in ("7", "\N{SUPERSCRIPT TWO}", "8.tmp"):
            files.write(f"{directory}/{name}", "")
    assert (last_commit(files), last_batch(files)) == (7, 7)


@pytest.mark.parametrize(
    ("field", "value"),
    [("watermark", "2025-01-01T00:00:00"), ("number", 2**60), ("counts", {"records": {"in": 2**63}})],
)
def test_reports_with_times_without_time_zones_or_huge_numbers_are_left_out(
    files: LocalFiles, field: str, value: Any
) -> None:
    written(files, report(0), report(1))
    path = files.directory / "history" / "0"
    first, second = path.read_text().splitlines()
    path.write_text(f"{json.dumps(json.loads(first) | {field: value})}\n{second}")
    assert read_history(files) == [report(1)]
