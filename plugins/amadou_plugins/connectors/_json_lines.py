from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import attrs

from amadou import Codec, Param, Sink, SinkBatch, SinkWriter
from amadou_plugins.connectors._json import JsonCodec, json_lines
from amadou_plugins.connectors._part_files import PartFiles
from amadou_plugins.connectors._path import path_text


@attrs.frozen
class JsonLinesSink(Sink):
    """A directory of files with a JSON value on each line. Exactly-once.

    Each part of a batch becomes a file ``<port>-<run>-<batch>-<part>.jsonl``. It is written under a hidden name and
    renamed when the batch is committed, so that a reader sees whole files only. A batch that is played again, wherever
    it was cut short, replaces its own files. Several ports, jobs and runs may share a directory.

    :param path: the directory, relative to where the program was started; made where it is missing. On a cluster it
        must be one that all machines share
    """

    guarantee = "exactly-once"

    path: str | Path | Param = attrs.field(converter=path_text)

    def __reduce__(self) -> Any:
        return type(self), (self._files.sent,)

    def codec(self, type_: Any) -> Codec[Any]:
        return JsonCodec(type_)

    def check(self, port: str, type_: Any) -> None:
        self._files.check()

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return self._files.open(batch, part, ".jsonl", lambda file: _JsonLines(batch, file))

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        self._files.commit(batch, parts)

    @property
    def _files(self) -> PartFiles:
        return PartFiles(type(self).__name__, self.path)


class _JsonLines:
    def __init__(self, batch: SinkBatch, file: IO[bytes]) -> None:
        self._batch = batch
        self._file = file

    def write(self, wires: Sequence[Any]) -> None:
        self._file.write(b"\n".join([*json_lines(self._batch, wires), b""]))

    def end(self) -> None:
        pass
