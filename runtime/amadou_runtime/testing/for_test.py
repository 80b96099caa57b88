"""Prepares a job for a test run."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final, TypeAlias

import attrs

from amadou import Handler, Job, Lookup, MemorySink, SinkSpec
from amadou.engine import DEAD_LETTERS, LATE_EVENTS, declared_specs
from amadou.errors import SpecError
from amadou.text import shown_value

GivenHandler: TypeAlias = Handler | type[Handler]
GivenAnswers: TypeAlias = Mapping[Any, Any] | Callable[[Any], Any]
"""The answers of a lookup; see `Lookup.answering`."""
_SHOWN: Final = 200


def for_test(
    job: Job,
    handlers: Mapping[str, GivenHandler],
    params: Mapping[str, str],
    lookups: Mapping[str, GivenAnswers],
) -> Job:
    """Return the job in the form that a test run processes.

    :param handlers: replacements for the handlers of stages, by stage. State that a replacement declares is not treated
        as retired
    :param lookups: see `TestRun`
    :raises ValueError: there is no such stage or lookup, or `lookups` is not a mapping
    """
    known = {param.name for param in job.params}
    unknown = handlers.keys() - job.by_stage.keys()
    if unknown:
        raise ValueError(f"the job has no stage {min(unknown)!r} for handler= (its stages: {', '.join(job.stages)})")
    job = _changed(job, lambda name, of: _with_handler(of, handlers[name]) if name in handlers else of)
    taken = {param.name for param in job.params}
    given = {name: text for name, text in params.items() if name in taken or name not in known}
    job = job.with_params(given, connectors=False)
    _check_lookups(job, lookups)
    ports = {name: stage.ports for name, stage in job.by_stage.items()}
    return _changed(job, lambda name, of: _in_memory(of, ports[name], lookups))


def _changed(job: Job, change: Callable[[str, Any], Any]) -> Job:
    """Return a job with its stages changed by a function, which gets the stage's name and the stage; or the job itself
    if it has one handler.
    """
    if not job.stages:
        changed: Job = change("", job)
        return changed
    return attrs.evolve(job, stages={name: change(name, stage) for name, stage in job.stages.items()})


def _with_handler(of: Any, given: GivenHandler) -> Any:
    handler = given() if isinstance(given, type) else given
    declared = declared_specs(handler).values()
    ports = [spec.name for spec in declared if isinstance(spec, SinkSpec)]
    retired = {name: fate for name, fate in of.retired.items() if name not in {spec.name for spec in declared}}
    own = [port for port in of.sinks if port in (DEAD_LETTERS, LATE_EVENTS)]
    sinks = {port: MemorySink() for port in (*ports, *own)}
    return attrs.evolve(of, handler=handler, sinks=sinks, retired=retired)


def _in_memory(of: Any, ports: Mapping[str, Any], lookups: Mapping[str, GivenAnswers]) -> Any:
    return attrs.evolve(of, handler=_answered(of.handler, lookups), sinks={port: MemorySink() for port in ports})


def _check_lookups(job: Job, lookups: Mapping[str, GivenAnswers]) -> None:
    known = [name for stage in job.by_stage.values() for name in stage.lookups]
    if not isinstance(lookups, Mapping):
        example = f"{{{known[0] if known else 'customers'!r}: {{…}}}}"
        raise ValueError(
            f"lookups must be a mapping from names of lookups to answers, such as {example}, not "
            f"{shown_value(lookups, _SHOWN)}"
        )
    unknown = lookups.keys() - set(known)
    if unknown:
        names = ", ".join(known) or "none"
        shown = ", ".join(sorted(name if isinstance(name, str) else shown_value(name, _SHOWN) for name in unknown))
        raise ValueError(f"the handler has no lookup {shown} (its lookups: {names})")


def _answered(handler: Handler, lookups: Mapping[str, GivenAnswers]) -> Handler:
    """Return a handler with the answers of mappings in place of lookups."""
    answered = handler
    for attribute, spec in declared_specs(handler).items():
        if isinstance(spec, Lookup) and spec.name in lookups:
            answered = copy(handler) if answered is handler else answered
            try:
                setattr(answered, attribute, spec.answering(lookups[spec.name]))
            except SpecError as error:
                raise ValueError(f"lookups[{spec.name!r}]: {error}") from error
    return answered
