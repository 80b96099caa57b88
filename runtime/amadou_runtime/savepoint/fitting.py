"""Checks that a job can start from a savepoint."""

from collections.abc import Mapping
from typing import Any

from amadou import Job
from amadou.errors import SavepointError
from amadou_runtime.jobs.returned_sources import check_returned
from amadou_runtime.jobs.state_schema import Known, described, state_problem
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.savepoint import TEST_RUN, Savepoint


def check_job_fits(job: Job, savepoint: JobSavepoint, *, needs_positions: bool = True) -> None:
    """Check that a job can start from a savepoint; see `check_fits`.

    :raises SavepointError: the savepoint has a stage that the job neither has nor retires, or does not fit
    """
    check_stages(job, savepoint, job.retired if job.stages else {})
    for name, stage in job.by_stage.items():
        if name in savepoint.stages:
            check_fits(stage, savepoint.stages[name], needs_positions=needs_positions)


def check_stages(job: Job, savepoint: JobSavepoint, retired: Mapping[str, str]) -> None:
    """Check that a job has the stages of a savepoint.

    :param retired: the stages that the job need not have
    :raises SavepointError: the savepoint belongs to a different job, or has other stages
    """
    where, saved = str(savepoint.directory), savepoint.stages
    _check_owner(job, savepoint.manifest.job, where)
    if ("" in saved) != ("" in job.by_stage):
        kinds = ("a job with one handler", "a job with stages")
        old, new = kinds if "" in saved else kinds[::-1]
        advice = f"Make it a stage with amadou savepoint {where} NEW --as-stage NAME" if "" in saved else "Use another"
        raise SavepointError(where, f"it belongs to {old}, but {job.name!r} is {new}. {advice}")
    missing = [name for name in saved if name not in job.by_stage and name not in retired]
    if missing:
        shown, known = ", ".join(missing), ", ".join(job.by_stage)
        drop = ", ".join(f'{name!r}: "drop"' for name in missing)
        raise SavepointError(
            where,
            f"it has stages that the job does not have: {shown} (stages of the job: {known}). Add them again or, to "
            f"leave out their state, set retired={{{drop}}} on the job",
        )


def check_fits(job: Job, savepoint: Savepoint, *, needs_positions: bool = True) -> None:
    """Check that a job with one handler, or a stage, can start from a savepoint.

    :param needs_positions: `False` if the job's sources are not read
    :raises CheckpointError: the job has a source that was removed and later added again
    :raises SavepointError: the savepoint belongs to a different job, or the job cannot read the state, or the position
        of one of its sources is not known
    """
    manifest, where = savepoint.manifest, str(savepoint.directory)
    check_state_fits(job, manifest.job, manifest.structures, where)
    check_returned(f"from the savepoint {where}", job.stream_sources, manifest.ever_read, manifest.sources.keys())
    for name in job.stream_sources if needs_positions else ():
        if name in manifest.sources and not _has_position(manifest.sources[name]):
            if manifest.engine == TEST_RUN:
                raise SavepointError(
                    where, "it was written by a test run, which does not read sources. Use another one"
                )
            raise SavepointError(
                where,
                f"it does not contain how far the source {name!r} has been read, because {name!r} did not know its "
                "position on the embedded engine: define Source.read_from",
            )


def check_state_fits(job: Job, owner: str, structures: Known, where: str) -> None:
    """Check that a job can read stored state.

    :param owner: the name of the job to which the state belongs
    :param where: the savepoint or checkpoint, for the error
    :raises SavepointError: the state belongs to a different job, or the job cannot read it
    """
    _check_owner(job, owner, where)
    problem = state_problem(job, structures, described(job))
    if problem is not None:
        raise SavepointError(where, problem)


def _check_owner(job: Job, owner: str, where: str) -> None:
    if owner != job.name:
        raise SavepointError(where, f"it belongs to the job {owner!r}, not to {job.name!r}. Use a different one")


def _has_position(source: Mapping[str, Any]) -> bool:
    return source.get("offset") is not None or source.get("position") is not None
