"""Writes the parts of a batch to files that become visible when the batch is committed."""

import glob
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, Protocol
from urllib.parse import quote

import attrs

from amadou import Param
from amadou.errors import SinkError
from amadou.paths import local_path
from amadou.plugins import SinkBatch, SinkWriter
from amadou_plugins.connectors._last_commits import LastCommits


class Content(Protocol):
    """Writes values to one file, in the file's format."""

    def write(self, encoded_values: Sequence[Any]) -> None:
        """Write one or more values that the sink's codec has encoded."""

    def end(self) -> None:
        """Write the remaining values, but leave the file open. After a failure, this method can be called again."""


class LinesContent:
    """Content of a line-based format: `write` writes complete lines, so no values remain for `end`."""

    def __init__(self, batch: SinkBatch, file: IO[bytes]) -> None:
        self._batch = batch
        self._file = file

    def end(self) -> None:
        pass


@attrs.frozen
class PartFiles:
    """The files in a sink's directory.

    :param sink: name of the sink's class, for error messages
    :param path: the sink's path
    """

    sink: str
    path: str | Path | Param

    @property
    def directory(self) -> str:
        """Absolute path of the directory, valid for all processes on this machine."""
        return os.path.abspath(local_path(str(self.path)))

    @property
    def sent(self) -> Any:
        """The path to send to workers, whose working directory can differ from the driver's."""
        return self.path if isinstance(self.path, Param) else self.directory

    def check(self) -> None:
        """Create the directory, and check that it is writable.

        :raises SinkError: the directory is not writable
        """
        _commits.forget(self.directory)
        with self._explained_errors():
            os.makedirs(self.directory, exist_ok=True)
            probe = os.path.join(self.directory, f".probe-{uuid.uuid4().hex}")
            with open(probe, "xb"):
                os.unlink(probe)

    def open(
        self, batch: SinkBatch, part: str, suffix: str, content: Callable[[IO[bytes]], Content], below: str = ""
    ) -> "PartWriter":
        """Return a writer for the file ``<port>-<run>-<batch>-<part><suffix>``, which is hidden until the commit.

        :param content: function that creates the `Content` of an open file
        :param below: the file's subdirectory, relative to the sink's directory
        """
        name = f"{stem(batch)}-{part}{suffix}"
        # Attempts at the same part may overlap, so each attempt writes a separate file.
        return PartWriter(self, f".{name}.{uuid.uuid4().hex}", os.path.join(below, name), content)

    def commit(self, batch: SinkBatch, files: Sequence[Any], suffix: str, depth: int = 0) -> None:
        """Make a batch's files visible, and remove the files of other attempts at the batch.

        :param files: results of the writers' `finish`
        :param suffix: suffix of the sink's file names; files with other suffixes may belong to another sink of the port
        :param depth: number of directory levels between the sink's directory and the files
        """
        directory, start = self.directory, stem(batch)
        with self._explained_errors():
            os.makedirs(directory, exist_ok=True)
            below = self._committed_before(batch, suffix, depth)
            changed = {os.path.dirname(final) for _, final in files}
            for one in changed:
                os.makedirs(os.path.join(directory, one), exist_ok=True)
            for temporary, final in files:
                self._rename(temporary, final)
            kept = {final for _, final in files}
            mine = re.compile(
                rf"{re.escape(start)}-.*{re.escape(suffix)}|\.{re.escape(start)}-.*{re.escape(suffix)}\.\w+"
            )
            left = [*(name for name in os.listdir(directory) if mine.fullmatch(name)), *below]
            for name in left:
                if name not in kept:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))
            for one in {*changed, *map(os.path.dirname, left)}:
                _sync_directories(directory, one)
            _commits.end(directory, batch, suffix)

    def opened(self, temporary: str) -> IO[bytes]:
        """Open a hidden file.

        :raises SinkError: the file does not exist
        """
        try:
            return open(os.path.join(self.directory, temporary), "rb")
        except FileNotFoundError:
            raise self._missing(temporary) from None

    def is_committed(self, batch: SinkBatch, files: Sequence[Any], suffix: str, depth: int = 0) -> bool:
        """Return `True` if these files are already committed: a hidden file is missing, and the batch has visible
        files.
        """
        hidden = [temporary for temporary, _ in files]
        if all(os.path.exists(os.path.join(self.directory, name)) for name in hidden):
            return False
        return bool(self._find(batch, suffix, depth))

    def _committed_before(self, batch: SinkBatch, suffix: str, depth: int) -> list[str]:
        """Return the batch's files that an earlier commit left in subdirectories. Subdirectories can contain many
        files, so they are searched only if this process did not commit the previous batch.
        """
        may_be_left = _commits.begin(self.directory, batch, suffix)
        return self._find(batch, suffix, depth) if depth and may_be_left else []

    def _find(self, batch: SinkBatch, suffix: str, depth: int) -> list[str]:
        """Return the batch's visible files."""
        pattern = os.path.join(*["*"] * depth, f"{glob.escape(stem(batch))}-*{glob.escape(suffix)}")
        return glob.glob(pattern, root_dir=self.directory)

    def _rename(self, temporary: str, final: str) -> None:
        target = os.path.join(self.directory, final)
        try:
            os.replace(os.path.join(self.directory, temporary), target)
        except FileNotFoundError:
            if not os.path.exists(target):  # if the target exists, an interrupted commit is being repeated
                raise self._missing(temporary) from None

    def _missing(self, temporary: str) -> SinkError:
        return SinkError(
            f"the file {temporary}, which a worker wrote, is not in {self.directory}: on a cluster, {self.sink} "
            "needs a directory that all machines share"
        )

    @contextmanager
    def _explained_errors(self) -> Iterator[None]:
        directory = self.directory
        try:
            yield
        except (FileExistsError, NotADirectoryError) as error:
            raise SinkError(f"{directory} is not a directory: give {self.sink} a different path") from error
        except PermissionError as error:
            message = f"no permission to write to {directory}: give the user who runs the job write access"
            raise SinkError(message) from error
        except OSError as error:
            raise SinkError(
                f"cannot write to the directory {directory}: check the path, its permissions and the disk ({error})"
            ) from error


class PartWriter(SinkWriter):
    """Writes a hidden file; see `PartFiles.open`."""

    def __init__(self, files: PartFiles, temporary: str, final: str, content: Callable[[IO[bytes]], Content]) -> None:
        self._files = files
        self._temporary = temporary
        self._final = final
        self._new_content = content
        self._path = os.path.join(files.directory, temporary)
        self._file: IO[bytes] | None = None
        self._content: Content | None = None

    def write(self, encoded_values: Sequence[Any]) -> None:
        if not encoded_values:
            return
        with self._files._explained_errors():
            if self._content is None:
                os.makedirs(self._files.directory, exist_ok=True)
                self._file = open(self._path, "xb")  # noqa: SIM115 - closed in finish
                self._content = self._new_content(self._file)
            self._content.write(encoded_values)

    def finish(self) -> list[str] | None:
        if self._file is None or self._content is None:
            return None
        with self._files._explained_errors(), self._file as file:
            self._content.end()
            file.flush()
            os.fsync(file.fileno())
        return [self._temporary, self._final]

    def abort(self) -> None:
        if self._file is not None:
            with suppress(Exception):  # such as a full disk: the file is deleted anyway
                if self._content is not None:
                    self._content.end()
            with suppress(OSError):
                self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._path)


_commits: Final = LastCommits()


def stem(batch: SinkBatch) -> str:
    """Return how the names of a batch's files begin."""
    port = re.sub(r"^[._]", lambda match: f"%{ord(match[0]):02X}", quote(batch.port, safe=""))
    return f"{port}-{quote(batch.run, safe='')}-{batch.number:09}"


def _sync_directories(directory: str, below: str) -> None:
    """Flush a directory and its parents, up to the sink's directory, to disk. The renames of a committed batch then
    survive a power failure.

    :param directory: the sink's directory
    :param below: the directory to flush, relative to the sink's directory
    """
    while True:
        descriptor = os.open(os.path.join(directory, below), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not below:
            return
        below = os.path.dirname(below)
