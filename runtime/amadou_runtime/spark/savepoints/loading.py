"""Makes a checkpoint from a savepoint.

A query of its own writes the state, as batch 0 of the new checkpoint. It has the same stateful operator as the job's
query, so that the latter can continue with batch 1. Its only rows name the key ranges; the tasks read the savepoint.
Afterwards, the offsets of the job's sources are added to the offsets of batch 0.

Spark's own means do not serve here: PySpark has an initial state for `transformWithState` only, and only per key of
Spark, which are key ranges here; the offline repartitioning does not change the number of key ranges.
"""

import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from amadou import Job
from amadou.errors import AmadouError, CheckpointError, RunError
from amadou_runtime.savepoint.fitting import check_fits
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.spark.checkpoint import CheckpointMetadata, keep, metadata_of, store_of
from amadou_runtime.spark.clock import CLOCK_DIRECTORY, stream_name, written_clock
from amadou_runtime.spark.files import Files
from amadou_runtime.spark.key_range import RangeStatus, range_count
from amadou_runtime.spark.keying_stage import REPORT_RANGE
from amadou_runtime.spark.payload import Payload, payload_for
from amadou_runtime.spark.replay import REPLAY_STREAM
from amadou_runtime.spark.savepoints.writing import in_checkpoint
from amadou_runtime.spark.session import partitions_of
from amadou_runtime.spark.spark_errors import without_plans
from amadou_runtime.spark.spread import range_groups, range_numbers
from amadou_runtime.spark.stateful_operator import stateful_results
from amadou_runtime.spark.stateful_stage import RangeState, results_of
from amadou_runtime.spark.summary import Summary, error_fields, error_from
from amadou_runtime.spark.timeouts import batch_event_time

_MARK: Final = "loading.json"
_STREAM: Final = "amadou__loading"
"""Name of the stream of key ranges. No source's stream has this name."""
_DIRECTORY: Final = "loading"
SPARK_FILES: Final = (
    *("commits", "metadata", "offsets", "sources", "state"),
    *("memory", "replay", CLOCK_DIRECTORY, _DIRECTORY),
)
"""The files and directories that loading a savepoint writes."""
LOADING_CONF: Final = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
"""Settings of the session that loads a savepoint: a second batch would not be part of loading."""
_logger = logging.getLogger("amadou")


def load_savepoint(spark: Any, files: Files, job: Job, savepoint: Savepoint) -> None:
    """Make a checkpoint from a savepoint, unless an earlier run has made it.

    :param spark: a session with the run's settings and `LOADING_CONF`
    :param files: the checkpoint's files
    :raises CheckpointError: the checkpoint was not made from this savepoint, or cannot be written
    :raises SavepointError: the savepoint does not fit the job, or cannot be read
    """
    if _is_made(files, savepoint):
        _logger.info("job %s: continues from %s, which was started from this savepoint", job.name, files.checkpoint)
        return
    check_fits(job, savepoint)
    for name in SPARK_FILES:
        files.remove(name)
    files.write(_MARK, json.dumps({"savepoint": savepoint.manifest.id}) + "\n")
    manifest = savepoint.manifest
    store = manifest.store if job.state == "auto" and manifest.store is not None else store_of(job)
    assert isinstance(job.key_groups, int)
    metadata = CheckpointMetadata(
        job.name,
        uuid.uuid4().hex[:12],
        job.key_groups,
        range_count(store, job.key_groups, partitions_of(spark)),
        store,
        manifest.structures,
        sorted(map(stream_name, manifest.ever_read)),
        manifest.id,
    )
    offsets = _offsets(files, job, savepoint)
    payload = payload_for(job, groups=metadata.key_groups, ranges=metadata.key_ranges)
    write_checkpoint(spark, files, savepoint, metadata, offsets, payload)
    keep(files, metadata)
    files.remove(_MARK)


def write_checkpoint(
    spark: Any,
    files: Files,
    savepoint: Savepoint,
    metadata: CheckpointMetadata,
    offsets: Mapping[str, Any],
    payload: Payload | None,
) -> None:
    """Write the state and the progress of a savepoint to a checkpoint, as batch 0. The metadata is not written.

    :param spark: a session with `LOADING_CONF`
    :param metadata: the checkpoint's metadata
    :param offsets: the offsets at which the job's sources continue, by stream
    :param payload: the job; `None` if it is not known
    """
    ranges = _write_state(spark, files, savepoint, metadata, payload)
    files.write(f"{CLOCK_DIRECTORY}/0", written_clock({**savepoint.manifest.clock, "partitions": []}, ranges))
    header = (files.read("offsets/0") or "").splitlines()[:2]
    lines = [f"{stream}:{json.dumps(offset)}" for stream, offset in offsets.items()]
    files.write("offsets/0", "\n".join([*header, *lines]))
    files.remove(f"sources/{_STREAM}")
    files.remove(_DIRECTORY)


def _is_made(files: Files, savepoint: Savepoint) -> bool:
    """Return `True` if a checkpoint has been made from a savepoint; `False` if it is new, or if making it failed."""
    metadata = metadata_of(files)
    if metadata is not None:
        if metadata.savepoint == savepoint.manifest.id:
            return True
        raise CheckpointError(
            files.checkpoint, "it exists already. Start from a savepoint with a new checkpoint directory"
        )
    if files.read(_MARK) is None and any(files.exists(name) for name in SPARK_FILES):
        raise CheckpointError(files.checkpoint, "the directory is not empty. Use a new directory")
    return False


def _offsets(files: Files, job: Job, savepoint: Savepoint) -> dict[str, Any]:
    """Return the offsets at which the job's sources continue, by stream. Write the sources' files."""
    manifest = savepoint.manifest
    offsets: dict[str, Any] = {}
    for file in manifest.files:
        files.write(file.name, in_checkpoint(savepoint.text(file.name), files.checkpoint))
    if manifest.replay is not None:
        offsets[REPLAY_STREAM] = manifest.replay
    for name, source in job.sources.items():
        of = manifest.sources.get(name, {})
        if of.get("offset") is not None:
            offsets[stream_name(name)] = of["offset"]
        elif of.get("position") is not None:
            offset, texts = source.offset_at(of["position"])
            offsets[stream_name(name)] = offset
            for file_name, text in texts.items():
                files.write(f"sources/{stream_name(name)}/{file_name}", text)
    return offsets


def _write_state(
    spark: Any, files: Files, savepoint: Savepoint, metadata: CheckpointMetadata, payload: Payload | None
) -> dict[int, RangeStatus]:
    """Write the state as batch 0. Return the status of the key ranges by number."""
    numbers = range_numbers(metadata.key_ranges)
    files.write(f"{_DIRECTORY}/ranges.txt", "".join(f"{number}\n" for number in numbers))
    rows = (
        spark.readStream.name(_STREAM)
        .text(f"{files.checkpoint}/{_DIRECTORY}")
        .selectExpr(
            "CAST(value AS INT) AS range",
            f"timestamp_micros({batch_event_time(0)}) AS event_time",
            "CAST('' AS BINARY) AS chunk",
        )
    ).withWatermark("event_time", "0 seconds")
    stage = LoadingStage(metadata, str(savepoint.directory.absolute()), payload)
    summary = Summary()

    def collect(frame: Any, _: int) -> None:
        for row in frame.collect():
            summary.merge(Summary.unpack(row.result))
        if summary.error is not None:
            raise RunError("see Summary.error")

    query = (
        stateful_results(rows, stage, metadata)
        .writeStream.queryName(f"{metadata.job}: savepoint")
        .outputMode("update")
        .option("checkpointLocation", files.checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(collect)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception as error:  # StreamingQueryException, or a py4j error
        if summary.error is not None:
            raise error_from(summary.error) from None
        raise RunError(f"the savepoint cannot be loaded: {without_plans(error)}") from None
    return summary.ranges


@attrs.frozen
class LoadingStage:
    """Stores the state of a key range from a savepoint; see `StatefulStage`.

    :param savepoint: the savepoint's directory
    :param payload: the job; `None` if it is not known
    """

    metadata: CheckpointMetadata
    savepoint: str
    payload: Payload | None

    def results(self, number: int, frames: Iterable[Any], state: RangeState) -> Any:
        """Store the state, and return a data frame with the packed `Summary`."""
        for _ in frames:
            pass
        summary = Summary()
        try:
            job = None if self.payload is None else self.payload.load().job
            groups, ranges = self.metadata.key_groups, self.metadata.key_ranges
            numbers = range_groups(range_numbers(ranges).index(number), groups, ranges)
            found = Savepoint(self.savepoint).groups_for(job, groups, numbers)
            summary.add_stored(number, state.fill(found, self.metadata.run))
        except AmadouError as error:
            summary = Summary(error=error_fields(error))
        return results_of(REPORT_RANGE, [summary.pack()])
