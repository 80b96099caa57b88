"""Checks of a job's sources and sinks before a run, for both engines."""

import time
from functools import partial
from typing import Final

from amadou import Job
from amadou.errors import AmadouError, JobError, SinkError
from amadou_runtime.core.ports import named_codecs

_LONG_CHECKS: Final = 10.0
"""Seconds of checks after which the first problem ends them."""


def is_bounded(job: Job) -> bool:
    """Return whether a job's input ends."""
    return all(source.bounded for source in job.sources.values())


def check_connectors(job: Job) -> None:
    """Let every source and sink check that it can do its work.

    :raises JobError: a port names a codec that no plugin has; or sources and sinks found several problems
    :raises AmadouError: a source or sink found the only problem; or several sinks found only `SinkError`
    """
    named_codecs(job)
    checks = [source.check for source in job.sources.values()]
    checks += [partial(sink.check, port, job.ports[port].type) for port, sink in job.all_sinks]
    began, problems = time.monotonic(), list[AmadouError]()
    for check in checks:
        if problems and time.monotonic() - began > _LONG_CHECKS:
            break  # the next check would wait as long for a service that does not answer
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
