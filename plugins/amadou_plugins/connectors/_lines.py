import bz2
import glob
import gzip
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

import attrs

from amadou import Param, Source
from amadou.errors import SourceError
from amadou_plugins.connectors._path import is_remote, local_path, path_text

_CHUNK = 1 << 20
_SMALLEST_PART = 1 << 20
_LARGEST_PART = 64 << 20
_FILE_COLUMNS = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_LINE_END = re.compile(rb"[\r\n]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
_GLOB = re.compile(r"[*?\[]")
_SPARK_GLOB = re.compile(r"[*?\[\]{}\\]")


@attrs.frozen
class LinesSource(Source):
    """The lines of text files, as `bytes` without their line ending; blank lines are records too.

    ``\\n``, ``\\r\\n`` and ``\\r`` end a line. Bytes that are not UTF-8 come through unchanged; a byte order mark at a
    file's beginning is dropped. Files named ``*.gz`` and ``*.bz2`` are unpacked. Files whose names begin with ``.`` or
    ``_`` are left alone, and those in directories below the given one too.

    A single file is bounded. A directory or a glob is not: files that come while a run goes on are picked up once,
    whole, so put them there by renaming. What is added to a file later is not seen.

    On the embedded engine files follow each other by path. On Spark those of one batch do; which files share a batch
    depends on when they came.

    :param path: a file, a directory, or a glob with ``*``, ``?`` and ``[…]``; relative to where the program was
        started. A URI such as ``s3://bucket/views/`` is left to Spark
    :param max_files_per_batch: bounds the batches on Spark; all files that are there make one batch without it
    :param key_event: turns the lines into events, instead of the handler's own
    :raises SourceError: `max_files_per_batch` is no positive number
    """

    path: str | Path | Param = attrs.field(converter=path_text)
    max_files_per_batch: int | Param | None = attrs.field(default=None, kw_only=True)
    key_event: Callable[[bytes], Any] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        files = self.max_files_per_batch
        if files is not None and not isinstance(files, Param) and (type(files) is not int or files < 1):
            raise SourceError(f"max_files_per_batch must be a whole number from 1, not {files!r}")

    @property
    def bounded(self) -> bool:
        if self._is_remote or self._is_glob or str(self.path).endswith("/"):
            return False
        return not os.path.isdir(self._local)

    def check(self) -> None:
        if self._is_remote:
            return
        path, told = self._local, f"LinesSource({str(self.path)!r})"
        if self._is_glob:
            parent = _fixed_parent(path)
            if not os.path.isdir(parent):
                raise SourceError(f"{told}: there is no directory {parent}: create it, or correct the path")
        elif not os.path.exists(path):
            raise SourceError(f"{told}: there is no file or directory {path}: create it, or correct the path")
        elif not os.access(path, os.R_OK):
            raise SourceError(f"{told}: {path} may not be read by this user: change its permissions")
        elif self.bounded and _is_hidden(path):
            raise SourceError(f"{told}: Spark skips files whose names begin with '.' or '_': rename the file")
        for file in self._files():
            self._check_name(told, file)

    def records(self) -> Iterator[bytes]:
        if self._is_remote:
            raise SourceError(
                f"LinesSource({str(self.path)!r}): the embedded engine reads local files only: run the job with "
                "engine='spark', or copy the files here"
            )
        for file in self._files():
            try:
                yield from chain.from_iterable(_lines(file))
            except (OSError, EOFError) as error:
                raise SourceError(f"LinesSource({str(self.path)!r}): {file} cannot be read: {error}") from error

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        # Spark forgets files that are a week older than the newest one, unread ones among them.
        reader = reader.option("maxFileAge", "36500d")
        if self.max_files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", self.max_files_per_batch)
        if self._is_remote:
            path = str(self.path)
        elif self._is_glob:
            path = re.sub(r"([{}\\])", r"\\\1", self._local)  # a pattern's to Spark, not to us
        elif self.bounded:
            # Spark streams directories only; a file is the one that passes the filter in its directory.
            path, file = os.path.split(self._local)
            path, reader = _spark_escaped(path), reader.option("pathGlobFilter", _spark_escaped(file))
        else:
            path = _spark_escaped(self._local)
        if self._is_remote:
            return reader.text(path).selectExpr(
                "CAST(value AS BINARY) AS record",
                "_metadata.file_path AS partition",
                "_metadata.file_block_start AS position",
            )
        # Spark finds the files and remembers them; their lines are read where they become events. Handing each line
        # through the JVM costs as much as parsing its JSON.
        cores = spark.sparkContext.defaultParallelism
        files = reader.format("binaryFile").schema(_FILE_COLUMNS).load(f"file:{path}")
        return (
            files.selectExpr("path", f"explode({_parts(cores)}) AS part")
            .repartition(cores)
            .selectExpr("struct(path, part.start, part.end) AS record", "path AS partition", "part.start AS position")
        )

    @staticmethod
    def to_records(cells: Any) -> Iterable[bytes]:
        """Turns parts of local files into their lines; remote files come as lines."""
        if not cells.type.num_fields:
            return cells.to_pylist()  # type: ignore[no-any-return]
        return chain.from_iterable(chain.from_iterable(map(_lines_of_part, cells.to_pylist())))

    def _check_name(self, told: str, file: str) -> None:
        if ":" in os.path.basename(file):
            raise SourceError(f"{told}: Spark cannot read {file}, for the ':' in its name: rename the file")
        if not self.bounded and _SPARK_GLOB.search(file):
            # Seen on Spark 4.3.0: one such name in a batch, and each other file of the batch comes twice.
            raise SourceError(
                f"{told}: Spark takes the characters *?[]{{}}\\ in {file} for a pattern, and would read the files "
                "beside it twice: rename the file or its directory"
            )

    @property
    def _is_remote(self) -> bool:
        return is_remote(str(self.path))

    @property
    def _is_glob(self) -> bool:
        path = local_path(str(self.path))
        return _GLOB.search(path) is not None and not os.path.exists(path)

    @property
    def _local(self) -> str:
        path = local_path(str(self.path))
        if not self._is_glob:
            return os.path.abspath(path)
        return path if os.path.isabs(path) else os.path.join(glob.escape(os.getcwd()), path)

    def _files(self) -> list[str]:
        path = self._local
        if self.bounded:
            return [path]
        found: list[str] = []
        for match in glob.glob(path) if self._is_glob else [path]:
            if os.path.isdir(match):
                found += [entry.path for entry in os.scandir(match) if entry.is_file() and not _is_hidden(entry.path)]
            elif not _is_hidden(match):
                found.append(match)
        return sorted(found)


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


def _spark_escaped(path: str) -> str:
    return _SPARK_GLOB.sub(lambda match: f"\\{match[0]}", path)


def _fixed_parent(pattern: str) -> str:
    """The directory before the first part of a pattern that has a wildcard."""
    parent = os.path.dirname(pattern)
    while glob.has_magic(parent):
        parent = os.path.dirname(parent)
    return parent


def _parts(cores: int) -> str:
    """SQL for the parts that a file is cut into: as many as cores where it is worth it, and none too large."""
    packed = " OR ".join(f"endswith(path, '{suffix}')" for suffix in _OPENERS)
    even = f"least({cores}L, length div {_SMALLEST_PART})"
    count = f"if({packed}, 1L, greatest(1L, {even}, length div {_LARGEST_PART}))"
    bounds = f"struct(length * i div {count} AS start, length * (i + 1) div {count} AS end)"
    return f"transform(sequence(0L, {count} - 1), i -> {bounds})"


def _lines_of_part(part: Mapping[str, Any]) -> Iterator[list[bytes]]:
    path = local_path(part["path"])
    try:
        yield from _lines(path, part["start"], part["end"])
    except (OSError, EOFError) as error:
        raise SourceError(f"LinesSource: {path} cannot be read: {error}") from error


def _lines(path: str, start: int = 0, end: int | None = None) -> Iterator[list[bytes]]:
    """The lines of a file that begin at or after one byte and before another, many at once. A packed file has one
    part.
    """
    opener = _OPENERS.get(os.path.splitext(path)[1])
    with open(path, "rb") if opener is None else opener(path, "rb") as file:
        if start > 0:
            file.seek(start - 1)  # a line begins at `start` where the byte before ends one
        elif file.read(len(_BYTE_ORDER_MARK)) != _BYTE_ORDER_MARK:
            file.seek(0)
        lines = _split(_pieces(file, None if end is None or opener is not None else end - file.tell()))
        if start > 0:
            first = next(filter(None, lines), [])
            yield first[1:]
        yield from lines


def _pieces(file: IO[bytes], size: int | None) -> Iterator[bytes]:
    """A file's next bytes: so many, and those that follow up to the end of the line."""
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
        ending = _LINE_END.search(piece)
        piece = piece[: ending.end()] if ending else piece
        yield piece


def _split(pieces: Iterator[bytes]) -> Iterator[list[bytes]]:
    """The lines that each piece of a file ends."""
    rest = b""
    for piece in pieces:
        lines = (rest + piece).splitlines()
        rest = b""
        if not piece.endswith(b"\n"):
            # the line may go on, or a \n follow that belongs to its \r
            rest = lines.pop() + (b"\r" if piece.endswith(b"\r") else b"")
        yield lines
    yield rest.splitlines()
