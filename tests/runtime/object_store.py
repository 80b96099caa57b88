"""An object store in memory, with the interface of Hadoop's file systems. It can fail, or its user can be killed,
between any two changes of objects.
"""

# ruff: noqa: N802

import io
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Literal

Fault = Literal["killed", "error", "outage"]


class ObjectStore:
    """Objects by path.

    :ivar objects: the contents of the objects by path
    """

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = dict(objects)
        self._left: int | None = None
        self._fault: Fault = "error"
        self._is_out = False

    def fail_at(self, change: int | None, fault: Fault = "error") -> None:
        """Let the change with a number fail, counted from now on: once, or with all later requests in an outage."""
        self._left, self._fault, self._is_out = change, fault, False

    @property
    def has_failed(self) -> bool:
        return self._left == -1

    @property
    def spark(self) -> Any:
        """A `SparkSession` that can only access this file system, as ``gs://``."""

        def path_of(text: str) -> "Path":
            return Path(self, text.removeprefix("gs://"))

        streams = SimpleNamespace(toByteArray=lambda stream: stream.read())
        commons = SimpleNamespace(io=SimpleNamespace(IOUtils=streams))
        version = SimpleNamespace(VersionInfo=SimpleNamespace(getVersion=lambda: "3.5.0"))
        hadoop = SimpleNamespace(fs=SimpleNamespace(Path=path_of), util=version)
        jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop, commons=commons)))
        jsc = SimpleNamespace(hadoopConfiguration=lambda: None)
        return SimpleNamespace(sparkContext=SimpleNamespace(_jvm=jvm, _gateway=None, _jsc=jsc))

    def getScheme(self) -> str:
        return "gs"

    def exists(self, path: "Path") -> bool:
        self._request()
        return path.text in self.objects or any(self._below(path))

    def getFileStatus(self, path: "Path") -> Any:
        self._request()
        return SimpleNamespace(isDirectory=lambda: path.text not in self.objects)

    def listStatus(self, path: "Path") -> list[Any]:
        self._request()
        names = {found.removeprefix(f"{path.text}/").partition("/")[0] for found in self._below(path)}
        if not names:
            raise OSError(f"java.io.FileNotFoundException: {path}")
        return [SimpleNamespace(getPath=lambda name=name: Path(self, f"{path.text}/{name}")) for name in sorted(names)]

    def open(self, path: "Path") -> io.BytesIO:
        self._request()
        if path.text not in self.objects:
            raise OSError(f"java.io.FileNotFoundException: {path}")
        return io.BytesIO(self.objects[path.text])

    def create(self, path: "Path", _: bool) -> Any:
        written = bytearray()

        def close() -> None:
            self._change()
            self.objects[path.text] = bytes(written)

        return SimpleNamespace(write=written.extend, close=close)

    def mkdirs(self, _: "Path") -> None:
        pass

    def rename(self, source: "Path", target: "Path") -> bool:
        """Copy two objects, remove the originals, and so on, as ``s3a`` does with larger numbers."""
        if self.exists(target):
            return False
        found = [source.text] if source.text in self.objects else sorted(self._below(source))
        for first in range(0, len(found), 2):
            page = found[first : first + 2]
            for name in page:
                self._change()
                self.objects[target.text + name.removeprefix(source.text)] = self.objects[name]
            for name in page:
                self._change()
                del self.objects[name]
        return True

    def delete(self, path: "Path", recursive: bool) -> None:
        found = [path.text] if path.text in self.objects else sorted(self._below(path))
        if found and found != [path.text] and not recursive:
            raise OSError(f"{path} is not empty")
        for name in found:
            self._change()
            del self.objects[name]

    def _below(self, path: "Path") -> Iterator[str]:
        return (name for name in self.objects if name.startswith(f"{path.text}/"))

    def _request(self) -> None:
        if self._is_out:
            raise OSError("503 Slow Down")

    def _change(self) -> None:
        self._request()
        if self._left is None or self._left < 0:
            return
        self._left -= 1
        if self._left < 0:
            if self._fault == "killed":
                raise KeyboardInterrupt
            self._is_out = self._fault == "outage"
            raise OSError("503 Slow Down")


class Path:
    """Hadoop's path."""

    def __init__(self, store: ObjectStore, text: str) -> None:
        self._store = store
        self.text = text

    def __str__(self) -> str:
        return f"gs://{self.text}"

    def getFileSystem(self, _: Any) -> ObjectStore:
        return self._store

    def getName(self) -> str:
        return self.text.rpartition("/")[2]

    def getParent(self) -> "Path":
        return Path(self._store, self.text.rpartition("/")[0])
