"""Keeps a key range's log small.

A segment's entries are outdated where a newer segment has their ids. While the log is more than twice the size of the
live entries, each batch writes some segments again without outdated entries, one segment after another from the oldest
to the newest: a *sweep*. A segment keeps its number, so nothing changes for the view. A sweep ends with the segments
that existed when it began. As it has then cleaned all older segments, it also drops tombstones.

A batch that changes little makes a small segment. If there are many segments, some neighbours are merged into one, so
that the head stays small. The merged segment has the number of the last of them. So the entries that the view has from
a segment belong to the first segment with this number or a higher one.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from amadou_runtime.store.log.limits import Limits
from amadou_runtime.store.log.records import Difference
from amadou_runtime.store.log.segments import SEGMENT_BYTES, Changes, Head, Log, Segment, described

_FACTOR = 2
"""Maximum size of the log relative to the live entries. With 2, cleaning uniform updates adds about a quarter to the
bytes written; with 1.5, as much again as the changes.
"""
_SHARE = 4
"""Number of segments above which neighbours are merged, relative to the number of full segments."""

Find = Callable[[Iterable[bytes]], Mapping[bytes, int]]
"""Returns the number of the segment from which the view has each entry, by id."""


@attrs.define
class Cleaned:
    """Result of cleaning.

    :param segments: the log's segments
    :param rewritten: new content of segments, by number
    :param bytes: size of the segments that were removed or rewritten
    :param swept: see `Head`
    :param sweep_end: see `Head`
    :param forgotten: see `Head`
    """

    segments: dict[int, Segment]
    rewritten: dict[int, Changes]
    bytes: int
    swept: int
    sweep_end: int
    forgotten: int

    def replace(self, segment: Segment, live: int, entries: Changes, after: int = 0) -> None:
        """Remove or rewrite a segment.

        :param live: size of the segment's live entries
        :param entries: the segment's new content
        :param after: number of the segment before it. If it was rewritten, too, both become one segment.
        """
        self.bytes += segment.size
        if not entries:
            del self.segments[segment.number]
            return
        if after in self.rewritten and self.segments[after].size + live <= SEGMENT_BYTES:
            live += self.segments.pop(after).live
            entries = {**self.rewritten.pop(after), **entries}
        self.segments[segment.number] = attrs.evolve(described(segment.number, entries), live=live)
        self.rewritten[segment.number] = entries

    def forget(self, segment: Segment) -> None:
        """Note that a segment's tombstones are dropped."""
        if segment.tombstones:
            self.forgotten = max(self.forgotten, segment.number)


def after_deaths(head: Head, dead: Mapping[int, int]) -> list[Segment]:
    """Return a log's segments after entries have become outdated.

    :param dead: size of these entries, by the number of the segment from which the view has them
    """
    numbers = head.numbers
    segments = list(head.segments)
    for number, size in dead.items():
        at = bisect_left(numbers, number)
        segments[at] = attrs.evolve(segments[at], live=segments[at].live - size)
    return segments


def clean(log: Log, segments: Sequence[Segment], changed: Difference, find: Find, limits: Limits) -> Cleaned:
    """Clean or merge segments.

    :param segments: the log's segments; their `live` does not count the entries that the batch changes
    :param changed: the batch's changes, which need not be kept
    """
    head = log.head
    by_number = {segment.number: segment for segment in segments}
    cleaned = Cleaned(by_number, {}, 0, head.swept, head.sweep_end, head.forgotten)
    full = sum(segment.size for segment in segments) // SEGMENT_BYTES
    if len(segments) > max(limits.segments, _SHARE * full) and (neighbours := _neighbours(segments, limits.merged)):
        _merge(log, cleaned, neighbours, changed.changes)
    else:
        _sweep(log, cleaned, changed, find, limits.outdated)
    return cleaned


def _sweep(log: Log, cleaned: Cleaned, changed: Difference, find: Find, outdated: int) -> None:
    """Clean segments. The work is limited by the size of the batch. Once a batch has work to do, it does enough for
    some batches, since neighbours that are cleaned together become one segment.

    :param outdated: see `Limits.outdated`
    """
    segments = [*cleaned.segments.values()]
    excess = changed.size + sum(segment.size for segment in segments)
    excess -= _FACTOR * (changed.live + sum(segment.live for segment in segments)) + outdated
    budget = 4 * changed.size + SEGMENT_BYTES
    for before, segment in _in_turn(cleaned, segments, log.head.last) if excess > 0 else ():
        if segment.live < segment.size:
            if segment.live and segment.size > budget and cleaned.rewritten:
                break
            kept: Changes = {}
            if segment.live:
                budget -= segment.size
                kept = _live(log, before, segment.number, changed.changes, find)
            excess -= segment.size - segment.live
            cleaned.forget(segment)
            cleaned.replace(segment, segment.live, kept, after=before)
        cleaned.swept = segment.number
        if excess <= -SEGMENT_BYTES:
            break


def _in_turn(cleaned: Cleaned, segments: Sequence[Segment], last: int) -> Iterator[tuple[int, Segment]]:
    """Yield the segments that the present sweep has not reached yet, and then begin a new sweep with the others. Each
    segment comes with the number of the segment before it.
    """
    pairs = [*zip([0, *(segment.number for segment in segments)], segments, strict=False)]
    first, end = cleaned.swept, cleaned.sweep_end
    yield from (pair for pair in pairs if first < pair[1].number <= end)
    cleaned.swept, cleaned.sweep_end = 0, last
    yield from (pair for pair in pairs if not first < pair[1].number <= end)


def _live(log: Log, before: int, number: int, changes: Changes, find: Find) -> Changes:
    """Return the live entries of a segment.

    :param before: number of the segment before it
    """
    entries = {id_: entry for id_, entry in log.read(number).items() if entry[0] is not None and id_ not in changes}
    newest = find(entries)
    return {id_: entry for id_, entry in entries.items() if before < newest.get(id_, 0) <= number}


def _neighbours(segments: Sequence[Segment], most: int) -> Sequence[Segment]:
    """Return the neighbouring segments that take the least work to merge, relative to their number.

    :param most: maximum number of segments to return
    """
    best: Sequence[Segment] = ()
    least = float(SEGMENT_BYTES)
    for start, first in enumerate(segments):
        size = first.size
        for end in range(start + 1, min(start + most, len(segments))):
            size += segments[end].size
            if size > SEGMENT_BYTES:
                break
            if size / (end - start) < least:
                least, best = size / (end - start), segments[start : end + 1]
    return best


def _merge(log: Log, cleaned: Cleaned, neighbours: Sequence[Segment], changes: Changes) -> None:
    """Merge neighbouring segments. The newest of several versions is kept."""
    *others, last = neighbours
    is_oldest = neighbours[0].number == min(cleaned.segments)
    entries = {id_: entry for segment in neighbours for id_, entry in log.read(segment.number).items()}
    for id_ in [id_ for id_, (value, _) in entries.items() if id_ in changes or (is_oldest and value is None)]:
        del entries[id_]
    for segment in others:
        cleaned.replace(segment, 0, {})
    cleaned.replace(last, sum(segment.live for segment in neighbours), entries)
    if is_oldest:
        for segment in neighbours:
            cleaned.forget(segment)
