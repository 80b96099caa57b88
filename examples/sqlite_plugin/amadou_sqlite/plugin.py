"""The module that amadou loads, as declared by the entry point in `pyproject.toml`."""

from collections.abc import Iterable, Mapping

from amadou.plugins import Metric, Sink, hookimpl
from amadou_sqlite.metric import VALUES_PER_EVENT
from amadou_sqlite.sink import SqliteSink


@hookimpl
def amadou_register_sinks() -> Mapping[str, type[Sink]]:
    return {"sqlite": SqliteSink}


@hookimpl
def amadou_register_metrics() -> Iterable[Metric]:
    return [VALUES_PER_EVENT]
