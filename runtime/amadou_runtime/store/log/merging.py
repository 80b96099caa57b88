"""Merges the segments of a log: yields the newest version of each entry, in the order of the ids, in bounded memory.

Segments are sorted and divided into blocks. All blocks are written to a file. Then, for one range of ids after another,
those blocks are read that have ids in the range.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import IO

import attrs

from amadou_runtime.store.log.segments import Block, Log, LoggedVersion

_BLOCKS = 32
"""Number of blocks that begin in a range of ids."""


@attrs.frozen(order=True)
class _Spilled:
    first: bytes
    segment: int
    offset: int
    size: int


@attrs.frozen
class _Run:
    """The entries of a block that are not merged yet."""

    segment: int
    ids: list[bytes]
    versions: list[LoggedVersion]

    def before(self, limit: bytes | None) -> tuple[dict[bytes, LoggedVersion], "_Run"]:
        """Return the entries whose ids are less than a limit, and the others."""
        end = len(self.ids) if limit is None else bisect_left(self.ids, limit)
        found = dict(zip(self.ids[:end], self.versions, strict=False))
        return found, _Run(self.segment, self.ids[end:], self.versions[end:])


def merged(log: Log, spill: Path) -> Iterator[dict[bytes, LoggedVersion]]:
    """Yield the newest version of the entries in one range of ids after another.

    :param spill: path of the temporary file
    """
    with open(spill, "w+b") as file:
        spill.unlink()
        blocks = sorted(_spill(log, file))
        runs: list[_Run] = []
        for start in range(0, len(blocks), _BLOCKS):
            runs += [_read(file, block) for block in blocks[start : start + _BLOCKS]]
            following = blocks[start + _BLOCKS : start + _BLOCKS + 1]
            newest: dict[bytes, LoggedVersion] = {}
            rest: list[_Run] = []
            for run in sorted(runs, key=lambda run: run.segment):
                found, later = run.before(following[0].first if following else None)
                newest.update(found)
                if later.ids:
                    rest.append(later)
            runs = rest
            yield newest


def _spill(log: Log, file: IO[bytes]) -> Iterator[_Spilled]:
    for segment in log.head.segments:
        for block in log.blocks(segment.number):
            yield _Spilled(block.first, block.segment, file.tell(), len(block.packed))
            file.write(block.packed)


def _read(file: IO[bytes], spilled: _Spilled) -> _Run:
    file.seek(spilled.offset)
    ids, values, times = Block(spilled.segment, spilled.first, file.read(spilled.size)).columns()
    return _Run(spilled.segment, ids, list(zip(repeat(spilled.segment), values, times, strict=False)))
