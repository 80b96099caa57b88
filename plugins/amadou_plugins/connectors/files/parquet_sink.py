from collections.abc import Sequence
from typing import IO, Any

import attrs

from amadou import DeadLetter, Param
from amadou.errors import SinkError
from amadou.plugins import Codec, SinkBatch, SinkWriter
from amadou_plugins.connectors._arrow import ArrowCodec
from amadou_plugins.connectors._json import json_lines
from amadou_plugins.connectors._settings import check_count
from amadou_plugins.connectors.files.column_names import column_names
from amadou_plugins.connectors.files.file_sink import FileSink
from amadou_plugins.connectors.files.parquet_partitions import PartitionedCodec, PartitionedWriter, Partitions
from amadou_plugins.connectors.files.parquet_rows import ROW_GROUP, joined
from amadou_plugins.connectors.files.part_files import Content


def _fields(names: str | Sequence[str] | Param | None) -> Any:
    return column_names(names, "partition_by", SinkError)


@attrs.frozen
class ParquetSink(FileSink):
    """Writes Parquet files to a directory. Exactly-once, like `JsonLinesSink`.

    The fields of an attrs class, dataclass or named tuple become columns. Values of any other type, and values of a
    port with a custom codec, are written to a single `value` column. All columns are nullable.

    `int` becomes a 64-bit ``long``, and `datetime` becomes a timestamp in UTC with microsecond precision. `timedelta`
    becomes a duration (readers without Arrow see a ``long``, in microseconds). `Decimal` and `UUID` become strings.
    Enums become their values, or their names if the values have different types. Sets become sorted lists. Nested
    classes become structs. Tuples of fixed size become structs with the fields ``_1``, ``_2`` and so on. `Any`,
    containers without element types such as a bare `dict`, and unions of multiple types become JSON strings.

    :param path: path of the directory, or a URI, such as ``s3a://bucket/sums``; a relative path starts at the program's
        working directory. amadou creates the directory if it is missing. On a cluster, all machines must share a local
        directory
    :param partition_by: fields to partition by, as a list or a comma-separated string. The values of these fields
        determine a file's subdirectory, such as ``day=2025-01-01/channel=a/``, in the layout that Hive and Spark use.
        The files themselves do not contain these fields. A field can be a string, an integer, a date or a boolean, or
        have a type that becomes a string. Collecting a value with an empty string in one of these fields is an error in
        the callback, because readers would see null instead
    :param rows_per_file: number of rows per file; in each directory, the last file of a batch can have fewer rows. With
        this setting, the commit merges the parts of a batch on the driver. By default, each part of a batch is written
        to separate files
    :raises SinkError: a setting is invalid
    """

    suffix = ".parquet"

    partition_by: str | Sequence[str] | Param | None = attrs.field(default=None, kw_only=True, converter=_fields)
    rows_per_file: int | Param | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_count(SinkError, "rows_per_file", self.rows_per_file, optional=True)

    def codec(self, type_: Any) -> Codec[Any]:
        return ArrowCodec(type_) if type_ is DeadLetter else PartitionedCodec(type_, self._names)

    def check(self, port: str, type_: Any) -> None:
        try:
            schema = ArrowCodec(type_).schema
            Partitions(self._names, schema)
        except ImportError as error:
            raise SinkError("ParquetSink needs pyarrow: run pip install 'amadou[spark]'") from error
        except SinkError as error:
            raise SinkError(f"ParquetSink cannot write the values of port {port!r}: {error}") from error
        super().check(port, type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _RowGroups(batch, file, self._names)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        if not self._names:
            return super().open(batch, part)
        if not isinstance(batch.codec, ArrowCodec):
            raise SinkError(
                f"ParquetSink: partition_by needs the fields of port {batch.port!r}, but the port has codec=, "
                "so its values have no fields: remove it"
            )

        def open_file(below: str, name: str) -> Any:
            return self._files.open(batch, name, self.suffix, lambda file: self.content(batch, file), below)

        return PartitionedWriter(Partitions(self._names, batch.codec.schema), part, open_file)

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        depth = len(self._names)
        files = [file for part in parts for file in part] if depth else parts
        if self.rows_per_file is not None:
            if self._files.is_committed(batch, files, self.suffix, depth):
                return
            files = joined(self._files, batch, files, self.suffix, int(self.rows_per_file))  # type: ignore[arg-type]
        self._files.commit(batch, files, self.suffix, depth)

    @property
    def _names(self) -> tuple[str, ...]:
        return self.partition_by or ()  # type: ignore[return-value]


class _RowGroups:
    """Writes rows to a Parquet file in row groups.

    :param partition_columns: columns to leave out of the file
    """

    def __init__(self, batch: SinkBatch, file: IO[bytes], partition_columns: Sequence[str]) -> None:
        from pyarrow.parquet import ParquetWriter

        self._batch = batch
        self._own = isinstance(batch.codec, ArrowCodec)
        self._codec = batch.codec if isinstance(batch.codec, ArrowCodec) else ArrowCodec(str)
        self._partition_columns = [*partition_columns]
        self._writer = ParquetWriter(file, self._codec.table([]).drop_columns(self._partition_columns).schema)
        self._rows: list[Any] = []

    def write(self, encoded_values: Sequence[Any]) -> None:
        self._rows += (
            encoded_values if self._own else [[text.decode()] for text in json_lines(self._batch, encoded_values)]
        )
        if len(self._rows) >= ROW_GROUP:
            self._write()

    def end(self) -> None:
        try:
            self._write()
        finally:
            self._writer.close()

    def _write(self) -> None:
        if self._rows:
            self._writer.write_table(self._codec.table(self._rows).drop_columns(self._partition_columns))
            self._rows = []
