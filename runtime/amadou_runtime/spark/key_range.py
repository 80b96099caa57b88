"""A range of key groups, for which Spark keeps one state and one timeout."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import attrs

from amadou.errors import StateDecodeError
from amadou_runtime.core.dependencies import Held, all_held
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.key_group import OTHER_RELEASE
from amadou_runtime.core.operator import Operator, ProcessedGroup, ReplayedGroup
from amadou_runtime.spark.compressed import pack_compressed, unpack_compressed

RANGES_PER_PARTITION = 8
"""Each range costs one of Spark's calls, with pandas around it, in every batch. More ranges than partitions let state
spread over more cores later, and let a batch that touches little state write less of it."""

_VERSION = 4


def range_count(key_groups: int, partitions: int) -> int:
    """Return the number of ranges into which the first run of a checkpoint divides its key groups."""
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
    :param timers_pending: number of timers that are set and not due
    :param state_bytes: size of the stored state
    :param next_timer: event time at which the range must be called again at the latest, in microseconds
    :param held: held events
    """

    keys: int
    timers_pending: int
    state_bytes: int
    next_timer: int | None
    held: Held


class KeyRange:
    """The key groups of a range, between Spark's state and the operator core.

    Key groups are many, so that the subjects of one group fit the processor's cache while it is processed; ranges are
    few. Stored as ``[version, {group: [state, next timer, keys, pending timers, whether some state is in memory, held
    events, retired names]}, run that stored it]``, compressed.
    """

    def __init__(self, stored: bytes | None) -> None:
        self._groups: dict[int, KeptGroup] = {}
        self._run: str | None = None
        """The run that stored the range."""
        if stored is not None:
            version, *rest = unpack_compressed(stored)
            if version != _VERSION:
                why = f"this release reads version {_VERSION} of a key range's state"
                raise StateDecodeError(version, int, why, advice=OTHER_RELEASE)
            groups, self._run = rest
            self._groups = {group: KeptGroup(*kept) for group, kept in groups.items()}

    def process(
        self,
        operator: Operator,
        chunks: Iterable[tuple[int, Chunk]],
        watermark: int | None,
        limits: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[int, ProcessedGroup]:
        """Process one batch of the key groups that have events, due timers, or held events that are released.

        :param chunks: the batch's events with their key group, in any order
        :param watermark: see `Operator.process`, also for `limits`
        :returns: results by key group
        """
        by_group: dict[int, list[Chunk]] = {}
        for group, chunk in chunks:
            by_group.setdefault(group, []).append(chunk)
        for group, kept in self._groups.items():
            if self._is_called(kept, operator, watermark, limits):
                by_group.setdefault(group, [])
        processed = {}
        for group in sorted(by_group):
            before = self._groups.pop(group, None)
            after = processed[group] = operator.process(before and before.state, by_group[group], watermark, limits)
            self._keep(group, after)
        self._run = operator.run
        return processed

    def _is_called(self, kept: KeptGroup, operator: Operator, watermark: int | None, limits: Mapping[str, int]) -> bool:
        """Return whether a batch without events for a key group must process the group."""
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
        """Replay dead letters of some key groups, before the batch's events.

        :param again: replayed events, timers and calls by key group
        """
        processed = []
        for group, replayed in sorted(again.items()):
            before = self._groups.pop(group, None)
            after = operator.replay(before and before.state, replayed, watermark, limits)
            self._keep(group, after)
            processed.append(after)
        return processed

    def _keep(self, group: int, after: ProcessedGroup) -> None:
        if after.state is not None:
            figures = after.next_timer, after.counts.keys, after.counts.timers_pending
            self._groups[group] = KeptGroup(after.state, *figures, after.in_memory, after.held, after.retired)

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
        """Return the range as it is stored; `None` if the range is empty."""
        if not self._groups:
            return None
        return pack_compressed([_VERSION, {group: list(kept) for group, kept in self._groups.items()}, self._run])
