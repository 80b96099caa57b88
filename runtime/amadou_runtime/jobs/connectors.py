"""Checks a job's sources and sinks before a run, on both engines."""

import time
from functools import partial
from typing import Final

from amadou import Job
from amadou.errors import AmadouError, JobError, SinkError
from amadou_runtime.jobs.ports import named_codecs

_LONG_CHECKS: Final = 10.0
"""Seconds from the start of the first check; see `check_connectors`."""


def is_bounded(job: Job) -> bool:
    """Return `True` if all of a job's sources are bounded."""
    return all(source.bounded for stage in job.by_stage.values() for source in stage.sources.values())


def check_connectors(job: Job, *, patience: float = _LONG_CHECKS) -> None:
    """Call the `check` of every source and sink.

    :param patience: seconds after which no further check starts once a check has failed
    :raises JobError: a port refers to a codec that no plugin registers; or multiple checks failed, at least one of them
        with an error other than a `SinkError`
    :raises SinkError: multiple checks failed, all of them with a `SinkError`
    :raises AmadouError: the error of a check, if only one check failed
    """
    checks = []
    for stage in job.by_stage.values():
        named_codecs(stage)
        checks += [source.check for source in stage.sources.values()]
        checks += [partial(sink.check, port, stage.ports[port].type) for port, sink in stage.all_sinks]
    began, problems = time.monotonic(), list[AmadouError]()
    for check in checks:
        if problems and time.monotonic() - began >= patience:
            break  # the next check might wait just as long for a service that does not respond
        try:
            check()
        except AmadouError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        texts = tuple(str(problem).strip() for problem in problems)
        kinds = {type(problem) for problem in problems}
        raise SinkError("\n".join(texts)) if kinds == {SinkError} else JobError(job.name, texts)
