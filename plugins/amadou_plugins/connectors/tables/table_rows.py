"""Rows of a batch on their way from the workers to a table."""

import io
from collections.abc import Sequence
from typing import Any, Final

from amadou.plugins import SinkWriter
from amadou.spark_versions import frame_of_arrow
from amadou_plugins.connectors._arrow import ArrowCodec

_ROWS: Final = 100_000
"""Number of rows that a writer converts to Arrow at a time."""
_BYTES_PER_FILE: Final = 128 << 20


class TableCodec(ArrowCodec):
    """Encodes values as rows of a table format; see `ArrowCodec`. A `timedelta` becomes a number of microseconds,
    because table formats have no type for durations.

    :param type_: the port's type
    :raises SinkError: the type cannot be encoded as rows
    """

    def __init__(self, type_: Any) -> None:
        import pyarrow as pa

        super().__init__(type_)
        self.table_schema = pa.schema([field.with_type(_storable(field.type)) for field in self.schema])
        """The `pyarrow.Schema` of the table."""

    def table(self, encoded_values: Sequence[Any]) -> Any:
        return super().table(encoded_values).cast(self.table_schema)


class TableRowsWriter(SinkWriter):
    """Writes a part of a batch as a stream in Arrow's IPC format, which `finish` returns."""

    def __init__(self, codec: TableCodec) -> None:
        self._codec = codec
        self._rows: list[Any] = []
        self._file = io.BytesIO()
        self._stream: Any = None

    def write(self, encoded_values: Sequence[Any]) -> None:
        self._rows += encoded_values
        if len(self._rows) >= _ROWS:
            self._convert()

    def finish(self) -> bytes | None:
        if self._rows:
            self._convert()
        if self._stream is None:
            return None
        self._stream.close()
        return self._file.getvalue()

    def abort(self) -> None:
        self._rows = []

    def _convert(self) -> None:
        import pyarrow as pa

        if self._stream is None:
            self._stream = pa.ipc.new_stream(self._file, self._codec.table_schema)
        self._stream.write_table(self._codec.table(self._rows))
        self._rows = []


def joined_rows(parts: Sequence[bytes]) -> Any:
    """Return the rows of all parts as a `pyarrow.Table`. There must be at least one part."""
    import pyarrow as pa

    return pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in parts])


def frame_of(spark: Any, rows: Any) -> Any:
    """Return rows as a DataFrame with one partition per file: a small batch becomes a single file."""
    return frame_of_arrow(spark, rows).coalesce(1 + rows.nbytes // _BYTES_PER_FILE)


def _storable(type_: Any) -> Any:
    """Return the Arrow type in which a table can store the values of another Arrow type."""
    import pyarrow as pa
    import pyarrow.types as types

    if types.is_duration(type_):
        return pa.int64()
    if types.is_list(type_):
        return pa.list_(_storable(type_.value_type))
    if types.is_map(type_):
        return pa.map_(_storable(type_.key_type), _storable(type_.item_type))
    if types.is_struct(type_):
        return pa.struct([field.with_type(_storable(field.type)) for field in type_])
    return type_
