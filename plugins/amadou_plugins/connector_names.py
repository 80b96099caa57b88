"""Registers the connectors and codecs of this package by name. They are imported when they are asked for, since most
commands need none of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from amadou.plugins import Sink, Source, hookimpl


@hookimpl
def amadou_register_sources() -> Mapping[str, type[Source]]:
    from amadou_plugins import connectors

    return {
        "csv": connectors.CsvSource,
        "generator": connectors.GeneratorSource,
        "json-lines": connectors.JsonLinesSource,
        "kafka": connectors.KafkaSource,
        "lines": connectors.LinesSource,
        "parquet": connectors.ParquetSource,
        "spark": connectors.SparkSource,
    }


@hookimpl
def amadou_register_sinks() -> Mapping[str, type[Sink]]:
    from amadou_plugins import connectors

    return {
        "console": connectors.ConsoleSink,
        "csv": connectors.CsvSink,
        "delta": connectors.DeltaSink,
        "function": connectors.FunctionSink,
        "http": connectors.HttpSink,
        "iceberg": connectors.IcebergSink,
        "json-lines": connectors.JsonLinesSink,
        "kafka": connectors.KafkaSink,
        "lines": connectors.LinesSink,
        "parquet": connectors.ParquetSink,
        "postgres": connectors.PostgresSink,
        "spark": connectors.SparkSink,
    }


@hookimpl
def amadou_register_codecs() -> Mapping[str, Callable[[Any], Any]]:
    from amadou_plugins import connectors

    return {"json": connectors.JsonCodec}
