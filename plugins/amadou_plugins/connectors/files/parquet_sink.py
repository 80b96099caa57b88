from collections.abc import Sequence
from typing import IO, Any

import attrs

from amadou import Codec, DeadLetter, Param, SinkBatch, SinkWriter
from amadou.errors import SinkError
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
    """Writes a directory of Parquet files. Exactly-once, as `JsonLinesSink` is.

    An attrs class, dataclass or named tuple has a column for each field; any other type, and a port with a codec of its
    own, has one column `value`. `int` is a ``long`` of 64 bits, `datetime` a timestamp in UTC with microseconds,
    `timedelta` a duration (a ``long`` of microseconds to readers without Arrow). `Decimal` and `UUID` are texts, enums
    their values, sets sorted lists. Nested classes are structs, and so are tuples of fixed size, with the fields
    ``_1``, ``_2`` and so on. Types without a known content, such as `Any` and bare `dict`, and unions of several types
    become JSON texts. All columns take nulls.

    :param path: the directory, relative to the program's working directory; created if missing. On a cluster all
        machines must share it
    :param partition_by: fields whose values name the files' subdirectories, such as ``day=2025-01-01/channel=a/``, as
        Hive and Spark read them; a list, or a text with commas. Only the directories' names have these fields. They may
        be texts, whole numbers, dates, booleans, and types that become texts. An empty text, which such a directory
        cannot distinguish from null, is an error of the callback that collects it
    :param rows_per_file: number of rows of a file: the commit joins the parts of a batch, in the driver. Without it
        each part of a batch is a file
    :raises SinkError: there is no path, or another setting is invalid
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
            raise SinkError("ParquetSink needs pyarrow: pip install 'amadou[spark]'") from error
        except SinkError as error:
            raise SinkError(f"ParquetSink cannot write the port {port!r}: {error}") from error
        super().check(port, type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _RowGroups(batch, file, self._names)

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        if not self._names:
            return super().open(batch, part)
        if not isinstance(batch.codec, ArrowCodec):
            raise SinkError(
                f"ParquetSink: partition_by needs the fields of the port {batch.port!r}, and the port's own codec "
                "hides them: leave the codec out"
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
    """:param apart: columns that the file does not have"""

    def __init__(self, batch: SinkBatch, file: IO[bytes], apart: Sequence[str]) -> None:
        from pyarrow.parquet import ParquetWriter

        self._batch = batch
        self._own = isinstance(batch.codec, ArrowCodec)
        self._codec = batch.codec if isinstance(batch.codec, ArrowCodec) else ArrowCodec(str)
        self._apart = [*apart]
        self._writer = ParquetWriter(file, self._codec.table([]).drop_columns(self._apart).schema)
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
            self._writer.write_table(self._codec.table(self._rows).drop_columns(self._apart))
            self._rows = []
