from collections.abc import Sequence
from typing import IO, Any

import attrs

from amadou import Codec, SinkBatch
from amadou.errors import EncodeError, SinkError
from amadou_plugins.connectors._json import JsonCodec
from amadou_plugins.connectors.files.file_sink import FileSink
from amadou_plugins.connectors.files.lines_source import BYTE_ORDER_MARK, LINE_END
from amadou_plugins.connectors.files.part_files import Content


@attrs.frozen
class LinesSink(FileSink):
    """Writes a directory of text files with a value on each line, which `LinesSource` reads. Exactly-once, as
    `JsonLinesSink` is.

    A text is written as it is, in UTF-8, and so are `bytes`; a text or `bytes` with a line end inside is refused. Any
    other value is written as by `JsonLinesSink`.

    :param path: the directory, relative to the program's working directory; created if missing. On a cluster all
        machines must share it
    :raises SinkError: there is no path
    """

    suffix = ".txt"

    def codec(self, type_: Any) -> Codec[Any]:
        return _LineCodec(type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _Lines(batch, file)


class _LineCodec(JsonCodec):
    def encode(self, value: Any) -> bytes:
        """Return a value as a line.

        :raises EncodeError: the value is not of the port's type, or not a single line
        """
        if not isinstance(value, str | bytes):
            return super().encode(value)
        if not isinstance(value, self._class):
            raise EncodeError(value, self.type)
        try:
            line = value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError as error:
            raise EncodeError(value, self.type, str(error)) from error
        if LINE_END.search(line):
            raise EncodeError(value, self.type, "it is more than one line: JsonLinesSink takes texts with line ends")
        return line

    def decode(self, encoded: Any) -> bytes:
        """Return the line."""
        return bytes(encoded)


class _Lines:
    def __init__(self, batch: SinkBatch, file: IO[bytes]) -> None:
        self._batch = batch
        self._file = file

    def write(self, encoded_values: Sequence[Any]) -> None:
        lines = encoded_values if isinstance(self._batch.codec, _LineCodec) else self._encoded(encoded_values)
        if self._file.tell() == 0 and lines[0].startswith(BYTE_ORDER_MARK):
            self._file.write(BYTE_ORDER_MARK)  # readers drop a byte order mark at a file's beginning
        self._file.write(b"\n".join([*lines, b""]))

    def end(self) -> None:
        pass

    def _encoded(self, encoded_values: Sequence[Any]) -> list[bytes]:
        try:
            return [_ANY.encode(encoded) for encoded in encoded_values]
        except EncodeError as error:
            told = f"LinesSink cannot write what the codec of the port {self._batch.port!r} gives"
            raise SinkError(f"{told}: {error}") from error


_ANY = _LineCodec(object)
