"""Writes a savepoint of a checkpoint, as of the last completed batch. Spark's tasks write the files with the state."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from amadou.engine import pack, unpack
from amadou.errors import CheckpointError
from amadou_runtime.savepoint.manifest import Manifest
from amadou_runtime.savepoint.savepoint import (
    NO_CLOCK,
    SavedProgress,
    Totals,
    complete,
    new_savepoint,
    newest_times,
    write_groups,
)
from amadou_runtime.savepoint.state_file import StateFileInfo
from amadou_runtime.spark.checkpoint import CheckpointMetadata, read_metadata
from amadou_runtime.spark.clock import CLOCK_DIRECTORY, last_commit, planned_offsets, source_name, stream_name
from amadou_runtime.spark.files import Files, checkpoint_files
from amadou_runtime.spark.replay import REPLAY_DIRECTORY, REPLAY_STREAM
from amadou_runtime.spark.savepoints.stored_state import READING_CONF, stored_ranges, stored_rows
from amadou_runtime.spark.session import own_session
from amadou_runtime.spark.spark_errors import root_cause
from amadou_runtime.spark.spread import range_numbers

CHECKPOINT: Final = "{checkpoint}"
"""Stands for the checkpoint's directory in paths of files that sources keep there."""
_MEMORY: Final = "memory"
_WAKE_STREAM: Final = stream_name("")
"""The stream of `wake_source`."""
_RESULT = "result binary"


def write_savepoint(spark: Any, checkpoint: str, directory: Path) -> Manifest:
    """Write a savepoint of a checkpoint, as of the last completed batch. A run may use the checkpoint meanwhile.

    :param spark: the `SparkSession`
    :param checkpoint: the checkpoint, as an absolute path or a URI
    :param directory: a new directory, which all machines of the cluster share
    :raises CheckpointError: the checkpoint cannot be read
    :raises SavepointError: the directory is not empty, or cannot be written
    """
    with new_savepoint(directory) as partial:
        files = checkpoint_files(spark, checkpoint)
        metadata = read_metadata(files)
        batch = last_commit(files)
        progress = _progress(spark, files, metadata, batch)
        if batch is None:
            return complete(partial, progress, [], Totals())
        own = own_session(spark, metadata.key_groups, checkpoint, READING_CONF)
        stage = WritingStage(metadata, str(partial))
        try:
            rows = stored_rows(own, checkpoint, metadata, batch).mapInArrow(stage, _RESULT).collect()
        except Exception as error:  # any error from Spark
            raise CheckpointError(checkpoint, f"its state cannot be read: {root_cause(error)}") from error
        infos: list[StateFileInfo] = []
        totals = Totals()
        for (packed,) in rows:
            of_range, figures = unpack(packed)
            infos += [StateFileInfo(*info) for info in of_range]
            totals.add(Totals(*figures))
        return complete(partial, progress, infos, totals)


def _progress(spark: Any, files: Files, metadata: CheckpointMetadata, batch: int | None) -> SavedProgress:
    clock = clock_of(files, batch)
    newest = clock["watermark"]["newest"]
    offsets = {
        stream: json.loads(offset)
        for stream, offset in planned_offsets(files, batch).items()
        if offset != "-" and stream != _WAKE_STREAM
    }
    replay = offsets.pop(REPLAY_STREAM, None)
    by_source = {source_name(stream): offset for stream, offset in offsets.items()}
    sources = {
        source: {
            "newest": newest_times(newest.get(source, {})),
            "offset": by_source.get(source),
            "log": f"sources/{stream_name(source)}",
        }
        for source in sorted({*newest, *by_source})
    }
    streams = [*offsets, *([] if replay is None else [REPLAY_STREAM])]
    ever = {source_name(stream) for stream in metadata.streams if stream not in (REPLAY_STREAM, _WAKE_STREAM)}
    return SavedProgress(
        engine="spark",
        spark=spark.version,
        job=metadata.job,
        run=metadata.run,
        batch=batch,
        store=metadata.state,
        key_groups=metadata.key_groups,
        sources=sources,
        replay=replay,
        clock=clock,
        structures=metadata.specs,
        ever_read=sorted({*ever, *sources}),
        files=dict(_source_files(files, streams)),
    )


def clock_of(files: Files, batch: int | None) -> Mapping[str, Any]:
    """Return the state of a job's clock after a batch, in the form of the manifest.

    :param batch: the batch's number; `None` if no batch has been completed
    :raises CheckpointError: the file is missing
    """
    if batch is None:
        return NO_CLOCK
    text = files.read(f"{CLOCK_DIRECTORY}/{batch}")
    if text is None:
        raise CheckpointError(files.checkpoint, f"the progress of batch {batch} is missing: restore the file")
    fields = json.loads(text)
    return {name: fields[name] for name in NO_CLOCK}


def _source_files(files: Files, streams: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the files that sources keep in the checkpoint. Paths in the checkpoint are relative
    to `CHECKPOINT`.
    """
    here = _uri(files.checkpoint)
    for stream in streams:
        for name in files.names(f"sources/{stream}"):
            if not name.startswith("."):
                text = files.read(f"sources/{stream}/{name}")
                assert text is not None
                yield f"sources/{stream}/{name}", text.replace(f'"{here}/', f'"{CHECKPOINT}/')
    directories = [REPLAY_DIRECTORY, *(f"{_MEMORY}/{name}" for name in files.names(_MEMORY))]
    for directory in directories:
        for name in files.names(directory):
            if not name.startswith("."):
                yield f"{directory}/{name}", files.read(f"{directory}/{name}") or ""


def _uri(checkpoint: str) -> str:
    """Return a checkpoint's path in the form in which Spark's logs contain it."""
    return Path(checkpoint).as_uri() if checkpoint.startswith("/") else checkpoint


def in_checkpoint(text: str, checkpoint: str) -> str:
    """Return the text of a source's file for a checkpoint."""
    return text.replace(f'"{CHECKPOINT}/', f'"{_uri(checkpoint)}/')


@attrs.frozen
class WritingStage:
    """Writes the state of key ranges, one file for each range, and returns their descriptions.

    :param directory: the directory of the savepoint that is being written
    """

    metadata: CheckpointMetadata
    directory: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        groups, ranges = self.metadata.key_groups, self.metadata.key_ranges
        positions = {number: position for position, number in enumerate(range_numbers(ranges))}
        for number, found in stored_ranges(self.metadata.state, batches):
            infos, totals = write_groups(Path(self.directory), positions[number], found, groups)
            result = [[list(attrs.astuple(info)) for info in infos], list(attrs.astuple(totals))]
            yield pa.record_batch([pa.array([pack(result)], pa.binary())], names=["result"])
