import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from amadou import Param
from amadou.errors import SourceError
from amadou_plugins.connectors.files.column_names import check_twice, column_names
from amadou_plugins.connectors.files.file_source import FileSource
from amadou_plugins.connectors.files.found_files import opened, reading
from amadou_plugins.connectors.files.path import local_path

_LARGEST_CELL = 2**31 - 1


@attrs.frozen
class MalformedRow:
    """A row of a CSV file that cannot be read; the record of its dead letter.

    :param file: the file
    :param line: number of the row's first line, from 1
    :param text: the row as it is in the file
    :param problem: the problem with the row
    """

    file: str
    line: int
    text: str
    problem: str


@attrs.frozen
class CsvSource(FileSource):
    """Reads the rows of CSV files, as `dict`s of texts by column.

    Files follow RFC 4180: cells with delimiters, quotes or line ends are in ``"``, and a quote in them is doubled.
    Blank lines are skipped, a byte order mark is dropped, and spaces belong to the cells. A row with fewer or more
    cells than columns, with misplaced quotes, or in another encoding cannot be keyed: it ends the run, or becomes a
    dead letter whose record is a `MalformedRow`. A header that cannot be read ends the run.

    Files are found and ordered as by `LinesSource`; those named ``*.gz`` or ``*.bz2`` are unpacked. Each file is read
    in one task.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``; relative to the program's working
        directory. A URI such as ``s3://bucket/views/`` is left to Spark, which reads whole files of up to 2 GB
    :param columns: names of the columns, for files without a header line; or a text with commas between them
    :param delimiter: the character between cells
    :param encoding: the encoding of the files, by Python's name for it
    :param max_files_per_batch: bound of the batches on Spark; without it all present files make one batch
    :param partition_by: rule that divides the files into partitions (`Source`): a regular expression, searched in each
        path, whose first group names the partition; or a number of partitions to spread the files over. Without it the
        source is one partition
    :param key_event: function that turns rows into events, instead of the handler's own
    :raises SourceError: a setting is invalid
    """

    columns: str | Sequence[str] | Param | None = attrs.field(default=None, kw_only=True, converter=column_names)
    delimiter: str | Param = attrs.field(default=",", kw_only=True)
    encoding: str | Param = attrs.field(default="utf-8", kw_only=True)

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not isinstance(self.delimiter, Param) and not _is_delimiter(self.delimiter):
            raise SourceError(
                f"delimiter must be one character, neither a quote nor a line end, not {self.delimiter!r}"
            )
        if not isinstance(self.encoding, Param):
            try:
                "".encode(self.encoding)
            except (LookupError, TypeError, ValueError):
                raise SourceError(
                    f"Python knows no encoding {self.encoding!r} of texts: try utf-8, utf-16 or cp1252"
                ) from None

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        return self._files.whole_stream(spark, reader, self.max_files_per_batch)

    def to_records(self, cells: Any) -> Iterator[Any]:
        """Yield the rows of files."""
        for file in cells.to_pylist():
            yield from self._records_of(local_path(file["path"]), file.get("content"))

    @staticmethod
    def decode(record: Any) -> Any:
        """Return a row, unless it is malformed.

        :raises SourceError: the row is malformed
        """
        if type(record) is MalformedRow:
            raise SourceError(f"{record.file}, line {record.line}: {record.problem}")
        return record

    def _records_of(self, path: str, content: bytes | None = None) -> Iterator[Any]:
        with reading("CsvSource", path, UnicodeError), opened(path, content) as packed:
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
                        f"{len(cells)} cells for {len(columns)} columns: add or remove cells, or quote"
                    )


class _Rows:
    """The rows of a file: lists of cells, and malformed ones."""

    def __init__(self, path: str, file: Any, encoding: str, delimiter: str) -> None:
        self._path = path
        self._encoding = encoding
        # Bytes outside the encoding become surrogates, by which they are found.
        self._file = io.TextIOWrapper(file, encoding, "surrogateescape", newline="")
        self._delimiter = delimiter
        self._lines: list[str] = []
        self.line = 1
        """Number of the row's first line."""

    def __iter__(self) -> Iterator[Any]:
        csv.field_size_limit(_LARGEST_CELL)  # for all readers in this process; the default is 128 KiB
        reader = csv.reader(self._counted(), delimiter=self._delimiter, strict=True)
        while True:
            self.line += len(self._lines)
            self._lines.clear()
            try:
                cells = next(reader, None)
            except csv.Error as error:
                yield self.malformed(f"its quotes are wrong ({error}): double those inside a quoted cell")
                continue
            if cells is None:
                return
            if not all(map(_is_text, self._lines)):
                yield self.malformed(f"it is not {self._encoding}: correct it, or give CsvSource another encoding")
            elif cells:
                yield cells

    def malformed(self, problem: str) -> MalformedRow:
        """Return the current row as a malformed one."""
        text = "".join(self._lines)
        if not _is_text(text):
            text = text.encode(self._encoding, "surrogateescape").decode(self._encoding, "backslashreplace")
        return MalformedRow(self._path, self.line, text, problem)

    def _counted(self) -> Iterator[str]:
        for number, line in enumerate(self._file):
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
