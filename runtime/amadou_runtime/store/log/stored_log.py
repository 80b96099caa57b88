"""Reads the log of a key range that has been copied out of Spark's state."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO

from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.store.entries import Entries
from amadou_runtime.store.group_by_key import GroupByKey
from amadou_runtime.store.log.logged_range import PACKED, PREFIX
from amadou_runtime.store.log.merging import merged
from amadou_runtime.store.log.segments import Log
from amadou_runtime.store.packed_group import PackedGroup, joined


class ReadOnlySegments:
    """Segments of a log that cannot be changed; see `Segments`. Subclasses define `get`."""

    def head(self) -> bytes | None:
        return self.get(0)

    def get(self, number: int, /) -> bytes | None:
        """Return a segment, or the head as number 0; `None` if it is missing."""
        raise NotImplementedError

    def set_head(self, head: bytes, /) -> None:
        raise NotImplementedError

    def put(self, number: int, segment: bytes, /) -> None:
        raise NotImplementedError

    def remove(self, number: int, /) -> None:
        raise NotImplementedError


class SegmentsInMemory(ReadOnlySegments):
    """Segments of a log in memory, by number."""

    def __init__(self, segments: Mapping[int, bytes]) -> None:
        self._segments = segments

    def get(self, number: int, /) -> bytes | None:
        return self._segments.get(number)


class CopiedSegments(ReadOnlySegments):
    """Segments of a log in a temporary file.

    :param file: the file, open for reading and writing
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._places: dict[int, tuple[int, int]] = {}

    def add(self, number: int, segment: bytes) -> None:
        """Add a segment, or the head as number 0."""
        self._places[number] = self._file.seek(0, 2), len(segment)
        self._file.write(segment)

    def get(self, number: int, /) -> bytes | None:
        if number not in self._places:
            return None
        offset, size = self._places[number]
        self._file.seek(offset)
        return self._file.read(size)


def logged_groups(log: Log, spill: Path) -> Iterator[tuple[int, KeyGroup]]:
    """Yield the key groups of a log, completely loaded, in ascending order. In-memory state is not available.

    :param spill: path of a temporary file
    """
    entries: dict[bytes, bytes] = {}
    for found in merged(log, spill):
        for id_, (_, value, _) in sorted(found.items()):
            if value is None:
                continue
            if entries and not id_.startswith(next(iter(entries))[:PREFIX]):
                yield _group(entries)
                entries = {}
            entries[id_] = value
    if entries:
        yield _group(entries)


def _group(entries: Mapping[bytes, bytes]) -> tuple[int, KeyGroup]:
    prefix = next(iter(entries))[:PREFIX]
    packed = entries.get(prefix + PACKED)
    stored = GroupByKey(CopiedEntries(entries, prefix)) if packed is None else PackedGroup(joined(packed, None))
    group = KeyGroup(stored)
    stored.load_all(group)
    return int.from_bytes(prefix, "big"), group


class CopiedEntries(Entries):
    """The logged entries of a key group."""

    def __init__(self, values: Mapping[bytes, bytes], prefix: bytes) -> None:
        super().__init__(prefix, "")
        self._values = values

    def get(self, ids: list[bytes]) -> list[bytes | None]:
        return list(map(self._values.get, ids))

    def due(self, by: int) -> Iterable[bytes]:
        raise NotImplementedError

    def ids(self, start: bytes = b"") -> Iterable[bytes]:
        return (id_ for id_ in self._values if id_[len(self.prefix) :].startswith(start))
