"""Access to the files in a checkpoint: in the local file system, or in any other file system that Hadoop supports.

Hadoop can access local files, too. But Hadoop starts two processes for each file that it writes, which takes 8 ms.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from amadou.errors import CheckpointError
from amadou.paths import local_path, make_directory
from amadou.remote_files import RemoteDirectory
from amadou_runtime.formats.local_file import write_file

_Result = TypeVar("_Result")
_MISSING = (FileNotFoundError, NotADirectoryError)


class Files(Protocol):
    """Reads and writes small files in a checkpoint. Each method raises a CheckpointError if the file system raises an
    error.

    :ivar checkpoint: the directory, as an absolute path in the local file system, or as a URI
    """

    checkpoint: str

    def exists(self, name: str) -> bool:
        """Return `True` if a file or directory with this name exists."""

    def names(self, directory: str) -> list[str]:
        """Return the names of a directory's entries, without hidden files, such as those that a killed `write` leaves.
        If the directory does not exist, return an empty list.
        """

    def read(self, name: str) -> str | None:
        """Return the text of a file; `None` if the file does not exist."""

    def write(self, name: str, text: str) -> None:
        """Write a file. Readers never see a partly written file; they see the new or the older file."""

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all files in it, if it exists."""

    def move(self, name: str, to: str) -> None:
        """Move a file or a directory within the checkpoint. The new name must not exist, unless an earlier call was
        interrupted: then the rest moves.
        """


def checkpoint_files(spark: Any, checkpoint: str) -> Files:
    """Return access to a checkpoint's files.

    :param spark: the `SparkSession`
    :param checkpoint: the directory, as a URI, or as an absolute path in Spark's default file system
    :raises CheckpointError: Hadoop cannot access the file system
    """
    directory = _directory(spark, checkpoint)
    local = directory.local
    return RemoteFiles(directory) if local is None else LocalFiles(checkpoint, local)


def is_local(spark: Any, checkpoint: str) -> bool:
    """Return `True` if a checkpoint is in the local file system.

    :raises CheckpointError: Hadoop cannot access the file system
    """
    return _directory(spark, checkpoint).local is not None


def _directory(spark: Any, checkpoint: str) -> RemoteDirectory:
    try:
        return RemoteDirectory(checkpoint, spark.sparkContext)
    except OSError as error:
        raise _error(checkpoint, "read", error) from error


def local_files(checkpoint: str) -> "LocalFiles | None":
    """Return access to a checkpoint's files without Spark; `None` if its path may be in another file system.

    :param checkpoint: the directory, as an absolute path or a URI
    """
    if checkpoint.startswith(("/", "file:")):
        path = Path(local_path(checkpoint))
        return LocalFiles(checkpoint, path) if path.exists() else None
    return None


class LocalFiles:
    """The files of a checkpoint in the local file system; see `Files`.

    :ivar directory: the directory of the checkpoint
    """

    def __init__(self, checkpoint: str, directory: Path) -> None:
        self.checkpoint = checkpoint
        self.directory = directory

    def exists(self, name: str) -> bool:
        return self._try("read", (self.directory / name).exists)

    def names(self, directory: str) -> list[str]:
        def names() -> list[str]:
            with suppress(*_MISSING):
                return _shown(os.listdir(self.directory / directory))
            return []

        return self._try("read", names)

    def read(self, name: str) -> str | None:
        def read() -> str | None:
            path = self.directory / name
            if path.exists() and not path.is_file():  # reading a pipe would not end
                raise OSError(f"{name} is not a regular file")
            with suppress(*_MISSING):
                return path.read_text("utf-8")
            return None

        return self._try("read", read)

    def write(self, name: str, text: str) -> None:
        path = self.directory / name

        def write() -> None:
            make_directory(self.directory)
            path.parent.mkdir(parents=True, exist_ok=True)
            # Hadoop's checksum of an older file with this name would not fit the new file.
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
            write_file(path, text.encode())

        self._try("written", write)

    def remove(self, name: str) -> None:
        path = self.directory / name
        self._try("written", lambda: shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True))

    def move(self, name: str, to: str) -> None:
        target = self.directory / to

        def move() -> None:
            target.parent.mkdir(parents=True, exist_ok=True)
            (self.directory / name).rename(target)

        self._try("written", move)

    def _try(self, what: str, do: Callable[[], _Result]) -> _Result:
        try:
            return do()
        except (OSError, UnicodeDecodeError, MemoryError) as error:
            raise _error(self.checkpoint, what, error) from error


class RemoteFiles:
    """The files of a checkpoint in a file system that Hadoop supports; see `Files`.

    :param directory: the directory of the checkpoint
    """

    def __init__(self, directory: RemoteDirectory) -> None:
        self.checkpoint = directory.path
        self._directory = directory

    def exists(self, name: str) -> bool:
        return self._try("read", lambda: self._directory.exists(name))

    def names(self, directory: str) -> list[str]:
        return self._try("read", lambda: _shown(self._directory.names(directory)))

    def read(self, name: str) -> str | None:
        def read() -> str | None:
            content = self._directory.read(name)
            return None if content is None else content.decode()

        return self._try("read", read)

    def write(self, name: str, text: str) -> None:
        self._try("written", lambda: self._directory.write(name, text.encode()))

    def remove(self, name: str) -> None:
        self._try("written", lambda: self._directory.remove(name))

    def move(self, name: str, to: str) -> None:
        self._try("written", lambda: self._directory.move(name, to))

    def _try(self, what: str, do: Callable[[], _Result]) -> _Result:
        try:
            return do()
        except (OSError, UnicodeDecodeError) as error:
            raise _error(self.checkpoint, what, error) from error


def _shown(names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith(".")]


def _error(checkpoint: str, what: str, error: Exception) -> CheckpointError:
    shown = "a file is too large" if isinstance(error, MemoryError) else error
    return CheckpointError(checkpoint, f"it cannot be {what}: check the file system ({shown})")
