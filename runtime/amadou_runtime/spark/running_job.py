"""A run on Spark: processes and commits each batch."""

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from amadou import Job
from amadou.engine import clock_time, shown_watermark
from amadou.errors import AmadouError, CheckpointError, RunError
from amadou.event_time import from_micros
from amadou.plugins import BatchReport, Counts, FailedBatch, PartitionReport, RunSummary, SinkBatch
from amadou.spark_versions import wakes_while_ending
from amadou.text import qualified, shown_error
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.dependencies import all_held, check_held, downs, evaluate, held_counts, log_changes
from amadou_runtime.core.key_range import RangeStatus
from amadou_runtime.core.operator import DROPPED, LOST
from amadou_runtime.core.watermark import newest_of
from amadou_runtime.formats.failure import failed_batch
from amadou_runtime.formats.json_logs import keep_context, log_context
from amadou_runtime.jobs.ports import port_codec, sink_of
from amadou_runtime.jobs.stages import errors_of_stage, whole_report
from amadou_runtime.runs.dropped_warning import DroppedWarning
from amadou_runtime.runs.held_back_warning import HeldBackWarning
from amadou_runtime.runs.history import HistoryWriter
from amadou_runtime.runs.large_state_warning import LargeStateWarning
from amadou_runtime.runs.lease import Lease
from amadou_runtime.runs.progress import Progress
from amadou_runtime.spark.checkpoint import CheckpointMetadata, absolute
from amadou_runtime.spark.clock import BatchTime, Clock, StageProgress
from amadou_runtime.spark.lost_tasks import LostTasks, died_error
from amadou_runtime.spark.payload import Payload
from amadou_runtime.spark.reference_files import StageReferences
from amadou_runtime.spark.savepoints.service import SavepointService
from amadou_runtime.spark.spark_errors import (
    ENDED,
    JAVA_ENDED,
    message_with_cause,
    own_error,
    root_cause,
    size_problem,
    without_plans,
)
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.summary import Summary, by_stage, error_from
from amadou_runtime.spark.worker_setup import setup_problem

_logger = logging.getLogger("amadou")
_POLL = 0.05
_LOSSES = {
    LOST: "job %s: %s lost its in-memory state for %s keys (in-memory state does not survive a restart)",
    DROPPED: "job %s: dropped the state of the retired spec %s (%s keys)",
}
"""Warnings for counters that report lost state, by the suffix of the counter's name."""


class RunningJob:
    """A job that runs on Spark.

    :ivar query: the Spark `StreamingQuery`
    """

    def __init__(
        self,
        job: Job,
        clock: Clock,
        *,
        on_batch: Callable[[dict[str, Summary]], None] | None = None,
        on_report: Callable[[BatchReport], None] | None = None,
        on_failure: Callable[[FailedBatch], None] | None = None,
        history: HistoryWriter | None = None,
        on_spark_progress: Callable[[Mapping[str, Any]], None] | None = None,
        before_first: Callable[[], None] | None = None,
        references: Mapping[str, StageReferences] = MappingProxyType({}),
        replays: bool = False,
    ) -> None:
        self.query: Any = None
        self.payload: Payload | None = None
        """The job in the form that is sent to workers."""
        self.on_end: Callable[[RunSummary | Exception], None] | None = None
        """Called when the run has ended: by `await_termination` with the run's summary or error, and by `stop` with the
        summary of a run that has not failed."""
        self._job = job
        self._clock = clock
        self._on_batch = on_batch
        self._on_report = on_report
        self._on_failure = on_failure
        self._history = history
        self._on_spark_progress = on_spark_progress
        self._references = references
        """The references by stage."""
        self._before_first = before_first
        """Called once, before the progress of the run's first batch is stored."""
        self._lease: Lease | None = None
        self._savepoints: SavepointService | None = None
        self._lost_tasks = LostTasks(job.name)
        self._reporting = threading.Lock()
        self._done = self._reported = -1
        """Numbers of the last completed batch, and of the last batch whose Spark progress was reported."""
        self._itself = [self]
        """Spark's reference to the run, cleared when the run ends. Java keeps Python callbacks alive, and Python keeps
        Java objects alive, so a permanent reference would leak memory."""
        self._error: AmadouError | None = None
        self._stopping = self._stopped = False
        self._started = time.monotonic()
        self._warnings = {name: _Warnings(stage, replays=replays) for name, stage in job.by_stage.items()}
        before = whole_report({name: self._report(-1, 0.0, Summary(), {}, name) for name in job.by_stage})
        self._partitions: Sequence[PartitionReport] = before.partitions
        self._summary = RunSummary(job.name, counts=before.counts, watermark=before.watermark)
        self._recent: list[tuple[float, int]] = [(self._started, 0)]
        self.failed: dict[str, Summary] = {}
        """Results, by stage, of the batch that failed and ended the run; empty if there is no such batch."""

    def __repr__(self) -> str:
        done = f"{self._summary.batches:,} batches, watermark {shown_watermark(self._summary.watermark)}"
        return f"<RunningJob {self._job.name!r}: {self.status}, {done}>"

    @property
    def status(self) -> str:
        """Status of the run: `running`, `stopped` or `failed`."""
        if self._error is not None or (self.query is not None and self._failure() is not None):
            return "failed"
        return "running" if self.query is not None and self.query.isActive else "stopped"

    @property
    def is_stopping(self) -> bool:
        """`True` once the run has been asked to stop."""
        return self._stopping

    @property
    def goes_on(self) -> bool:
        """`True` if batches are due after the run's end: a version of Spark that plans one batch has ended it early."""
        return self._clock.is_due and self._done >= 0 and not self._stopping and not wakes_while_ending()

    @property
    def progress(self) -> Progress:
        """The run's current progress."""
        (since, before), (until, after) = self._recent[0], self._recent[-1]
        return Progress(
            job=self._job.name,
            batches=self._summary.batches,
            counts=self._summary.counts,
            events_per_second=(after - before) / (until - since) if until > since else 0.0,
            watermark=self._summary.watermark,
            partitions=self._partitions,
            seconds=time.monotonic() - self._started,
        )

    @property
    def summary(self) -> RunSummary:
        """Summary of the run up to the last completed batch."""
        return self._summary

    def await_termination(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until the run ends.

        :param timeout: maximum time to wait, as a `timedelta` or in seconds; unlimited by default
        :returns: `True` if the run has ended
        :raises CallbackError: a callback of the handler failed
        :raises RunError: Spark failed
        :raises AmadouError: the run failed for another reason, such as a `SinkError`
        """
        ended, cause = True, None
        try:
            if timeout is None:
                self.query.awaitTermination()
            else:
                seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
                ended = bool(self.query.awaitTermination(seconds))
            self._report_spark_progress()
        except Exception as error:  # StreamingQueryException, or a py4j error if the JVM has ended
            cause = error
        if ended or cause is not None:
            self._release()
            self._end(cause)  # outside the except block so that the traceback does not include Spark's error
        return ended

    def _end(self, cause: Exception | None) -> None:
        try:
            self.raise_error(cause)
        except AmadouError as error:
            if self.on_end is not None:
                self.on_end(error)
            raise
        if self.on_end is not None:
            self.on_end(self._summary)

    def stop(self) -> None:
        """Stop the run after the current batch.

        :raises RunError: Spark's Java process has ended
        """
        _logger.info("job %s: the run ends after the current batch", self._job.name)
        self._stopping = True
        try:
            self._await_idle()
            self.halt()
            self._report_spark_progress()
        except JAVA_ENDED as error:
            self._release()
            self._end(error)
        if self.on_end is not None and self._error is None:
            self.on_end(self._summary)

    def _await_idle(self) -> None:
        while self.query.isActive and self.query.status["isTriggerActive"]:
            time.sleep(_POLL)

    def halt(self) -> None:
        """Stop the run immediately, even in the middle of a batch."""
        self.query.stop()
        self._release()

    def hold(self, lease: Lease, savepoints: SavepointService | None) -> None:
        """Hold a lease on the checkpoint until the run ends, and take savepoints.

        :param savepoints: `None` for a run without a checkpoint
        """
        self._lease, self._savepoints = lease, savepoints
        lease.follow(self._is_active, self._look, self._fail)

    def _look(self) -> None:
        """Do what is due without a batch, too."""
        if self._savepoints is not None:
            self._savepoints.look()
        for warnings in self._warnings.values():
            warnings.look_again()

    def _fail(self, error: AmadouError) -> None:
        """End the run with an error. A batch that is being processed is not committed: see `Lease.check`."""
        self._error = error
        with suppress(*JAVA_ENDED):
            self._await_idle()
            self.query.stop()

    def _is_active(self) -> bool:
        try:
            return bool(self.query.isActive)
        except Exception:  # py4j raises many kinds of errors if the JVM has ended
            return False

    def _release(self) -> None:
        self._itself.clear()
        if self._savepoints is not None:
            self._savepoints.wait()
        if self._history is not None:
            self._history.end()
        if self._lease is not None:
            self._lease.end()

    def ask_for_savepoint(self) -> str | None:
        """Take a savepoint soon. Signal handlers may call this method.

        :returns: the directory of the run's schedule; `None` if there is none, and no savepoint is taken
        """
        return None if self._savepoints is None else self._savepoints.ask()

    def savepoint(self, directory: str | Path) -> None:
        """Write a savepoint as of the last completed batch. The run continues meanwhile.

        :param directory: a new directory: a path, which all machines of the cluster share, or a URI
        :raises CheckpointError: the run has no checkpoint, or it cannot be read
        :raises SavepointError: the directory is not empty, or cannot be written
        """
        if self._savepoints is None:
            raise CheckpointError("of the run", "a run needs a checkpoint for savepoints: pass checkpoint= to start")
        self._savepoints.take(absolute(str(directory)))

    def raise_error(self, cause: BaseException | None) -> None:
        """Raise the error that ended the run, if there is one."""
        if self._error is not None:
            raise self._error
        failure = self._failure()
        if failure is not None or (cause is not None and not self._stopped):
            own = own_error(without_plans(failure or cause))
            raise own or RunError(
                f"the run of {self._job.name!r} failed in Spark: {message_with_cause(failure or cause)}"
            )

    def _failure(self) -> Any:
        try:
            return None if self._stopped else self.query.exception()
        except JAVA_ENDED:
            return ENDED

    def committer(self, identity: CheckpointMetadata) -> Callable[[Any, int], None]:
        """Return the function that Spark calls with each batch's results."""
        return partial(commit_batch, self._itself, identity)

    def _commit_batch(self, identity: CheckpointMetadata, frame: Any, number: int, reported: int) -> str | None:
        """Process and commit a batch.

        :param number: Spark's number of the batch
        :param reported: the batch's number in reports, logs and sinks
        :returns: the reason why the batch was not committed; `None` if it was committed
        """
        if self._stopping:
            # This batch has not begun, and the next run processes it. Interrupting a batch halfway would print a stack
            # overflow on the console, because of the way Spark reads errors.
            self._stopped = True
            return "the run was stopped"
        self._report_spark_progress()
        if self._savepoints is not None:
            self._savepoints.before_batch(number)
        began = time.monotonic()
        try:
            self._read_tables(number)
            times = self._with_references(self._clock.begin(number), identity)
            results = self._processed(frame, reported, times)
            if self._lease is not None:
                self._lease.check()
            down = self._commit(identity, results, number, reported, times)
        except AmadouError as error:
            return self._failed(error, reported, began)
        except (SystemExit, KeyboardInterrupt) as error:
            # They would end py4j's thread, and Spark would wait for its answer.
            problem = f"batch {reported} of {self._job.name!r} failed: {shown_error(error)}"
            return self._failed(RunError(problem), reported, began)
        reports = {name: self._report(reported, began, result, down[name], name) for name, result in results.items()}
        self._note(reports, identity.state)
        self._done = number
        if self._on_batch is not None:
            self._on_batch(results)
        return None

    def _failed(self, error: AmadouError, reported: int, began: float) -> str:
        """Note the error that ends the run. Return its text."""
        keep_context(error)
        self._error = error
        self._note_failure(failed_batch(reported, error, began))
        return f"{type(error).__name__}: {error}"

    def _read_tables(self, number: int) -> None:
        for stage, references in self._references.items():
            with errors_of_stage(stage):
                references.read_tables(number)

    def _with_references(self, times: dict[str, BatchTime], identity: CheckpointMetadata) -> dict[str, BatchTime]:
        with_references = dict(times)
        for stage, references in self._references.items():
            time = times[stage]
            changed = references.changed_files(time.number)
            called = range_numbers(identity.key_ranges) if changed else time.called
            with_references[stage] = attrs.evolve(
                time,
                references=references.sent,
                changed_files=changed,
                called=called,
                letter_files=references.letter_files,
            )
        return with_references

    def _report(self, number: int, began: float, result: Summary, down: Mapping[str, bool], stage: str) -> BatchReport:
        """Return the report of a batch of a stage."""
        progress = self._clock.stages[stage]
        samples = result.samples.without_secrets()
        return BatchReport(
            number,
            _counts(result.counts, progress.ranges.values()),
            None if progress.watermark is None else from_micros(progress.watermark),
            time.monotonic() - began,
            from_micros(clock_time()),
            result.stage_seconds,
            result.callback_seconds,
            result.callback_calls,
            down,
            progress.partitions,
            samples.dead_letters,
            samples.late_events,
        )

    def _processed(self, frame: Any, reported: int, times: Mapping[str, BatchTime]) -> dict[str, Summary]:
        """Process a batch and write its outputs on Spark. Return the batch's results by stage."""
        BatchTime.hand_to_tasks(times, frame.sparkSession)
        try:
            rows = frame.collect()
        except Exception as error:  # any error from Spark
            problem = setup_problem(str(error)) or size_problem(str(error))
            if problem is not None:
                raise RunError(f"batch {reported} of {self._job.name!r} cannot be processed: {problem}") from error
            cause = root_cause(error)
            died = died_error(self._job.name, reported, cause, frame.sparkSession.sparkContext.master)
            raise died or RunError(f"batch {reported} of {self._job.name!r} failed in Spark: {cause}") from error
        self._lost_tasks.warn(frame.sparkSession, reported)
        results = by_stage((row.result for row in rows), times)
        for stage, result in results.items():
            if result.error is not None:
                self.failed = results
                with errors_of_stage(stage):
                    raise error_from(result.error)
        return results

    def _commit(
        self,
        identity: CheckpointMetadata,
        results: Mapping[str, Summary],
        number: int,
        reported: int,
        times: Mapping[str, BatchTime],
    ) -> dict[str, dict[str, bool]]:
        """Commit a batch: first its outputs, then its progress. Return the result of `downs` by stage."""
        down: dict[str, dict[str, bool]] = {}
        after: list[tuple[StageProgress, dict[int, RangeStatus], LetterCount, bytes | None]] = []
        for name, stage in self._job.by_stage.items():
            result, progress = results[name], self._clock.stages[name]
            before = times[name].dependency_state
            decision = evaluate(stage, before, newest_of(result.newest), result.oldest, reported)
            ranges = {**progress.ranges, **result.ranges}
            with errors_of_stage(name):
                log_changes(stage, decision.changes)
                check_held(stage, all_held(status.held for status in ranges.values()), decision.down)
                letters = progress.letters.then(stage, result.callback_calls, result.failures)
            after.append((progress, ranges, letters, decision.state))
            down[name] = downs(stage, decision.down)
        began = time.perf_counter()
        for name, stage in self._job.by_stage.items():
            with errors_of_stage(name):
                self._commit_outputs(identity, name, stage, results[name], reported)
        if self._before_first is not None:
            self._before_first()
            self._before_first = None
        for name, references in self._references.items():
            references.take(number, results[name].updates)
        for progress, ranges, letters, state in after:
            progress.ranges, progress.letters, progress.dependency_state = ranges, letters, state
        due = min((each.due for each in self._references.values() if each.due is not None), default=None)
        self._clock.end(number, {name: result.newest for name, result in results.items()}, due)
        results[identity.stages[-1]].stage_seconds["committing"] = time.perf_counter() - began
        return down

    def _commit_outputs(
        self, identity: CheckpointMetadata, name: str, stage: Job, result: Summary, reported: int
    ) -> None:
        before = identity.batches_before
        for port in stage.sinks:
            codec = port_codec(stage, port)
            batch = SinkBatch(identity.run, stage.name, qualified(name, port), reported, codec, before)
            sink_of(stage, port).commit(batch, [message for _, message in result.parts.get(port, [])])

    def _report_spark_progress(self) -> None:
        """Report Spark's progress for the completed batches that have not been reported yet."""
        if self.query is None or self._on_spark_progress is None or self._reported == self._done:
            return
        with self._reporting:  # batches, await_termination and stop can call this method at the same time
            recent, unreported = self.query._jsq.recentProgress(), []
            for position in reversed(range(len(recent))):
                if recent[position].batchId() <= self._reported:
                    break
                # When there is no data, Spark also reports progress for a batch that has not begun.
                if recent[position].durationMs().containsKey("addBatch"):
                    unreported.append(recent[position])
            for progress in reversed(unreported):
                self._reported = progress.batchId()
                self._on_spark_progress(json.loads(progress.json()))

    def _note(self, reports: Mapping[str, BatchReport], store: str) -> None:
        batch = whole_report(reports)
        for name, report in reports.items():
            with errors_of_stage(name):
                self._warnings[name].look(report, store)
        if self._history is not None:
            self._history.add(batch)
        if self._on_report is not None:
            self._on_report(batch)
        self._summary = self._summary.with_batch(batch)  # the last, so that plugins know each batch of the summary
        self._partitions = batch.partitions
        self._recent = [*self._recent[-9:], (time.monotonic(), self._summary.counts.events)]

    def _note_failure(self, failed: FailedBatch) -> None:
        if self._history is not None:
            self._history.add(failed)
        if self._on_failure is not None:
            self._on_failure(failed)


class _Warnings:
    """The warnings about a stage's batches."""

    def __init__(self, job: Job, *, replays: bool) -> None:
        self._job = job
        self._dropped = DroppedWarning(job, replays=replays)
        self._held_back = HeldBackWarning(job)
        self._large_state = LargeStateWarning(job)

    def look_again(self) -> None:
        """Log the warnings that are due some time after the last batch."""
        self._held_back.look_again(from_micros(clock_time()))

    def look(self, batch: BatchReport, store: str) -> None:
        """Check a completed batch, and log the warnings that are due."""
        self._dropped.look(batch)
        self._held_back.look(batch)
        self._large_state.look(batch, store)
        for name, keys in batch.counts.counters.items():
            for end, message in _LOSSES.items():
                if name.endswith(end):
                    _logger.warning(message, self._job.name, name.removesuffix(end), f"{keys:,}")


def _counts(batch: Counts, ranges: Collection[RangeStatus]) -> Counts:
    """Return a batch's counts, with the totals of all key ranges after the batch."""
    return attrs.evolve(
        batch,
        keys=sum(status.keys for status in ranges),
        timers_pending=sum(status.timers_pending for status in ranges),
        state_entries=sum(status.entries for status in ranges),
        state_bytes=sum(status.state_bytes for status in ranges),
        state_view_bytes=sum(status.view_bytes for status in ranges),
        held=held_counts(all_held(status.held for status in ranges)),
    )


def commit_batch(itself: list[RunningJob], identity: CheckpointMetadata, frame: Any, number: int) -> None:
    """Process and commit a batch; Spark calls this function. Spark retains a raised error, so the error's frames must
    not refer to the run.
    """
    reported = number + identity.batches_before
    with log_context(batch=reported):
        failure = itself[0]._commit_batch(identity, frame, number, reported)
    if failure is not None:
        raise RunError(failure)
