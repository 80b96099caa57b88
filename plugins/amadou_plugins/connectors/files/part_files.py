"""Files of the parts of a batch, which become visible when the batch is committed."""

import glob
import os
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Protocol
from urllib.parse import quote

import attrs

from amadou import Param, SinkBatch, SinkWriter
from amadou.errors import SinkError
from amadou_plugins.connectors.files.path import is_remote, local_path


class Content(Protocol):
    """Turns values into the bytes of one file."""

    def write(self, encoded_values: Sequence[Any]) -> None:
        """Write values that the sink's codec has encoded, at least one."""

    def end(self) -> None:
        """Write the rest; called again if it failed. The file stays open."""


@attrs.frozen
class PartFiles:
    """The directory of a sink.

    :param sink: the sink's class, for errors
    :param path: the sink's path
    """

    sink: str
    path: str | Path | Param

    @property
    def directory(self) -> str:
        """The directory as an absolute path, which any process of this machine finds."""
        return os.path.abspath(local_path(str(self.path)))

    @property
    def sent(self) -> Any:
        """The path for workers, whose working directory is another one."""
        return self.path if isinstance(self.path, Param) else self.directory

    def check(self) -> None:
        """Create the directory, and check that it can be written.

        :raises SinkError: the directory cannot be written
        """
        if is_remote(str(self.path)):
            raise SinkError(f"{self.sink}({str(self.path)!r}) writes to mounted file systems: give a local directory")
        with self._told():
            os.makedirs(self.directory, exist_ok=True)
            probe = os.path.join(self.directory, f".probe-{uuid.uuid4().hex}")
            with open(probe, "xb"):
                os.unlink(probe)

    def open(
        self, batch: SinkBatch, part: str, suffix: str, content: Callable[[IO[bytes]], Content], below: str = ""
    ) -> "PartWriter":
        """Return a writer of the file ``<port>-<run>-<batch>-<part><suffix>``, which is hidden until the commit.

        :param content: function that makes the content of a file
        :param below: subdirectory of the file
        """
        name = f"{_stem(batch)}-{part}{suffix}"
        # Attempts at one part may overlap, so each has a file of its own.
        return PartWriter(self, f".{name}.{uuid.uuid4().hex}", os.path.join(below, name), content)

    def commit(self, batch: SinkBatch, files: Sequence[Any], suffix: str, depth: int = 0) -> None:
        """Make a batch's files visible, and remove the files of other attempts at it.

        :param files: results of the writers' `finish`
        :param suffix: end of the names of the sink's files: another sink of the port may share the directory
        :param depth: number of directory levels between the sink's directory and the files
        """
        directory, stem = self.directory, _stem(batch)
        with self._told():
            os.makedirs(directory, exist_ok=True)
            below = self._committed_before(batch, suffix, depth)
            changed = {os.path.dirname(final) for _, final in files}
            for one in changed:
                os.makedirs(os.path.join(directory, one), exist_ok=True)
            for temporary, final in files:
                self._rename(temporary, final)
            kept = {final for _, final in files}
            mine = re.compile(
                rf"{re.escape(stem)}-.*{re.escape(suffix)}|\.{re.escape(stem)}-.*{re.escape(suffix)}\.\w+"
            )
            left = [*(name for name in os.listdir(directory) if mine.fullmatch(name)), *below]
            for name in left:
                if name not in kept:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))
            for one in {*changed, *map(os.path.dirname, left)}:
                _sync_directories(directory, one)
            _last[directory, batch.run, batch.port, suffix] = batch.number

    def path_of(self, temporary: str) -> str:
        """Return the path of a hidden file.

        :raises SinkError: the file does not exist
        """
        path = os.path.join(self.directory, temporary)
        if not os.path.exists(path):
            raise self._missing(temporary)
        return path

    def is_committed(self, batch: SinkBatch, files: Sequence[Any], suffix: str, depth: int = 0) -> bool:
        """Return true if these very files were committed: a hidden file is missing, and the batch has visible files."""
        hidden = [temporary for temporary, _ in files]
        if all(os.path.exists(os.path.join(self.directory, name)) for name in hidden):
            return False
        return bool(self._find(batch, suffix, depth))

    def _committed_before(self, batch: SinkBatch, suffix: str, depth: int) -> list[str]:
        """Return the batch's files in subdirectories, from an earlier commit. Searches only if there may be any: the
        subdirectories may hold many files.
        """
        key = self.directory, batch.run, batch.port, suffix
        if not depth or _last.pop(key, None) == batch.number - 1:
            return []
        return self._find(batch, suffix, depth)

    def _find(self, batch: SinkBatch, suffix: str, depth: int) -> list[str]:
        """Return the batch's visible files."""
        pattern = os.path.join(*["*"] * depth, f"{glob.escape(_stem(batch))}-*{glob.escape(suffix)}")
        return glob.glob(pattern, root_dir=self.directory)

    def _rename(self, temporary: str, final: str) -> None:
        target = os.path.join(self.directory, final)
        try:
            os.replace(os.path.join(self.directory, temporary), target)
        except FileNotFoundError:
            if not os.path.exists(target):  # otherwise this commit was interrupted, and is called again
                raise self._missing(temporary) from None

    def _missing(self, temporary: str) -> SinkError:
        return SinkError(
            f"the directory {self.directory} lacks the file {temporary} that a worker wrote: on a cluster {self.sink} "
            "needs a directory that all machines share"
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        directory = self.directory
        try:
            yield
        except (FileExistsError, NotADirectoryError) as error:
            raise SinkError(f"{directory} is not a directory: give {self.sink} another path") from error
        except PermissionError as error:
            told = f"the directory {directory} may not be written by this user: change its permissions"
            raise SinkError(told) from error
        except OSError as error:
            raise SinkError(f"the directory {directory} cannot be written: {error}") from error


class PartWriter(SinkWriter):
    """Fills a hidden file; see `PartFiles.open`."""

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
        with self._files._told():
            if self._content is None:
                os.makedirs(self._files.directory, exist_ok=True)
                self._file = open(self._path, "xb")  # noqa: SIM115 - until finish
                self._content = self._new_content(self._file)
            self._content.write(encoded_values)

    def finish(self) -> list[str] | None:
        if self._file is None or self._content is None:
            return None
        with self._files._told(), self._file as file:
            self._content.end()
            file.flush()
            os.fsync(file.fileno())
        return [self._temporary, self._final]

    def abort(self) -> None:
        if self._file is not None:
            with suppress(Exception):  # a full disk, say: the rest is not needed
                if self._content is not None:
                    self._content.end()
            with suppress(OSError):
                self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._path)


_last: dict[tuple[str, str, str, str], int] = {}
"""The last batch that this process committed to a directory, by run, port and suffix."""


def _stem(batch: SinkBatch) -> str:
    port = re.sub(r"^[._]", lambda match: f"%{ord(match[0]):02X}", quote(batch.port, safe=""))
    return f"{port}-{quote(batch.run, safe='')}-{batch.number:09}"


def _sync_directories(directory: str, below: str) -> None:
    """Make renames survive a power cut: the batch counts as done afterwards."""
    while True:
        descriptor = os.open(os.path.join(directory, below), os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if not below:
            return
        below = os.path.dirname(below)
