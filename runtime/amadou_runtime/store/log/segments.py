"""The log of a key range: segments with the entries that each batch changed, and a head that lists the segments.

The log is the range's state. Each batch writes its changes to one or more new segments; the newest segment that has an
id decides the entry. A deleted entry is logged as a tombstone, which hides older versions. See `cleaning` for how the
log stays small.
"""

import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NoReturn, Protocol

import attrs

from amadou.engine import pack, unpack
from amadou.errors import AmadouError, RunError, StateDecodeError
from amadou_runtime.core.key_group import OTHER_RELEASE
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed

SEGMENT_BYTES = 1 << 18
"""Maximum size of a segment, except for a segment with a single large entry. A segment is cleaned as a whole: larger
segments make longer pauses. The head lists all segments: smaller ones make it larger.
"""
TIME_BYTES = 8
"""Size of a time."""
NO_TOKEN = b""
"""The token of a range that has not been stored yet."""

_VERSION = 2
_HISTORY = 16
_CRC = 4
_BLOCK, _BLOCK_BYTES = 1 << 8, 1 << 14
"""Number of entries at which a block ends, and the size of its ids and values in bytes. While a log is merged, about
one block of each segment is in memory.
"""

Change = tuple[bytes | None, int | None]
"""An entry's value, and the time at which the entry is due. `None` as the value deletes the entry."""
Changes = Mapping[bytes, Change]
"""Changed entries by id."""
Version = tuple[int, bytes, int | None]
"""A stored entry: the number of its segment (0 for unlogged entries), its value, and its time."""
LoggedVersion = tuple[int, bytes | None, int | None]
"""A version in the log. The value of a tombstone is `None`."""


class Segments(Protocol):
    """Durable storage of one log. It commits the changes of a batch together with the batch."""

    def head(self) -> bytes | None:
        """Return the head; `None` if none is stored."""

    def set_head(self, head: bytes, /) -> None:
        """Store the head."""

    def get(self, number: int, /) -> bytes | None:
        """Return a segment; `None` if it is missing."""

    def put(self, number: int, segment: bytes, /) -> None:
        """Store a segment."""

    def remove(self, number: int, /) -> None:
        """Remove a segment."""


@attrs.frozen
class Segment:
    """Description of a segment. The sizes are those of ids, values and times before compression.

    :param size: size of all entries and tombstones
    :param live: size of the live entries, those that no newer segment has
    :param tombstones: size of the tombstones
    """

    number: int
    size: int
    live: int
    tombstones: int


@attrs.frozen
class Block:
    """A part of a segment: some entries, packed.

    :param segment: the segment's number
    :param first: the first id
    """

    segment: int
    first: bytes
    packed: bytes

    def columns(self) -> tuple[list[bytes], list[bytes | None], list[int | None]]:
        """Return the ids, sorted, the values, and the times."""
        ids, values, times = unpack(self.packed)
        return ids, values, times


@attrs.frozen
class Head:
    """Description of a key range's log.

    :param version: number of batches that stored the range
    :param token: identifies the stored entries; each batch that changes entries draws a new one
    :param history: the last tokens before `token`, each with the number of its last segment; oldest first
    :param last: number of the last segment
    :param forgotten: number of the newest segment whose tombstones were dropped. A view that is older does not learn
        of the deletions from the log.
    :param swept: number of the last segment that the present sweep has cleaned; see `cleaning`
    :param sweep_end: number of the segment with which the sweep ends
    :param entries: number of logged entries
    :param size: size of the logged entries
    :param unlogged: number of unlogged entries
    :param unlogged_size: size of the unlogged entries
    :param run: id of the run that stored the range
    :param extra: the caller's metadata
    """

    version: int = 0
    token: bytes = NO_TOKEN
    history: tuple[tuple[bytes, int], ...] = ()
    segments: tuple[Segment, ...] = ()
    last: int = 0
    forgotten: int = 0
    swept: int = 0
    sweep_end: int = 0
    entries: int = 0
    size: int = 0
    unlogged: int = 0
    unlogged_size: int = 0
    run: str = ""
    extra: bytes | None = None

    @property
    def numbers(self) -> list[int]:
        """The numbers of the segments, in ascending order."""
        return [segment.number for segment in self.segments]

    def after(self, token: bytes) -> int | None:
        """Return the number of the last segment of a view with an older token; `None` if the view cannot be updated
        from newer segments.
        """
        last = dict(self.history).get(token)
        return None if last is None or last < self.forgotten else last

    def next(self, **changes: Any) -> "Head":
        """Return the head of a batch that changes entries."""
        history = (*self.history, (self.token, self.last))[-_HISTORY:]
        return attrs.evolve(self, version=self.version + 1, token=os.urandom(16), history=history, **changes)


class Log:
    """Reads and writes one log.

    :param name: the key range's name, for error messages
    """

    def __init__(self, segments: Segments, name: str) -> None:
        self._segments = segments
        self.name = name
        self.head = self._read_head()

    def _read_head(self) -> Head:
        stored = self._segments.head()
        if stored is None:
            return Head()
        version, *fields = self._open(stored, 0)
        if version != _VERSION:
            why = f"this release reads only version {_VERSION} of a key range's log"
            raise StateDecodeError(version, int, why, advice=OTHER_RELEASE)
        count, token, history, segments, *rest = fields
        numbered = tuple(Segment(*segment) for segment in zip(*segments, strict=True))
        return Head(count, token, tuple((token, last) for token, last in history), numbered, *rest)

    def read(self, number: int) -> Changes:
        """Return the entries and tombstones of a segment.

        :raises RunError: the segment is damaged or missing
        """
        entries: dict[bytes, Change] = {}
        for block in self.blocks(number):
            ids, values, times = block.columns()
            entries.update(zip(ids, zip(values, times, strict=True), strict=True))
        return entries

    def blocks(self, number: int) -> "Iterator[Block]":
        """Yield the parts of a segment, sorted by id.

        :raises RunError: the segment is damaged or missing
        """
        stored = self._segments.get(number)
        if stored is None:
            self.fail(f"segment {number} is missing")
        return (Block(number, *block) for block in self._open(stored, number))

    def newer(self, number: int) -> Iterator[tuple[int, Changes]]:
        """Yield the segments after a number, oldest first."""
        yield from (
            (segment.number, self.read(segment.number)) for segment in self.head.segments if segment.number > number
        )

    def put(self, number: int, entries: Changes) -> int:
        """Store a segment, and return the number of bytes written."""
        segment = _sealed([*_blocks(entries)], number)
        self._segments.put(number, segment)
        return len(segment)

    def remove(self, numbers: Iterable[int]) -> None:
        """Remove segments."""
        for number in numbers:
            self._segments.remove(number)

    def set_head(self, head: Head) -> int:
        """Store the head, and return the number of bytes written."""
        _, count, token, history, segments, *rest = _VERSION, *attrs.astuple(head, recurse=False)
        columns = [[getattr(segment, field.name) for segment in segments] for field in attrs.fields(Segment)]
        stored = _sealed([_VERSION, count, token, [list(pair) for pair in history], columns, *rest], 0)
        self._segments.set_head(stored)
        self.head = head
        return len(stored)

    def fail(self, damage: str, cause: Exception | None = None) -> NoReturn:
        """Raise the error of a damaged log."""
        raise RunError(
            f"the state of key range {self.name} is damaged: {damage}. Restore the checkpoint's state files from a "
            "backup, or start with a new checkpoint directory"
        ) from cause

    def _open(self, stored: bytes, number: int) -> Any:
        part = f"segment {number}" if number else "the head"
        if int.from_bytes(stored[:_CRC], "big") != _checksum(stored[_CRC:], number):
            self.fail(f"the checksum of {part} is wrong")
        try:
            return unpack_compressed(stored[_CRC:])
        except (AmadouError, ValueError, OSError) as error:
            self.fail(f"{part} cannot be read", error)


def described(number: int, entries: Changes) -> Segment:
    """Return the description of a new segment."""
    live = tombstones = 0
    for id_, (value, time) in entries.items():
        if value is None:
            tombstones += len(id_)
        else:
            live += len(id_) + len(value) + (0 if time is None else TIME_BYTES)
    return Segment(number, live + tombstones, live, tombstones)


def split(entries: Changes, last: int) -> Iterator[tuple[Segment, Changes]]:
    """Divide entries into new segments.

    :param last: number of the segment before the first one
    """
    part: dict[bytes, Change] = {}
    size = 0
    for id_, (value, time) in entries.items():
        part[id_] = value, time
        size += len(id_) + len(value or b"") + (0 if time is None else TIME_BYTES)
        if size >= SEGMENT_BYTES:
            last += 1
            yield described(last, part), part
            part, size = {}, 0
    if part:
        yield described(last + 1, part), part


def _blocks(entries: Changes) -> Iterator[list[bytes]]:
    """Yield the blocks of a segment: the first id of each block, and the packed entries."""
    ids = sorted(entries)
    start = size = 0
    for end, id_ in enumerate(ids, 1):
        size += len(id_) + len(entries[id_][0] or b"")
        if size >= _BLOCK_BYTES or end - start == _BLOCK or end == len(ids):
            part = ids[start:end]
            changes = [entries[id_] for id_ in part]
            yield [part[0], pack([part, [value for value, _ in changes], [time for _, time in changes]])]
            start, size = end, 0


def _sealed(value: Any, number: int) -> bytes:
    """Pack a value with a checksum. The checksum covers the number, so that swapped segments are detected."""
    packed = pack_compressed(value)
    return _checksum(packed, number).to_bytes(_CRC, "big") + packed


def _checksum(data: bytes, number: int) -> int:
    return zlib.crc32(data, zlib.crc32(number.to_bytes(8, "big")))
