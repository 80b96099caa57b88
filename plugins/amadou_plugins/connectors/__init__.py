"""Sources, which read records, and sinks, which write the values of a port.

For example, `LinesSource` reads files, `JsonLinesSink` writes files, and `ConsoleSink` prints values. `MemorySource`
and `MemorySink` are for tests and notebooks.
"""

from amadou import MemorySink, MemorySource
from amadou_plugins.connectors._console_sink import ConsoleSink
from amadou_plugins.connectors._function_sink import FunctionSink
from amadou_plugins.connectors._generator_source import GeneratorSource
from amadou_plugins.connectors._http_sink import HttpSink
from amadou_plugins.connectors._json import JsonCodec
from amadou_plugins.connectors._spark_source import SparkSink, SparkSource
from amadou_plugins.connectors.files.csv_sink import CsvSink
from amadou_plugins.connectors.files.csv_source import CsvSource, MalformedRow
from amadou_plugins.connectors.files.json_lines_sink import JsonLinesSink
from amadou_plugins.connectors.files.json_lines_source import JsonLinesSource
from amadou_plugins.connectors.files.lines_sink import LinesSink
from amadou_plugins.connectors.files.lines_source import LinesSource
from amadou_plugins.connectors.files.parquet_sink import ParquetSink
from amadou_plugins.connectors.files.parquet_source import ParquetSource
from amadou_plugins.connectors.kafka.avro_format import AvroFormat
from amadou_plugins.connectors.kafka.kafka_sink import KafkaSink
from amadou_plugins.connectors.kafka.kafka_source import (
    KafkaHeadersError,
    KafkaRecord,
    KafkaSource,
    KafkaTimestampError,
)
from amadou_plugins.connectors.kafka.protobuf_format import ProtobufFormat
from amadou_plugins.connectors.postgres.postgres_sink import PostgresSink
from amadou_plugins.connectors.postgres.postgres_table import PostgresTable
from amadou_plugins.connectors.tables.delta_sink import DeltaSink
from amadou_plugins.connectors.tables.iceberg_sink import IcebergSink

__all__ = [
    "AvroFormat",
    "ConsoleSink",
    "CsvSink",
    "CsvSource",
    "DeltaSink",
    "FunctionSink",
    "GeneratorSource",
    "HttpSink",
    "IcebergSink",
    "JsonCodec",
    "JsonLinesSink",
    "JsonLinesSource",
    "KafkaHeadersError",
    "KafkaRecord",
    "KafkaSink",
    "KafkaSource",
    "KafkaTimestampError",
    "LinesSink",
    "LinesSource",
    "MalformedRow",
    "MemorySink",
    "MemorySource",
    "ParquetSink",
    "ParquetSource",
    "PostgresSink",
    "PostgresTable",
    "ProtobufFormat",
    "SparkSink",
    "SparkSource",
]
