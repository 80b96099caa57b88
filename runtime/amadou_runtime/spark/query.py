"""From a job to a running Spark query."""

import atexit
import json
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial, reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from amadou import BatchReport, Counts, Job, PartitionReport, Run, RunSummary, SinkBatch, Source, from_micros
from amadou._report import shown_watermark
from amadou._time import clock_time
from amadou.errors import AmadouError, RunError
from amadou_runtime.command.progress import Progress
from amadou_runtime.core.connectors import check_connectors, is_bounded
from amadou_runtime.core.dependencies import Held, all_held, check_held, downs, evaluate, log_changes
from amadou_runtime.core.dropped_warning import DroppedWarning
from amadou_runtime.core.held_back_warning import HeldBackWarning
from amadou_runtime.core.operator import DROPPED, LOST
from amadou_runtime.core.ports import port_codec, sink_of, with_all_sinks
from amadou_runtime.core.replay import Replayed
from amadou_runtime.core.trigger import AVAILABLE_NOW
from amadou_runtime.core.watermark import newest_of
from amadou_runtime.plugins.run_hooks import RunHooks
from amadou_runtime.spark.checkpoint import Identity, absolute, claim, keep, last_batch
from amadou_runtime.spark.clock import Clock, RunClock, stream_name
from amadou_runtime.spark.compressed import unpack_compressed
from amadou_runtime.spark.files import Files
from amadou_runtime.spark.key_range import range_count
from amadou_runtime.spark.keying_stage import KEYED, KeyingStage
from amadou_runtime.spark.lost_tasks import LostTasks, died_error
from amadou_runtime.spark.output_stage import OutputStage
from amadou_runtime.spark.payload import Payload, payload_for
from amadou_runtime.spark.replay import note, replayed
from amadou_runtime.spark.session import own_session
from amadou_runtime.spark.spark_errors import own_error, root_cause, without_plans
from amadou_runtime.spark.stateful_stage import RESULT, STATE, StatefulStage
from amadou_runtime.spark.summary import Summary, error_from
from amadou_runtime.spark.timeouts import plan_due_batch
from amadou_runtime.spark.worker_end import end_lookup

_logger = logging.getLogger("amadou")
_POLL = 0.05
_NOT_RESUMED = (
    "%s: this run has no checkpoint, so it cannot be resumed: what it keeps is lost when it ends. Give it one with "
    "--checkpoint DIR, or checkpoint= in Python"
)
_LOSSES = {
    LOST: "job %s: %s lost its in-memory state of %s keys, which an earlier run left",
    DROPPED: "%s: what the retired %s had of %s keys was dropped",
}
"""Warnings for counters that tell of lost state, by the end of their names."""


class RunningJob:
    """A job that runs on Spark.

    :ivar query: Spark's own `StreamingQuery`
    """

    def __init__(
        self,
        job: Job,
        clock: Clock,
        *,
        on_batch: Callable[[Summary], None] | None = None,
        on_report: Callable[[BatchReport], None] | None = None,
        on_spark_progress: Callable[[Mapping[str, Any]], None] | None = None,
        before_first: Callable[[], None] | None = None,
        replays: bool = False,
    ) -> None:
        self.query: Any = None
        self.payload: Payload | None = None
        """The job as its workers have it."""
        self.on_end: Callable[[RunSummary | Exception], None] | None = None
        """Is told how the run ended, when the program that started it learns of it."""
        self._job = job
        self._clock = clock
        self._on_batch = on_batch
        self._on_report = on_report
        self._on_spark_progress = on_spark_progress
        self._before_first = before_first
        """Called before the run's first batch counts."""
        self._lost_tasks = LostTasks(job.name)
        self._telling = threading.Lock()
        self._done = self._told = -1
        """The last batch that was completed, and the last one of which Spark's progress was told."""
        self._itself = [self]
        """How Spark refers to the run until it ends. Java holds what it calls in Python, and Python what it has of
        Java: without an end neither would ever let go of the other."""
        self._error: AmadouError | None = None
        self._stopping = self._stopped = False
        self._started = time.monotonic()
        self._dropped = DroppedWarning(job, replays=replays)
        self._held_back = HeldBackWarning(job)
        self._partitions: Sequence[PartitionReport] = clock.reports()
        self._summary = RunSummary(job.name, counts=self._kept(), watermark=self._watermark())
        self._recent: list[tuple[float, int]] = [(self._started, 0)]
        self.failed: Summary | None = None
        """What the batch gave that failed and ended the run."""

    def __repr__(self) -> str:
        done = f"{self._summary.batches:,} batches, watermark {shown_watermark(self._summary.watermark)}"
        return f"<RunningJob {self._job.name!r}: {self.status}, {done}>"

    @property
    def status(self) -> str:
        """`running`, `stopped` or `failed`."""
        if self._error is not None or (self.query is not None and self._failure() is not None):
            return "failed"
        return "running" if self.query is not None and self.query.isActive else "stopped"

    @property
    def progress(self) -> Progress:
        """Where the run stands now."""
        (since, before), (until, after) = self._recent[0], self._recent[-1]
        counts = self._summary.counts
        return Progress(
            job=self._job.name,
            batches=self._summary.batches,
            events=counts.events,
            events_per_second=(after - before) / (until - since) if until > since else 0.0,
            watermark=self._summary.watermark,
            state_bytes=counts.state_bytes,
            keys=counts.keys,
            late=counts.late,
            dropped=counts.dropped,
            timers_pending=counts.timers_pending,
            held=sum(counts.held.values()),
            partitions=self._partitions,
            seconds=time.monotonic() - self._started,
        )

    @property
    def summary(self) -> RunSummary:
        """What the run did so far."""
        return self._summary

    def await_termination(self, timeout: timedelta | float | None = None) -> bool:
        """Wait for the end of the run.

        :param timeout: how long at most, a `timedelta` or seconds
        :returns: whether it has ended
        :raises CallbackError: a callback of the handler failed
        :raises RunError: Spark failed
        """
        ended, cause = True, None
        try:
            if timeout is None:
                self.query.awaitTermination()
            else:
                seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
                ended = bool(self.query.awaitTermination(seconds))
            self._tell_spark_progress()
        except Exception as error:  # StreamingQueryException, or py4j's own when the JVM is gone
            cause = error
        if ended or cause is not None:
            self._itself.clear()
            self._end(cause)  # not in the handler: Spark's error, with its plans, would stand above the run's own
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
        """End the run after the batch in hand."""
        self._stopping = True
        while self.query.isActive and self.query.status["isTriggerActive"]:
            time.sleep(_POLL)
        self.halt()
        self._tell_spark_progress()
        if self.on_end is not None and self._error is None:
            self.on_end(self._summary)

    def halt(self) -> None:
        """End the run in the middle of a batch, if need be."""
        self.query.stop()
        self._itself.clear()

    def raise_error(self, cause: BaseException | None) -> None:
        """Raise what ended the run, if anything did."""
        if self._error is not None:
            raise self._error
        failure = self._failure()
        if failure is not None or (cause is not None and not self._stopped):
            told = without_plans(failure or cause)
            raise own_error(told) or RunError(f"the run of {self._job.name!r} failed in Spark: {told}")

    def _failure(self) -> Any:
        return None if self._stopped else self.query.exception()

    def _commit(self, identity: Identity, frame: Any, number: int) -> str | None:
        """Play and commit a batch. Returns why it cannot be, if it cannot."""
        if self._stopping:
            # The batch after the one in hand, planned and not begun: the next run plays it. Interrupted in the middle,
            # it would leave a stack overflow on the console, from Spark's way of reading errors.
            self._stopped = True
            return "the run was asked to end"
        self._tell_spark_progress()
        began = time.monotonic()
        try:
            whole, down = self._play(identity, frame, number)
        except AmadouError as error:
            self._error = error
            return f"{type(error).__name__}: {error}"
        self._note(
            BatchReport(
                number,
                self._counts(whole),
                self._watermark(),
                time.monotonic() - began,
                from_micros(clock_time()),
                whole.stage_seconds,
                whole.callback_seconds,
                whole.callback_calls,
                down,
                self._clock.reports(),
            )
        )
        self._done = number
        if self._on_batch is not None:
            self._on_batch(whole)
        return None

    def _play(self, identity: Identity, frame: Any, number: int) -> tuple[Summary, dict[str, bool]]:
        """Play and commit a batch. Returns what it gave, and which sources are down."""
        moment = self._clock.begin(number)
        moment.tell(frame.sparkSession)
        try:
            rows = frame.collect()
        except Exception as error:  # Spark's, whatever it is
            cause = root_cause(error)
            died = died_error(self._job.name, number, cause, frame.sparkSession.sparkContext.master)
            raise died or RunError(f"batch {number} of {self._job.name!r} failed in Spark: {cause}") from error
        self._lost_tasks.warn(frame.sparkSession, number)
        whole = Summary()
        for row in rows:
            whole.merge(Summary(**unpack_compressed(row[0])))
        if whole.error is not None:
            self.failed = whole
            raise error_from(whole.error)
        newest = newest_of(whole.newest)
        decision = evaluate(self._job, moment.dependency_state, newest, whole.oldest, number)
        log_changes(self._job, decision.changes)
        check_held(self._job, self._held(whole.ranges), decision.down)
        letters = self._clock.letters.then(self._job, whole.callback_calls, whole.failures)
        began = time.perf_counter()
        for port in self._job.sinks:
            batch = SinkBatch(identity.run, self._job.name, port, number, port_codec(self._job, port))
            sink_of(self._job, port).commit(batch, [told for _, told in whole.parts.get(port, [])])
        if self._before_first is not None:
            self._before_first()
            self._before_first = None
        self._clock.letters = letters
        self._clock.end(number, whole.newest, whole.ranges, decision.state)
        whole.stage_seconds["committing"] = time.perf_counter() - began
        return whole, downs(self._job, decision.down)

    def _tell_spark_progress(self) -> None:
        """Tell what Spark says of batches that are done and were not told."""
        if self.query is None or self._on_spark_progress is None or self._told == self._done:
            return
        with self._telling:  # by the next batch, or by whoever waits for the run
            recent, untold = self.query._jsq.recentProgress(), []
            for position in reversed(range(len(recent))):
                if recent[position].batchId() <= self._told:
                    break
                # Where nothing comes Spark tells of the batch that has not begun.
                if recent[position].durationMs().containsKey("addBatch"):
                    untold.append(recent[position])
            for progress in reversed(untold):
                self._told = progress.batchId()
                self._on_spark_progress(json.loads(progress.json()))

    def _counts(self, whole: Summary) -> Counts:
        return attrs.evolve(
            self._kept(),
            records=whole.records,
            events=whole.events,
            late=whole.late,
            dropped=whole.dropped,
            timers_set=whole.timers_set,
            timers_fired=whole.fired,
            outputs=whole.outputs,
            counters=whole.counts,
            vectorized_fallbacks=whole.vectorized_fallbacks,
        )

    def _kept(self) -> Counts:
        """What the key ranges hold."""
        keys, pending, state_bytes = (sum(kept[field] for kept in self._clock.ranges.values()) for field in range(3))
        held = {source: count for source, (count, _) in self._held().items()}
        return Counts(keys=keys, timers_pending=pending, state_bytes=state_bytes, held=held)

    def _held(self, also: Mapping[int, list[Any]] = MappingProxyType({})) -> Held:
        """Which events the key ranges hold.

        :param also: ranges that the clock does not know of yet
        """
        return all_held(kept[4] for kept in {**self._clock.ranges, **also}.values())

    def _watermark(self) -> datetime | None:
        micros = self._clock.watermark
        return None if micros is None else from_micros(micros)

    def _note(self, batch: BatchReport) -> None:
        self._summary = self._summary.with_batch(batch)
        self._partitions = batch.partitions
        self._dropped.look(batch)
        self._held_back.look(batch)
        for name, keys in batch.counts.counters.items():
            for end, told in _LOSSES.items():
                if name.endswith(end):
                    _logger.warning(told, self._job.name, name.removesuffix(end), f"{keys:,}")
        self._recent = [*self._recent[-9:], (time.monotonic(), self._summary.counts.events)]
        if self._on_report is not None:
            self._on_report(batch)


def start(
    job: Job,
    spark: Any,
    hooks: RunHooks,
    *,
    checkpoint: str | None = None,
    trigger: str | None = None,
    conf: Mapping[str, str] = MappingProxyType({}),
    flushes: RunningJob | None = None,
    letters: Sequence[Replayed] = (),
) -> RunningJob:
    """Start a job on a Spark session, which stays the caller's.

    :param job: the job, with the values of its parameters
    :param spark: the `SparkSession`
    :param hooks: are told of the run's beginning and its batches
    :param checkpoint: the directory that holds state, timers and offsets; starting again with it resumes there.
        Without it the run begins anew, and what it kept is removed when the program ends
    :param trigger: `"available-now"` ends when what is there is processed; a time such as `"5 seconds"` is the pace of
        batches; without it they follow one another, and the run ends with bounded input
    :param conf: Spark SQL settings for this run
    :param flushes: the run that has come to the end of its input, and goes on with the watermark at the end of time, so
        that every timer fires: it is the same run for in-memory state
    :param letters: dead letters that one batch replays
    :raises CheckpointError: the checkpoint does not fit the job
    :raises JobError: the job cannot be sent to workers
    :raises SourceError: a source cannot be read
    :raises SinkError: a sink cannot be written
    """
    kept = None if checkpoint is None else absolute(checkpoint)
    job = with_all_sinks(job, kept)
    check_connectors(job)
    checkpoint = kept or _temporary()
    assert isinstance(job.key_groups, int)
    own = own_session(spark, job.key_groups, checkpoint, conf)
    key_ranges = range_count(job.key_groups, int(own.conf.get("spark.sql.shuffle.partitions")))
    files = Files(own, checkpoint)
    identity = claim(files, job, key_ranges=key_ranges)
    plan_due_batch(files, last_batch(files), anyway=flushes is not None)
    if letters:
        note(files, letters)
    if trigger is None and is_bounded(job):
        trigger = AVAILABLE_NOW
    clock = RunClock(job, files, Path(_temporary()), ends=trigger == AVAILABLE_NOW)
    if flushes is not None:
        clock.flush()
    payload = flushes and flushes.payload
    payload = payload or payload_for(job, groups=identity.key_groups, ranges=identity.key_ranges)
    keyed = [] if not job.idle_after else [_wake_ups(own, clock.wake_up, identity.key_ranges)]
    keyed += replayed(own, files, payload)
    for name, source in job.sources.items():
        reader = named_reader(own, name)
        newest = clock.newest_file(name)
        if newest is not None:
            reader = reader.option(Source.NEWEST_OPTION, str(newest))
        with _start_errors(f"the source {name!r} of {job.name!r}"):
            records = source.read_stream(own, reader, name, checkpoint)
            keyed.append(records.mapInArrow(KeyingStage(payload, name), KEYED))
    end_lookup(spark)
    hooks.started(Run(identity.run, job, "spark", kept))
    progress = hooks.spark_progress if hooks.plugins.want_spark_progress else None
    running = RunningJob(
        job,
        clock,
        on_report=hooks.batch_completed,
        on_spark_progress=progress,
        before_first=partial(keep, files, identity),
        replays=bool(letters),
    )
    if kept is None and trigger != AVAILABLE_NOW:
        _logger.warning(_NOT_RESUMED, job.name)
    with _start_errors(f"the run of {job.name!r}"):
        return run_query(running, keyed, StatefulStage(payload), identity, checkpoint, trigger)


@contextmanager
def _start_errors(what: str) -> Iterator[None]:
    """Raise what Spark refuses at the start as an error of amadou, without Spark's plans."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        raise RunError(f"Spark does not start {what}: {without_plans(error)}") from None


def _wake_ups(spark: Any, path: Path, ranges: int) -> Any:
    from amadou_runtime.spark.wake_source import WakeSource  # needs pyspark

    spark.dataSource.register(WakeSource)
    reader = named_reader(spark, "").format(WakeSource.name())
    return reader.option("path", str(path)).option("ranges", ranges).load()


def named_reader(spark: Any, source: str) -> Any:
    """What makes the stream of a source."""
    return spark.readStream.name(stream_name(source))


def run_query(
    running: RunningJob,
    keyed: list[Any],
    stage: StatefulStage,
    identity: Identity,
    checkpoint: str,
    trigger: str | None,
) -> RunningJob:
    """Put the stages together and start the query."""
    running.payload = stage.payload
    results = (
        reduce(lambda left, right: left.unionByName(right), keyed)
        .withWatermark("event_time", "0 seconds")
        .groupBy("range")
        .applyInPandasWithState(stage.__call__, RESULT, STATE, "update", "EventTimeTimeout")
        .mapInArrow(OutputStage(stage.payload, identity.run), RESULT)
    )
    writer = (
        results.writeStream.queryName(identity.job)
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(partial(_commit, running._itself, identity))
    )
    if trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    running.query = writer.start()
    return running


def _commit(itself: list[RunningJob], identity: Identity, frame: Any, number: int) -> None:
    """What Spark calls for each batch. It keeps the error, which therefore has no frames that refer to the run."""
    failure = itself[0]._commit(identity, frame, number)
    if failure is not None:
        raise RunError(failure)


def _temporary() -> str:
    directory = tempfile.mkdtemp(prefix="amadou-checkpoint-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
