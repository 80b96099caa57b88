"""Brings the connectors and codecs of this package in by name."""

from collections.abc import Callable, Mapping
from typing import Any

from amadou import Sink, Source, hookimpl
from amadou_plugins.connectors._console import ConsoleSink
from amadou_plugins.connectors._json import JsonCodec
from amadou_plugins.connectors._json_lines import JsonLinesSink
from amadou_plugins.connectors._lines import LinesSource


@hookimpl
def amadou_register_sources() -> Mapping[str, type[Source]]:
    return {"lines": LinesSource}


@hookimpl
def amadou_register_sinks() -> Mapping[str, type[Sink]]:
    return {"console": ConsoleSink, "json-lines": JsonLinesSink}


@hookimpl
def amadou_register_codecs() -> Mapping[str, Callable[[Any], Any]]:
    return {"json": JsonCodec}
