"""Access to the files in a checkpoint: in the local file system, or in any other file system that Hadoop supports.

Hadoop can access local files, too. But Hadoop starts two processes for each file that it writes, which takes 8 ms.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from amadou.errors import CheckpointError
from amadou_runtime.spark.local_file import write_file

_Result = TypeVar("_Result")


class Files(Protocol):
    """Reads and writes small files in a checkpoint. Each method raises a CheckpointError if the file system raises an
    error.

    :ivar checkpoint: the directory, as an absolute path or a URI
    """

    checkpoint: str

    def exists(self, name: str) -> bool:
        """Return `True` if a file or directory with this name exists."""

    def names(self, directory: str) -> list[str]:
        """Return the names of a directory's entries; an empty list if the directory does not exist."""

    def read(self, name: str) -> str | None:
        """Return the text of a file; `None` if the file does not exist."""

    def write(self, name: str, text: str) -> None:
        """Write a file. Readers never see a partly written file. Except in the local file system, a crash during the
        replacement of an older file can leave no file with this name.
        """

    def remove(self, name: str) -> None:
        """Remove a file, or a directory with all files in it, if it exists."""

    def move(self, name: str, to: str) -> None:
        """Move a file or a directory within the checkpoint. The new name must not exist."""


def checkpoint_files(spark: Any, checkpoint: str) -> Files:
    """Return access to a checkpoint's files.

    :param spark: the `SparkSession`
    :param checkpoint: the directory, as an absolute path or a URI
    :raises CheckpointError: Hadoop cannot access the file system
    """
    directory = local_path(spark, checkpoint)
    return HadoopFiles(spark, checkpoint) if directory is None else LocalFiles(checkpoint, directory)


def local_path(spark: Any, checkpoint: str) -> Path | None:
    """Return the local directory of a checkpoint; `None` if the checkpoint is in another file system.

    :raises CheckpointError: Hadoop cannot access the file system
    """
    path, system = _located(spark, checkpoint)
    return Path(str(system.makeQualified(path).toUri().getPath())) if system.getScheme() == "file" else None


def local_files(checkpoint: str) -> "LocalFiles | None":
    """Return access to a checkpoint's files without Spark; `None` if its path may be in another file system.

    :param checkpoint: the directory, as an absolute path or a URI
    """
    if checkpoint.startswith(("/", "file:")):
        path = Path(checkpoint.removeprefix("file://").removeprefix("file:"))
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
        path = self.directory / directory
        return self._try("read", lambda: os.listdir(path) if path.exists() else [])

    def read(self, name: str) -> str | None:
        path = self.directory / name
        return self._try("read", lambda: path.read_text("utf-8") if path.exists() else None)

    def write(self, name: str, text: str) -> None:
        path = self.directory / name

        def write() -> None:
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
        except (OSError, UnicodeDecodeError) as error:
            raise _error(self.checkpoint, what, error) from error


class HadoopFiles:
    """The files of a checkpoint in a file system that Hadoop supports; see `Files`.

    :param spark: the `SparkSession`
    :param checkpoint: the directory, as an absolute path or a URI
    """

    def __init__(self, spark: Any, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        _, self._system = _located(spark, checkpoint)
        self._path = spark._jvm.org.apache.hadoop.fs.Path  # finding a Java class by name takes longer than using it
        self._text = spark._jvm.org.apache.commons.io.IOUtils.toString

    def exists(self, name: str) -> bool:
        return self._try("read", lambda: bool(self._system.exists(self._located(name))))

    def names(self, directory: str) -> list[str]:
        path = self._located(directory)

        def names() -> list[str]:
            found = self._system.listStatus(path) if self._system.exists(path) else ()
            return [str(status.getPath().getName()) for status in found]

        return self._try("read", names)

    def read(self, name: str) -> str | None:
        path = self._located(name)

        def read() -> str | None:
            if not self._system.exists(path):
                return None
            stream = self._system.open(path)
            try:
                return str(self._text(stream, "UTF-8"))
            finally:
                stream.close()

        return self._try("read", read)

    def write(self, name: str, text: str) -> None:
        path, beside = self._located(name), self._located(f"{name}.tmp")

        def write() -> None:
            stream = self._system.create(beside, True)
            stream.write(bytearray(text.encode()))
            stream.close()
            if self._system.exists(path):
                self._system.delete(path, False)
            if not self._system.rename(beside, path):
                raise OSError(f"cannot rename {beside} to {path}")

        self._try("written", write)

    def remove(self, name: str) -> None:
        self._try("written", lambda: self._system.delete(self._located(name), True))

    def move(self, name: str, to: str) -> None:
        source, target = self._located(name), self._located(to)

        def move() -> None:
            self._system.mkdirs(target.getParent())
            if not self._system.rename(source, target):
                raise OSError(f"cannot rename {source} to {target}")

        self._try("written", move)

    def _located(self, name: str) -> Any:
        return self._path(f"{self.checkpoint}/{name}")

    def _try(self, what: str, do: Callable[[], _Result]) -> _Result:
        try:
            return do()
        except Exception as error:  # py4j wraps all Hadoop errors
            raise _error(self.checkpoint, what, error) from error


def _located(spark: Any, checkpoint: str) -> tuple[Any, Any]:
    """Return a checkpoint's Hadoop path and file system."""
    try:
        path = spark._jvm.org.apache.hadoop.fs.Path(checkpoint)
        return path, path.getFileSystem(spark._jsc.hadoopConfiguration())
    except Exception as error:  # py4j wraps all Hadoop errors
        raise _error(checkpoint, "read", error) from error


def _error(checkpoint: str, what: str, error: Exception) -> CheckpointError:
    reason = str(getattr(error, "java_exception", error)).splitlines()[0]
    return CheckpointError(checkpoint, f"it cannot be {what}: check the file system ({reason})")
