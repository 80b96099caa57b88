"""Finds the files that a source's path refers to, on this machine and through Spark."""

import bz2
import glob
import gzip
import io
import logging
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import attrs

from amadou import Param
from amadou.errors import SourceError
from amadou.paths import is_remote, local_path
from amadou.remote_files import RemoteDirectory

PACKED: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
"""Functions that open compressed files, by file name suffix."""
_FILE_COLUMNS = "path STRING, modificationTime TIMESTAMP, length BIGINT, content BINARY"
_GLOB = re.compile(r"[*?\[]")
_SPARK_GLOB = re.compile(r"[*?\[\]{}\\]")
_logger = logging.getLogger("amadou")


@attrs.frozen
class FoundFiles:
    """The files that a source reads. Subdirectories, and files whose names begin with ``.`` or ``_``, are ignored.

    :param source: name of the source's class, for error messages
    :param path: a file, a directory, a glob, or a URI that Spark reads
    """

    source: str
    path: str | Path | Param

    @property
    def bounded(self) -> bool:
        """`True` if the path is a single file."""
        if self.is_remote or self._is_glob or str(self.path).endswith("/"):
            return False
        return not os.path.isdir(self._local)

    @property
    def is_remote(self) -> bool:
        """`True` if only Spark can access the files."""
        return is_remote(str(self.path))

    def check(self) -> None:
        """Check that the engine can find and read the files. If there are subdirectories but no files, log a warning
        instead of raising an error, because files may still arrive.

        :raises SourceError: the files cannot be found or read
        """
        if self.is_remote:
            self._check_remote()
            return
        path, label = self._local, self._named
        if self._is_glob:
            parent = _fixed_parent(path)
            if not os.path.isdir(parent):
                raise SourceError(f"{label}: there is no directory {parent}: create it, or correct the path")
        elif not os.path.exists(path):
            raise SourceError(f"{label}: there is no file or directory {path}: create it, or correct the path")
        elif not os.access(path, os.R_OK):
            raise SourceError(f"{label}: no permission to read {path}: give the user who runs the job read access")
        elif self.bounded and _is_hidden(path):
            raise SourceError(f"{label}: the file name begins with '.' or '_', so Spark would skip the file: rename it")
        files = self._listed()
        for file in files:
            self._check_name(label, file)
        below = [] if files else self._below()
        if below:
            given = local_path(str(self.path))
            deeper = os.path.join(given if self._is_glob else glob.escape(given), "*")
            label += f": there are no files yet, and subdirectories such as {below[0]} are not read"
            _logger.warning("%s: use %s(%r) to read them", label, self.source, deeper)

    def _check_remote(self) -> None:
        path = str(self.path)
        try:
            exists = RemoteDirectory(path).exists("")
        except OSError as error:
            raise SourceError(f"{self._named} cannot be read: {error}") from error
        if not exists and _SPARK_GLOB.search(path) is None:
            raise SourceError(f"{self._named}: there is no file or directory {path}: create it, or correct the path")

    def paths(self) -> list[str]:
        """Return the paths of the source's files that currently exist on this machine, in sorted order.

        :raises SourceError: only Spark can access the files
        """
        if self.is_remote:
            raise SourceError(
                f"{self._named}: the embedded engine reads local files only: run the job with engine='spark', or copy "
                "the files to this machine"
            )
        return self._listed()

    def stream(self, reader: Any, max_files_per_batch: Any) -> Any:
        """Return a streaming DataFrame with one row per file, and the columns of `_FILE_COLUMNS`."""
        reader, path = self.for_spark(reader, max_files_per_batch)
        return reader.format("binaryFile").schema(_FILE_COLUMNS).load(path)

    def whole_stream(self, spark: Any, reader: Any, max_files_per_batch: Any) -> Any:
        """Return the DataFrame for `Source.read_stream`, with one row per file. A file is never split across tasks."""
        files = self.stream(reader, max_files_per_batch).repartition(spark.sparkContext.defaultParallelism)
        cell = "struct(path, content)" if self.is_remote else "struct(path)"
        return files.selectExpr(f"{cell} AS record", "path AS partition", "0L AS position")

    def for_spark(self, reader: Any, max_files_per_batch: Any) -> tuple[Any, str]:
        """Set the options that Spark needs for these files. Return the `DataStreamReader` and the path to load."""
        # By default, Spark ignores files more than a week older than the newest file, even if they are unread.
        reader = reader.option("maxFileAge", "36500d")
        if max_files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", max_files_per_batch)
        if self.is_remote:
            return reader, str(self.path)
        if self._is_glob:
            path = re.sub(r"([{}\\])", r"\\\1", self._local)  # wildcards in Spark, but not in Python's glob
        elif self.bounded:
            # Spark can stream only directories, so a filter selects the single file in its directory.
            path, file = os.path.split(self._local)
            path, reader = _spark_escaped(path), reader.option("pathGlobFilter", _spark_escaped(file))
        else:
            path = _spark_escaped(self._local)
        return reader, f"file:{path}"

    @property
    def _named(self) -> str:
        return f"{self.source}({str(self.path)!r})"

    def _check_name(self, label: str, file: str) -> None:
        if ":" in os.path.basename(file):
            raise SourceError(f"{label}: Spark cannot read {file} because of the ':' in its name: rename the file")
        if not self.bounded and _SPARK_GLOB.search(file):
            # Seen on Spark 4.3.0: if a batch has a file with such a name, Spark reads the batch's other files twice.
            raise SourceError(
                f"{label}: Spark treats the characters *?[]{{}}\\ in {file} as a pattern, and would read other "
                "files twice: rename the file or its directory"
            )

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

    def _listed(self) -> list[str]:
        if self.bounded:
            return [self._local]
        found: list[str] = []
        for match in self._matches():
            if os.path.isdir(match):
                found += [entry.path for entry in os.scandir(match) if entry.is_file() and not _is_hidden(entry.path)]
            elif not _is_hidden(match):
                found.append(match)
        return sorted(found)

    def _below(self) -> list[str]:
        """Return the subdirectories, whose files are not read."""
        entries = [entry for match in self._matches() if os.path.isdir(match) for entry in os.scandir(match)]
        return sorted(entry.path for entry in entries if entry.is_dir() and not _is_hidden(entry.path))

    def _matches(self) -> list[str]:
        return glob.glob(self._local) if self._is_glob else [self._local]


@contextmanager
def reading(source: str, path: str, *errors: type[Exception]) -> Iterator[None]:
    """Raise a `SourceError` that names the file if the file cannot be read.

    :param errors: exceptions to convert, in addition to errors from opening and decompressing the file
    """
    expected: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error, *errors)
    try:
        yield
    except expected as error:
        raise SourceError(f"{source}: {path} cannot be read: check the file and its permissions ({error})") from error


def opened(path: str, content: bytes | None = None) -> IO[bytes]:
    """Open a file; decompress it if its suffix is in `PACKED`.

    :param content: content of the file, if Spark has already read it
    """
    file: Any = path if content is None else io.BytesIO(content)
    opener = next((opener for end, opener in PACKED.items() if path.endswith(end)), None)
    if opener is not None:
        return opener(file, "rb")  # type: ignore[no-any-return]
    return open(path, "rb") if content is None else file


def _is_hidden(path: str) -> bool:
    return os.path.basename(path).startswith((".", "_"))


def _spark_escaped(path: str) -> str:
    return _SPARK_GLOB.sub(lambda match: f"\\{match[0]}", path)


def _fixed_parent(pattern: str) -> str:
    """Return a pattern's deepest parent directory without wildcards in its path."""
    parent = os.path.dirname(pattern)
    while glob.has_magic(parent):
        parent = os.path.dirname(parent)
    return parent
