"""The base class of sinks that write files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

import attrs

from amadou import Param
from amadou.errors import SinkError
from amadou.paths import is_remote
from amadou.plugins import Sink, SinkBatch, SinkWriter
from amadou_plugins.connectors.files.part_files import Content, PartFiles
from amadou_plugins.connectors.files.path import check_path, path_text
from amadou_plugins.connectors.files.remote_parts import RemoteParts


@attrs.frozen
class FileSink(Sink):
    """Writes files to a directory, one per part of a batch. Exactly-once. Subclasses define `suffix`, `codec` and
    `content`.

    :param path: path of the directory, or a URI in a file system that Spark can write to, such as ``s3a://`` or
        ``hdfs://``. A relative path starts at the program's working directory. amadou creates the directory if it is
        missing. On a cluster, all machines must share a local directory. Files for a URI pass through the driver
    :raises SinkError: the path is empty or invalid
    """

    guarantee = "exactly-once"
    suffix: ClassVar[str]
    """Suffix of the file names."""

    path: str | Path | Param = attrs.field(converter=path_text)

    def __attrs_post_init__(self) -> None:
        check_path(SinkError, type(self).__name__, self.path)

    def __reduce__(self) -> Any:
        fields: Any = attrs.fields(type(self))
        settings = {field.alias: getattr(self, field.name) for field in fields}
        return partial(type(self), **{**settings, "path": self._files.sent}), ()

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        """Return a `Content` that writes values of a batch to a file."""
        raise NotImplementedError

    def check(self, port: str, type_: Any) -> None:
        self._files.check()

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return self._files.open(batch, part, self.suffix, lambda file: self.content(batch, file))

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        self._files.commit(batch, parts, self.suffix)

    @property
    def _files(self) -> PartFiles | RemoteParts:
        name, path = type(self).__name__, self.path
        return RemoteParts(name, str(path).rstrip("/")) if is_remote(str(path)) else PartFiles(name, path)
