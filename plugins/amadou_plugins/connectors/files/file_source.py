"""The base class of sources that read files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from amadou import Param
from amadou.errors import SourceError
from amadou.plugins import PartitionOffset, Source
from amadou_plugins.connectors._settings import check_count
from amadou_plugins.connectors.files.file_log import files_in_log, files_read, log_text
from amadou_plugins.connectors.files.file_partitions import check_partition_by, partition_of_file
from amadou_plugins.connectors.files.found_files import FoundFiles
from amadou_plugins.connectors.files.path import check_path, path_text


@attrs.frozen
class FileSource(Source):
    """Reads records from files. Each subclass defines `_records_of`, which reads one local file."""

    path: str | Path | Param = attrs.field(converter=path_text)
    max_files_per_batch: int | Param | None = attrs.field(default=None, kw_only=True)
    partition_by: str | int | Param | None = attrs.field(default=None, kw_only=True)
    key_event: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        check_path(SourceError, type(self).__name__, self.path)
        check_count(SourceError, "max_files_per_batch", self.max_files_per_batch, optional=True)
        check_partition_by(self.partition_by)

    @property
    def bounded(self) -> bool:
        return self._files.bounded

    def check(self) -> None:
        self._files.check()

    def records(self) -> Iterator[Any]:
        return chain.from_iterable(records for _, records in self.records_by_partition())

    def records_by_partition(self) -> Iterator[tuple[str, Iterable[Any]]]:
        return self._read(self._files.paths())

    def read_from(self, position: Any) -> tuple[Iterator[tuple[str, Iterable[Any]]], list[str]]:
        """Return the records of the files that have not been read yet; the position is the list of files read."""
        read = set(position or ())
        new = [path for path in self._files.paths() if path not in read]
        return self._read(new), sorted({*read, *new})

    def position_at(self, offset: Any, files: Mapping[str, str]) -> list[str]:
        return sorted(files_in_log(files, offset["logOffset"]))

    def offset_at(self, position: Any) -> tuple[Any, Mapping[str, str]]:
        return ({"logOffset": 0}, {"0": log_text(position)}) if position else ({"logOffset": -1}, {})

    def _read(self, paths: Iterable[str]) -> Iterator[tuple[str, Iterable[Any]]]:
        name = self.partition_of
        for path in paths:
            yield "" if name is None else name(path), self._records_of(path)

    @property
    def partition_of(self) -> Callable[[str], str] | None:  # type: ignore[override]
        """Function that maps a file's path to the name of the file's partition; `None` if `partition_by` is not set."""
        if self.partition_by is None:
            return None
        assert not isinstance(self.partition_by, Param)
        return partial(partition_of_file, type(self).__name__, self.partition_by)

    def partition_offsets(self, offset: Any, log: str) -> Mapping[str, PartitionOffset] | None:
        """Return each partition's offset at the end of a batch: the number of files read, and the total number of
        files. Return `None` if `partition_by` is not set.
        """
        name = self.partition_of
        if name is None:
            return None
        return files_read(self._files, name, log, offset["logOffset"])

    def _records_of(self, path: str) -> Iterable[Any]:
        """Return the records from a local file."""
        raise NotImplementedError

    @property
    def _files(self) -> FoundFiles:
        return FoundFiles(type(self).__name__, self.path)
