from collections.abc import Sequence
from typing import IO, Any

import attrs

from amadou import Codec, SinkBatch
from amadou.errors import SinkError
from amadou_plugins.connectors._arrow import ArrowCodec
from amadou_plugins.connectors._file_sink import FileSink
from amadou_plugins.connectors._json import json_lines
from amadou_plugins.connectors._part_files import Content

_ROW_GROUP = 100_000


@attrs.frozen
class ParquetSink(FileSink):
    """A directory of Parquet files. Exactly-once, in the way of `JsonLinesSink`.

    An attrs class, dataclass or named tuple has a column for each field; any other type, and a port with a codec of its
    own, has one column `value`. `int` is a ``long`` of 64 bits, `datetime` a timestamp in UTC with microseconds,
    `timedelta` a duration (a ``long`` of microseconds to readers without Arrow), `Decimal` and `UUID` are texts, enums
    are their values, sets sorted lists, classes inside are structs, and so are tuples of one size, with the fields
    ``_1``, ``_2`` and so on. What says nothing of its inside, such as `Any` and bare `dict`, and unions of several
    types become JSON texts. All columns take nulls.

    :param path: the directory, relative to where the program was started; made where it is missing. On a cluster it
        must be one that all machines share
    :raises SinkError: there is no path
    """

    suffix = ".parquet"

    def codec(self, type_: Any) -> Codec[Any]:
        return ArrowCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        try:
            ArrowCodec(type_)
        except ImportError as error:
            raise SinkError("ParquetSink needs pyarrow: pip install 'amadou[spark]'") from error
        except SinkError as error:
            raise SinkError(f"ParquetSink cannot write the port {port!r}: {error}") from error
        super().check(port, type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _RowGroups(batch, file)


class _RowGroups:
    def __init__(self, batch: SinkBatch, file: IO[bytes]) -> None:
        from pyarrow.parquet import ParquetWriter

        self._batch = batch
        self._own = isinstance(batch.codec, ArrowCodec)
        self._codec = batch.codec if isinstance(batch.codec, ArrowCodec) else ArrowCodec(str)
        self._writer = ParquetWriter(file, self._codec.schema)
        self._rows: list[Any] = []

    def write(self, wires: Sequence[Any]) -> None:
        self._rows += wires if self._own else [[text.decode()] for text in json_lines(self._batch, wires)]
        if len(self._rows) >= _ROW_GROUP:
            self._write()

    def end(self) -> None:
        try:
            self._write()
        finally:
            self._writer.close()

    def _write(self) -> None:
        if self._rows:
            self._writer.write_table(self._codec.table(self._rows))
            self._rows = []
