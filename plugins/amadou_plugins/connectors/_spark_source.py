from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from amadou import Param
from amadou.errors import SinkError, SourceError
from amadou.plugins import BufferingWriter, Codec, Sink, SinkBatch, SinkWriter, Source
from amadou.remote_files import java_message
from amadou.spark_versions import frame_of_arrow
from amadou_plugins.connectors._arrow import ArrowCodec
from amadou_plugins.connectors._arrow_values import python_values
from amadou_plugins.connectors._json import json_lines
from amadou_plugins.connectors._settings import check_options, revealed


def _expressions(select: str | Sequence[str] | Param) -> Any:
    if isinstance(select, Param):
        raise SourceError("select cannot be a Param: pass SQL expressions (format, schema and options accept Params)")
    return (select,) if isinstance(select, str) else tuple(select)


@attrs.frozen
class SparkSource(Source):
    """Reads rows from any Spark streaming source. Each record is a `dict` of a row's values, keyed by column name.
    Nested structs and maps are also dicts. The embedded engine does not support this source.

    Rows are ordered by the number of the Spark task that reads them. Within a task, rows stay in the order in which the
    task reads them.

    :param format: Spark's name for the source, such as ``rate``, ``parquet`` or ``delta``
    :param options: the source's options; a value that contains a password must be a `Secret`, or a `Param` with
        `secret=True`
    :param schema: the columns and their types, such as ``"channel STRING, at TIMESTAMP"``; required for file sources
    :param select: SQL expressions for the columns of each record, such as ``["CAST(value AS STRING) AS text"]``; by
        default, a record has all columns that the source provides
    :param bounded: `True` if a run ends after reading the records that exist when the run starts
    :param key_event: function that converts records into events; by default, the handler's `key_event`
    :raises SourceError: a setting is invalid, or contains a password that would appear in logs
    """

    format: str | Param
    options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)
    schema: str | Param | None = attrs.field(default=None, kw_only=True)
    select: str | Sequence[str] = attrs.field(default=(), converter=_expressions, kw_only=True)
    bounded: bool = attrs.field(default=False, kw_only=True)
    key_event: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_options(SourceError, "SparkSource", self.options)

    def records(self) -> Iterable[Any]:
        raise SourceError(
            f"the embedded engine does not support SparkSource({self.format!r}): run the job with engine='spark', or "
            "test the job with your own records (TestRun, MemorySource)"
        )

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        try:
            reader = reader.format(self.format).options(
                **{name: revealed(value) for name, value in self.options.items()}
            )
            if self.schema is not None:
                reader = reader.schema(self.schema)
            frame = reader.load()
            if self.select:
                frame = frame.selectExpr(*self.select)
            return frame.selectExpr("struct(*) AS record", "CAST(NULL AS STRING) AS partition", "0L AS position")
        except Exception as error:  # pyspark and py4j raise many types; chained errors may show options
            problem = f"SparkSource({self.format!r}) cannot be read: {java_message(error)}"
            raise SourceError(f"{problem}. Correct the source's format, options, schema or select") from None

    @staticmethod
    def to_records(cells: Any) -> Iterable[dict[str, Any]]:
        """Return rows as dicts, keyed by column name."""
        return python_values(cells)


@attrs.frozen
class SparkSink(Sink):
    """Appends the values of each batch to a target, such as a table, in any output format that Spark supports. The sink
    skips batches without values. At-least-once: a reprocessed batch is appended again.

    Values become rows with the same columns as in `ParquetSink`. All values of a batch pass through the process that
    started the run, and must fit into its memory. The sink needs a Spark session; the embedded engine does not start
    one. Without a session, the run fails at the first batch with values.

    :param format: Spark's name for the format, such as ``jdbc``, ``orc`` or ``delta``
    :param options: the format's options; a value that contains a password must be a `Secret`, or a `Param` with
        `secret=True`
    :raises SinkError: an option contains a password that would appear in logs
    """

    guarantee = "at-least-once"

    format: str | Param
    options: Mapping[str, Any] = attrs.field(factory=dict, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        check_options(SinkError, "SparkSink", self.options)

    def codec(self, type_: Any) -> Codec[Any]:
        return ArrowCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        try:
            ArrowCodec(type_)
        except ImportError as error:
            raise SinkError("SparkSink needs pyspark and pyarrow: run pip install 'amadou[spark]'") from error
        except SinkError as error:
            raise SinkError(f"SparkSink({self.format!r}) cannot write the values of port {port!r}: {error}") from error

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return BufferingWriter()

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        encoded_values = [encoded for part in parts for encoded in part]
        if not encoded_values:
            return
        from pyspark.sql import SparkSession

        spark = SparkSession.getActiveSession()
        if spark is None:
            raise SinkError(
                f"SparkSink({self.format!r}) needs a Spark session: run the job with engine='spark', or give the port "
                "a different sink"
            )
        assert isinstance(self.format, str)
        try:
            writer = frame_of_arrow(spark, _table(batch, encoded_values)).write.format(self.format)
            writer.options(**{name: revealed(value) for name, value in self.options.items()}).mode("append").save()
        except Exception as error:  # pyspark and py4j raise many types; chained errors may show options
            problem = f"SparkSink({self.format!r}) cannot write batch {batch.number} of port {batch.port!r}"
            raise SinkError(
                f"{problem}: {java_message(error)}. Correct the sink's options or target, and restart the job from its "
                "checkpoint. The job resumes with this batch"
            ) from None


def _table(batch: SinkBatch, encoded_values: Sequence[Any]) -> Any:
    if isinstance(batch.codec, ArrowCodec):
        return batch.codec.table(encoded_values)
    return ArrowCodec(str).table([[line.decode()] for line in json_lines(batch, encoded_values)])
