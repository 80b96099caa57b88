"""Opens the state of a checkpoint or savepoint for a command."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from amadou import Job
from amadou.errors import LoadError
from amadou.paths import local_path
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.jobs.stages import chosen_stage, stage_named
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.manifest import MANIFEST


def open_state(place: str, stage: str | None, master: str | None, settings: Mapping[str, str]) -> Any:
    """Open a savepoint or a checkpoint.

    :param stage: the name of the stage; `None` for the only stage
    :raises AmadouError: there is neither a savepoint nor a checkpoint, or it cannot be read
    """
    if Path(local_path(place), MANIFEST).exists():
        stages = JobSavepoint(place).stages
        return stages[chosen_stage(place, stages, stage or "")]
    from amadou_runtime.spark import session
    from amadou_runtime.spark.checkpoint import absolute
    from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState

    return CheckpointState(absolute(place), lambda: session("amadou state", master=master, conf=settings), stage or "")


def check_job(target: str, job: Job, owner: str) -> None:
    """Check that the state of a run, with all of its stages, belongs to a job.

    :param target: the target from which the job was loaded
    :param owner: the name of the job that the state belongs to
    :raises LoadError: the state belongs to a different job
    """
    if job.name != owner:
        raise _other_job(target, owner, [job.name])


def job_for(target: str | None, params: Mapping[str, str], owner: str) -> Job | None:
    """Return the job to which state belongs, or the stage of it, with its parameters; `None` if there is no target.

    :raises LoadError: the job cannot be loaded, or the state belongs to a different job
    """
    if target is None:
        return None
    job = load_job(target).with_params(params, connectors=False)
    return job.by_stage[stage_owning(target, job, owner)]


def stage_owning(target: str, job: Job, owner: str) -> str:
    """Return the name of the stage to which state belongs; empty for a job with one handler.

    :param target: the target from which the job was loaded
    :raises LoadError: the state belongs to a different job
    """
    stage = stage_named(job, owner)
    if stage is None:
        raise _other_job(target, owner, [each.name for each in job.by_stage.values()])
    return stage


def _other_job(target: str, owner: str, names: Iterable[str]) -> LoadError:
    return LoadError(target, f"the state belongs to the job {owner!r}, not to {', '.join(map(repr, names))}")
