from collections.abc import Iterator
from typing import Any

import attrs
import orjson

from amadou.errors import SourceError
from amadou.text import shown_value
from amadou_plugins.connectors.files.lines_source import LinesSource, lines_of_cells


@attrs.frozen
class JsonLinesSource(LinesSource):
    """Reads UTF-8 text files that contain one JSON value per line. Blank lines are skipped.

    `key_event` is called with the parsed value of a line: a `dict`, `list`, `str`, number, `bool` or `None`. Integers
    beyond 64 bits become floats. The record itself is the raw line as `bytes`. If a line is not valid JSON, the dead
    letter contains the raw line. `TestRun.add_record` accepts both parsed values and raw lines (as `bytes`).

    `JsonLinesSource` finds, reads and orders files in the same way as `LinesSource`.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``, as an absolute path or relative to the
        program's working directory; or a URI such as ``s3://bucket/views/``, which only Spark can read
    :param max_files_per_batch: maximum number of files in a batch on Spark; by default, a batch reads all files that
        have arrived
    :param partition_by: rule that assigns files to partitions (see `Source`): a regular expression or an integer. A
        regular expression is searched for in a file's path; the partition is named after the first group, or after the
        entire match if there are no groups. An integer is the number of partitions; a hash of a file's path determines
        the file's partition. By default, there is only one partition
    :param key_event: function that converts values into events; by default, the handler's `key_event`
    :raises SourceError: a setting is invalid
    """

    def _records_of(self, path: str) -> Iterator[bytes]:
        return filter(bytes.strip, super()._records_of(path))

    @staticmethod
    def to_records(cells: Any) -> Iterator[bytes]:
        """Yield the non-blank lines in Spark's cells: a part of a local file, or a line from a remote file."""
        return filter(bytes.strip, lines_of_cells("JsonLinesSource", cells))

    @staticmethod
    def decode(record: Any) -> Any:
        """Return the parsed JSON value of a raw line; return any other record unchanged.

        :raises SourceError: the line is not valid JSON
        """
        if not isinstance(record, bytes):
            return record
        try:
            return orjson.loads(record)
        except orjson.JSONDecodeError as error:
            why = f"correct the line ({error.msg} at character {error.colno})"
            raise SourceError(f"JsonLinesSource: the line {shown_value(record, 100)} is not JSON: {why}") from error
