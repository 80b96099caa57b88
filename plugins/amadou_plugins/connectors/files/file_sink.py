"""The base of sinks that write files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar

import attrs

from amadou import Param, Sink, SinkBatch, SinkWriter
from amadou.errors import SinkError
from amadou_plugins.connectors.files.part_files import Content, PartFiles
from amadou_plugins.connectors.files.path import check_path, path_text


@attrs.frozen
class FileSink(Sink):
    """Writes a directory of files, one for each part of a batch. Exactly-once. Subclasses define the codec and the
    content of a file.

    :param path: the directory, relative to the program's working directory; created if missing. On a cluster all
        machines must share it
    :raises SinkError: there is no path
    """

    guarantee = "exactly-once"
    suffix: ClassVar[str]
    """End of the names of its files."""

    path: str | Path | Param = attrs.field(converter=path_text)

    def __attrs_post_init__(self) -> None:
        check_path(SinkError, type(self).__name__, self.path)

    def __reduce__(self) -> Any:
        fields: Any = attrs.fields(type(self))
        settings = {field.alias: getattr(self, field.name) for field in fields}
        return partial(type(self), **{**settings, "path": self._files.sent}), ()

    def content(self, batch: SinkBatch, file: IO[bytes]) -> Content:
        """Return the content that fills a file with values of a batch."""
        raise NotImplementedError

    def check(self, port: str, type_: Any) -> None:
        self._files.check()

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return self._files.open(batch, part, self.suffix, lambda file: self.content(batch, file))

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        self._files.commit(batch, parts, self.suffix)

    @property
    def _files(self) -> PartFiles:
        return PartFiles(type(self).__name__, self.path)
