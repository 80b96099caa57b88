"""What Spark keeps one state and one timeout for: a range of key groups."""

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
"""Spark's cost for a group of its own, a call with pandas around it, is paid for each range in every batch. More ranges
than partitions let state be spread over more cores later, and less of it be written where a batch touches little."""

_VERSION = 4


def range_count(key_groups: int, partitions: int) -> int:
    """How many ranges the first run of a checkpoint makes of its key groups."""
    return min(key_groups, RANGES_PER_PARTITION * partitions)


class KeptGroup(NamedTuple):
    """A key group between two batches; see `ProcessedGroup`."""

    state: bytes
    next_timer: int | None
    keys: int
    pending: int
    in_memory: bool
    held: Held
    retired: list[str]


@attrs.frozen
class RangeStatus:
    """What a key range holds after a batch.

    :param keys: keys that have state or timers
    :param timers_pending: timers that are set and not due
    :param state_bytes: what is stored
    :param next_timer: when the range must be called again at the latest, in microseconds of event time
    :param held: events that wait
    """

    keys: int
    timers_pending: int
    state_bytes: int
    next_timer: int | None
    held: Held


class KeyRange:
    """The key groups of a range, between Spark's state and the operator core.

    Key groups are many, so that the subjects of one fit the processor's cache while it is processed, and ranges few.
    Stored as ``[version, {group: [state, next timer, keys, pending timers, whether some is in memory, what is held,
    the names of what is retired]}, run that stored it]``, compressed.
    """

    def __init__(self, stored: bytes | None) -> None:
        self._groups: dict[int, KeptGroup] = {}
        self._run: str | None = None
        """The run that stored it."""
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
        """Play one batch of the key groups that have events, due timers, or held events that need not wait any more.

        :param chunks: the batch's events with their key group, in any order
        :param watermark: see `Operator.process`, as of `limits`
        :returns: what it gave, by key group
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
        """Return whether a batch without events concerns a key group."""
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
        """Play what is replayed of some key groups, before what else the batch brings them.

        :param again: what is replayed, by key group
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
        """Return what the range holds.

        :param stored: see `pack`
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
        """The range as it is stored; `None` where nothing is left."""
        if not self._groups:
            return None
        return pack_compressed([_VERSION, {group: list(kept) for group, kept in self._groups.items()}, self._run])
