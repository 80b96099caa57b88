"""Makes a checkpoint from a savepoint.

A query of its own writes the state, as batch 0 of the new checkpoint. It has the same stateful operators as the job's
query, so that the latter can continue with batch 1. Its only rows name the key ranges; the tasks read the savepoint.
Each stage passes these rows on to the next one.
Afterwards, the offsets of the job's sources are added to the offsets of batch 0.

Spark's own means do not serve here: PySpark has an initial state for `transformWithState` only, and only per key of
Spark, which are key ranges here; the offline repartitioning does not change the number of key ranges.
"""

import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs

from amadou import Job
from amadou.errors import AmadouError, CheckpointError, RunError, SavepointError
from amadou.spark_versions import check_has_all
from amadou.text import qualified
from amadou_runtime.core.key_range import RangeStatus, range_count
from amadou_runtime.core.references import REFERENCES, is_reference
from amadou_runtime.core.stored import RangeState
from amadou_runtime.runs.files import Files
from amadou_runtime.savepoint.fitting import check_job_fits
from amadou_runtime.savepoint.savepoint import NO_CLOCK, Savepoint
from amadou_runtime.spark.checkpoint import CheckpointMetadata, keep, metadata_of, store_of
from amadou_runtime.spark.clock import CLOCK_DIRECTORY, kept_progress, written_clock
from amadou_runtime.spark.payload import Payload, payload_for
from amadou_runtime.spark.reference_files import load_references
from amadou_runtime.spark.replay import REPLAY_DIRECTORY, replay_directory
from amadou_runtime.spark.rows import Call, packed, report_row
from amadou_runtime.spark.savepoints.remote import open_savepoint, received, savepoint_id, sent_path
from amadou_runtime.spark.savepoints.writing import MEMORY_DIRECTORY, SOURCE_DIRECTORIES, in_checkpoint
from amadou_runtime.spark.session import partitions_of
from amadou_runtime.spark.spark_errors import without_plans
from amadou_runtime.spark.spread import range_groups, range_numbers
from amadou_runtime.spark.stateful_operator import output_mode, stateful_results
from amadou_runtime.spark.stateful_stage import results_of
from amadou_runtime.spark.streams import (
    ORDER,
    REPLAY_STREAM,
    WAKE_UPS,
    Streams,
    begin_streams,
    offset_lines,
    replay_stream,
    source_name,
    stream_log,
    stream_name,
)
from amadou_runtime.spark.summary import Summary, by_stage, error_fields, error_from
from amadou_runtime.spark.timeouts import WakeUp, batch_event_time

_MARK: Final = "loading.json"
SPARK_FILES: Final = (
    *("commits", "metadata", "offsets", "state"),
    *sorted(SOURCE_DIRECTORIES),
    *(ORDER, REFERENCES, CLOCK_DIRECTORY),
)
"""The files and directories that loading a savepoint writes."""
LOADING_CONF: Final = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Settings of the session that loads a savepoint: a second batch would not be part of loading."""
_logger = logging.getLogger("amadou")


def load_savepoint(spark: Any, files: Files, job: Job, directory: str) -> None:
    """Make a checkpoint from a savepoint, unless an earlier run has made it.

    :param spark: a session with the run's settings and `LOADING_CONF`
    :param files: the checkpoint's files
    :param directory: the savepoint's directory, as a path or a URI. It may be gone if the checkpoint has been made
    :raises CheckpointError: the checkpoint was not made from this savepoint, or cannot be written
    :raises SavepointError: the savepoint does not fit the job, or cannot be read
    """
    check_has_all("starting from a savepoint", "use a newer Spark, or start without the savepoint")
    if _is_made(spark, files, directory):
        _logger.info("job %s: continues from %s, which was started from this savepoint", job.name, files.checkpoint)
        return
    savepoint = open_savepoint(spark, directory)
    check_job_fits(job, savepoint)
    for name in SPARK_FILES:
        files.remove(name)
    files.write(_MARK, json.dumps({"savepoint": savepoint.manifest.id}) + "\n")
    saved = {stage: savepoint.stages[stage] for stage in job.by_stage if stage in savepoint.stages}
    store = store_of(job)
    if job.state == "auto" and len(job.by_stage) == 1:
        store = savepoint.manifest.store or store
    assert isinstance(job.key_groups, int)
    metadata = CheckpointMetadata(
        job.name,
        uuid.uuid4().hex[:12],
        job.key_groups,
        range_count(store, job.key_groups, partitions_of(spark)),
        store,
        {qualified(stage, name): known for stage, of in saved.items() for name, known in of.structures.items()},
        sorted(stream_name(source, stage) for stage, of in saved.items() for source in of.manifest.ever_read),
        savepoint.manifest.id,
        stages=list(job.by_stage),
    )
    begin_streams(files, job, metadata.stages)
    offsets: dict[str, Any] = {}
    for stage, of in saved.items():
        offsets |= _offsets(files, job.by_stage[stage], stage, of)
    payload = payload_for(job, groups=metadata.key_groups, ranges=metadata.key_ranges)
    write_checkpoint(spark, files, saved, metadata, offsets, payload)
    keep(files, metadata)
    files.remove(_MARK)


def write_checkpoint(
    spark: Any,
    files: Files,
    saved: Mapping[str, Savepoint],
    metadata: CheckpointMetadata,
    offsets: Mapping[str, Any],
    payload: Payload | None,
) -> None:
    """Write the state and the progress of a savepoint to a checkpoint, as batch 0. The metadata is not written.

    :param spark: a session with `LOADING_CONF`
    :param saved: the savepoints of the stages. A stage without one begins without state
    :param metadata: the checkpoint's metadata
    :param offsets: the offsets at which the job's sources continue, by stream
    :param payload: the job; `None` if it is not known
    """
    with TemporaryDirectory() as local:
        ranges = _write_state(spark, files, saved, metadata, payload, Path(local))
    clocks = {stage: saved[stage].clock if stage in saved else NO_CLOCK for stage in metadata.stages}
    kept = {stage: kept_progress({**clock, "partitions": []}, ranges[stage]) for stage, clock in clocks.items()}
    files.write(f"{CLOCK_DIRECTORY}/0", written_clock(kept))
    for stage, of in saved.items():
        load_references(files, stage, of)
    header = (files.read("offsets/0") or "").splitlines()[:2]
    lines = offset_lines(files, {stream: json.dumps(offset) for stream, offset in offsets.items()})
    files.write("offsets/0", "\n".join([*header, *lines]))


def _is_made(spark: Any, files: Files, directory: str) -> bool:
    """Return `True` if a checkpoint has been made from a savepoint; `False` if it is new, or if making it failed."""
    metadata = metadata_of(files)
    if metadata is not None:
        if metadata.savepoint is not None and savepoint_id(spark, directory) in (metadata.savepoint, None):
            return True
        raise CheckpointError(
            files.checkpoint, "it exists already. Start from a savepoint with a new checkpoint directory"
        )
    if files.read(_MARK) is None and any(files.exists(name) for name in SPARK_FILES):
        raise CheckpointError(files.checkpoint, "the directory is not empty. Use a new directory")
    return False


def _offsets(files: Files, job: Job, stage: str, savepoint: Savepoint) -> dict[str, Any]:
    """Return the offsets at which the sources of a stage continue, by stream. Write the sources' files.

    :raises SavepointError: the savepoint lists a file that could replace another one of the checkpoint
    """
    manifest = savepoint.manifest
    offsets: dict[str, Any] = {}
    for file in manifest.files:
        if is_reference(file.name):
            continue
        if file.name.partition("/")[0] not in SOURCE_DIRECTORIES:
            why = f"{file.name!r} is not a file of a source, so its manifest has been changed. Use another savepoint"
            raise SavepointError(str(savepoint.directory), why)
        text = in_checkpoint(savepoint.text(file.name), files.checkpoint, stage)
        files.write(_in_stage(files, file.name, stage), text)
    if manifest.replay is not None:
        offsets[replay_stream(stage)] = manifest.replay
    for name, source in job.stream_sources.items():
        of, stream = manifest.sources.get(name, {}), stream_name(name, stage)
        if of.get("offset") is not None:
            offsets[stream] = of["offset"]
        elif of.get("position") is not None:
            offsets[stream], texts = source.offset_at(of["position"])
            for file_name, text in texts.items():
                files.write(f"{stream_log(files, stream)}/{file_name}", text)
    return offsets


def _in_stage(files: Files, file: str, stage: str) -> str:
    """Return the name of a stage's file in the checkpoint. In a savepoint, streams have names without the stage."""
    directory, _, rest = file.partition("/")
    stream, _, name = rest.partition("/")
    if directory == REPLAY_DIRECTORY:
        return f"{replay_directory(stage)}/{rest}"
    if directory == MEMORY_DIRECTORY:
        return file
    here = replay_stream(stage) if stream == REPLAY_STREAM else stream_name(source_name(stream), stage)
    return f"{stream_log(files, here)}/{name}"


def _write_state(
    spark: Any,
    files: Files,
    saved: Mapping[str, Savepoint],
    metadata: CheckpointMetadata,
    payload: Payload | None,
    local: Path,
) -> dict[str, dict[int, RangeStatus]]:
    """Write the state as batch 0. Return the status of the key ranges by stage and number.

    :param local: an empty local directory
    """
    from amadou_runtime.spark.wake_source import wake_ups  # needs pyspark

    wake_up = local / "wake-up.json"
    WakeUp(0, 0).write(wake_up)
    reader = Streams.of(files).reader(spark, WAKE_UPS, ends=True)
    time = f"timestamp_micros({batch_event_time(0)}) AS event_time"
    rows = wake_ups(reader, spark, wake_up, metadata.key_ranges).selectExpr("range", time, "chunk")
    rows = rows.withWatermark("event_time", "0 seconds")
    for name in metadata.stages:
        directory = sent_path(saved[name].directory) if name in saved else None
        stage = LoadingStage(metadata, directory, payload and payload.of_stage(name), name)
        results = stateful_results(rows, stage, metadata, name)
        rows = results.selectExpr("range", "CAST(NULL AS TIMESTAMP) AS event_time", "result AS chunk")
    summaries: dict[str, Summary] = {}

    def collect(frame: Any, _: int) -> None:
        summaries.update(by_stage((row.result for row in frame.collect()), metadata.stages))
        if any(summary.error for summary in summaries.values()):
            raise RunError("see Summary.error")

    query = (
        results.writeStream.queryName(f"{metadata.job}: savepoint")
        .outputMode(output_mode(metadata))
        .option("checkpointLocation", files.checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(collect)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception as error:  # StreamingQueryException, or a py4j error
        failed = next((summary.error for summary in summaries.values() if summary.error is not None), None)
        if failed is not None:
            raise error_from(failed) from None
        raise RunError(f"the savepoint cannot be loaded: {without_plans(error)}") from None
    return {stage: summary.ranges for stage, summary in summaries.items()}


@attrs.frozen
class LoadingStage:
    """Stores the state of a key range from a savepoint; see `Stage`.

    :param savepoint: the directory of the stage's savepoint, from `sent_path`; `None` if there is no state
    :param payload: the stage of the job; `None` if the job is not known
    :param stage: the stage's name; empty in a job with one handler
    """

    metadata: CheckpointMetadata
    savepoint: str | None
    payload: Payload | None
    stage: str

    def __call__(self, number: int, frames: Iterable[Any], state: RangeState) -> Any:
        """Store the state, and return a data frame with the packed `Summary` and, for the next stage, a row that names
        the key range.
        """
        chunks = [chunk for frame in frames for chunk in frame["chunk"].tolist()]
        if number < 0:  # the summaries of the stages before
            return results_of((number, chunk) for chunk in chunks)
        results = [report_row(self._filled(number, state).pack())]
        if self.stage != self.metadata.stages[-1]:
            results.append((number, packed(Call())))
        return results_of(results)

    def _filled(self, number: int, state: RangeState) -> Summary:
        """Store the state. Return the results."""
        summary = Summary(stage=self.stage)
        if self.savepoint is None:
            return summary
        try:
            job = None if self.payload is None else self.payload.load().job
            groups, ranges = self.metadata.key_groups, self.metadata.key_ranges
            numbers = range_groups(range_numbers(ranges).index(number), groups, ranges)
            found = Savepoint(received(self.savepoint)).groups_for(job, groups, numbers)
            summary.add_stored(number, state.fill(found, self.metadata.run))
        except AmadouError as error:
            summary.error = error_fields(error)
        return summary
