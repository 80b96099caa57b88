import math
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import IO, Any

import attrs
import orjson

from amadou.errors import EncodeError, SinkError
from amadou.fields import field_types
from amadou.plugins import Codec, SinkBatch
from amadou_plugins.connectors._arrow import VALUE
from amadou_plugins.connectors._json import JsonCodec, class_of, json_lines
from amadou_plugins.connectors.files.file_sink import FileSink
from amadou_plugins.connectors.files.part_files import Content, LinesContent

_QUOTED = re.compile(r'[",\r\n]')


@attrs.frozen
class CsvSink(FileSink):
    """Writes CSV files to a directory. The files are in UTF-8 and begin with a header line. The format follows RFC
    4180, except that lines end with ``\\n``. Exactly-once, like `JsonLinesSink`.

    The fields of an attrs class, dataclass or named tuple become columns. Values of any other type, and values of a
    port with a custom codec, are written to a single column named `value`. Strings are written as is, and quoted only
    if CSV requires it. `None` becomes an empty cell, and an empty string becomes ``""``. Other values, including nested
    values, are written as JSON, as in `JsonLinesSink`, with two exceptions. A value that JSON represents as a string,
    such as a timestamp, is written like a string. A non-finite float in a cell becomes ``nan``, ``inf`` or ``-inf``.

    :param path: path of the directory, or a URI, such as ``s3a://bucket/sums``; a relative path starts at the program's
        working directory. amadou creates the directory if it is missing. On a cluster, all machines must share a local
        directory
    :raises SinkError: the path is empty or invalid
    """

    suffix = ".csv"

    def codec(self, type_: Any) -> Codec[Any]:
        return _CsvCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        if field_types(type_) == {}:
            raise SinkError(
                f"CsvSink: the type of port {port!r} has no fields, so there is nothing to write: add a field"
            )
        super().check(port, type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _CsvLines(batch, file)


class _CsvLines(LinesContent):
    def __init__(self, batch: SinkBatch, file: IO[bytes]) -> None:
        super().__init__(batch, file)
        file.write((batch.codec if isinstance(batch.codec, _CsvCodec) else _JSON_TEXTS).header)

    def write(self, encoded_values: Sequence[Any]) -> None:
        if not isinstance(self._batch.codec, _CsvCodec):
            encoded_values = [_JSON_TEXTS.encode(text.decode()) for text in json_lines(self._batch, encoded_values)]
        self._file.writelines(encoded_values)


class _CsvCodec:
    """Encodes each value as a CSV line."""

    def __init__(self, type_: Any) -> None:
        self.type = type_
        names = list(field_types(type_) or ())
        self._class = class_of(type_)
        self._cells = _cells_getter(names)
        self.header = _line(names or [VALUE])

    def encode(self, value: Any) -> bytes:
        """Encode a value as a CSV line.

        :raises EncodeError: the value is not of the port's type, or cannot be written
        """
        if not isinstance(value, self._class):
            raise EncodeError(value, self.type)
        try:
            return _line([_cell(part) for part in self._cells(value)])
        except EncodeError as error:
            raise EncodeError(value, self.type, error.why) from error
        except UnicodeEncodeError as error:
            raise EncodeError(value, self.type, str(error)) from error

    def decode(self, encoded: Any) -> Any:
        """Return the line as a string."""
        return encoded.decode()


def _cells_getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda value: (getattr(value, names[0]),)) if names else (lambda value: (value,))


def _cell(value: Any) -> str:
    if type(value) is str:
        return _quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(float(value))
    text = _JSON.encode(value)
    if text == b"null":
        return ""
    return _quoted(orjson.loads(text)) if text.startswith(b'"') else _quoted(text.decode())


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if not text or _QUOTED.search(text) else text


def _line(cells: list[str]) -> bytes:
    # Most CSV readers skip empty lines, so a line with only an empty cell is written as two quotes.
    return (",".join(cells) or '""').encode() + b"\n"


_JSON = JsonCodec(object)
_JSON_TEXTS = _CsvCodec(str)
