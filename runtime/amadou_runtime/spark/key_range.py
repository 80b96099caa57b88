"""Key ranges: for each range of key groups, Spark stores one state and one timeout."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs

from amadou.errors import StateDecodeError
from amadou_runtime.core.dependencies import Held, all_held
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.key_group import OTHER_RELEASE
from amadou_runtime.core.operator import GroupBatch, Operator, ProcessedGroup, ReplayedGroup
from amadou_runtime.spark.compressed import pack_compressed, unpack_compressed

RANGES_PER_PARTITION = 8
"""Number of key ranges per shuffle partition in a new checkpoint. Spark makes one call, with the overhead of pandas,
for each range that a batch touches. So more ranges make batches slower. With fewer ranges, however, a batch that
touches few keys writes more state.
"""

_VERSION = 4


def range_count(key_groups: int, partitions: int) -> int:
    """Return the number of ranges into which the first run on a checkpoint divides the key groups."""
    return min(key_groups, RANGES_PER_PARTITION * partitions)


class KeptGroup(NamedTuple):
    """A stored key group between two batches; see `ProcessedGroup`."""

    state: bytes
    next_timer: int | None
    keys: int
    pending: int
    in_memory: bool
    held: Held
    retired: list[str]


@attrs.frozen
class RangeStatus:
    """Status of a key range after a batch.

    :param keys: number of keys that have state or timers
    :param timers_pending: number of pending timers
    :param state_bytes: size of the stored state in bytes
    :param next_timer: event time of the next timer, in microseconds; Spark must call the range again for this timer
    :param held: number of held events and their oldest event time in microseconds, by source
    """

    keys: int
    timers_pending: int
    state_bytes: int
    next_timer: int | None
    held: Held


class KeyRange:
    """The key groups of a range. Connects Spark's state with the operator core.

    There are many key groups so that the subjects of one key group fit into the CPU cache while the key group
    is processed. There are few ranges, since Spark needs a separate call for each range.

    A range is stored, compressed, as ``[version, {group: [state, next timer, keys, pending timers, flag for in-memory
    state, held events, retired names]}, run that stored the range]``.
    """

    def __init__(self, stored: bytes | None) -> None:
        self._groups: dict[int, KeptGroup] = {}
        self._run: str | None = None
        """The run that stored the range."""
        if stored is not None:
            version, *rest = unpack_compressed(stored)
            if version != _VERSION:
                why = f"this release reads only version {_VERSION} of a key range's state"
                raise StateDecodeError(version, int, why, advice=OTHER_RELEASE)
            groups, self._run = rest
            self._groups = {group: KeptGroup(*kept) for group, kept in groups.items()}

    def process(
        self,
        operator: Operator,
        events: Iterable[tuple[int, Chunk]],
        watermark: int | None,
        limits: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[int, ProcessedGroup]:
        """Process one batch in the key groups that have events in the batch, and in those that must be processed even
        without events.

        :param events: the batch's events, as pairs of key group and chunk, in any order
        :param watermark: see `GroupBatch`
        :param limits: see `GroupBatch`
        :returns: results by key group
        """
        by_group: dict[int, list[Chunk]] = {}
        for group, chunk in events:
            by_group.setdefault(group, []).append(chunk)
        for group, kept in self._groups.items():
            if self._is_called(kept, operator, watermark, limits):
                by_group.setdefault(group, [])
        processed = {
            group: self._process_group(operator, group, chunks, watermark, limits)
            for group, chunks in sorted(by_group.items())
        }
        self._run = operator.run
        return processed

    def _is_called(self, kept: KeptGroup, operator: Operator, watermark: int | None, limits: Mapping[str, int]) -> bool:
        """Return `True` if a key group must be processed in a batch that has no events for the group."""
        due = watermark is not None and kept.next_timer is not None and kept.next_timer <= watermark
        freed = any(oldest <= limits.get(source, oldest) for source, (_, oldest) in kept.held.items())
        is_back = any(name not in operator.retired for name in kept.retired)
        return due or freed or is_back or (kept.in_memory and self._run != operator.run)

    def replay(
        self,
        operator: Operator,
        again: Mapping[int, ReplayedGroup],
        watermark: int | None,
        limits: Mapping[str, int],
    ) -> list[ProcessedGroup]:
        """Replay dead letters in their key groups, before the batch's events are processed.

        :param again: events, timers and calls to replay, by key group
        """
        return [
            self._process_group(operator, group, replayed.chunks, watermark, limits, replayed)
            for group, replayed in sorted(again.items())
        ]

    def _process_group(self, operator: Operator, group: int, *given: Any) -> ProcessedGroup:
        """Process one batch in a key group.

        :param given: the fields of the `GroupBatch` after `state`
        """
        kept = self._groups.pop(group, None)
        after = operator.process(GroupBatch(kept and kept.state, *given))
        if after.state is not None:
            figures = after.next_timer, after.counts.keys, after.counts.timers_pending
            self._groups[group] = KeptGroup(after.state, *figures, after.in_memory, after.held, after.retired)
        return after

    def status(self, stored: bytes | None) -> RangeStatus:
        """Return the status of the range.

        :param stored: the packed range; see `pack`
        """
        groups = self._groups.values()
        return RangeStatus(
            sum(kept.keys for kept in groups),
            sum(kept.pending for kept in groups),
            len(stored or b""),
            min((kept.next_timer for kept in groups if kept.next_timer is not None), default=None),
            all_held(kept.held for kept in groups),
        )

    def pack(self) -> bytes | None:
        """Return the range in its stored form; `None` if the range is empty."""
        if not self._groups:
            return None
        return pack_compressed([_VERSION, {group: list(kept) for group, kept in self._groups.items()}, self._run])
