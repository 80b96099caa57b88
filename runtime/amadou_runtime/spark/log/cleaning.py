"""Keeps a key range's log small.

While the log is more than twice the size of the live entries, each batch moves the live entries of the oldest segments
to its own new segment, and removes the old segments. A batch that changes little makes a small segment: if there are
many small segments, some of them are merged in the same way, so that the head stays small.

A tombstone moves, too, unless a newer segment has its id or an older segment no longer exists.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import attrs

from amadou_runtime.spark.log.records import Difference
from amadou_runtime.spark.log.segments import SEGMENT_BYTES, Change, Changes, Log, Segment

_FACTOR = 2
"""Maximum size of the log relative to the live entries. With 2, cleaning uniform updates adds about a quarter to the
bytes written; with 1.5, as much again as the changes.
"""
_FLOOR = 1 << 16
_SMALL = SEGMENT_BYTES // 2
_MAX_SMALL = 128
_MERGED = 16

Find = Callable[[Iterable[bytes]], Mapping[bytes, int]]
"""Returns the number of the segment that has the newest version of each entry, by id."""


@attrs.frozen
class Cleaned:
    """Result of cleaning.

    :param moved: live entries and tombstones for the new segment
    :param removed: segments to remove
    :param forgotten: see `Head`
    """

    moved: dict[bytes, Change]
    removed: tuple[Segment, ...]
    forgotten: int


def clean(log: Log, segments: Sequence[Segment], changed: Difference, find: Find) -> Cleaned:
    """Choose segments, and return the entries that must be kept.

    :param segments: the log's segments; their `live` does not count the entries that the batch changes
    :param changed: the batch's changes, which need not be moved
    """
    oldest = _oldest(segments, changed.size, changed.live)
    small = _small(segments[oldest:])
    victims = [*segments[:oldest], *small]
    moved: dict[bytes, Change] = {}
    for index, victim in enumerate(victims):
        keeps_tombstones = index >= oldest
        if victim.live or (keeps_tombstones and victim.tombstones):
            moved |= _kept(log, victim.number, changed.changes, find, keeps_tombstones)
    dropped = segments[:oldest]
    if len(victims) == len(segments):
        moved = {id_: change for id_, change in moved.items() if change[0] is not None}
        dropped = segments
    forgotten = max([log.head.forgotten, *(segment.number for segment in dropped if segment.tombstones)])
    return Cleaned(moved, tuple(victims), forgotten)


def _oldest(segments: Sequence[Segment], fresh: int, live: int) -> int:
    """Return the number of oldest segments to clean. The work is limited by the size of the batch."""
    size = fresh + sum(segment.size for segment in segments)
    target = _FACTOR * (live + sum(segment.live for segment in segments)) + _FLOOR
    budget = 4 * fresh + SEGMENT_BYTES
    for index, segment in enumerate(segments):
        cost = segment.size if segment.live else 0
        if size <= target or (index and cost > budget):
            return index
        budget -= cost
        size -= segment.size - segment.live
    return len(segments)


def _small(segments: Sequence[Segment]) -> list[Segment]:
    """Return the small segments to merge, oldest first."""
    small = [segment for segment in segments if segment.size < _SMALL]
    if len(small) <= _MAX_SMALL:
        return []
    cheapest = sorted(small, key=lambda segment: segment.live + segment.tombstones)[:_MERGED]
    return sorted(cheapest, key=lambda segment: segment.number)


def _kept(log: Log, number: int, changes: Changes, find: Find, keeps_tombstones: bool) -> Changes:
    """Return the entries and tombstones of a segment that must be kept."""
    entries = {id_: change for id_, change in log.read(number).items() if id_ not in changes}
    newest = find(entries)
    return {
        id_: change
        for id_, change in entries.items()
        if (newest.get(id_) == number if change[0] is not None else keeps_tombstones and id_ not in newest)
    }
