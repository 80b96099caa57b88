import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import IO, Any

import attrs

from amadou.paths import local_path
from amadou_plugins.connectors.files.file_source import FileSource
from amadou_plugins.connectors.files.found_files import PACKED, opened, reading

LINE_END = re.compile(rb"[\r\n]")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
READ_SIZE = 1 << 20
_LONGEST_LINE = 64 << 20
"""Maximum number of bytes of a line. A small compressed file can contain gigabytes without a line ending."""
_SMALLEST_PART = 1 << 20
_LARGEST_PART = 64 << 20


@attrs.frozen
class LinesSource(FileSource):
    """Reads the lines of text files as `bytes`, without line endings. Blank lines are records, too.

    A line ends with ``\\n``, ``\\r\\n`` or ``\\r``. Bytes that are not valid UTF-8 remain unchanged; a byte order mark
    at the beginning of a file is dropped. A line of more than 64 MiB is an error. ``*.gz`` and ``*.bz2`` files are
    decompressed. Files whose names begin with ``.`` or ``_`` are ignored, and so are files in subdirectories.

    A single file is bounded input. A directory or a glob is unbounded: files that arrive during a run are read as well.
    Each file is read only once: lines that are appended later are not read. So write each new file to a different
    directory on the same file system. When the file is complete, move the file into the source's directory.

    The embedded engine reads files in the order of their paths. Spark uses this order within a batch; which batch reads
    a file depends on when the file arrived.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``, as an absolute path or relative to the
        program's working directory; or a URI such as ``s3://bucket/views/``, which only Spark can read
    :param max_files_per_batch: maximum number of files in a batch on Spark; by default, a batch reads all files that
        have arrived
    :param partition_by: rule that assigns files to partitions (see `Source`): a regular expression or an integer. A
        regular expression is searched for in a file's path; the partition is named after the first group, or after the
        entire match if there are no groups. An integer is the number of partitions; a hash of a file's path determines
        the file's partition. By default, there is only one partition
    :param key_event: function that converts lines into events; by default, the handler's `key_event`
    :raises SourceError: a setting is invalid
    """

    def _records_of(self, path: str) -> Iterator[bytes]:
        with reading(type(self).__name__, path, ValueError):
            yield from chain.from_iterable(_lines(path))

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        if self._files.is_remote:
            reader, path = self._files.for_spark(reader, self.max_files_per_batch)
            return reader.text(path).selectExpr(
                "CAST(value AS BINARY) AS record",
                "_metadata.file_path AS partition",
                "_metadata.file_block_start AS position",
            )
        # Spark finds the files and tracks which ones were read. The tasks that turn lines into events read the lines
        # themselves: passing each line through the JVM costs as much as parsing its JSON.
        cores = spark.sparkContext.defaultParallelism
        return (
            self._files.stream(reader, self.max_files_per_batch)
            .selectExpr("path", f"explode({_parts(cores)}) AS part")
            .repartition(cores)
            .selectExpr("struct(path, part.start, part.end) AS record", "path AS partition", "part.start AS position")
        )

    @staticmethod
    def to_records(cells: Any) -> Iterable[bytes]:
        """Return the lines in Spark's cells: a cell is either a part of a local file or a line from a remote file."""
        return lines_of_cells("LinesSource", cells)


def lines_of_cells(source: str, cells: Any) -> Iterable[bytes]:
    """Return the lines in the cells that `LinesSource.read_stream` produces.

    :param source: name of the source's class, for error messages
    """
    if not cells.type.num_fields:
        return cells.to_pylist()  # type: ignore[no-any-return]
    parts = (_lines_of_part(source, part) for part in cells.to_pylist())
    return chain.from_iterable(chain.from_iterable(parts))


def _parts(cores: int) -> str:
    """Return an SQL expression that divides a file into parts: one per core, fewer for a small file, and more for a
    large file. A compressed file is not divided.
    """
    packed = " OR ".join(f"endswith(path, '{suffix}')" for suffix in PACKED)
    even = f"least({cores}L, length div {_SMALLEST_PART})"
    count = f"if({packed}, 1L, greatest(1L, {even}, length div {_LARGEST_PART}))"
    bounds = f"struct(length * i div {count} AS start, length * (i + 1) div {count} AS end)"
    return f"transform(sequence(0L, {count} - 1), i -> {bounds})"


def _lines_of_part(source: str, part: Mapping[str, Any]) -> Iterator[list[bytes]]:
    path = local_path(part["path"])
    with reading(source, path, ValueError):
        yield from _lines(path, part["start"], part["end"])


def _lines(path: str, start: int = 0, end: int | None = None) -> Iterator[list[bytes]]:
    """Yield a file's lines, in lists: the lines that begin at or after byte `start` and before byte `end`. For a
    compressed file, which is never divided, `end` is ignored.
    """
    packed = path.endswith(tuple(PACKED))
    with opened(path) as file:
        if start > 0:
            file.seek(start - 1)  # a line begins at `start` if the previous byte ends a line
        elif file.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
            file.seek(0)
        lines = _split(_pieces(file, None if end is None or packed else end - file.tell()))
        if start > 0:
            first = next(filter(None, lines), [])
            yield first[1:]
        yield from lines


def _pieces(file: IO[bytes], size: int | None) -> Iterator[bytes]:
    """Yield the next `size` bytes of a file, and then the rest of the line in which these bytes end.

    :param size: number of bytes; `None` for all remaining bytes
    """
    piece = b""
    while size is None or size > 0:
        piece = file.read(READ_SIZE if size is None else min(size, READ_SIZE))
        if not piece:
            return
        yield piece
        size = None if size is None else size - len(piece)
    while not piece.endswith((b"\n", b"\r")):
        piece = file.read(READ_SIZE)
        if not piece:
            return
        ending = LINE_END.search(piece)
        piece = piece[: ending.end()] if ending else piece
        yield piece


def _split(pieces: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines that end in each piece of a file, as a list. At the end, yield the remaining line, if any.

    :raises ValueError: a line is too long
    """
    begun: list[bytes] = []  # the pieces of the line that the next piece continues
    for piece in pieces:
        begun.append(piece)
        if LINE_END.search(piece) is None:
            if sum(map(len, begun)) > _LONGEST_LINE:
                raise ValueError(f"a line is longer than {_LONGEST_LINE >> 20} MiB")
            continue
        lines = b"".join(begun).splitlines()
        begun = []
        if not piece.endswith(b"\n"):
            # the line may continue, or the \n of its \r\n may follow
            begun = [lines.pop() + (b"\r" if piece.endswith(b"\r") else b"")]
        yield lines
    yield b"".join(begun).splitlines()
