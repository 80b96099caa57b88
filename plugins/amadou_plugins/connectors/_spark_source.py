from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from amadou import BufferingWriter, Codec, Param, Sink, SinkBatch, SinkWriter, Source
from amadou.errors import SinkError, SourceError
from amadou_plugins.connectors._arrow import ArrowCodec
from amadou_plugins.connectors._json import json_lines
from amadou_plugins.connectors._settings import check_options, revealed


def _expressions(select: str | Sequence[str] | Param) -> Any:
    if isinstance(select, Param):
        raise SourceError("select takes no Param: a Param may stand in options and schema")
    return (select,) if isinstance(select, str) else tuple(select)


@attrs.frozen
class SparkSource(Source):
    """Reads the rows of any streaming source of Spark, as dicts by column; nested structs and maps are dicts, too. The
    embedded engine does not support it.

    Rows come in the order of Spark's tasks by number, and within a task in the task's order.

    :param format: Spark's name for the source, such as ``rate``, ``parquet``, ``delta``
    :param options: the source's options; their values may be `Secret`, and must be if they contain a password
    :param schema: the columns, such as ``"channel STRING, at TIMESTAMP"``: file sources need it
    :param select: columns of each record instead of the source's, in SQL, such as
        ``["CAST(value AS STRING) AS text"]``
    :param bounded: true if the source ends: the run reads the records that exist when it begins, and ends
    :param key_event: function that turns records into events, instead of the handler's own
    :raises SourceError: a setting is invalid, or would show a password
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
            f"SparkSource({self.format!r}): the embedded engine has no Spark: run the job with engine='spark', or try "
            "it with records of your own (TestRun, MemorySource)"
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
        except Exception as error:  # pyspark and py4j raise all kinds here; chained errors may show options
            told = f"SparkSource({self.format!r}) cannot be read: {_reason(error)}"
            raise SourceError(f"{told}. Correct its options, schema or select") from None

    @staticmethod
    def to_records(cells: Any) -> Iterable[dict[str, Any]]:
        """Return rows as dicts."""
        return cells.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]


@attrs.frozen
class SparkSink(Sink):
    """Appends each batch that has values to any output format of Spark. At-least-once: a replayed batch is appended
    again.

    Values have the same columns as in `ParquetSink`. They pass through the process that started the run, so a batch
    must fit its memory. The sink needs a Spark session: the embedded engine has none of its own, and without one the
    run ends with an error at the first value.

    :param format: Spark's name for the format, such as ``jdbc``, ``orc``, ``delta``
    :param options: the format's options; their values may be `Secret`, and must be if they contain a password
    :raises SinkError: an option would show a password
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
            raise SinkError(f"SparkSink({self.format!r}) cannot write the port {port!r}: {error}") from error

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
                f"SparkSink({self.format!r}): the embedded engine has no Spark: run the job with engine='spark', or "
                "lead the port to another sink"
            )
        assert isinstance(self.format, str)
        try:
            writer = spark.createDataFrame(_table(batch, encoded_values)).write.format(self.format)
            writer.options(**{name: revealed(value) for name, value in self.options.items()}).mode("append").save()
        except Exception as error:  # pyspark and py4j raise all kinds here; chained errors may show options
            told = f"SparkSink({self.format!r}) cannot write batch {batch.number} of the port {batch.port!r}"
            raise SinkError(
                f"{told}: {_reason(error)}. Correct its options, or what is behind it, and start the run again: with "
                "its checkpoint it goes on with this batch"
            ) from None


def _table(batch: SinkBatch, encoded_values: Sequence[Any]) -> Any:
    if isinstance(batch.codec, ArrowCodec):
        return batch.codec.table(encoded_values)
    return ArrowCodec(str).table([[line.decode()] for line in json_lines(batch, encoded_values)])


def _reason(error: Exception) -> str:
    return f"{getattr(error, 'java_exception', error)}".strip().partition("\n")[0]
