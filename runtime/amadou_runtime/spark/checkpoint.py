"""A checkpoint's metadata, such as the name of its job. Stored in `amadou.json` beside Spark's files."""

import json
import uuid
from pathlib import Path

import attrs

from amadou import Job
from amadou.engine import MOST_KEY_GROUPS
from amadou.errors import CheckpointError
from amadou.paths import is_remote
from amadou.text import qualified
from amadou_runtime.core.key_group import OTHER_RELEASE
from amadou_runtime.core.key_range import range_count
from amadou_runtime.formats.documents import UNREADABLE, structured
from amadou_runtime.jobs.given_path import check_given
from amadou_runtime.jobs.returned_sources import check_returned
from amadou_runtime.jobs.state_schema import (
    Known,
    Structure,
    check_structures,
    described,
    state_problem,
    with_structures,
)
from amadou_runtime.runs.files import Files
from amadou_runtime.runs.lease import holder_of
from amadou_runtime.spark.streams import planned_offsets, stream_name

_FILE = "amadou.json"
_FORMAT = 4
RESCALE_MARK = "rescale.json"
"""A file that exists while a checkpoint is rescaled."""
_FROM_SAVEPOINT = (
    "Write a savepoint with amadou savepoint {} DIR, and start the job from it with --from DIR and a new checkpoint "
    "directory"
)


@attrs.frozen
class CheckpointMetadata:
    """Metadata of a checkpoint.

    :param job: the job's name
    :param run: id of the checkpoint, assigned when the checkpoint is created; see `SinkBatch`
    :param key_groups: number of key groups, fixed by the first run
    :param key_ranges: number of key ranges, fixed by the first run
    :param state: the store of the state, `"groups"` or `"log"`, fixed by the first run
    :param specs: all structures that each state spec has had, by spec name, or by ``<stage>.<spec>`` if there are
        several stages; see `jobs.state_schema`
    :param streams: names of the Spark streams that earlier runs have read
    :param savepoint: id of the savepoint from which the checkpoint was made; `None` if there is none
    :param stages: names of the stages, in the order in which Spark processes them, fixed by the first run. A job with
        one handler has a stage with an empty name
    :param batches_before: number of batches before the checkpoint was rescaled. It is added to Spark's batch numbers,
        so that sinks never see a number twice
    """

    job: str
    run: str
    key_groups: int
    key_ranges: int
    state: str
    specs: Known
    streams: list[str]
    savepoint: str | None = None
    batches_before: int = 0
    stages: list[str] = attrs.field(factory=lambda: [""])

    def operator_of(self, stage: str) -> int:
        """Return Spark's number of the stateful operator of a stage. Spark numbers operators from the last to the
        first.
        """
        return len(self.stages) - 1 - self.stages.index(stage)

    def specs_of(self, stage: str) -> Known:
        """Return all structures that each state spec of a stage has had, by spec name."""
        prefix = qualified(stage, "")
        return {name.removeprefix(prefix): each for name, each in self.specs.items() if name.startswith(prefix)}


def open_checkpoint(files: Files, job: Job, *, partitions: int) -> CheckpointMetadata:
    """Open a checkpoint for a job. For a new checkpoint, write its metadata.

    :param files: the checkpoint's files
    :param partitions: number of shuffle partitions, which determines the number of key ranges of a new checkpoint
    :returns: the metadata, with the job's current specs and streams, which are not written yet; see `keep`
    :raises CheckpointError: the checkpoint belongs to a different job, does not fit the job, or cannot be read or
        written
    """
    checkpoint = files.checkpoint
    specs = structures_of(job)
    read = planned_offsets(files, last_batch(files))
    identity = metadata_of(files)
    if identity is None:
        if files.exists("loading.json"):
            why = "its start from a savepoint was interrupted. Run the job with the same --from again"
            raise CheckpointError(checkpoint, why)
        if files.exists("metadata") or files.exists("offsets"):
            raise CheckpointError(checkpoint, "it was not created by amadou. Use a different directory")
        assert isinstance(job.key_groups, int)
        store = store_of(job)
        key_ranges = range_count(store, job.key_groups, partitions)
        run, stages = uuid.uuid4().hex[:12], list(job.by_stage)
        identity = CheckpointMetadata(job.name, run, job.key_groups, key_ranges, store, {}, [], stages=stages)
        keep(files, identity)
    else:
        _check(checkpoint, identity, job)
        for stage, of in job.by_stage.items():
            names = {name: stream_name(name, stage) for name in of.stream_sources}
            ever, last = ([name for name in names if names[name] in known] for known in (identity.streams, read))
            check_returned(checkpoint, names, ever, last)
    streams = sorted({*identity.streams, *read})
    return attrs.evolve(identity, specs=with_structures(identity.specs, specs), streams=streams)


def structures_of(job: Job) -> dict[str, Structure]:
    """Return the structures of a job's state specs; for their names, see `CheckpointMetadata.specs`."""
    stages = job.by_stage.items()
    return {qualified(stage, name): structure for stage, of in stages for name, structure in described(of).items()}


def store_of(job: Job) -> str:
    """Return the store for a new checkpoint. Only the store *log* can have several stages."""
    if job.state == "auto":
        return "groups" if len(job.by_stage) == 1 else "log"
    return job.state


def keep(files: Files, identity: CheckpointMetadata) -> None:
    """Write a checkpoint's metadata. A run updates the metadata of an existing checkpoint only when the run's first
    batch is committed. If this batch fails, the earlier code can still use the checkpoint.
    """
    files.write(_FILE, json.dumps({"format": _FORMAT, **attrs.asdict(identity)}, indent=2) + "\n")


def last_batch(files: Files) -> int | None:
    """Return the number of the last planned batch; `None` if no batch was planned."""
    return max((int(name) for name in files.names("offsets") if name.isdecimal()), default=None)


def read_metadata(files: Files) -> CheckpointMetadata:
    """Read the metadata of an existing checkpoint.

    :raises CheckpointError: the directory is not a checkpoint, or cannot be read
    """
    metadata = metadata_of(files)
    if metadata is None:
        why = "this directory does not contain a run's checkpoint: check that the path is correct"
        raise CheckpointError(files.checkpoint, why)
    return metadata


def metadata_of(files: Files) -> CheckpointMetadata | None:
    """Read the metadata of a checkpoint; `None` if it has none, as a new checkpoint.

    :raises CheckpointError: the metadata cannot be read, or the checkpoint was being rescaled
    """
    if files.exists(RESCALE_MARK):
        holder = holder_of(files)
        again = f"rescaling it was interrupted. Run amadou rescale {files.checkpoint} again"
        why = again if holder is None or holder.is_own else f"it is being rescaled ({holder})"
        raise CheckpointError(files.checkpoint, why)
    stored = files.read(_FILE)
    return None if stored is None else _read(files.checkpoint, stored)


def _read(checkpoint: str, stored: str) -> CheckpointMetadata:
    try:
        content = json.loads(stored)
        if content.pop("format") != _FORMAT:
            raise CheckpointError(checkpoint, f"{_FILE} has a different format: {OTHER_RELEASE}")
        metadata = structured(CheckpointMetadata, content)
        if not 1 <= metadata.key_ranges <= metadata.key_groups <= MOST_KEY_GROUPS or not metadata.stages:
            raise ValueError("its numbers are out of range")
        for structures in metadata.specs.values():
            check_structures(structures)
        return metadata
    except CheckpointError:
        raise
    except UNREADABLE as error:
        raise CheckpointError(
            checkpoint, f"{_FILE} cannot be read. Restore the file, or use a new checkpoint directory ({error})"
        ) from error


def _check(checkpoint: str, identity: CheckpointMetadata, job: Job) -> None:
    if identity.job != job.name:
        raise CheckpointError(
            checkpoint, f"it belongs to the job {identity.job!r}, not to {job.name!r}. Use a different directory"
        )
    if identity.key_groups != job.key_groups:
        raise CheckpointError(
            checkpoint,
            f"key_groups is {job.key_groups}, but was {identity.key_groups} in the first run. Change it back, or run "
            f"amadou rescale {checkpoint} --key-groups {job.key_groups}",
        )
    if job.state not in ("auto", identity.state):
        raise CheckpointError(
            checkpoint,
            f"its state is on the store {identity.state!r}, but the job has state={job.state!r}. Set state to "
            f"{identity.state!r} or 'auto', or run amadou convert {checkpoint} --to {job.state}",
        )
    _check_stages(checkpoint, identity, job)
    for stage, of in job.by_stage.items():
        problem = state_problem(of, identity.specs_of(stage), described(of))
        if problem is not None:
            raise CheckpointError(checkpoint, f"stage {stage}: {problem}" if stage else problem)


def _check_stages(checkpoint: str, identity: CheckpointMetadata, job: Job) -> None:
    """Check that a job has the stages of a checkpoint, and that each still comes after those that feed it."""
    shown = ", ".join(filter(None, identity.stages)) or "one handler"
    if {*identity.stages} != {*job.by_stage}:
        raise CheckpointError(
            checkpoint,
            f"it has other stages ({shown}) than the job ({', '.join(filter(None, job.by_stage)) or 'one handler'}). "
            f"Stages of a checkpoint cannot be added, removed or renamed. {_FROM_SAVEPOINT.format(checkpoint)}",
        )
    places = {stage: place for place, stage in enumerate(identity.stages)}
    for stage, of in job.by_stage.items():
        for source in of.fed_sources.values():
            if places[source.stage] > places[stage]:
                raise CheckpointError(
                    checkpoint,
                    f"the stage {source.stage} now feeds {stage}, but comes after it in the checkpoint ({shown}). "
                    f"{_FROM_SAVEPOINT.format(checkpoint)}",
                )


def absolute(checkpoint: str) -> str:
    """Return the absolute path or the URI of a directory, without a slash at the end.

    :raises CheckpointError: the path is empty
    """
    check_given(checkpoint, CheckpointError)
    is_uri = is_remote(checkpoint) or checkpoint.startswith("file:")
    return checkpoint.rstrip("/") if is_uri else str(Path(checkpoint).absolute())
