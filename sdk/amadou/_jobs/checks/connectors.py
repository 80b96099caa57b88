"""The rules for sources and sinks of a job, and how they fit its handler."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from amadou._connectors.connector import Sink, Source
from amadou._handler.handler import Handler
from amadou._handler.letters import DEAD_LETTERS, LATE_EVENTS
from amadou._handler.port import SinkSpec, declared_specs
from amadou._handler.reference import ON_CHANGE, TableSource
from amadou._jobs.stage import FromPort

if TYPE_CHECKING:
    from amadou._jobs.job import Job

OWN_SINKS: Final = {LATE_EVENTS: 'late_events="divert"', DEAD_LETTERS: 'on_error="dead_letter"'}
"""The job settings that add the ports for late events and dead letters, by port."""


def sources_are_sources(job: "Job") -> Iterator[str]:
    if not isinstance(job.sources, Mapping):
        yield f"sources must be a mapping from names to amadou.Source, not {job.sources!r}"
        return
    for name, source in job.sources.items():
        yield from _name("sources", name)
        if isinstance(source, FromPort):
            yield f"sources[{name!r}] is a port of another stage: use it in Job(stages=…)"
        elif not isinstance(source, Source):
            yield f"sources[{name!r}] must be an amadou.Source, not {source!r}"


def sinks_are_sinks(job: "Job") -> Iterator[str]:
    if not isinstance(job.sinks, Mapping):
        yield f"sinks must be a mapping from names to amadou.Sink, not {job.sinks!r}"
        return
    for name, given in job.sinks.items():
        yield from _name("sinks", name)
        if isinstance(given, tuple):
            yield from _several(name, given)
        elif not isinstance(given, Sink):
            yield f"sinks[{name!r}] must be an amadou.Sink, not {given!r}"


FORM: Final = (sources_are_sources, sinks_are_sinks)


def change_callback_has_references(job: "Job") -> Iterator[str]:
    if hasattr(job.handler, ON_CHANGE) and not job.references:
        yield f"{_handler(job)} defines {ON_CHANGE}, but has no reference: add a ReferenceSpec"


def needed_sources(job: "Job") -> Iterator[str]:
    of_references = [(name, spec.source) for name, spec in job.references.items()]
    of_components = [(name, source) for name, component in job.components.items() for source in component.needs_sources]
    for name, source in (*of_references, *of_components):
        if source not in job.sources:
            yield (
                f"{_handler(job)}.{name} needs the source {source!r}, but the job has no source with this name "
                f"(sources: {', '.join(map(str, job.sources)) or 'none'}): correct the name, or add the source"
            )


def sources_of_references(job: "Job") -> Iterator[str]:
    counts = Counter(spec.source for spec in job.references.values())
    for source, count in counts.items():
        if count > 1:
            yield f"{count} references of {_handler(job)} have the source {source!r}: use a source for each"
    for name, given in job.sources.items():
        if isinstance(given, TableSource) and name not in counts:
            yield (
                f"sources[{name!r}] is a table, but no reference of {_handler(job)} has it as its source: add a "
                "ReferenceSpec"
            )
    if job.sources and not job.sources.keys() - counts.keys():
        yield "all sources of the job update references: add a source whose events on_event receives"


def has_a_source(job: "Job") -> Iterator[str]:
    if not job.sources:
        yield "the job has no source: add one to sources"


def records_become_events(job: "Job") -> Iterator[str]:
    if type(job.handler).key_event is Handler.key_event:
        for name, source in job.sources.items():
            if source.key_event is None:
                yield (
                    f"no function turns records from source {name!r} into events: define "
                    f"{_handler(job)}.key_event(self, record) or set key_event= on the source"
                )


def ports_have_sinks(job: "Job") -> Iterator[str]:
    for port in _ports(job) - {*job.sinks} - job.feeds:
        yield f"the port {port!r} of {_handler(job)} has no sink: add one to sinks"


def sinks_have_ports(job: "Job") -> Iterator[str]:
    ports = _ports(job)
    for name in {*job.sinks} - ports - {*job.own_ports}:
        if name in OWN_SINKS:
            yield f"the sink {name!r} receives no values: set {OWN_SINKS[name]} on the job"
        else:
            known = ", ".join(sorted(ports)) or "none"
            yield f"{_handler(job)} has no port for the sink {name!r}: name the sink after a port ({known})"


RULES: Final = (
    *(change_callback_has_references, needed_sources, sources_of_references, has_a_source, records_become_events),
    *(ports_have_sinks, sinks_have_ports),
)
"""The rules for a job whose handler and connectors have the right form."""


def _handler(job: "Job") -> str:
    return type(job.handler).__name__


def _ports(job: "Job") -> set[str]:
    specs = declared_specs(job.handler).values()
    return {spec._name for spec in specs if isinstance(spec, SinkSpec) and spec._name is not None}


def _name(kind: str, name: Any) -> Iterator[str]:
    if not isinstance(name, str) or not name:
        yield f"a name in {kind} must be a non-empty string, not {name!r}"


def _several(port: str, sinks: tuple[Any, ...]) -> Iterator[str]:
    if not sinks:
        yield f"sinks[{port!r}] is empty: add at least one sink"
    for number, sink in enumerate(sinks):
        if not isinstance(sink, Sink):
            yield f"sinks[{port!r}][{number}] must be an amadou.Sink, not {sink!r}"
        if sink in sinks[:number]:
            yield f"sinks[{port!r}] contains {sink!r} twice: remove one"
