"""Describes a job as text, and as a document that can be written as JSON."""

import inspect
from collections.abc import Mapping
from datetime import timedelta
from operator import attrgetter
from typing import Any

import attrs

from amadou import Component, Job, Lookup, Param
from amadou.engine import HIDDEN, FedSource, names_secret, params_of
from amadou.text import shortened

_TEXT = 500


def job_document(job: Job) -> dict[str, Any]:
    """Return a job's handler, state, ports, sources and settings, or those of its stages; see `Run.description`."""
    if job.stages:
        return {"job": job.name, "stages": {name: job_document(stage) for name, stage in job.by_stage.items()}}
    return {
        "job": job.name,
        "handler": handler_name(job),
        "summary": shortened(handler_summary(job), _TEXT),
        "specs": [
            {"name": name, "kind": spec_kind(spec), "type": spec.shown_type(), "ttl": _ttl(spec)}
            for name, spec in job.specs.items()
        ],
        "lookups": [
            {"name": name, "fetch": shortened(fetch_text(lookup), _TEXT), "type": lookup.shown_type()}
            for name, lookup in job.lookups.items()
        ],
        "sources": [
            {
                "name": name,
                "connector": _shown(source),
                "bounded": None if isinstance(source, FedSource) or params_of([source]) else source.bounded,
                **({"stage": source.stage, "port": source.port} if isinstance(source, FedSource) else {}),
            }
            for name, source in job.sources.items()
        ],
        "dependencies": [
            {"source": each.dependent, "needs": each.on, "threshold": setting_text(each.threshold)}
            for each in job.dependencies
        ],
        "ports": [
            {
                "name": name,
                "type": spec.shown_type(),
                "sinks": [
                    {"connector": _shown(sink), "guarantee": sink.guarantee}
                    for port, sink in job.all_sinks
                    if port == name
                ],
            }
            for name, spec in job.ports.items()
        ],
        "settings": {name: shortened(text, _TEXT) for name, text in job_settings(job).items()},
    }


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


def _shown(connector: Any) -> str:
    return shortened(connector_text(connector), _TEXT)


def _ttl(spec: Any) -> str | None:
    return None if spec.ttl is None else setting_text(spec.ttl)


def _default(field: Any) -> Any:
    return field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
