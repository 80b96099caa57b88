"""The ports of a job: how their values travel, and where those go that the job names no sink for."""

from typing import Any

import attrs

from amadou import Job, Sink
from amadou.errors import JobError


def port_codec(job: Job, port: str) -> Any:
    """The codec of a port: the port's own, else its sink's."""
    spec = job.ports[port]
    return spec.codec or job.sinks[port].codec(spec.type)


def with_all_sinks(job: Job, checkpoint: str | None) -> Job:
    """The job with a sink for late events and dead letters: without one they become JSON lines in the checkpoint.

    :param checkpoint: the directory, `None` for a run that keeps none
    :raises JobError: there is no local checkpoint for them either
    """
    missing = [port for port in job.ports if port not in job.sinks]
    if not missing:
        return job
    directory = None if checkpoint is None else checkpoint.removeprefix("file://").removeprefix("file:")
    if directory is None or "://" in directory:
        raise JobError(
            job.name,
            tuple(f"no sink serves {port}: add it to sinks, or run with a local checkpoint" for port in missing),
        )
    from amadou_plugins.connectors import JsonLinesSink

    more: dict[str, Sink] = {port: JsonLinesSink(f"{directory}/{port}") for port in missing}
    return attrs.evolve(job, sinks={**job.sinks, **more})
