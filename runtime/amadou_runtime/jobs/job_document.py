"""Describes a job as text, and as a document that can be written as JSON."""

import inspect
from collections.abc import Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Any

import attrs

from amadou import Job, Lookup, Param
from amadou.components import Component
from amadou.engine import HIDDEN, FedSource, names_secret, params_of
from amadou.text import shortened
from amadou_runtime.formats.documents import structured

_TEXT = 500


@attrs.frozen
class _Spec:
    name: str
    kind: str
    type: str
    ttl: str | None


@attrs.frozen
class _Lookup:
    name: str
    fetch: str
    type: str


@attrs.frozen
class _Source:
    """A source. If it is a port of another stage, the `stage` and the `port` are set."""

    name: str
    connector: str
    bounded: bool | None
    stage: str | None = None
    port: str | None = None


@attrs.frozen
class _Dependency:
    source: str
    needs: str
    threshold: str


@attrs.frozen
class _Sink:
    connector: str
    guarantee: str


@attrs.frozen
class _Port:
    name: str
    type: str
    sinks: list[_Sink]


@attrs.frozen(kw_only=True)
class _JobDocument:
    """The form of `Run.description`."""

    job: str
    handler: str
    summary: str
    specs: list[_Spec]
    lookups: list[_Lookup]
    sources: list[_Source]
    dependencies: list[_Dependency]
    ports: list[_Port]
    settings: Mapping[str, str]

    @classmethod
    def of(cls, job: Job) -> "_JobDocument":
        return cls(
            job=job.name,
            handler=handler_name(job),
            summary=shortened(handler_summary(job), _TEXT),
            specs=[
                _Spec(name, spec_kind(spec), spec.shown_type(), None if spec.ttl is None else setting_text(spec.ttl))
                for name, spec in job.specs.items()
            ],
            lookups=[
                _Lookup(name, shortened(fetch_text(lookup), _TEXT), lookup.shown_type())
                for name, lookup in job.lookups.items()
            ],
            sources=[_source(name, source) for name, source in job.sources.items()],
            dependencies=[
                _Dependency(each.dependent, each.on, setting_text(each.threshold)) for each in job.dependencies
            ],
            ports=[
                _Port(name, spec.shown_type(), [_sink(sink) for port, sink in job.all_sinks if port == name])
                for name, spec in job.ports.items()
            ],
            settings={name: shortened(text, _TEXT) for name, text in job_settings(job).items()},
        )


@attrs.frozen
class _StagesDocument:
    """The form of `Run.description` for a job with stages."""

    job: str
    stages: Mapping[str, _JobDocument]


def job_document(job: Job) -> dict[str, Any]:
    """Return a job's handler, state, ports, sources and settings, or those of its stages; see `Run.description`."""
    if not job.stages:
        return attrs.asdict(_JobDocument.of(job))
    stages = {name: _JobDocument.of(stage) for name, stage in job.by_stage.items()}
    return attrs.asdict(_StagesDocument(job.name, stages))


def read_job_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `job_document` has returned. Fields that an earlier release did not write have their defaults.

    :raises ValueError: the document has another form
    """
    found: _StagesDocument | _JobDocument
    found = structured(_StagesDocument, document) if "stages" in document else structured(_JobDocument, document)
    return attrs.asdict(found)


def handler_name(job: Job) -> str:
    """Return the name of a job's handler class, with its module."""
    handler = type(job.handler)
    return handler.__qualname__ if handler.__module__ == "__main__" else f"{handler.__module__}.{handler.__qualname__}"


def handler_summary(job: Job) -> str:
    """Return the first line of the docstring of a job's handler."""
    return (inspect.cleandoc(type(job.handler).__doc__ or "").splitlines() or [""])[0]


def spec_kind(spec: Any) -> str:
    """Return the class of a state spec, with a note on in-memory state."""
    return type(spec).__name__ + (" in memory" if isinstance(spec, Component) and spec.in_memory else "")


def job_settings(job: Job) -> dict[str, str]:
    """Return a job's settings as text, by name."""
    settings: dict[str, Any] = {
        "watermark delay": job.watermark_delay,
        "idle timeout": next(iter(job.idle_after.values()), None) if job.idle_timeout is None else job.idle_timeout,
        "max ahead": job.max_ahead,
        "late events": job.late_events,
        "on error": job.on_error,
    }
    if job.max_dead_letters is not None:
        settings["max dead letters"] = job.max_dead_letters
    if job.retired:
        settings["retired"] = job.retired
    settings["key groups"] = job.key_groups
    return {name: setting_text(value) for name, value in settings.items()}


def connector_text(connector: Any) -> str:
    """Return the code that creates a connector, without settings that have default values. Secrets are hidden."""
    if isinstance(connector, FedSource):
        return f"FromPort({connector.stage!r}, {connector.port!r})"
    kind = type(connector)
    if not attrs.has(kind):
        return repr(connector)
    settings = [
        setting_text(value) if field.default is attrs.NOTHING else f"{field.name}={setting_text(value)}"
        for field in sorted(attrs.fields(kind), key=attrgetter("kw_only"))  # in the order that a call requires
        if (value := getattr(connector, field.name)) != _default(field) and not callable(value)
    ]
    return f"{kind.__name__}({', '.join(settings)})"


def fetch_text(lookup: Lookup[Any, Any]) -> str:
    """Return the function of a lookup as text. Secrets are hidden."""
    return repr(lookup) if lookup.fetch is None or inspect.isfunction(lookup.fetch) else connector_text(lookup.fetch)


def setting_text(value: Any) -> str:
    """Return the value of a setting as text. Secrets are hidden."""
    if isinstance(value, Mapping):
        shown = {name: HIDDEN if names_secret(str(name)) else setting_text(each) for name, each in value.items()}
        return f"{{{', '.join(f'{name!r}: {each}' for name, each in shown.items())}}}"
    if isinstance(value, Param):
        return f"-p {value.name}"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.6f}".rstrip("0").rstrip(".") + " s" if value else "none"
    if value is None:
        return "none"
    return value if value in ("deliver", "drop", "divert", "fail", "dead_letter") else repr(value)


def _source(name: str, source: Any) -> _Source:
    if isinstance(source, FedSource):
        return _Source(name, _shown(source), None, source.stage, source.port)
    return _Source(name, _shown(source), None if params_of([source]) else source.bounded)


def _sink(sink: Any) -> _Sink:
    return _Sink(_shown(sink), sink.guarantee)


def _shown(connector: Any) -> str:
    return shortened(connector_text(connector), _TEXT)


def _default(field: Any) -> Any:
    return field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
