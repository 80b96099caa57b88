"""Processes a test run's script on the real Spark engine."""

import atexit
import base64
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from amadou import Job, PartitionReport
from amadou.errors import RunError
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.dependencies import all_held
from amadou_runtime.core.watermark import Newest
from amadou_runtime.spark.checkpoint import CheckpointMetadata, store_of
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.key_range import RangeStatus
from amadou_runtime.spark.keying_stage import KEYED
from amadou_runtime.spark.payload import payload_for
from amadou_runtime.spark.query import named_reader, run_query
from amadou_runtime.spark.running_job import RunningJob
from amadou_runtime.spark.session import TEST_MASTER, own_session, session
from amadou_runtime.spark.summary import Summary
from amadou_runtime.testing.engines import ScriptedBatch, ScriptedResult
from amadou_runtime.testing.trace import RawEntry
from amadou_runtime.testing.traced_stages import (
    ScriptedBegin,
    ScriptedKeyingStage,
    ScriptedRow,
    TracedStatefulStage,
    TracedWorker,
)


class _ScriptClock:
    """A clock that the script sets; see `Clock`."""

    def __init__(self) -> None:
        self.watermark: int | None = None
        self.now = 0
        self.dependency_state: bytes | None = None
        self.ranges: dict[int, RangeStatus] = {}
        self.letters = LetterCount()

    def begin(self, number: int) -> BatchTime:
        return BatchTime(number, self.watermark, self.now, self.dependency_state)

    def end(
        self, number: int, newest: Newest, ranges: Mapping[int, RangeStatus], dependency_state: bytes | None
    ) -> None:
        self.dependency_state = dependency_state

    def reports(self) -> list[PartitionReport]:
        return []


class SparkEngine:
    """Writes each batch of a script to a file that a running query reads.

    There is only one key group so that callbacks run in the same order as on the embedded engine.

    :param job: the job, with in-memory sinks
    :param spark: the session; by default a local session
    """

    def __init__(self, job: Job, spark: Any = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="amadou-test-"))
        self._checkpoint = str(self._directory / "checkpoint")
        self._own = own_session(
            spark or session(f"test {job.name}", master=TEST_MASTER, conf={"spark.ui.enabled": "false"}),
            1,
            self._checkpoint,
            # The script decides where batches end: Spark must not add batches.
            {"spark.sql.streaming.noDataMicroBatches.enabled": "false", "spark.sql.shuffle.partitions": "1"},
        )
        self._script = self._directory / "script"
        self._script.mkdir()
        self._clock = _ScriptClock()
        self._files = 0
        self._has_failed = False
        self._summary = Summary()
        self._state: bytes | None = None
        self._running = self._start(job)
        atexit.register(self.close)

    def process(self, batch: ScriptedBatch) -> ScriptedResult:
        self._clock.watermark, self._clock.now = batch.watermark, batch.now
        self._clock.dependency_state, self._clock.letters = batch.dependency_state, batch.letter_count
        self._summary = Summary()
        rows = [
            ScriptedRow(source, partition, record)
            for source, by_partition in batch.records.items()
            for partition, brought in by_partition.items()
            for record in brought
        ]
        self._bring(batch, rows)
        if self._has_failed:  # Spark reprocesses the failed batch, and reads the rewritten file
            self.restart(self._job)
        self._has_failed = True
        if batch.crash_after is not None:
            with suppress(RunError):
                self._wait()
            self._bring(batch.after_crash(), rows)
            self.restart(self._job)
        self._wait()
        self._has_failed = False
        self._files += 1
        summary = self._summary
        if summary.states:
            (self._state,) = summary.states.values()
        held = all_held(status.held for status in summary.ranges.values())
        return ScriptedResult(
            summary.letters,
            summary.counts.counters,
            summary.counts.dropped,
            [RawEntry.of(parts) for parts in summary.trace],
            summary.newest,
            held,
            self._clock.dependency_state,
            self._clock.letters,
        )

    def state(self) -> bytes | None:
        return self._state

    def restart(self, job: Job) -> None:
        self._stop()
        self._running = self._start(job)

    def failed(self) -> list[RawEntry]:
        failed = self._running.failed
        return [] if failed is None else [RawEntry.of(parts) for parts in failed.trace]

    def close(self) -> None:
        """Stop the query and remove its files."""
        atexit.unregister(self.close)
        self._stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, job: Job) -> RunningJob:
        self._job = job
        payload = self._payload = payload_for(job, groups=1, ranges=1, worker=TracedWorker)
        rows = (
            named_reader(self._own, "script")
            .text(str(self._script))
            .selectExpr("value AS record", "CAST(NULL AS STRING) AS partition", "CAST(0 AS BIGINT) AS position")
        )
        keyed = rows.mapInArrow(ScriptedKeyingStage(payload, "script"), KEYED)
        running = RunningJob(job, self._clock, on_batch=self._note)
        identity = CheckpointMetadata(job.name, self._directory.name, 1, 1, store_of(job), {}, [])
        return run_query(running, [keyed], TracedStatefulStage(payload), identity, self._checkpoint, None)

    def _stop(self) -> None:
        self._running.halt()

    def _note(self, summary: Summary) -> None:
        self._summary.merge(summary)

    def _bring(self, batch: ScriptedBatch, rows: list[ScriptedRow]) -> None:
        begin = ScriptedBegin(batch.run, batch.crash_after, batch.put)
        lines = [base64.b64encode(self._payload.dumps(row)) + b"\n" for row in (begin, *rows)]
        written = self._script / f".{self._files:06}.txt"
        written.write_bytes(b"".join(lines))
        os.replace(written, self._script / f"{self._files:06}.txt")

    def _wait(self) -> None:
        try:
            self._running.query.processAllAvailable()
        except Exception as error:  # the run's error is clearer than Spark's
            self._running.raise_error(error)
