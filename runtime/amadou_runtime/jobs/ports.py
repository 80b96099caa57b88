"""The ports of a job: their codecs, and default sinks for ports without a sink."""

from typing import Any

from amadou import Job
from amadou.errors import JobError
from amadou.paths import local_path
from amadou.plugins import Sink
from amadou.text import qualified
from amadou_runtime.jobs.several_sinks import SeveralSinks
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
    written = {port: spec for port, spec in job.ports.items() if port in job.sinks}
    named = {port: spec.codec for port, spec in written.items() if isinstance(spec.codec, str)}
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
    sinks write these to the checkpoint as JSON lines: to the directory ``<port>``, or ``<stage>.<port>``.

    :param checkpoint: the checkpoint's directory; `None` for a run without a checkpoint
    :raises JobError: a sink is missing, and there is no checkpoint
    """
    directory = None if checkpoint is None else local_path(checkpoint)
    added = {name: _own_sinks(stage, name, directory) for name, stage in job.by_stage.items()}
    missing = [qualified(stage, port) for stage, sinks in added.items() for port in sinks]
    if missing and directory is None:
        raise JobError(
            job.name,
            tuple(f"the port {port} has no sink: add one to sinks, or use a checkpoint, on Spark" for port in missing),
        )
    return job.with_sinks(added) if missing else job


def _own_sinks(stage: Job, name: str, directory: str | None) -> dict[str, Sink]:
    """Return sinks for the ports of a stage that need one."""
    json_lines: Any = plugins_of(stage.plugins).sinks()["json-lines"]
    missing = [port for port in stage.ports if port not in stage.sinks and port not in stage.feeds]
    return {port: json_lines(f"{directory}/{qualified(name, port)}") for port in missing}
