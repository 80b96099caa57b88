"""Access to the files in a checkpoint, in any file system that Hadoop supports."""

from typing import Any

from amadou.errors import CheckpointError


class Files:
    """Reads and writes small files in a checkpoint.

    :param spark: the `SparkSession`
    :param checkpoint: the directory, as an absolute path or a URI
    """

    def __init__(self, spark: Any, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        self._jvm = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()

    # Each of the methods below raises a CheckpointError if the file system raises an error.

    def is_local(self) -> bool:
        """Return `True` if the checkpoint is in the local file system."""
        _, system = self._locate("")
        return bool(system.getScheme() == "file")

    def exists(self, name: str) -> bool:
        """Return `True` if a file or directory with this name exists."""
        path, system = self._locate(name)
        return bool(self._try("read", lambda: system.exists(path)))

    def names(self, directory: str) -> list[str]:
        """Return the names of a directory's entries; an empty list if the directory does not exist."""
        path, system = self._locate(directory)

        def names() -> list[str]:
            found = system.listStatus(path) if system.exists(path) else ()
            return [str(status.getPath().getName()) for status in found]

        listed: list[str] = self._try("read", names)
        return listed

    def read(self, name: str) -> str | None:
        """Return the text of a file; `None` if the file does not exist."""
        path, system = self._locate(name)

        def read() -> str | None:
            if not system.exists(path):
                return None
            stream = system.open(path)
            try:
                return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

        text: str | None = self._try("read", read)
        return text

    def write(self, name: str, text: str) -> None:
        """Write a file. Readers never see a partly written file. A crash during the replacement of an older file can
        leave no file with this name.
        """
        path, system = self._locate(name)
        beside, _ = self._locate(f"{name}.tmp")

        def write() -> None:
            stream = system.create(beside, True)
            stream.write(bytearray(text.encode()))
            stream.close()
            if system.exists(path):
                system.delete(path, False)
            if not system.rename(beside, path):
                raise OSError(f"cannot rename {beside} to {path}")

        self._try("written", write)

    def remove(self, name: str) -> None:
        """Remove a file if it exists."""
        path, system = self._locate(name)
        self._try("written", lambda: system.delete(path, False))

    def _locate(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.checkpoint}/{name}")
        return path, self._try("read", lambda: path.getFileSystem(self._conf))

    def _try(self, what: str, do: Any) -> Any:
        try:
            return do()
        except Exception as error:  # py4j wraps all Hadoop errors
            reason = str(getattr(error, "java_exception", error)).splitlines()[0]
            raise CheckpointError(self.checkpoint, f"it cannot be {what}: check the file system ({reason})") from error
