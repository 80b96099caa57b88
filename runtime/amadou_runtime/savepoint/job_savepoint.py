"""The savepoint of a job, which has a savepoint for each stage."""

import functools
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import attrs

from amadou.errors import SavepointError
from amadou_runtime.formats.release import amadou_version
from amadou_runtime.jobs.stages import stage_job
from amadou_runtime.savepoint.manifest import (
    MANIFEST,
    JobManifest,
    Manifest,
    StagesManifest,
    read_manifest,
    savepoint_path,
)
from amadou_runtime.savepoint.savepoint import Savepoint, check_inside, new_savepoint

_STAGES: Final = "stages"


class JobSavepoint:
    """A savepoint of a job to read.

    :param directory: the savepoint's directory
    :ivar stages: the savepoints of the stages by name. A job with one handler has a stage with an empty name
    :raises SavepointError: the directory is not a savepoint that this release can read, or files are missing
    """

    def __init__(self, directory: str | Path) -> None:
        self.directory = savepoint_path(directory)
        self.manifest: JobManifest = read_manifest(self.directory)
        self.stages: Mapping[str, Savepoint]
        if isinstance(self.manifest, Manifest):
            self.stages = {"": Savepoint(self.directory)}
        else:
            self.stages = {name: self._stage(name, id_) for name, id_ in self.manifest.stages.items()}

    def _stage(self, name: str, id_: str) -> Savepoint:
        directory = _directory(self.directory, name)
        for path in (name, f"{_STAGES}/{name}"):
            check_inside(self.directory, path)
        found = Savepoint(directory) if directory.exists() else None
        if found is None or found.manifest.id != id_:
            damage = "is missing" if found is None else "belongs to another savepoint"
            why = f"its stage {name} {damage}. The savepoint is incomplete: copy it again, or use another"
            raise SavepointError(str(self.directory), why)
        return found

    def verify(self, on_read: Callable[[int], None] = lambda _: None) -> None:
        """Read the entire savepoint, and compare checksums; see `Savepoint.verify`."""
        for stage in self.stages.values():
            stage.verify(on_read)


def write_job_savepoint(
    job: str, stages: Mapping[str, Callable[[Path], Manifest]], directory: str | Path
) -> JobManifest:
    """Write a savepoint of a job.

    :param job: the job's name
    :param stages: functions that write the stages to a directory (see `complete`), by stage, each after the stages that
        feed it
    :param directory: a new directory
    :raises SavepointError: the directory is not empty, or cannot be written
    """
    with new_savepoint(directory) as partial:
        if "" in stages:
            return stages[""](partial)
        written = {name: write(_directory(partial, name)) for name, write in stages.items()}
        first = next(iter(written.values()))
        shared: dict[str, Any] = {
            name: getattr(first, name) for name in ("engine", "run", "batch", "store", "key_groups")
        }
        manifest = StagesManifest(
            id=uuid.uuid4().hex[:12],
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            amadou=amadou_version() or "unknown",
            job=job,
            keys=sum(each.keys for each in written.values()),
            timers=sum(each.timers for each in written.values()),
            bytes=sum(each.bytes for each in written.values()),
            stages={name: each.id for name, each in written.items()},
            **shared,
        )
        (partial / MANIFEST).write_text(manifest.to_json(), "utf-8")
        return manifest


def write_as_stage(savepoint: JobSavepoint, stage: str, directory: str | Path) -> JobManifest:
    """Write a savepoint of a job with stages, one of which has the state in a savepoint of a job with one handler.

    :param stage: the name of the stage
    :param directory: a new directory
    :raises SavepointError: the name is invalid; the savepoint is that of a job with stages, or has records in memory;
        or the directory is not empty, or cannot be written
    """
    where, of = str(savepoint.directory), savepoint.stages.get("")
    if not re.fullmatch(r"[A-Za-z0-9_-]+", stage):
        raise SavepointError(where, f"the stage name {stage!r} must consist of letters, digits, - and _")
    if of is None:
        raise SavepointError(where, f"it has stages already: {', '.join(savepoint.stages)}")
    if any(file.name.startswith("memory/") for file in of.manifest.files):
        raise SavepointError(where, "a job with a MemorySource cannot become a stage: its records have a fixed place")
    manifest = attrs.evolve(of.manifest, id=uuid.uuid4().hex[:12], job=stage_job(of.job, stage))
    return write_job_savepoint(of.job, {stage: functools.partial(of.copy, manifest=manifest)}, directory)


def _directory(savepoint: Path, stage: str) -> Path:
    return savepoint / _STAGES / stage
