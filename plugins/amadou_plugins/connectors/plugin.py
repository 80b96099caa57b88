"""Registers the connectors and codecs of this package by name."""

from collections.abc import Callable, Mapping
from typing import Any

from amadou import Sink, Source, hookimpl
from amadou_plugins.connectors._console_sink import ConsoleSink
from amadou_plugins.connectors._function_sink import FunctionSink
from amadou_plugins.connectors._generator_source import GeneratorSource
from amadou_plugins.connectors._http_sink import HttpSink
from amadou_plugins.connectors._json import JsonCodec
from amadou_plugins.connectors._spark_source import SparkSink, SparkSource
from amadou_plugins.connectors.files.csv_sink import CsvSink
from amadou_plugins.connectors.files.csv_source import CsvSource
from amadou_plugins.connectors.files.json_lines_sink import JsonLinesSink
from amadou_plugins.connectors.files.json_lines_source import JsonLinesSource
from amadou_plugins.connectors.files.lines_sink import LinesSink
from amadou_plugins.connectors.files.lines_source import LinesSource
from amadou_plugins.connectors.files.parquet_sink import ParquetSink
from amadou_plugins.connectors.files.parquet_source import ParquetSource
from amadou_plugins.connectors.kafka.kafka_sink import KafkaSink
from amadou_plugins.connectors.kafka.kafka_source import KafkaSource
from amadou_plugins.connectors.postgres.postgres_sink import PostgresSink


@hookimpl
def amadou_register_sources() -> Mapping[str, type[Source]]:
    return {
        "csv": CsvSource,
        "generator": GeneratorSource,
        "json-lines": JsonLinesSource,
        "kafka": KafkaSource,
        "lines": LinesSource,
        "parquet": ParquetSource,
        "spark": SparkSource,
    }


@hookimpl
def amadou_register_sinks() -> Mapping[str, type[Sink]]:
    return {
        "console": ConsoleSink,
        "csv": CsvSink,
        "function": FunctionSink,
        "http": HttpSink,
        "json-lines": JsonLinesSink,
        "kafka": KafkaSink,
        "lines": LinesSink,
        "parquet": ParquetSink,
        "postgres": PostgresSink,
        "spark": SparkSink,
    }


@hookimpl
def amadou_register_codecs() -> Mapping[str, Callable[[Any], Any]]:
    return {"json": JsonCodec}
