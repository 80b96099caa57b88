"""Files of a checkpoint, wherever Hadoop can reach it."""

from typing import Any

from amadou.errors import CheckpointError


class Files:
    """Reads and writes small files of a checkpoint.

    :param spark: the `SparkSession`
    :param checkpoint: the directory, an absolute path or a URI
    """

    def __init__(self, spark: Any, checkpoint: str) -> None:
        self.checkpoint = checkpoint
        self._jvm = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()

    # Each of these raises a CheckpointError where the file system does.

    def is_local(self) -> bool:
        """Whether the checkpoint lies in the file system of the machine."""
        _, system = self._locate("")
        return bool(system.getScheme() == "file")

    def exists(self, name: str) -> bool:
        """Whether there is such a file or directory."""
        path, system = self._locate(name)
        return bool(self._try("read", lambda: system.exists(path)))

    def names(self, directory: str) -> list[str]:
        """The names of what is in a directory."""
        path, system = self._locate(directory)

        def names() -> list[str]:
            found = system.listStatus(path) if system.exists(path) else ()
            return [str(status.getPath().getName()) for status in found]

        listed: list[str] = self._try("read", names)
        return listed

    def read(self, name: str) -> str | None:
        """The text of a file; `None` where there is none."""
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
        """Write a file, whole or not at all."""
        path, system = self._locate(name)
        beside, _ = self._locate(f"{name}.tmp")

        def write() -> None:
            stream = system.create(beside, True)
            stream.write(bytearray(text.encode()))
            stream.close()
            if system.exists(path):
                system.delete(path, False)
            if not system.rename(beside, path):
                raise OSError(f"cannot rename {beside}")

        self._try("written", write)

    def remove(self, name: str) -> None:
        """Remove a file, should there be one."""
        path, system = self._locate(name)
        self._try("written", lambda: system.delete(path, False))

    def _locate(self, name: str) -> tuple[Any, Any]:
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self.checkpoint}/{name}")
        return path, self._try("read", lambda: path.getFileSystem(self._conf))

    def _try(self, what: str, do: Any) -> Any:
        try:
            return do()
        except Exception as error:  # py4j wraps whatever Hadoop raises
            reason = str(getattr(error, "java_exception", error)).splitlines()[0]
            raise CheckpointError(self.checkpoint, f"it cannot be {what}: {reason}") from error
