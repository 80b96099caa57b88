"""Segments in memory, for tests of a key range's storage."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amadou_runtime.store.log.entries import RangeEntries
from amadou_runtime.store.log.limits import LIMITS, Limits


class MemorySegments:
    """A log in memory. A batch works on a copy, which is kept only if the batch is committed.

    :param limits: the limits with which the key range is opened
    """

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.limits = limits
        self.stored_head: bytes | None = None
        self.segments: dict[int, bytes] = {}
        self.read: list[int] = []

    def copy(self) -> "MemorySegments":
        other = MemorySegments(self.limits)
        other.stored_head, other.segments = self.stored_head, dict(self.segments)
        return other

    def head(self) -> bytes | None:
        return self.stored_head

    def set_head(self, head: bytes) -> None:
        self.stored_head = head

    def get(self, number: int) -> bytes | None:
        self.read.append(number)
        return self.segments.get(number)

    def put(self, number: int, segment: bytes) -> None:
        self.segments[number] = segment

    def remove(self, number: int) -> None:
        del self.segments[number]

    @property
    def size(self) -> int:
        return sum(map(len, self.segments.values()))


@contextmanager
def opened(segments: MemorySegments, directory: Path, run: str = "run 1") -> Iterator[RangeEntries]:
    with RangeEntries.open(segments, directory, "3", run, segments.limits) as entries:
        yield entries
