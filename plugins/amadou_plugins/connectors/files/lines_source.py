import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import IO, Any

import attrs

from amadou_plugins.connectors.files.file_source import FileSource
from amadou_plugins.connectors.files.found_files import PACKED, FoundFiles, opened, reading
from amadou_plugins.connectors.files.path import local_path

LINE_END = re.compile(rb"[\r\n]")
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_CHUNK = 1 << 20
_SMALLEST_PART = 1 << 20
_LARGEST_PART = 64 << 20


@attrs.frozen
class LinesSource(FileSource):
    """Reads the lines of text files, as `bytes` without their line ending; blank lines are records too.

    ``\\n``, ``\\r\\n`` and ``\\r`` end a line. Bytes that are not UTF-8 come through unchanged; a byte order mark at a
    file's beginning is dropped. Files named ``*.gz`` and ``*.bz2`` are unpacked. Files whose names begin with ``.`` or
    ``_`` are ignored, and so are files in subdirectories.

    A single file is bounded. A directory or a glob is not: files that arrive during a run are read once, whole, so move
    them in by renaming. Lines added to a file later are not read.

    The embedded engine reads files in the order of their paths. Spark does so within a batch; the files of a batch
    depend on when they arrived.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``; relative to the program's working
        directory. A URI such as ``s3://bucket/views/`` is left to Spark
    :param max_files_per_batch: bound of the batches on Spark; without it all present files make one batch
    :param partition_by: rule that divides the files into partitions (`Source`): a regular expression, searched in each
        path, whose first group names the partition; or a number of partitions to spread the files over. Without it the
        source is one partition
    :param key_event: function that turns lines into events, instead of the handler's own
    :raises SourceError: a setting is invalid
    """

    def _records_of(self, path: str) -> Iterator[bytes]:
        return lines_of("LinesSource", path)

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        return stream_of_lines(self._files, spark, reader, self.max_files_per_batch)

    @staticmethod
    def to_records(cells: Any) -> Iterable[bytes]:
        """Yield the lines of parts of local files; remote files come as lines."""
        return lines_of_cells("LinesSource", cells)


def lines_of(source: str, path: str) -> Iterator[bytes]:
    """Yield the lines of a file.

    :param source: the source's class, for errors
    """
    with reading(source, path):
        yield from chain.from_iterable(_lines(path))


def stream_of_lines(files: FoundFiles, spark: Any, reader: Any, max_files_per_batch: Any) -> Any:
    """Return the result of `Source.read_stream` for files that `lines_of_cells` takes."""
    if files.is_remote:
        reader, path = files.for_spark(reader, max_files_per_batch)
        return reader.text(path).selectExpr(
            "CAST(value AS BINARY) AS record",
            "_metadata.file_path AS partition",
            "_metadata.file_block_start AS position",
        )
    # Spark finds the files and remembers them; their lines are read where they become events. Handing each line
    # through the JVM costs as much as parsing its JSON.
    cores = spark.sparkContext.defaultParallelism
    return (
        files.stream(reader, max_files_per_batch)
        .selectExpr("path", f"explode({_parts(cores)}) AS part")
        .repartition(cores)
        .selectExpr("struct(path, part.start, part.end) AS record", "path AS partition", "part.start AS position")
    )


def lines_of_cells(source: str, cells: Any) -> Iterable[bytes]:
    """Return the lines of cells of `stream_of_lines`.

    :param source: the source's class, for errors
    """
    if not cells.type.num_fields:
        return cells.to_pylist()  # type: ignore[no-any-return]
    parts = (_lines_of_part(source, part) for part in cells.to_pylist())
    return chain.from_iterable(chain.from_iterable(parts))


def _parts(cores: int) -> str:
    """Return SQL for the parts of a file: one for each core if they are worth a task, and none too large."""
    packed = " OR ".join(f"endswith(path, '{suffix}')" for suffix in PACKED)
    even = f"least({cores}L, length div {_SMALLEST_PART})"
    count = f"if({packed}, 1L, greatest(1L, {even}, length div {_LARGEST_PART}))"
    bounds = f"struct(length * i div {count} AS start, length * (i + 1) div {count} AS end)"
    return f"transform(sequence(0L, {count} - 1), i -> {bounds})"


def _lines_of_part(source: str, part: Mapping[str, Any]) -> Iterator[list[bytes]]:
    path = local_path(part["path"])
    with reading(source, path):
        yield from _lines(path, part["start"], part["end"])


def _lines(path: str, start: int = 0, end: int | None = None) -> Iterator[list[bytes]]:
    """Yield the lines of a file that begin at or after one byte and before another, many at once. A packed file has
    one part.
    """
    packed = path.endswith(tuple(PACKED))
    with opened(path) as file:
        if start > 0:
            file.seek(start - 1)  # a line begins at `start` if the byte before ends a line
        elif file.read(len(BYTE_ORDER_MARK)) != BYTE_ORDER_MARK:
            file.seek(0)
        lines = _split(_pieces(file, None if end is None or packed else end - file.tell()))
        if start > 0:
            first = next(filter(None, lines), [])
            yield first[1:]
        yield from lines


def _pieces(file: IO[bytes], size: int | None) -> Iterator[bytes]:
    """Yield a number of a file's next bytes, and those up to the end of their last line."""
    piece = b""
    while size is None or size > 0:
        piece = file.read(_CHUNK if size is None else min(size, _CHUNK))
        if not piece:
            return
        yield piece
        size = None if size is None else size - len(piece)
    while not piece.endswith((b"\n", b"\r")):
        piece = file.read(_CHUNK)
        if not piece:
            return
        ending = LINE_END.search(piece)
        piece = piece[: ending.end()] if ending else piece
        yield piece


def _split(pieces: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield the lines that end in each piece of a file."""
    rest = b""
    for piece in pieces:
        lines = (rest + piece).splitlines()
        rest = b""
        if not piece.endswith(b"\n"):
            # the line may go on, or the \n of its \r\n may follow
            rest = lines.pop() + (b"\r" if piece.endswith(b"\r") else b"")
        yield lines
    yield rest.splitlines()
