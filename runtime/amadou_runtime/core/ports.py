"""The ports of a job: their codecs, and default sinks for ports without a sink."""

from typing import Any

import attrs

from amadou import Job, Sink
from amadou.errors import JobError
from amadou_runtime.core.several_sinks import SeveralSinks
from amadou_runtime.plugins.hooks import plugins_of


class PortCodecs(dict[str, Any]):
    """The codec factories to which a job's ports refer by name. On workers, this object replaces the job's plugins. The
    plugins stay on the driver, since they can have open connections or be defined in modules next to the job file.
    """


def port_codec(job: Job, port: str) -> Any:
    """Return a port's codec. If the port has no codec, return the codec of the port's sink.

    :raises JobError: the port refers to a codec that no plugin registers
    """
    spec = job.ports[port]
    if isinstance(spec.codec, str):
        return named_codecs(job)[spec.codec](spec.type)
    return spec.codec or sink_of(job, port).codec(spec.type)


def sink_of(job: Job, port: str) -> Sink:
    """Return the sink of a port; multiple sinks are combined into one."""
    sinks = job.sinks[port]
    return SeveralSinks(sinks) if isinstance(sinks, tuple) else sinks


def named_codecs(job: Job) -> PortCodecs:
    """Return the codec factories to which a job's ports refer by name.

    :raises JobError: a port refers to a codec that no plugin registers
    """
    for plugin in job.plugins:
        if isinstance(plugin, PortCodecs):
            return plugin
    named = {port: spec.codec for port, spec in job.ports.items() if isinstance(spec.codec, str)}
    known = plugins_of(job.plugins).codecs() if named else {}
    problems = [
        f"the port {port!r} uses the codec {name!r}, but no plugin registers it: use one of {', '.join(sorted(known))}"
        for port, name in named.items()
        if name not in known
    ]
    if problems:
        raise JobError(job.name, tuple(problems))
    return PortCodecs({name: known[name] for name in named.values()})


def with_all_sinks(job: Job, checkpoint: str | None) -> Job:
    """Return the job with a sink for each port. If the job has no sinks for late events or dead letters, the added
    sinks write these to the checkpoint as JSON lines.

    :param checkpoint: the checkpoint's directory; `None` for a run without a checkpoint
    :raises JobError: a sink is missing, and there is no checkpoint or the checkpoint is not local
    """
    missing = [port for port in job.ports if port not in job.sinks]
    if not missing:
        return job
    directory = None if checkpoint is None else checkpoint.removeprefix("file://").removeprefix("file:")
    if directory is None or "://" in directory:
        raise JobError(
            job.name,
            tuple(f"the port {port} has no sink: add one to sinks, or use a local checkpoint" for port in missing),
        )
    json_lines: Any = plugins_of(job.plugins).sinks()["json-lines"]
    more: dict[str, Sink] = {port: json_lines(f"{directory}/{port}") for port in missing}
    return attrs.evolve(job, sinks={**job.sinks, **more})
