"""Processes a test run's script on the real Spark engine."""

import atexit
import base64
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from amadou import Job
from amadou.errors import RunError
from amadou_runtime.core.dependencies import all_held
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.references import ReferenceTable, with_updates
from amadou_runtime.spark.checkpoint import CheckpointMetadata, store_of
from amadou_runtime.spark.clock import BatchTime, Clock, StageProgress
from amadou_runtime.spark.committer import Committer
from amadou_runtime.spark.payload import Payload, payload_for
from amadou_runtime.spark.query import run_query
from amadou_runtime.spark.rows import KEYED
from amadou_runtime.spark.running_job import RunningJob
from amadou_runtime.spark.session import TEST_MASTER, own_session, session
from amadou_runtime.spark.streams import Streams, stream_name
from amadou_runtime.spark.summary import Summary
from amadou_runtime.store.log.forms import Forms
from amadou_runtime.testing.engines import ScriptedBatch, ScriptedResult
from amadou_runtime.testing.trace import RawEntry
from amadou_runtime.testing.traced_stages import (
    ScriptedBegin,
    ScriptedKeyingStage,
    ScriptedRow,
    TracedStatefulStage,
    TracedWorker,
)


class _ScriptClock(Clock):
    """A clock that the script sets."""

    def __init__(self, stages: Iterable[str]) -> None:
        super().__init__({stage: StageProgress() for stage in stages})
        self.now = 0

    def begin(self, number: int) -> dict[str, BatchTime]:
        return {
            stage: BatchTime(
                number, number, progress.watermark, self.now, progress.dependency_state, before_end=progress.before_end
            )
            for stage, progress in self.stages.items()
        }


class SparkEngine:
    """Writes each batch of a script to a file that a running query reads.

    There is only one key group so that callbacks run in the same order as on the embedded engine.

    :param job: the job, with in-memory sinks
    :param spark: the session; by default a local session
    :param store: the store of the state; by default the one that a real run would choose
    :param forms: rules for the form of the key group on the store *log*
    """

    def __init__(self, job: Job, spark: Any = None, *, store: str | None = None, forms: Forms | None = None) -> None:
        self._store = store
        self._stage = partial(TracedStatefulStage, forms=forms)
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
        self._clock = _ScriptClock(job.by_stage)
        self._files = 0
        self._has_failed = False
        self._results = {stage: Summary() for stage in job.by_stage}
        self._states: dict[str, bytes | None] = {}
        self._running = self._start(job)
        atexit.register(self.close)

    def process(self, batches: Mapping[str, ScriptedBatch]) -> dict[str, ScriptedResult]:
        for stage, batch in batches.items():
            progress, self._clock.now = self._clock.stages[stage], batch.now
            progress.watermark, progress.letters = batch.watermark, batch.letter_count
            progress.dependency_state, progress.before_end = batch.dependency_state, batch.before_end
        self._results = {stage: Summary() for stage in batches}
        self._bring(batches)
        if self._has_failed:  # Spark reprocesses the failed batch, and reads the rewritten file
            self.restart(self._job)
        self._has_failed = True
        if any(batch.crash_after is not None for batch in batches.values()):
            with suppress(RunError):
                self._wait()
            self._bring({stage: batch.after_crash() for stage, batch in batches.items()})
            self.restart(self._job)
        self._wait()
        self._has_failed = False
        self._files += 1
        return {stage: self._result(stage, summary, batches[stage]) for stage, summary in self._results.items()}

    def _result(self, stage: str, summary: Summary, batch: ScriptedBatch) -> ScriptedResult:
        job = self._job.by_stage[stage]
        before = {name: ReferenceTable.of_bytes(batch.references.get(name)) for name in job.references}
        references = with_updates(job, before, (Chunk(*chunk) for chunk in summary.updates))
        if summary.states:
            (self._states[stage],) = summary.states.values()
        progress = self._clock.stages[stage]
        return ScriptedResult(
            summary.letters,
            summary.counts.counters,
            summary.counts.dropped,
            [RawEntry.of(parts) for parts in summary.trace],
            summary.newest,
            all_held(status.held for status in summary.ranges.values()),
            progress.dependency_state,
            progress.letters,
            {name: table.to_bytes() for name, table in references.items()},
        )

    def state(self, stage: str) -> bytes | None:
        return self._states.get(stage)

    def restart(self, job: Job) -> None:
        self._stop()
        self._running = self._start(job)

    def failed(self) -> dict[str, list[RawEntry]]:
        return {
            stage: [RawEntry.of(parts) for parts in each.trace]
            for stage, each in self._running.committer.failed.items()
        }

    def close(self) -> None:
        """Stop the query and remove its files."""
        atexit.unregister(self.close)
        self._stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, job: Job) -> RunningJob:
        self._job = job
        payload = self._payload = payload_for(job, groups=1, ranges=1, worker=TracedWorker)
        stages = list(job.by_stage)
        keyed = {stage: [self._keyed(payload)] if stage == payload.stage else [] for stage in stages}
        running = RunningJob(Committer(job, self._clock, on_batch=self._note))
        store = self._store or store_of(job)
        identity = CheckpointMetadata(job.name, self._directory.name, 1, 1, store, {}, [], stages=stages)
        return run_query(running, keyed, payload, self._stage, identity, self._checkpoint, None)

    def _keyed(self, payload: Payload) -> Any:
        """Return the keyed rows of the script."""
        rows = (
            Streams.new()
            .reader(self._own, stream_name("script"))
            .text(str(self._script))
            .selectExpr("value AS record", "CAST(NULL AS STRING) AS partition", "CAST(0 AS BIGINT) AS position")
        )
        return rows.mapInArrow(ScriptedKeyingStage(payload, "script"), KEYED)

    def _stop(self) -> None:
        self._running.halt()

    def _note(self, results: dict[str, Summary]) -> None:
        for stage, summary in results.items():
            self._results[stage].merge(summary)

    def _bring(self, batches: Mapping[str, ScriptedBatch]) -> None:
        rows: list[Any] = []
        for stage, batch in batches.items():
            rows.append(ScriptedBegin(stage, batch.run, batch.crash_after, batch.put, dict(batch.references)))
            rows += [
                ScriptedRow(stage, source, partition, record)
                for source, by_partition in batch.records.items()
                for partition, brought in by_partition.items()
                for record in brought
            ]
        lines = [base64.b64encode(self._payload.dumps(row)) + b"\n" for row in rows]
        written = self._script / f".{self._files:06}.txt"
        written.write_bytes(b"".join(lines))
        os.replace(written, self._script / f"{self._files:06}.txt")

    def _wait(self) -> None:
        try:
            self._running.query.processAllAvailable()
        except Exception as error:  # the run's error is clearer than Spark's
            self._running.raise_error(error)
