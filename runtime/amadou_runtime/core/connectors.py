"""What both engines ask of a job's sources and sinks before a run."""

import time
from functools import partial
from typing import Final

from amadou import Job
from amadou.errors import AmadouError, JobError, SinkError
from amadou_runtime.core.ports import named_codecs

_LONG_CHECKS: Final = 10.0
"""After so many seconds of checks the first mistake is enough."""


def is_bounded(job: Job) -> bool:
    """Return whether a job's input ends."""
    return all(source.bounded for source in job.sources.values())


def check_connectors(job: Job) -> None:
    """Let every source and sink look whether it can do its work.

    :raises JobError: a port names a codec that no plugin has; or sources and sinks found several mistakes
    :raises AmadouError: a source or sink found the only mistake, or several are all of one kind
    """
    named_codecs(job)
    checks = [source.check for source in job.sources.values()]
    checks += [partial(sink.check, port, job.ports[port].type) for port, sink in job.all_sinks]
    began, problems = time.monotonic(), list[AmadouError]()
    for check in checks:
        if problems and time.monotonic() - began > _LONG_CHECKS:
            break  # what does not answer has been waited for, and would be again by the next one
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
