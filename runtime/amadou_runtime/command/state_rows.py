"""Writes stored state to files of rows, and savepoints from such files: `amadou state export` and `import`."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path

from amadou import Job
from amadou.errors import LoadError
from amadou_runtime.command.opened_state import stage_owning
from amadou_runtime.command.row_files import rows_in, writing
from amadou_runtime.jobs.stages import chosen_stage
from amadou_runtime.savepoint.block import Block, by_subject
from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_job_savepoint
from amadou_runtime.savepoint.manifest import JobManifest, Manifest
from amadou_runtime.savepoint.rows import Importer, RowError, rows_of
from amadou_runtime.savepoint.savepoint import components_of
from amadou_runtime.savepoint.stored_keys import StoredState, begins_with, keys_named


def export_rows(
    state: StoredState,
    place: str,
    file: Path,
    keys: Sequence[str] | None,
    prefix: str | None,
    specs: Sequence[str] | None,
    job: Job | None,
) -> int:
    """Write state to a file, and return the number of rows; see the options of `amadou state export`."""
    if keys is None:
        blocks: Iterator[Block] = state.blocks()
    else:
        blocks = (block for text in keys for name in keys_named(text) for block in state.find(name))
    rows = rows_of((_by_subject(block, job, place) for block in blocks), state.structures)
    rows = (row for row in rows if begins_with(row["key"], prefix) and (not specs or row.get("spec") in specs))
    with writing(file) as write:
        return write(rows)


def _by_subject(block: Block, job: Job | None, place: str) -> Block:
    if not block.group_states:
        return block
    if job is None:
        names = ", ".join(block.group_states)
        raise LoadError(place, f"the state of {names} is stored for whole key groups: name the job with --job TARGET")
    return by_subject(block, components_of(job), place)


def import_rows(
    file: Path,
    directory: Path,
    base: JobSavepoint | None,
    job: Job | None,
    target: str,
    stage: str | None,
    watermark: datetime | None,
) -> JobManifest:
    """Write a savepoint with the state in a file; see the options of `amadou state import`. The other stages are those
    of `base`.

    :param target: the target from which the job was loaded
    :raises LoadError: the file is invalid, or the savepoint belongs to a different job
    """
    writes: dict[str, Callable[[Path], Manifest]] = {}
    if base is not None:
        name_of_job = base.manifest.job
        writes = {name: of.copy for name, of in base.stages.items()}
        changed = chosen_stage(str(base.directory), base.stages, stage or "")
        owner = None if job is None else job.by_stage[stage_owning(target, job, base.stages[changed].job)]
        importer = Importer(base.stages[changed], owner)
    else:
        assert job is not None
        name_of_job = job.name
        changed = chosen_stage(target, job.by_stage, stage or "")
        importer = Importer(None, job.by_stage[changed])
    writes[changed] = partial(importer.write, rows_in(file), watermark)
    try:
        return write_job_savepoint(name_of_job, writes, directory)
    except RowError as error:
        raise LoadError(str(file), str(error)) from error
