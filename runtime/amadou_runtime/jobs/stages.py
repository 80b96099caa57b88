"""What engines need to know about the stages of a job."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from amadou import Job
from amadou.errors import (
    CallbackError,
    LoadError,
    LookupFailedError,
    TooManyDeadLettersError,
    TooManyHeldError,
)
from amadou.plugins import BatchReport
from amadou_runtime.formats.json_logs import log_context


def stage_job(job: str, stage: str) -> str:
    """Return the name of the job of a stage; see `Job.by_stage`."""
    return f"{job}.{stage}" if stage else job


def stage_named(job: Job, name: str) -> str | None:
    """Return the name of the stage whose job has a name; see `stage_job`. Return `None` if there is none."""
    return next((stage for stage, of in job.by_stage.items() if of.name == name), None)


def chosen_stage(place: str, stages: Collection[str], given: str) -> str:
    """Return the name of the stage whose state is meant.

    :param place: the checkpoint or savepoint, for the error
    :param stages: the names of its stages
    :param given: the given name; empty for the only stage
    :raises LoadError: there is no such stage, or there are several and none is given
    """
    known = ", ".join(stages)
    if given and given not in stages:
        has = f"it has no stage {given!r} (stages: {known})" if any(stages) else "it has no stages: omit --stage"
        raise LoadError(place, has)
    if not given and len(stages) > 1:
        raise LoadError(place, f"it has several stages: name one of them with --stage ({known})")
    return given or next(iter(stages))


def depth(job: Job) -> int:
    """Return the number of stages on the longest path through a job's stages."""
    depths: dict[str, int] = {}
    for name, stage in job.by_stage.items():
        depths[name] = 1 + max((depths[source.stage] for source in stage.fed_sources.values()), default=0)
    return max(depths.values())


def readers(job: Job, stage: str) -> dict[str, list[str]]:
    """Return the names of the stages that each port of a stage feeds."""
    found: dict[str, list[str]] = {}
    for name, of in job.by_stage.items():
        for port in {source.port for source in of.fed_sources.values() if source.stage == stage}:
            found.setdefault(port, []).append(name)
    return found


def whole_report(reports: Mapping[str, BatchReport]) -> BatchReport:
    """Return the report of a batch, from those of its stages."""
    return reports[""] if "" in reports else BatchReport.of_stages(reports)


@contextmanager
def errors_of_stage(name: str) -> Iterator[None]:
    """Let the errors of callbacks, of lookups and about limits, and JSON lines that are logged, name a stage.

    :param name: the stage's name; empty for a job with one handler
    """
    try:
        with log_context(stage=name) if name else nullcontext():
            yield
    except CallbackError as error:
        error.stage = error.stage or name or None
        raise
    except (LookupFailedError, TooManyDeadLettersError, TooManyHeldError) as error:
        if name:
            error.args = (f"stage {name}: {error}",)
        raise
