from collections.abc import Sequence
from typing import IO, Any

import attrs

from amadou import Codec, SinkBatch
from amadou_plugins.connectors._json import JsonCodec, json_lines
from amadou_plugins.connectors.files.file_sink import FileSink
from amadou_plugins.connectors.files.part_files import Content


@attrs.frozen
class JsonLinesSink(FileSink):
    """A directory of files with a JSON value on each line. Exactly-once.

    Each part of a batch becomes a file ``<port>-<run>-<batch>-<part>.jsonl``. It is written under a hidden name and
    renamed when the batch is committed, so that a reader sees whole files only. A batch that is played again, wherever
    it was cut short, replaces its own files. Several ports, jobs and runs may share a directory.

    :param path: the directory, relative to where the program was started; made where it is missing. On a cluster it
        must be one that all machines share
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
