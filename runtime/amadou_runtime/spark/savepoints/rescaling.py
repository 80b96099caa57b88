"""Changes the number of key groups or partitions, or the store, of a checkpoint.

The checkpoint is written anew from a savepoint, which stays. Batch numbers continue, and a batch that was planned but
not completed is planned again with the same input. So outputs are exactly-once, even if the last run was killed.

A file marks the checkpoint while it is rescaled. If rescaling is interrupted, the next call continues. Object stores
move a directory file by file, so the old files can be in two places then. The file `_COMPLETE` tells them from new
ones.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from itertools import count
from typing import Any, Final

import attrs

from amadou import Job
from amadou.errors import AmadouError, CheckpointError
from amadou.paths import local_path
from amadou_runtime.core.key_range import range_count
from amadou_runtime.core.references import REFERENCES
from amadou_runtime.jobs.stages import stage_job
from amadou_runtime.runs.files import Files, checkpoint_files
from amadou_runtime.runs.lease import Lease
from amadou_runtime.savepoint.fitting import check_stages, check_state_fits
from amadou_runtime.spark.checkpoint import (
    RESCALE_MARK,
    CheckpointMetadata,
    absolute,
    keep,
    last_batch,
    read_metadata,
)
from amadou_runtime.spark.clock import CLOCK_DIRECTORY, last_commit
from amadou_runtime.spark.payload import payload_for
from amadou_runtime.spark.reference_files import plan_rows_again
from amadou_runtime.spark.savepoints.loading import LOADING_CONF, write_checkpoint
from amadou_runtime.spark.savepoints.remote import open_savepoint, remove_savepoint
from amadou_runtime.spark.savepoints.writing import write_savepoint
from amadou_runtime.spark.session import own_session, partitions_of
from amadou_runtime.spark.streams import offset_lines, planned_offsets

_ASIDE: Final = "before-rescale"
_MOVED: Final = ("commits", "offsets", "state", "metadata", CLOCK_DIRECTORY, REFERENCES)
"""The files and directories that are written anew, apart from amadou's metadata, which is replaced."""
_COMPLETE: Final = f"{_ASIDE}/complete"
"""A file that exists while all old files are in `_ASIDE`: those in their old places are new then. Without this file, no
file is new, and each old file is in one of the two places, or in both.
"""
_PARTITIONS: Final = "spark.sql.shuffle.partitions"


@attrs.frozen
class Rescaled:
    """A rescaled checkpoint.

    :param before: the metadata before
    :param after: the metadata now
    :param partitions: number of shuffle partitions
    :param savepoint: the directory of the savepoint from which the checkpoint was written
    """

    before: CheckpointMetadata
    after: CheckpointMetadata
    partitions: int
    savepoint: str


@attrs.frozen
class _Plan:
    """What a checkpoint becomes, and what cannot be found out any more once it has begun.

    :param planned: the offsets of the batch that was planned but not completed, by stream; `None` if there is none
    :param began: the text of this batch's clock file, if there is one
    :param offsets: the offsets after the last completed batch, by stream
    """

    before: dict[str, Any]
    key_groups: int
    store: str
    partitions: int
    batch: int
    savepoint: str
    offsets: dict[str, str]
    planned: dict[str, str] | None
    began: str | None


def rescale(
    spark: Any,
    checkpoint: str,
    *,
    key_groups: int | None = None,
    partitions: int | None = None,
    store: str | None = None,
    savepoint: str | None = None,
    job: Job | None = None,
) -> Rescaled:
    """Change a checkpoint that no run uses. Afterwards, the job continues from it as if nothing had happened.

    :param spark: the `SparkSession`
    :param checkpoint: the checkpoint, as an absolute path or a URI
    :param key_groups: the new number of key groups; by default, the current number
    :param partitions: the new number of shuffle partitions; by default, the number of cores that Spark has
    :param store: the new store, `groups` or `log`; by default, the current store
    :param savepoint: a new directory for the savepoint that is taken before; by default, in the checkpoint
    :param job: the job; needed only if its windows store state for whole key groups, and key_groups changes
    :raises CheckpointError: a run uses the checkpoint, no batch has been completed, or the checkpoint cannot be read or
        written; then it is unchanged, or a mark says that it cannot be used before it is rescaled again
    :raises SavepointError: the savepoint cannot be written
    """
    files = checkpoint_files(spark, checkpoint)
    if not files.exists(RESCALE_MARK):
        read_metadata(files)
    with Lease(files) as lease:
        try:
            plan = _begun(files)
            if plan is None:
                plan = _plan(spark, files, key_groups, partitions, store, savepoint)
                files.remove(_ASIDE)  # left by a call that was interrupted at its very end
                files.write(RESCALE_MARK, json.dumps(attrs.asdict(plan), indent=2))
            return _carry_out(spark, files, plan, job)
        finally:
            lease.end()


def _begun(files: Files) -> _Plan | None:
    """Return the plan of an interrupted call; `None` if there is none."""
    text = files.read(RESCALE_MARK)
    return None if text is None else _Plan(**json.loads(text))


def _plan(
    spark: Any,
    files: Files,
    key_groups: int | None,
    partitions: int | None,
    store: str | None,
    savepoint: str | None,
) -> _Plan:
    metadata = read_metadata(files)
    batch = last_commit(files)
    if batch is None:
        raise CheckpointError(files.checkpoint, "no batch has been completed. Use a new checkpoint directory instead")
    if store == "groups" and len(metadata.stages) > 1:
        stages = ", ".join(metadata.stages)
        raise CheckpointError(files.checkpoint, f"it has several stages ({stages}), which need the store log: keep it")
    groups = metadata.key_groups if key_groups is None else key_groups
    if partitions is None:
        partitions = partitions_of(own_session(spark, groups, files.checkpoint, {}))
    if savepoint is None:
        savepoint = _default_savepoint(files)
    savepoint = absolute(savepoint)
    write_savepoint(spark, files.checkpoint, savepoint)
    open_savepoint(spark, savepoint).verify()
    last = last_batch(files)
    planned = None if last is None or last <= batch else planned_offsets(files, last)
    return _Plan(
        attrs.asdict(metadata),
        groups,
        store or metadata.state,
        partitions,
        batch,
        savepoint,
        planned_offsets(files, batch),
        planned,
        None if planned is None else files.read(f"{CLOCK_DIRECTORY}/{last}-began"),
    )


def _default_savepoint(files: Files) -> str:
    name = f"savepoints/before-rescale-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    free = next(each for each in (f"{name}{end}" for end in _ends()) if not files.exists(each))
    return f"{local_path(files.checkpoint)}/{free}"


def _ends() -> Iterator[str]:
    yield ""
    yield from (f"-{number}" for number in count(2))


def _carry_out(spark: Any, files: Files, plan: _Plan, job: Job | None) -> Rescaled:
    before = CheckpointMetadata(**plan.before)
    after = attrs.evolve(
        before,
        key_groups=plan.key_groups,
        key_ranges=range_count(plan.store, plan.key_groups, plan.partitions),
        state=plan.store,
        batches_before=before.batches_before + plan.batch,
    )
    try:
        _set_aside(files)
        _write_anew(spark, files, plan, after, job)
    except AmadouError:
        _put_back(files, before)
        with suppress(OSError):
            remove_savepoint(spark, plan.savepoint)
        raise
    _end(files)
    return Rescaled(before, after, plan.partitions, plan.savepoint)


def _set_aside(files: Files) -> None:
    """Move the old files aside, and remove new files of an interrupted call."""
    if not files.exists(_COMPLETE):
        for name in _MOVED:
            if files.exists(name):
                files.move(name, f"{_ASIDE}/{name}")
        files.write(_COMPLETE, "")
    for name in _MOVED:
        files.remove(name)


def _write_anew(spark: Any, files: Files, plan: _Plan, after: CheckpointMetadata, job: Job | None) -> None:
    conf = {**LOADING_CONF, _PARTITIONS: str(plan.partitions)}
    own = own_session(spark, plan.key_groups, files.checkpoint, conf)
    savepoint = open_savepoint(spark, plan.savepoint)
    payload = None if job is None else payload_for(job, groups=after.key_groups, ranges=after.key_ranges)
    if job is not None:
        check_stages(job, savepoint, {})
        for stage, of in job.by_stage.items():
            check_state_fits(of, stage_job(after.job, stage), after.specs_of(stage), plan.savepoint)
    offsets = {stream: json.loads(offset) for stream, offset in plan.offsets.items()}
    write_checkpoint(own, files, savepoint.stages, after, offsets, payload)
    _plan_again(files, plan)
    keep(files, after)


def _plan_again(files: Files, plan: _Plan) -> None:
    """Plan the batch again that was planned but not completed."""
    if plan.planned is None:
        return
    version, header, *_ = (files.read("offsets/0") or "").splitlines()
    reached = json.loads((files.read("commits/0") or "").splitlines()[1])["nextBatchWatermarkMs"]
    metadata = json.loads(header) | {"batchWatermarkMs": reached}
    lines = offset_lines(files, plan.planned)
    if plan.began is not None:
        files.write(f"{CLOCK_DIRECTORY}/1-began", plan.began)
    plan_rows_again(files, _ASIDE, plan.batch + 1)
    files.write("offsets/1", "\n".join([version, json.dumps(metadata), *lines]))


def _put_back(files: Files, before: CheckpointMetadata) -> None:
    """Put the old files back."""
    if files.exists(_COMPLETE):
        for name in _MOVED:
            files.remove(name)
        files.remove(_COMPLETE)
    for name in reversed(_MOVED):
        if files.exists(f"{_ASIDE}/{name}"):
            files.move(f"{_ASIDE}/{name}", name)
    keep(files, before)
    _end(files)


def _end(files: Files) -> None:
    files.remove(RESCALE_MARK)
    with suppress(CheckpointError):  # the next call removes what is left
        files.remove(_ASIDE)
