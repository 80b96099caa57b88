from collections.abc import Sequence
from typing import IO, Any

import attrs

from amadou.errors import EncodeError, SinkError
from amadou.plugins import Codec, SinkBatch
from amadou_plugins.connectors._json import JsonCodec
from amadou_plugins.connectors.files.file_sink import FileSink
from amadou_plugins.connectors.files.lines_source import BYTE_ORDER_MARK, LINE_END
from amadou_plugins.connectors.files.part_files import Content, LinesContent


@attrs.frozen
class LinesSink(FileSink):
    """Writes text files with one value per line to a directory. `LinesSource` can read these files. `LinesSink` is
    exactly-once, like `JsonLinesSink`.

    The sink writes strings in UTF-8 and `bytes` unchanged, and rejects a string or `bytes` value that contains a line
    ending. The sink writes any other value as JSON, like `JsonLinesSink`.

    :param path: directory, relative to the program's working directory, or a URI, such as ``s3a://bucket/lines``;
        created if missing. On a cluster, all machines must share a local directory
    :raises SinkError: the path is empty, or is not a string or a `Path`
    """

    suffix = ".txt"

    def codec(self, type_: Any) -> Codec[Any]:
        return _LineCodec(type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _Lines(batch, file)


class _LineCodec(JsonCodec):
    def encode(self, value: Any) -> bytes:
        """Encode a value as a line.

        :raises EncodeError: the value is not of the port's type, or cannot be written as a single line
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
            raise EncodeError(value, self.type, "it contains a line ending: use JsonLinesSink for such values")
        return line

    def decode(self, encoded: Any) -> bytes:
        """Return the line as `bytes`."""
        return bytes(encoded)


class _Lines(LinesContent):
    def write(self, encoded_values: Sequence[Any]) -> None:
        lines = encoded_values if isinstance(self._batch.codec, _LineCodec) else self._encoded(encoded_values)
        if self._file.tell() == 0 and lines[0].startswith(BYTE_ORDER_MARK):
            self._file.write(BYTE_ORDER_MARK)  # a second mark, because readers drop the first one
        self._file.write(b"\n".join([*lines, b""]))

    def _encoded(self, encoded_values: Sequence[Any]) -> list[bytes]:
        try:
            return [_ANY.encode(encoded) for encoded in encoded_values]
        except EncodeError as error:
            problem = f"LinesSink cannot write a value that the codec of port {self._batch.port!r} returned"
            raise SinkError(f"{problem}: {error}") from error


_ANY = _LineCodec(object)
