"""Key ranges: for each range of key groups, Spark stores one state and makes one call per batch."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import attrs

from amadou.plugins import Counts
from amadou_runtime.core.dependencies import Held, all_held
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.stored import GroupChanges

RANGES_PER_PARTITION: Final = {"groups": 8, "log": 2}
"""Number of key ranges per shuffle partition in a new checkpoint, by store. Spark makes one call, with the overhead of
pandas, for each range that a batch touches. So more ranges make batches slower. With fewer ranges, however, a batch
that touches few keys writes more state on the store *groups*; on the store *log*, rewriting a view takes longer.
"""


def range_count(store: str, key_groups: int, partitions: int) -> int:
    """Return the number of ranges into which the first run on a checkpoint divides the key groups."""
    return min(key_groups, RANGES_PER_PARTITION[store] * partitions)


@attrs.frozen
class RangeStatus:
    """Status of a key range after a batch.

    :param keys: number of keys that have state or timers
    :param timers_pending: number of pending timers
    :param entries: number of stored entries; see `Counts.state_entries`
    :param state_bytes: size of the stored state in bytes
    :param view_bytes: space that the local view occupies, in bytes
    :param next_timer: event time of the next timer, in microseconds; Spark must call the range again for this timer
    :param held: number of held events and their oldest event time in microseconds, by source
    """

    keys: int
    timers_pending: int
    entries: int
    state_bytes: int
    view_bytes: int
    next_timer: int | None
    held: Held

    @property
    def needs_calls(self) -> bool:
        """`True` if Spark must call the range again even if no data arrives."""
        return self.next_timer is not None or bool(self.held)


class StoreResult(NamedTuple):
    """Result of storing a key range.

    :param status: status of the range after the batch
    :param counts: counts of the batch that concern the store
    :param rebuild_seconds: time taken to rebuild or compact the local view
    """

    status: RangeStatus
    counts: Counts
    rebuild_seconds: float = 0.0


class GroupStatus(NamedTuple):
    """Status of a key group between two batches.

    :param keys: number of keys that have state or timers
    :param pending: number of pending timers
    :param has_in_memory: `True` if the group has in-memory state
    :param held: number of held events and their oldest event time in microseconds, by source
    :param retired: names of state that is retained but not read, because the job no longer has specs with these names
    :param watched: the names under which keys watch a reference
    """

    keys: int
    pending: int
    has_in_memory: bool
    held: Held
    retired: list[str]
    watched: Sequence[str] = ()

    @classmethod
    def of(cls, changes: GroupChanges, held: Held) -> "GroupStatus":
        """Return the status of a group after a batch."""
        return cls(changes.keys, changes.pending, changes.has_in_memory, held, changes.retired, changes.watched)

    def is_called(self, operator: Operator, limits: Mapping[str, int], *, has_kept_memory: bool) -> bool:
        """Return `True` if a key group must be processed in a batch that has neither events nor timers for the group.

        :param has_kept_memory: `True` if the in-memory state is still available
        """
        freed = any(oldest <= limits.get(source, oldest) for source, (_, oldest) in self.held.items())
        is_back = any(name not in operator.retired for name in self.retired)
        is_notified = bool(operator.changed_references) and bool(self.watched)
        return freed or is_back or is_notified or (self.has_in_memory and not has_kept_memory)


def range_status(
    groups: Collection[GroupStatus], *, entries: int, state_bytes: int, view_bytes: int = 0, next_timer: int | None
) -> RangeStatus:
    """Return the status of a key range with some key groups; for the other parameters, see `RangeStatus`."""
    return RangeStatus(
        keys=sum(status.keys for status in groups),
        timers_pending=sum(status.pending for status in groups),
        entries=entries,
        state_bytes=state_bytes,
        view_bytes=view_bytes,
        next_timer=next_timer,
        held=all_held(status.held for status in groups),
    )
