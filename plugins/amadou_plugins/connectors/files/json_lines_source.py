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
    """Reads the JSON values on the lines of text files, in UTF-8. Blank lines are skipped.

    `key_event` takes the value of a line: a `dict`, `list`, `str`, number, `bool` or `None`. Whole numbers beyond 64
    bits become floats. The record is the raw line, as `bytes`: a line that is not JSON cannot be keyed, and its dead
    letter has the raw line. `TestRun.add_record` takes both raw lines as `bytes` and values.

    Files are found, read and ordered as by `LinesSource`.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``; relative to the program's working
        directory. A URI such as ``s3://bucket/views/`` is left to Spark
    :param max_files_per_batch: bound of the batches on Spark; without it all present files make one batch
    :param partition_by: rule that divides the files into partitions (`Source`): a regular expression, searched in each
        path, whose first group names the partition; or a number of partitions to spread the files over. Without it the
        source is one partition
    :param key_event: function that turns values into events, instead of the handler's own
    :raises SourceError: a setting is invalid
    """

    def _records_of(self, path: str) -> Iterator[bytes]:
        return _not_blank(lines_of("JsonLinesSource", path))

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        return stream_of_lines(self._files, spark, reader, self.max_files_per_batch)

    @staticmethod
    def to_records(cells: Any) -> Iterator[bytes]:
        """Yield the lines of parts of local files; remote files come as lines."""
        return _not_blank(lines_of_cells("JsonLinesSource", cells))

    @staticmethod
    def decode(record: Any) -> Any:
        """Return the value of a line; return any other record as it is.

        :raises SourceError: the line is not JSON
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
