"""The rules for the dependencies between the sources of a job."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from amadou._handler.handler import Handler
from amadou._jobs.stage import cycle
from amadou.dependencies import DependsOn

if TYPE_CHECKING:
    from amadou._jobs.job import Job


def are_dependencies(job: "Job") -> Iterator[str]:
    if not isinstance(job.dependencies, tuple) or not all(isinstance(of, DependsOn) for of in job.dependencies):
        yield f"dependencies must be a list of amadou.DependsOn, not {job.dependencies!r}"


def each(job: "Job") -> Iterator[str]:
    for dependency in job.dependencies:
        yield from dependency.problems()


def are_listed_once(job: "Job") -> Iterator[str]:
    for (of, on), count in Counter(_pairs(job)).items():
        if count > 1:
            yield f"DependsOn({of!r}, on={on!r}) is listed {count} times: keep one"


def have_sources(job: "Job") -> Iterator[str]:
    for name in _names(job):
        if name not in job.sources:
            yield (
                f"a dependency refers to {name!r}, but the job has no source with this name "
                f"(sources: {', '.join(map(str, job.sources)) or 'none'}): correct the name, or add the source"
            )


def sources_can_depend(job: "Job") -> Iterator[str]:
    for name in _names(job):
        if name in job.fed_sources or (isinstance(job.handler, Handler) and name in job.reference_sources):
            yield (
                f"a dependency refers to {name!r}, which is a port of another stage or updates a reference: only other "
                "sources can depend on each other"
            )


def have_no_cycle(job: "Job") -> Iterator[str]:
    needs: dict[str, list[str]] = {}
    for dependent, on in _pairs(job):
        needs.setdefault(dependent, []).append(on)
    circle = cycle(needs)
    if len(circle) > 2:
        yield f"sources depend on each other in a cycle: {' → '.join(circle)}: remove one DependsOn"


RULES: Final = (each, are_listed_once, have_sources, sources_can_depend, have_no_cycle)
"""The rules for dependencies that `are_dependencies` accepts."""


def _pairs(job: "Job") -> list[tuple[str, str]]:
    named = ((each.dependent, each.on) for each in job.dependencies)
    return [pair for pair in named if all(isinstance(name, str) for name in pair)]


def _names(job: "Job") -> list[str]:
    return sorted({name for pair in _pairs(job) for name in pair})
