from collections.abc import Sequence
from typing import IO, Any

import attrs

from amadou.plugins import Codec, SinkBatch
from amadou_plugins.connectors._json import JsonCodec, json_lines
from amadou_plugins.connectors.files.file_sink import FileSink
from amadou_plugins.connectors.files.part_files import Content, LinesContent


@attrs.frozen
class JsonLinesSink(FileSink):
    """Writes files with one JSON value per line to a directory. Exactly-once.

    Each part of a batch is written to a file named ``<port>-<run>-<batch>-<part>.jsonl``. The file has a hidden name
    until the batch is committed, so readers see only complete files. When a batch is reprocessed, its new files replace
    all files from earlier attempts, no matter when the attempts were interrupted. Multiple ports, jobs and runs can
    share a directory.

    :param path: directory, relative to the program's working directory, or a URI, such as ``s3a://bucket/sums``;
        created if missing. On a cluster, a local directory must be shared by all machines
    :raises SinkError: the path is empty or invalid
    """

    suffix = ".jsonl"

    def codec(self, type_: Any) -> Codec[Any]:
        return JsonCodec(type_)

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        return _JsonLines(batch, file)


class _JsonLines(LinesContent):
    def write(self, encoded_values: Sequence[Any]) -> None:
        self._file.write(b"\n".join([*json_lines(self._batch, encoded_values), b""]))
