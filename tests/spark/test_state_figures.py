"""Figures of the size of state and of the work of its store, on each store."""

import io
import os
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.spark.log_storage import MemorySegments, opened
from tests.spark.stores import MAINLY_LOG

from amadou import Handler, Job, KeyedEvent, MemorySource, Subject, ValueSpec
from amadou.plugins import BatchReport, Counts, hookimpl
from amadou_runtime import start
from amadou_runtime.command.describe import describe
from amadou_runtime.core.batch_driver import BatchDriver
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.key_range import RangeStatus, StoreResult
from amadou_runtime.core.keying import Keying
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.stored import StoredRange
from amadou_runtime.runs import large_state_warning
from amadou_runtime.spark.groups_stage import GroupsState
from amadou_runtime.spark.summary import Summary
from amadou_runtime.store.log.forms import ENTRY_PER_KEY
from amadou_runtime.store.log.logged_range import LoggedRange

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
SMALL = 20_000
"""A size of state that is exceeded by a few records."""


class Remembering(Handler):
    text = ValueSpec(bytes)

    def key_event(self, record: int) -> KeyedEvent[int]:
        return KeyedEvent(record % 10, NOON, record)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.text.state_for(subject).value = os.urandom(4000)


class Reports:
    def __init__(self) -> None:
        self.batches: list[BatchReport] = []

    @hookimpl
    def amadou_batch_completed(self, batch: BatchReport) -> None:
        self.batches.append(batch)


def test_the_result_of_storing_a_range_reaches_the_driver_with_the_batch() -> None:
    first = Summary(counts=Counts(events=3, state_bytes_written=1), stage_seconds={"processing": 1.0})
    status = RangeStatus(1, 2, 3, 4, 5, 6, {"views": (7, 8)})
    first.add_stored(9, StoreResult(status, Counts(state_bytes_written=10, state_view_rebuilds=1), 0.5))
    second = Summary()
    second.add_stored(8, StoreResult(status, Counts(state_bytes_written=100, state_view_hits=1)))
    whole = Summary()
    for each in (first, second):
        whole.merge(Summary.unpack(each.pack()))
    assert whole.counts == Counts(events=3, state_bytes_written=111, state_view_hits=1, state_view_rebuilds=1)
    assert whole.stage_seconds == {"processing": 1.0, "rebuilding": 0.5}
    assert whole.ranges.keys() == {8, 9}
    assert (whole.ranges[8].entries, whole.ranges[8].state_bytes, whole.ranges[8].view_bytes) == (3, 4, 5)


JOB = Job("texts", Remembering(), {"in": MemorySource()}, {})


def process(stored: StoredRange, records: Iterable[int]) -> None:
    """Process records in a key range with one key group."""
    packed = Keying(JOB, "in", JOB.handler.key_event, 1).pack(list(records), 0)
    chunks = [(group, Chunk("in", b"", events)) for group, events in packed.events.items()]
    BatchDriver(Operator(JOB), stored).process_groups(chunks, None)


def test_a_range_on_the_log_counts_what_its_store_did(tmp_path: Path) -> None:
    segments = MemorySegments()

    def stored(records: Iterable[int], disk: str = "disk") -> StoreResult:
        with opened(segments, tmp_path / disk) as entries:
            key_range = LoggedRange(entries, ENTRY_PER_KEY)
            process(key_range, records)
            return key_range.store()

    new, changed, moved = stored(range(10)), stored([7]), stored([7], "other disk")
    of_group = 1
    for result in (new, changed, moved):
        assert (result.status.keys, result.status.entries) == (10, 10 + of_group)
        assert 40_000 < result.status.state_bytes < 42_000
    assert 40_000 < new.counts.state_bytes_written < 42_000
    assert 4_000 < changed.counts.state_bytes_written < 5_500
    views = [(each.counts.state_view_hits, each.counts.state_view_rebuilds) for each in (new, changed, moved)]
    assert views == [(1, 0), (1, 0), (0, 1)]
    assert [each.rebuild_seconds > 0 for each in (new, changed, moved)] == [False, False, True]
    assert changed.status.view_bytes > 40_000
    cleaned = sum(stored(range(10)).counts.state_bytes_cleaned for _ in range(5))
    assert 2 * 40_000 < cleaned < 6 * 42_000


class StoredValue:
    """A key range's state in Spark, on the store *groups*."""

    def __init__(self) -> None:
        self.get: tuple[bytes] = (b"",)
        self.exists = False

    def update(self, value: tuple[bytes]) -> None:
        self.get, self.exists = value, True


def test_a_range_on_the_store_of_groups_counts_the_value_that_it_wrote() -> None:
    value = StoredValue()
    for records in (range(10), [7]):
        state = GroupsState(value)
        process(state.load(""), records)
        status, counts, rebuild_seconds = state.store()
        assert (status.keys, status.entries, status.view_bytes, rebuild_seconds) == (10, 10, 0, 0)
        assert counts == Counts(state_bytes_written=len(value.get[0]))
        assert status.state_bytes == len(value.get[0]) > 40_000


@pytest.mark.spark
@pytest.mark.parametrize("store", MAINLY_LOG)
def test_a_run_reports_the_size_of_state_and_the_work_of_its_store(
    store: Any, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_state_warning, "_LARGE", SMALL)
    reports, source = Reports(), MemorySource(range(10))
    job = Job("texts", Remembering(), {"in": source}, {}, state=store, key_groups=2, plugins=[reports])
    start(job, spark, checkpoint=str(tmp_path)).await_termination()
    first = reports.batches[0].counts
    source.add(7)
    resumed = start(job, spark, checkpoint=str(tmp_path))
    before = resumed.progress.counts
    resumed.await_termination()
    [second] = [batch.counts for batch in reports.batches if batch.counts.events == 1]

    for counts in (first, before, second):
        assert counts.keys == 10
        assert 40_000 < counts.state_bytes < 45_000
    assert 40_000 < first.state_bytes_written < 50_000
    assert 4_000 < second.state_bytes_written < 45_000
    opened_views = [each.state_view_hits + each.state_view_rebuilds for each in (first, second)]
    if store == "groups":
        assert (second.state_entries, opened_views, second.state_view_bytes) == (second.keys, [0, 0], 0)
    else:
        assert (second.state_entries, opened_views) == (2, [2, 1])  # small key groups, so one entry each
        assert before.state_view_bytes == 0 < second.state_view_bytes < first.state_view_bytes
    warnings = [message for message in caplog.messages if "state has grown to" in message]
    assert len(warnings) == (2 if store == "groups" else 0)  # one for each run
    shown = io.StringIO()
    describe(job, {}, Console(file=shown, width=120), tmp_path)
    [row] = [line for line in shown.getvalue().splitlines() if " KiB " in line]
    assert row.split() == ["10", str(second.state_entries), row.split()[2], "KiB", "0"]
