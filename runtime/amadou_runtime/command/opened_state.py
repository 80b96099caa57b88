"""Opens the state of a checkpoint or savepoint for a command."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

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


class Owned(Protocol):
    """What belongs to a job: state, or a checkpoint's metadata."""

    @property
    def job(self) -> str:
        """The job's name."""


def check_job(target: str, job: Job, state: Owned) -> None:
    """Check that the state of a run, with all of its stages, belongs to a job.

    :param target: the target from which the job was loaded
    :raises LoadError: the state belongs to a different job
    """
    if job.name != state.job:
        raise _other_job(target, state, [job.name])


def job_for(target: str | None, params: Mapping[str, str], state: Owned) -> Job | None:
    """Return the job to which state belongs, or the stage of it, with its parameters; `None` if there is no target.

    :raises LoadError: the job cannot be loaded, or the state belongs to a different job
    """
    if target is None:
        return None
    job = load_job(target).with_params(params, connectors=False)
    return job.by_stage[owner_of(target, job, state)]


def owner_of(target: str, job: Job, state: Owned) -> str:
    """Return the name of the stage to which state belongs; empty for a job with one handler.

    :param target: the target from which the job was loaded
    :raises LoadError: the state belongs to a different job
    """
    owner = stage_named(job, state.job)
    if owner is None:
        raise _other_job(target, state, [stage.name for stage in job.by_stage.values()])
    return owner


def _other_job(target: str, state: Owned, names: Iterable[str]) -> LoadError:
    return LoadError(target, f"the state belongs to the job {state.job!r}, not to {', '.join(map(repr, names))}")
