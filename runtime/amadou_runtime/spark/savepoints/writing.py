"""Writes a savepoint of a checkpoint, as of the last completed batch. Spark's tasks write the files with the state."""

import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs

from amadou.engine import pack, unpack
from amadou.errors import AmadouError, CheckpointError
from amadou.paths import is_remote
from amadou.text import qualified
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.jobs.stages import stage_job
from amadou_runtime.runs.files import Files, checkpoint_files
from amadou_runtime.savepoint.job_savepoint import write_job_savepoint
from amadou_runtime.savepoint.manifest import JobManifest, Manifest, check_clock
from amadou_runtime.savepoint.savepoint import (
    NO_CLOCK,
    SavedProgress,
    Totals,
    append_state,
    check_new,
    complete,
    newest_times,
    read_state,
    write_groups,
)
from amadou_runtime.savepoint.state_file import StateFileInfo
from amadou_runtime.spark.checkpoint import CheckpointMetadata, read_metadata
from amadou_runtime.spark.clock import (
    CLOCK_DIRECTORY,
    last_commit,
    read_clock,
)
from amadou_runtime.spark.reference_files import saved_references
from amadou_runtime.spark.replay import REPLAY_DIRECTORY, replay_directory
from amadou_runtime.spark.savepoints.remote import uploaded
from amadou_runtime.spark.savepoints.stored_state import READING_CONF, stored_ranges, stored_rows
from amadou_runtime.spark.session import own_session
from amadou_runtime.spark.spark_errors import root_cause
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.streams import (
    REPLAY_STREAM,
    planned_offsets,
    replay_stream,
    source_name,
    stream_log,
    stream_name,
)

CHECKPOINT: Final = "{checkpoint}"
"""Stands for the checkpoint's directory in paths of files that sources keep there."""
MEMORY_DIRECTORY: Final = "memory"
_SOURCES: Final = "sources"
SOURCE_DIRECTORIES: Final = frozenset({_SOURCES, MEMORY_DIRECTORY, REPLAY_DIRECTORY})
"""The directories of a savepoint with files of sources and of replayed dead letters."""
_RESULT = "file string, content binary"
_CHUNK: Final = 4 << 20
"""Size in bytes of the pieces in which tasks send files to the driver."""


def write_savepoint(spark: Any, checkpoint: str, directory: str | Path) -> JobManifest:
    """Write a savepoint of a checkpoint, as of the last completed batch. A run may use the checkpoint meanwhile.

    :param spark: the `SparkSession`
    :param checkpoint: the checkpoint, as an absolute path or a URI
    :param directory: a new directory: a path, which all machines of the cluster share, or a URI
    :raises CheckpointError: the checkpoint cannot be read
    :raises SavepointError: the directory is not empty, or cannot be written
    """
    is_sent = is_remote(str(directory))
    place = uploaded(spark, str(directory)) if is_sent else nullcontext(check_new(directory))
    files = checkpoint_files(spark, checkpoint)
    metadata = read_metadata(files)
    batch = last_commit(files)
    # Read first, since a run removes the progress of earlier batches sooner than their state.
    progress = {stage: _progress(spark, files, metadata, batch, stage) for stage in metadata.stages}
    own = own_session(spark, metadata.key_groups, checkpoint, READING_CONF)
    write = partial(_write, own, checkpoint, metadata, batch, is_sent=is_sent)
    writes = {stage: partial(write, stage, of) for stage, of in progress.items()}
    with place as local:
        return write_job_savepoint(metadata.job, writes, local)


def _write(
    own: Any,
    checkpoint: str,
    metadata: CheckpointMetadata,
    batch: int | None,
    stage: str,
    progress: SavedProgress,
    directory: Path,
    *,
    is_sent: bool,
) -> Manifest:
    """Write the savepoint of a stage.

    :param directory: see `complete`
    :param is_sent: `True` if the tasks send the files to the driver
    """
    if batch is None:
        return complete(directory, progress, [], Totals())
    infos: list[StateFileInfo] = []
    totals = Totals()
    try:
        stored = stored_rows(own, checkpoint, metadata, batch, stage)
        rows = stored.mapInArrow(WritingStage(metadata, None if is_sent else str(directory)), _RESULT)
        for file, content in rows.toLocalIterator() if is_sent else rows.collect():
            if file is not None:
                append_state(directory, file, content)
                continue
            of_range, figures = unpack(content)
            infos += [StateFileInfo(*info) for info in of_range]
            totals.add(Totals(*figures))
    except (AmadouError, OSError):
        raise
    except Exception as error:  # any error from Spark
        raise CheckpointError(checkpoint, f"its state cannot be read: {root_cause(error)}") from error
    return complete(directory, progress, infos, totals)


def _progress(spark: Any, files: Files, metadata: CheckpointMetadata, batch: int | None, stage: str) -> SavedProgress:
    """Return the progress of a stage."""
    clock = clock_of(files, batch, stage)
    newest = clock["watermark"]["newest"]
    offsets = {stream: json.loads(offset) for stream, offset in planned_offsets(files, batch).items()}
    replay = offsets.get(replay_stream(stage))
    by_source = {source: offset for stream, offset in offsets.items() if (source := _source_of(stream, stage))}
    sources = {
        source: {
            "newest": newest_times(newest.get(source, {})),
            "offset": by_source.get(source),
            "log": f"{_SOURCES}/{stream_name(source)}",
        }
        for source in sorted({*newest, *by_source})
    }
    logs = {stream_name(source, stage): stream_name(source) for source in by_source}
    logs |= {} if replay is None else {replay_stream(stage): REPLAY_STREAM}
    ever = {source for stream in metadata.streams if (source := _source_of(stream, stage))}
    return SavedProgress(
        engine="spark",
        spark=spark.version,
        job=stage_job(metadata.job, stage),
        run=metadata.run,
        batch=None if batch is None else batch + metadata.batches_before,
        store=metadata.state,
        key_groups=metadata.key_groups,
        sources=sources,
        replay=replay,
        clock=clock,
        structures=metadata.specs_of(stage),
        ever_read=sorted({*ever, *sources}),
        files={
            **dict(_source_files(files, stage, logs)),
            **dict(saved_references(files, stage, batch)),
        },
    )


def _source_of(stream: str, stage: str) -> str:
    """Return the source of a stage whose stream has a name; empty for other streams."""
    name, prefix = source_name(stream), qualified(stage, "")
    return name.removeprefix(prefix) if not stream.startswith(REPLAY_STREAM) and name.startswith(prefix) else ""


def clock_of(files: Files, batch: int | None, stage: str = "") -> Mapping[str, Any]:
    """Return the state of a stage's clock after a batch, in the form of the manifest.

    :param batch: the batch's number; `None` if no batch has been completed
    :param stage: the stage's name; empty in a job with one handler
    :raises CheckpointError: the file is missing
    """
    if batch is None:
        return NO_CLOCK
    text = files.read(f"{CLOCK_DIRECTORY}/{batch}")
    if text is None:
        raise CheckpointError(files.checkpoint, f"the progress of batch {batch} is missing: restore the file")
    try:
        fields = read_clock(text)[stage]
        clock = {name: fields[name] for name in NO_CLOCK}
        check_clock(clock)
    except UNREADABLE as error:
        why = f"the progress of batch {batch} is damaged: restore the file ({type(error).__name__}: {error})"
        raise CheckpointError(files.checkpoint, why) from error
    return clock


def _source_files(files: Files, stage: str, logs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the files that the sources of a stage keep in the checkpoint, and of its replayed
    dead letters. Paths in the checkpoint are relative to `CHECKPOINT`, and do not contain the stage.

    :param logs: the names of the streams, with those that they have in the savepoint
    """
    here, replays = _uri(files.checkpoint), replay_directory(stage)
    for stream, saved in logs.items():
        log = stream_log(files, stream)
        for name in files.names(log):
            text = files.read(f"{log}/{name}")
            assert text is not None
            text = text.replace(f'"{here}/{replays}/', f'"{here}/{REPLAY_DIRECTORY}/')
            yield f"{_SOURCES}/{saved}/{name}", text.replace(f'"{here}/', f'"{CHECKPOINT}/')
    of_memory = (name for name in files.names(MEMORY_DIRECTORY) if name.startswith(qualified(stage, "")))
    directories = {replays: REPLAY_DIRECTORY} | {(of := f"{MEMORY_DIRECTORY}/{name}"): of for name in of_memory}
    for directory, saved in directories.items():
        for name in files.names(directory):
            text = files.read(f"{directory}/{name}")
            if text is not None:
                yield f"{saved}/{name}", text


def _uri(checkpoint: str) -> str:
    """Return a checkpoint's path in the form in which Spark's logs contain it."""
    return Path(checkpoint).as_uri() if checkpoint.startswith("/") else checkpoint


def in_checkpoint(text: str, checkpoint: str, stage: str) -> str:
    """Return the text of a file of a stage's source for a checkpoint."""
    text = text.replace(f'"{CHECKPOINT}/{REPLAY_DIRECTORY}/', f'"{CHECKPOINT}/{replay_directory(stage)}/')
    return text.replace(f'"{CHECKPOINT}/', f'"{_uri(checkpoint)}/')


@attrs.frozen
class WritingStage:
    """Writes the state of key ranges, one file for each range, and returns their descriptions.

    :param directory: the directory of the savepoint that is being written; `None` to send the files to the driver
    """

    metadata: CheckpointMetadata
    directory: str | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        groups, ranges = self.metadata.key_groups, self.metadata.key_ranges
        positions = {number: position for position, number in enumerate(range_numbers(ranges))}
        for number, found in stored_ranges(self.metadata.state, batches):
            sends = self.directory is None
            with nullcontext(self.directory) if self.directory else TemporaryDirectory() as place:
                infos, totals = write_groups(Path(place), positions[number], found, groups)
                for info in infos if sends else ():
                    for piece in read_state(Path(place), info.name, _CHUNK):
                        yield _row(info.name, piece)
            yield _row(None, pack([[list(attrs.astuple(info)) for info in infos], list(attrs.astuple(totals))]))


def _row(file: str | None, content: bytes) -> Any:
    import pyarrow as pa

    return pa.record_batch([pa.array([file], pa.string()), pa.array([content], pa.binary())], ["file", "content"])
