"""The ports of a job: their codecs, and sinks for ports that the job names no sink for."""

from typing import Any

import attrs

from amadou import Job, Sink
from amadou.errors import JobError
from amadou_runtime.core.several_sinks import SeveralSinks
from amadou_runtime.plugins.hooks import plugins_of


class PortCodecs(dict[str, Any]):
    """The factories of the codecs that a job's ports name. On workers this object stands for the job's plugins, which
    stay on the driver: they may hold connections, or lie beside the job file.
    """


def port_codec(job: Job, port: str) -> Any:
    """Return the codec of a port: the port's own, else its sink's.

    :raises JobError: the port names a codec that no plugin has
    """
    spec = job.ports[port]
    if isinstance(spec.codec, str):
        return named_codecs(job)[spec.codec](spec.type)
    return spec.codec or sink_of(job, port).codec(spec.type)


def sink_of(job: Job, port: str) -> Sink:
    """Return the sink of a port; several sinks as one."""
    sinks = job.sinks[port]
    return SeveralSinks(sinks) if isinstance(sinks, tuple) else sinks


def named_codecs(job: Job) -> PortCodecs:
    """Return the factories of the codecs that a job's ports name.

    :raises JobError: a port names a codec that no plugin has
    """
    for plugin in job.plugins:
        if isinstance(plugin, PortCodecs):
            return plugin
    named = {port: spec.codec for port, spec in job.ports.items() if isinstance(spec.codec, str)}
    known = plugins_of(job.plugins).codecs() if named else {}
    problems = [
        f"the port {port!r} wants the codec {name!r}, which no plugin has (there are: {', '.join(sorted(known))})"
        for port, name in named.items()
        if name not in known
    ]
    if problems:
        raise JobError(job.name, tuple(problems))
    return PortCodecs({name: known[name] for name in named.values()})


def with_all_sinks(job: Job, checkpoint: str | None) -> Job:
    """Return the job with sinks for late events and dead letters: by default, JSON lines in the checkpoint.

    :param checkpoint: the checkpoint's directory, `None` for a run without one
    :raises JobError: a sink is missing and the checkpoint is not local
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
    json_lines: Any = plugins_of(job.plugins).sinks()["json-lines"]
    more: dict[str, Sink] = {port: json_lines(f"{directory}/{port}") for port in missing}
    return attrs.evolve(job, sinks={**job.sinks, **more})
