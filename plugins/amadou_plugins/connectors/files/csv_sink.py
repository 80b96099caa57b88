import math
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import IO, Any

import attrs
import orjson

from amadou import Codec, SinkBatch
from amadou.errors import EncodeError, SinkError
from amadou.fields import field_types
from amadou_plugins.connectors._arrow import VALUE
from amadou_plugins.connectors._json import JsonCodec, class_of, json_lines
from amadou_plugins.connectors.files.file_sink import FileSink
from amadou_plugins.connectors.files.part_files import Content

_QUOTED = re.compile(r'[",\r\n]')


@attrs.frozen
class CsvSink(FileSink):
    """Writes a directory of CSV files with a header line each, in UTF-8 by RFC 4180, with ``\\n`` at line ends.
    Exactly-once, as `JsonLinesSink` is.

    An attrs class, dataclass or named tuple has a column for each field; any other type, and a port with a codec of its
    own, has one column `value`. A text is a cell as it is; `None` is an empty cell, and an empty text is ``""``. Other
    values are written as by `JsonLinesSink`, without the quotes around timestamps and the like; nested values are JSON.
    Non-finite floats are ``nan``, ``inf`` and ``-inf``.

    :param path: the directory, relative to the program's working directory; created if missing. On a cluster all
        machines must share it
    :raises SinkError: there is no path
    """

    suffix = ".csv"

    def codec(self, type_: Any) -> Codec[Any]:
        return _CsvCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        if field_types(type_) == {}:
            raise SinkError(
                f"CsvSink: the type of port {port!r} has no fields, so there is nothing to write: give it one"
            )
        super().check(port, type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _CsvLines(batch, file)


class _CsvLines:
    def __init__(self, batch: SinkBatch, file: IO[bytes]) -> None:
        self._batch = batch
        self._file = file
        file.write((batch.codec if isinstance(batch.codec, _CsvCodec) else _JSON_TEXTS).header)

    def write(self, encoded_values: Sequence[Any]) -> None:
        if not isinstance(self._batch.codec, _CsvCodec):
            encoded_values = [_JSON_TEXTS.encode(text.decode()) for text in json_lines(self._batch, encoded_values)]
        self._file.writelines(encoded_values)

    def end(self) -> None:
        pass


class _CsvCodec:
    """Encodes values to lines at once."""

    def __init__(self, type_: Any) -> None:
        self.type = type_
        names = list(field_types(type_) or ())
        self._class = class_of(type_)
        self._cells = _cells_getter(names)
        self.header = _line(names or [VALUE])

    def encode(self, value: Any) -> bytes:
        """Return a value as a line.

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
        """Return the line."""
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
    # Most readers skip an empty line.
    return (",".join(cells) or '""').encode() + b"\n"


_JSON = JsonCodec(object)
_JSON_TEXTS = _CsvCodec(str)
