import csv
import io
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from amadou import Param
from amadou.errors import SourceError
from amadou.paths import local_path
from amadou_plugins.connectors.files.column_names import check_twice, column_names
from amadou_plugins.connectors.files.file_source import FileSource
from amadou_plugins.connectors.files.found_files import opened, reading

_LONGEST_ROW = 16 << 20
"""Maximum number of characters of a row. A small compressed file can contain gigabytes without the end of a row."""


@attrs.frozen
class MalformedRow:
    """A CSV row that cannot be read. With `on_error="dead_letter"`, the `MalformedRow` becomes the record of the row's
    dead letter.

    :param file: path of the file
    :param line: number of the row's first line, counted from 1
    :param text: text of the row
    :param problem: description of the problem
    """

    file: str
    line: int
    text: str
    problem: str


@attrs.frozen
class CsvSource(FileSource):
    """Reads the rows of CSV files as `dict`s that map column names to strings.

    Files must follow RFC 4180: a cell that contains a delimiter, a quote or a line ending is enclosed in ``"``, and a
    quote inside the cell is doubled. Blank lines are skipped, a byte order mark is dropped, and spaces are part of the
    cells.

    A row is malformed if it has too few or too many cells, misplaced quotes, or bytes that are invalid in the
    `encoding`. Depending on the job's `on_error`, a malformed row ends the run, or becomes a dead letter whose record
    is a `MalformedRow`. A malformed header ends the run, and so does a row of more than 16,777,216 characters.

    Files are found and ordered as in `LinesSource`; ``*.gz`` and ``*.bz2`` files are decompressed. On Spark, a single
    task reads each file.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``, as an absolute path or relative to the
        program's working directory; or a URI such as ``s3://bucket/views/``, which only Spark can read. For a URI,
        Spark loads each file as a whole, and the maximum file size is 2 GB
    :param columns: column names for files without a header line, as a list or a comma-separated string
    :param delimiter: the character between cells
    :param encoding: Python name of the files' encoding
    :param max_files_per_batch: maximum number of files in a batch on Spark; by default, a batch reads all files that
        have arrived
    :param partition_by: rule that assigns files to partitions (see `Source`): a regular expression or an integer. A
        regular expression is searched for in a file's path; the partition is named after the first group, or after the
        entire match if there are no groups. An integer is the number of partitions; a hash of the path determines a
        file's partition. By default, there is only one partition
    :param key_event: function that converts rows into events; by default, the handler's `key_event`
    :raises SourceError: a setting is invalid
    """

    columns: str | Sequence[str] | Param | None = attrs.field(default=None, kw_only=True, converter=column_names)
    delimiter: str | Param = attrs.field(default=",", kw_only=True)
    encoding: str | Param = attrs.field(default="utf-8", kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not isinstance(self.delimiter, Param) and not _is_delimiter(self.delimiter):
            raise SourceError(
                f"delimiter must be a single character other than a double quote or line ending, not {self.delimiter!r}"
            )
        if not isinstance(self.encoding, Param):
            try:
                "".encode(self.encoding)
            except (LookupError, TypeError, ValueError):
                raise SourceError(
                    f"encoding must be a Python text encoding, such as utf-8, utf-16 or cp1252, not {self.encoding!r}"
                ) from None

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        return self._files.whole_stream(spark, reader, self.max_files_per_batch)

    def to_records(self, cells: Any) -> Iterator[Any]:
        """Yield the rows of the files. A cell from Spark contains a file's path and, for a URI, the file's content."""
        for file in cells.to_pylist():
            yield from self._records_of(local_path(file["path"]), file.get("content"))

    @staticmethod
    def decode(record: Any) -> Any:
        """Return a row unchanged, unless it is a `MalformedRow`.

        :raises SourceError: the row is malformed
        """
        if type(record) is MalformedRow:
            raise SourceError(f"{record.file}, line {record.line}: {record.problem}")
        return record

    def _records_of(self, path: str, content: bytes | None = None) -> Iterator[Any]:
        with reading("CsvSource", path, ValueError), opened(path, content) as packed:
            rows = _Rows(path, packed, str(self.encoding), str(self.delimiter))
            columns: Any = self.columns
            for cells in rows:
                if columns is None:
                    self.decode(cells)
                    columns = cells
                    check_twice(f"{path}, line {rows.line}", columns)
                elif type(cells) is not list:
                    yield cells
                elif len(cells) == len(columns):
                    yield dict(zip(columns, cells, strict=True))
                else:
                    yield rows.malformed(
                        f"expected {len(columns)} cells, got {len(cells)}: correct the row, or quote its cells"
                    )


class _Rows:
    """Iterates over the rows of a file: lists of cells, or `MalformedRow`s."""

    def __init__(self, path: str, file: Any, encoding: str, delimiter: str) -> None:
        self._path = path
        self._encoding = encoding
        # Bytes that are invalid in the encoding become surrogates, which `__iter__` and `malformed` detect.
        self._file = io.TextIOWrapper(file, encoding, "surrogateescape", newline="")
        self._delimiter = delimiter
        self._lines: list[str] = []
        self._size = 0
        self.line = 1
        """Number of the current row's first line."""

    def __iter__(self) -> Iterator[Any]:
        csv.field_size_limit(_LONGEST_ROW)  # applies to all readers in this process; the default is 128 KiB
        reader = csv.reader(self._counted(), delimiter=self._delimiter, strict=True)
        while True:
            self.line += len(self._lines)
            self._lines.clear()
            self._size = 0
            try:
                cells = next(reader, None)
            except csv.Error as error:
                yield self.malformed(f"quotes are misplaced: close quoted cells, and double quotes in them ({error})")
                continue
            if cells is None:
                return
            if not all(map(_is_text, self._lines)):
                yield self.malformed(f"the row is not valid {self._encoding}: correct the row, or change encoding=")
            elif cells:
                yield cells

    def malformed(self, problem: str) -> MalformedRow:
        """Return the current row as a `MalformedRow`."""
        text = "".join(self._lines)
        if not _is_text(text):
            text = text.encode(self._encoding, "surrogateescape").decode(self._encoding, "backslashreplace")
        return MalformedRow(self._path, self.line, text, problem)

    def _counted(self) -> Iterator[str]:
        for number, line in enumerate(iter(partial(self._file.readline, _LONGEST_ROW + 1), "")):
            self._size += len(line)
            if self._size > _LONGEST_ROW:
                raise ValueError(f"the row that begins in line {self.line} has more than {_LONGEST_ROW:,} characters")
            self._lines.append(line if number else line.removeprefix("\ufeff"))
            yield self._lines[-1]


def _is_delimiter(value: Any) -> bool:
    return isinstance(value, str) and len(value) == 1 and value not in '"\r\n'


def _is_text(line: str) -> bool:
    if line.isascii():
        return True
    try:
        line.encode()
    except UnicodeEncodeError:
        return False
    return True
