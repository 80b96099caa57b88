from collections.abc import Sequence
from typing import IO, Any

import attrs

from amadou import Codec, SinkBatch
from amadou_plugins.connectors._json import JsonCodec, json_lines
from amadou_plugins.connectors.files.file_sink import FileSink
from amadou_plugins.connectors.files.part_files import Content


@attrs.frozen
class JsonLinesSink(FileSink):
    """Writes a directory of files with a JSON value on each line. Exactly-once.

    Each part of a batch becomes a file ``<port>-<run>-<batch>-<part>.jsonl``. The file is written under a hidden name
    and renamed when the batch is committed, so readers see only whole files. A replayed batch replaces its own files,
    wherever it was interrupted. Several ports, jobs and runs may share a directory.

    :param path: the directory, relative to the program's working directory; created if missing. On a cluster all
        machines must share it
    :raises SinkError: there is no path
    """

    suffix = ".jsonl"

    def codec(self, type_: Any) -> Codec[Any]:
        return JsonCodec(type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _JsonLines(batch, file)


class _JsonLines:
    def __init__(self, batch: SinkBatch, file: IO[bytes]) -> None:
        self._batch = batch
        self._file = file

    def write(self, encoded_values: Sequence[Any]) -> None:
        self._file.write(b"\n".join([*json_lines(self._batch, encoded_values), b""]))

    def end(self) -> None:
        pass
