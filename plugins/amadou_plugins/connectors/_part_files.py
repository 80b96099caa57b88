"""Sinks that write a file for each part of a batch, which becomes visible when the batch is committed."""

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
from amadou_plugins.connectors._path import is_remote, local_path


class Content(Protocol):
    """Turns values into the bytes of one file."""

    def write(self, wires: Sequence[Any]) -> None:
        """Take values as the sink's codec encoded them, one at least."""

    def end(self) -> None:
        """Write what is left; called again where it failed. The file stays open."""


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
        """The directory, as any process of this machine finds it."""
        return os.path.abspath(local_path(str(self.path)))

    @property
    def sent(self) -> Any:
        """The path as workers need it, whose working directory is another."""
        return self.path if isinstance(self.path, Param) else self.directory

    def check(self) -> None:
        """Make the directory, and see whether it can be written.

        :raises SinkError: it cannot
        """
        if is_remote(str(self.path)):
            raise SinkError(f"{self.sink}({str(self.path)!r}) writes to mounted file systems: give a local directory")
        with self._told():
            os.makedirs(self.directory, exist_ok=True)
            probe = os.path.join(self.directory, f".probe-{uuid.uuid4().hex}")
            with open(probe, "xb"):
                os.unlink(probe)

    def open(self, batch: SinkBatch, part: str, suffix: str, content: Callable[[IO[bytes]], Content]) -> SinkWriter:
        """A writer of the file ``<port>-<run>-<batch>-<part><suffix>``, which is hidden until the commit.

        :param content: makes what fills a file
        """
        final = f"{_stem(batch)}-{part}{suffix}"
        # Attempts at one part may overlap: no two of them share a file.
        return _PartWriter(self, f".{final}.{uuid.uuid4().hex}", final, content)

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        """Make a batch's files visible, and remove what other attempts at it left."""
        directory, stem = self.directory, _stem(batch)
        with self._told():
            os.makedirs(directory, exist_ok=True)
            for temporary, final in parts:
                self._rename(temporary, final)
            kept = {final for _, final in parts}
            left = [name for name in os.listdir(directory) if name.startswith((f"{stem}-", f".{stem}-"))]
            for name in left:
                if name not in kept:
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(directory, name))
            if parts or left:
                _sync_directory(directory)

    def _rename(self, temporary: str, final: str) -> None:
        target = os.path.join(self.directory, final)
        try:
            os.replace(os.path.join(self.directory, temporary), target)
        except FileNotFoundError:
            if not os.path.exists(target):  # else this very commit was cut short, and is called again
                raise SinkError(
                    f"the directory {self.directory} lacks the file {temporary} that a worker wrote: on a cluster "
                    f"{self.sink} needs a directory that all machines share"
                ) from None

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


class _PartWriter(SinkWriter):
    def __init__(self, files: PartFiles, temporary: str, final: str, content: Callable[[IO[bytes]], Content]) -> None:
        self._files = files
        self._temporary = temporary
        self._final = final
        self._new_content = content
        self._path = os.path.join(files.directory, temporary)
        self._file: IO[bytes] | None = None
        self._content: Content | None = None

    def write(self, wires: Sequence[Any]) -> None:
        if not wires:
            return
        with self._files._told():
            if self._content is None:
                os.makedirs(self._files.directory, exist_ok=True)
                self._file = open(self._path, "xb")  # noqa: SIM115 - until finish
                self._content = self._new_content(self._file)
            self._content.write(wires)

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
            with suppress(Exception):  # a full disk, say: what is left is not wanted
                if self._content is not None:
                    self._content.end()
            with suppress(OSError):
                self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._path)


def _stem(batch: SinkBatch) -> str:
    port = re.sub(r"^[._]", lambda match: f"%{ord(match[0]):02X}", quote(batch.port, safe=""))
    return f"{port}-{quote(batch.run, safe='')}-{batch.number:09}"


def _sync_directory(directory: str) -> None:
    """Make renames outlive a power cut: the batch counts as done afterwards."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
