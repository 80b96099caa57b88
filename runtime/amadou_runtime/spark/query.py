"""Turns a job into a running Spark query."""

import atexit
import logging
import shutil
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amadou import Job
from amadou.plugins import Run, Source
from amadou.spark_versions import check_has_all, check_reads_state
from amadou.text import qualified
from amadou_runtime.jobs.connectors import check_connectors, is_bounded
from amadou_runtime.jobs.job_document import job_document
from amadou_runtime.jobs.ports import with_all_sinks
from amadou_runtime.jobs.trigger import AVAILABLE_NOW, trigger_interval
from amadou_runtime.plugins.run_hooks import RunHooks
from amadou_runtime.runs.files import Files, checkpoint_files
from amadou_runtime.runs.history import HistoryWriter, read_history
from amadou_runtime.runs.lease import Lease
from amadou_runtime.runs.replay import ReplayedLetter
from amadou_runtime.spark.checkpoint import CheckpointMetadata, absolute, keep, last_batch, open_checkpoint
from amadou_runtime.spark.clock import RunClock, last_commit
from amadou_runtime.spark.committer import Committer
from amadou_runtime.spark.control import Control
from amadou_runtime.spark.keying_stage import KeyingStage
from amadou_runtime.spark.output_stage import OutputStage
from amadou_runtime.spark.payload import Payload, payload_for
from amadou_runtime.spark.reference_files import StageReferences, drop_references
from amadou_runtime.spark.replay import note, replayed
from amadou_runtime.spark.rows import KEYED, RESULT
from amadou_runtime.spark.running_job import RunningJob
from amadou_runtime.spark.savepoints.loading import LOADING_CONF, load_savepoint
from amadou_runtime.spark.savepoints.run_state import RunState
from amadou_runtime.spark.savepoints.service import SavepointService, Schedule
from amadou_runtime.spark.session import own_session, partitions_of
from amadou_runtime.spark.spark_connect import check_session
from amadou_runtime.spark.spark_errors import start_errors
from amadou_runtime.spark.stateful_operator import output_mode, stateful_results
from amadou_runtime.spark.stateful_stage import StatefulStage
from amadou_runtime.spark.streams import WAKE_UPS, begin_streams, planned_offsets, stream_name
from amadou_runtime.spark.timeouts import plan_due_batch
from amadou_runtime.spark.worker_end import end_lookup

_logger = logging.getLogger("amadou")
_NOT_RESUMED = (
    "job %s: this run has no checkpoint, so it cannot be resumed, and its state is lost when the run ends. Set a "
    "checkpoint with --checkpoint DIR, or checkpoint= in Python"
)


def start(
    job: Job,
    spark: Any,
    hooks: RunHooks,
    *,
    checkpoint: str | None = None,
    from_savepoint: str | None = None,
    schedule: Schedule | None = None,
    trigger: str | None = None,
    conf: Mapping[str, str] = MappingProxyType({}),
    after: RunningJob | None = None,
    flush: bool = False,
    letters: Sequence[ReplayedLetter] = (),
) -> RunningJob:
    """Start a job on a Spark session. The session is not stopped when the run ends.

    :param job: the job, with the values of its parameters
    :param spark: the `SparkSession`
    :param hooks: plugin hooks for the start of the run and for its batches
    :param checkpoint: directory for state, timers and offsets; a later run with the same directory resumes from it. By
        default, the run starts without state, and the run's state is deleted when the program ends
    :param from_savepoint: directory of the savepoint to start from, with a new checkpoint, as a path or a URI. If an
        earlier run has made the checkpoint from this savepoint, the run resumes from the checkpoint
    :param schedule: when the run takes savepoints by itself
    :param trigger: `"available-now"` to end the run when the available input is processed, or the interval between
        batches, such as `"5 seconds"`. The default is `"available-now"` if all sources are bounded; otherwise, batches
        run back to back
    :param conf: Spark SQL settings for this run
    :param after: a run whose input has ended. The new run continues that run with the same in-memory state
    :param flush: `True` to advance the watermark to the maximum timestamp so that every timer fires
    :param letters: dead letters to replay, all in one batch
    :raises PlatformError: the session is a client of Spark Connect
    :raises CheckpointError: the checkpoint does not fit the job, or cannot be read or written
    :raises SavepointError: the savepoint does not fit the job, or cannot be read
    :raises JobError: the job cannot be sent to workers
    :raises SourceError: a source cannot be read
    :raises SinkError: a sink cannot be written to
    :raises RunError: Spark cannot start a source or the query
    """
    check_session(spark)
    files = checkpoint_files(spark, _temporary() if checkpoint is None else absolute(checkpoint))
    kept = None if checkpoint is None else files.checkpoint
    job = with_all_sinks(job, kept)
    check_connectors(job)
    if schedule is not None and schedule.every is not None:
        check_reads_state()
    assert isinstance(job.key_groups, int)
    own = own_session(spark, job.key_groups, files.checkpoint, conf)
    if trigger is None and is_bounded(job):
        trigger = AVAILABLE_NOW
    if kept is None and trigger != AVAILABLE_NOW:
        _logger.warning(_NOT_RESUMED, job.name)
    with Lease(files) as lease:
        if from_savepoint is not None:
            loading = own_session(spark, job.key_groups, files.checkpoint, {**conf, **LOADING_CONF})
            load_savepoint(loading, files, job, from_savepoint)
        running = _query(job, own, files, hooks, trigger, after, letters, flush=flush, is_kept=kept is not None)
        running.hold(lease, None if kept is None else SavepointService(own, files, job.name, schedule))
    return running


def _query(
    job: Job,
    own: Any,
    files: Files,
    hooks: RunHooks,
    trigger: str | None,
    after: RunningJob | None,
    letters: Sequence[ReplayedLetter],
    *,
    flush: bool,
    is_kept: bool,
) -> RunningJob:
    """Start the job's query on its checkpoint; see `start`.

    :param own: the job's own session
    :param is_kept: `False` if the checkpoint is temporary
    """
    identity = open_checkpoint(files, job, partitions=partitions_of(own))
    streams, ends = begin_streams(files, job, identity.stages), trigger == AVAILABLE_NOW
    plan_due_batch(files, last_batch(files), anyway=flush)
    if letters:
        note(files, letters)
    first, before = identity.stages[0], identity.batches_before
    clock = RunClock(job, files, Path(_temporary()), first, before, ends=ends)
    planned = planned_offsets(files, last_batch(files))
    if flush:
        clock.flush()
    payload = after and after.payload
    payload = payload or payload_for(job, groups=identity.key_groups, ranges=identity.key_ranges)
    keyed: dict[str, list[Any]] = {stage: [] for stage in identity.stages}
    if clock.wakes:
        check_has_all(
            "a job with several stages, idle_timeout, windows in memory, or keys that are notified of changed tables",
            "use a newer Spark",
        )
        from amadou_runtime.spark.wake_source import wake_ups  # needs pyspark

        keyed[identity.stages[0]].append(
            wake_ups(
                streams.reader(own, WAKE_UPS, planned.get(WAKE_UPS), ends=ends), own, clock.wake_up, identity.key_ranges
            )
        )
    for stage, of in job.by_stage.items():
        stage_payload = payload.of_stage(stage)
        keyed[stage] += replayed(own, files, stage_payload, streams)
        for name, source in of.stream_sources.items():
            stream = stream_name(name, stage)
            reader = streams.reader(own, stream, planned.get(stream), ends=ends)
            newest = clock.newest_file(stage, name)
            if newest is not None:
                reader = reader.option(Source.NEWEST_OPTION, str(newest))
            with start_errors(f"the source {name!r} of {of.name!r}"):
                records = source.read_stream(own, reader, qualified(stage, name), files.checkpoint)
                keyed[stage].append(records.mapInArrow(KeyingStage(stage_payload, name), KEYED))
    end_lookup(own)
    control, description = Control(), job_document(job)
    hooks.started(
        Run(
            identity.run,
            job,
            "spark",
            files.checkpoint if is_kept else None,
            trigger=trigger,
            interval=trigger_interval(trigger),
            description=description,
            state=RunState(lambda: own, files.checkpoint, job),
            control=control,
            history=partial(read_history, files),
        )
    )
    done, local, run = last_commit(files), Path(_temporary()), uuid.uuid4().hex
    references = {
        stage: StageReferences(of, stage, files, own, local, run, done)
        for stage, of in job.by_stage.items()
        if of.references
    }
    committer = Committer(
        job,
        clock,
        references=references,
        history=HistoryWriter(files, description, trigger) if is_kept else None,
        on_report=hooks.batch_completed,
        on_failure=hooks.batch_failed,
        before_first=partial(_keep, files, identity, job),
        replays=bool(letters),
    )
    running = RunningJob(committer, hooks.spark_progress if hooks.plugins.want_spark_progress else None)
    control.running = running
    with start_errors(f"the run of {job.name!r}"):
        return run_query(running, keyed, payload, StatefulStage, identity, files.checkpoint, trigger)


def _keep(files: Files, identity: CheckpointMetadata, job: Job) -> None:
    """Take over a checkpoint for the job, once it is sure that the job can process a batch."""
    keep(files, identity)
    drop_references(files, job)


def run_query(
    running: RunningJob,
    keyed: Mapping[str, list[Any]],
    payload: Payload,
    stage_of: Callable[[Payload, Sequence[str]], StatefulStage],
    identity: CheckpointMetadata,
    checkpoint: str,
    trigger: str | None,
) -> RunningJob:
    """Connect the stages and start the query. The stages of a job form a chain, in which the rows for a later stage
    pass through those before: Spark would process a stage twice if two others read its results.

    :param keyed: the keyed rows of each stage's sources, by stage
    :param stage_of: makes a stateful stage from its payload and the names of the stages after it
    """
    running.payload = payload
    results: Any = None
    for position, name in enumerate(identity.stages):
        inputs = [*keyed[name], *([] if results is None else [results])]
        rows = reduce(lambda left, right: left.unionByName(right), inputs)
        if position == 0:
            rows = rows.withWatermark("event_time", "0 seconds")
        later = identity.stages[position + 1 :]
        stage = stage_of(payload.of_stage(name), later)
        output = OutputStage(stage.payload, identity.run, identity.batches_before, later[0] if later else "")
        results = stateful_results(rows, stage, identity, name).mapInArrow(output, KEYED if later else RESULT)
    writer = (
        results.writeStream.queryName(identity.job)
        .outputMode(output_mode(identity))
        .option("checkpointLocation", checkpoint)
        .foreachBatch(running.on_results(identity))
    )
    if trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif trigger is not None:
        writer = writer.trigger(processingTime=trigger)
    running.query = writer.start()
    return running


def _temporary() -> str:
    directory = tempfile.mkdtemp(prefix="amadou-checkpoint-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory
