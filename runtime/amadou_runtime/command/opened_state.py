"""Opens the state of a checkpoint or savepoint for a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from amadou import Job
from amadou.errors import LoadError
from amadou_runtime.command.load_job import load_job
from amadou_runtime.savepoint.manifest import MANIFEST
from amadou_runtime.savepoint.savepoint import Savepoint


def open_state(place: str, master: str | None, settings: Mapping[str, str]) -> Any:
    """Open a savepoint or a checkpoint.

    :raises AmadouError: there is neither a savepoint nor a checkpoint, or it cannot be read
    """
    if (Path(place) / MANIFEST).exists():
        return Savepoint(place)
    from amadou_runtime.spark import session
    from amadou_runtime.spark.checkpoint import absolute
    from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState

    return CheckpointState(absolute(place), lambda: session("amadou state", master=master, conf=settings))


class Owned(Protocol):
    """What belongs to a job: state, or a checkpoint's metadata."""

    @property
    def job(self) -> str:
        """The job's name."""


def job_for(target: str | None, params: Mapping[str, str], state: Owned | None) -> Job | None:
    """Return the job to which state belongs, with its parameters; `None` if there is no target.

    :raises LoadError: the job cannot be loaded, or the state belongs to a different job
    """
    if target is None:
        return None
    job = load_job(target).with_params(params, connectors=False)
    if state is not None:
        check_owner(target, job, state)
    return job


def check_owner(target: str, job: Job, state: Owned) -> None:
    """Check that state belongs to a job.

    :param target: the target from which the job was loaded
    :raises LoadError: the state belongs to a different job
    """
    if job.name != state.job:
        raise LoadError(target, f"the state belongs to the job {state.job!r}, not to {job.name!r}")
