"""Processes and commits the batches of a run, on the driver."""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from amadou import Job
from amadou.engine import clock_time
from amadou.errors import AmadouError, RunError
from amadou.event_time import from_micros
from amadou.plugins import BatchReport, Counts, FailedBatch, PartitionReport, RunSummary, SinkBatch
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
from amadou_runtime.runs.progress import Progress
from amadou_runtime.spark.checkpoint import CheckpointMetadata
from amadou_runtime.spark.clock import BatchTime, Clock, StageProgress
from amadou_runtime.spark.lost_tasks import LostTasks, died_error
from amadou_runtime.spark.reference_files import StageReferences
from amadou_runtime.spark.spark_errors import root_cause, size_problem
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.summary import Summary, by_stage, error_from
from amadou_runtime.spark.worker_setup import setup_problem

_logger = logging.getLogger("amadou")
_LOSSES = {
    LOST: "job %s: %s lost its in-memory state for %s keys (in-memory state does not survive a restart)",
    DROPPED: "job %s: dropped the state of the retired spec %s (%s keys)",
}
"""Warnings for counters that report lost state, by the suffix of the counter's name."""


class Committer:
    """Processes and commits the batches of a run. It knows nothing of the query, which `RunningJob` starts and stops.

    :param on_batch: receives the results of each batch by stage
    :param on_report: receives the report of each batch
    :param on_failure: receives the batch that ends the run
    :param before_first: called once, before the progress of the run's first batch is stored
    :param references: the references by stage
    :param replays: `True` if the run replays dead letters
    :ivar before_batch: called with Spark's number of each batch, before it begins
    :ivar check: called before a batch is committed. It raises an error if the run may not commit
    :ivar is_stopping: `True` once the run has been asked to stop: no batch begins
    :ivar has_stopped: `True` if a batch has not begun for this reason
    :ivar error: the error that ended the run
    :ivar done: Spark's number of the last completed batch
    :ivar failed: the results of the batch that failed, by stage; empty if there is none
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
        before_first: Callable[[], None] | None = None,
        references: Mapping[str, StageReferences] = MappingProxyType({}),
        replays: bool = False,
    ) -> None:
        self.job = job
        self.clock = clock
        self.history = history
        self.before_batch: Callable[[int], None] = lambda number: None
        self.check: Callable[[], None] = lambda: None
        self.is_stopping = self.has_stopped = False
        self.error: AmadouError | None = None
        self.done = -1
        self.failed: dict[str, Summary] = {}
        self._on_batch = on_batch
        self._on_report = on_report
        self._on_failure = on_failure
        self._references = references
        self._before_first = before_first
        self._lost_tasks = LostTasks(job.name)
        self._started = time.monotonic()
        self._warnings = {name: _Warnings(stage, replays=replays) for name, stage in job.by_stage.items()}
        before = whole_report({name: self._report(-1, 0.0, Summary(), {}, name) for name in job.by_stage})
        self._partitions: Sequence[PartitionReport] = before.partitions
        self.summary = RunSummary(job.name, counts=before.counts, watermark=before.watermark)
        """The summary of the run up to the last completed batch."""
        self._recent: list[tuple[float, int]] = [(self._started, 0)]

    @property
    def progress(self) -> Progress:
        """The run's current progress."""
        (since, before), (until, after) = self._recent[0], self._recent[-1]
        return Progress(
            job=self.job.name,
            batches=self.summary.batches,
            counts=self.summary.counts,
            events_per_second=(after - before) / (until - since) if until > since else 0.0,
            watermark=self.summary.watermark,
            partitions=self._partitions,
            seconds=time.monotonic() - self._started,
        )

    def look_again(self) -> None:
        """Log the warnings that are due some time after the last batch."""
        for warnings in self._warnings.values():
            warnings.look_again()

    def commit_batch(self, identity: CheckpointMetadata, frame: Any, number: int) -> str | None:
        """Process and commit a batch.

        :param frame: the results of the batch
        :param number: Spark's number of the batch
        :returns: the reason why the batch was not committed; `None` if it was committed
        """
        reported = number + identity.batches_before
        with log_context(batch=reported):
            return self._commit_batch(identity, frame, number, reported)

    def _commit_batch(self, identity: CheckpointMetadata, frame: Any, number: int, reported: int) -> str | None:
        """
        :param reported: the batch's number in reports, logs and sinks
        """
        if self.is_stopping:
            # This batch has not begun, and the next run processes it. Interrupting a batch halfway would print a stack
            # overflow on the console, because of the way Spark reads errors.
            self.has_stopped = True
            return "the run was stopped"
        self.before_batch(number)
        began = time.monotonic()
        try:
            self._read_tables(number)
            times = self._with_references(self.clock.begin(number), identity)
            results = self._processed(frame, reported, times)
            self.check()
            down = self._commit(identity, results, number, reported, times)
        except AmadouError as error:
            return self._failed(error, reported, began)
        except (SystemExit, KeyboardInterrupt) as error:
            # They would end py4j's thread, and Spark would wait for its answer.
            problem = f"batch {reported} of {self.job.name!r} failed: {shown_error(error)}"
            return self._failed(RunError(problem), reported, began)
        reports = {name: self._report(reported, began, result, down[name], name) for name, result in results.items()}
        self._note(reports, identity.state)
        self.done = number
        if self._on_batch is not None:
            self._on_batch(results)
        return None

    def _failed(self, error: AmadouError, reported: int, began: float) -> str:
        """Note the error that ends the run. Return its text."""
        keep_context(error)
        self.error = error
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
        progress = self.clock.stages[stage]
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
                raise RunError(f"batch {reported} of {self.job.name!r} cannot be processed: {problem}") from error
            cause = root_cause(error)
            died = died_error(self.job.name, reported, cause, frame.sparkSession.sparkContext.master)
            raise died or RunError(f"batch {reported} of {self.job.name!r} failed in Spark: {cause}") from error
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
        for name, stage in self.job.by_stage.items():
            result, progress = results[name], self.clock.stages[name]
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
        for name, stage in self.job.by_stage.items():
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
        self.clock.end(number, {name: result.newest for name, result in results.items()}, due)
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

    def _note(self, reports: Mapping[str, BatchReport], store: str) -> None:
        batch = whole_report(reports)
        for name, report in reports.items():
            with errors_of_stage(name):
                self._warnings[name].look(report, store)
        if self.history is not None:
            self.history.add(batch)
        if self._on_report is not None:
            self._on_report(batch)
        self.summary = self.summary.with_batch(batch)  # the last, so that plugins know each batch of the summary
        self._partitions = batch.partitions
        self._recent = [*self._recent[-9:], (time.monotonic(), self.summary.counts.events)]

    def _note_failure(self, failed: FailedBatch) -> None:
        if self.history is not None:
            self.history.add(failed)
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
