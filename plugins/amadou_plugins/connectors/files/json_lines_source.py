from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import orjson

from amadou.errors import SourceError
from amadou.text import shown_value
from amadou_plugins.connectors.files.file_source import FileSource
from amadou_plugins.connectors.files.lines_source import lines_of, lines_of_cells, stream_of_lines


@attrs.frozen
class JsonLinesSource(FileSource):
    """The JSON values on the lines of text files, in UTF-8. Blank lines are skipped.

    `key_event` takes what a line stands for: a `dict`, `list`, `str`, number, `bool` or `None`. Whole numbers beyond 64
    bits become floats. The record is the raw line, as `bytes`: a line that is no JSON cannot be keyed, and is what the
    dead letter has of it. `TestRun.add_record` takes raw lines as `bytes`, and values.

    Files are found, read and ordered as `LinesSource` does.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``; relative to where the program was
        started. A URI such as ``s3://bucket/views/`` is left to Spark
    :param max_files_per_batch: bounds the batches on Spark; all files that are there make one batch without it
    :param partition_by: what divides the files into partitions (`Source`): a regular expression, whose first group is
        looked for in each path and names the partition, or a number of partitions to spread the files over. Without it
        the source is one partition
    :param key_event: turns the values into events, instead of the handler's own
    :raises SourceError: a setting is of no use
    """

    def _records_of(self, path: str) -> Iterator[bytes]:
        return _not_blank(lines_of("JsonLinesSource", path))

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        return stream_of_lines(self._files, spark, reader, self.max_files_per_batch)

    @staticmethod
    def to_records(cells: Any) -> Iterator[bytes]:
        """Turns parts of local files into their lines; remote files come as lines."""
        return _not_blank(lines_of_cells("JsonLinesSource", cells))

    @staticmethod
    def decode(record: Any) -> Any:
        """Turns a line into the value that it stands for; takes others for such values.

        :raises SourceError: the line is no JSON
        """
        if not isinstance(record, bytes):
            return record
        try:
            return orjson.loads(record)
        except orjson.JSONDecodeError as error:
            why = f"{error.msg} (at character {error.colno})"
            raise SourceError(f"JsonLinesSource: the line {shown_value(record, 100)} is not JSON: {why}") from error


def _not_blank(lines: Iterable[bytes]) -> Iterator[bytes]:
    return filter(bytes.strip, lines)
