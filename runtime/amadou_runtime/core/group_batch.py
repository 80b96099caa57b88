"""One batch of one key group: what it brings, what is known while it is processed, and what it gives."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs

from amadou import Key, ReferenceChange, Subject
from amadou.components import Component
from amadou.engine import Batch, unpack
from amadou.plugins import Counts
from amadou_runtime.core.combining import COMBINED
from amadou_runtime.core.dependencies import Held
from amadou_runtime.core.events import Chunk, Run
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.firing import ComponentTimers
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.stored import StoredGroup


class ReplayedGroup(NamedTuple):
    """The dead letters that a batch replays in one key group."""

    chunks: list[Chunk]
    timers: list[tuple[Key, int, str]]
    """Timers to fire again, as tuples of key, time in microseconds, and tag."""
    calls: list[FailedCall]
    """Components' failed calls, to be repeated."""


NO_LETTERS = ReplayedGroup([], [], [])


class GroupBatch(NamedTuple):
    """What a batch brings for a key group.

    :param stored: the group's state after the previous batch
    :param chunks: chunks of the batch's events, in any order
    :param watermark: the batch's watermark in microseconds; `None` before the first watermark
    :param limits: the maximum event time to process, by source; see `Decision.limits`
    :param again: the dead letters to replay, if any. Replayed events are never dropped or diverted as late
    """

    stored: StoredGroup
    chunks: Sequence[Chunk]
    watermark: int | None
    limits: Mapping[str, int] = MappingProxyType({})
    again: ReplayedGroup | None = None

    @property
    def events(self) -> list[Chunk]:
        """The chunks with events."""
        return [chunk for chunk in self.chunks if chunk.order != COMBINED]

    @property
    def combined(self) -> list[Any]:
        """Events in combined form; see `combining`."""
        return [unpack(chunk.events) for chunk in self.chunks if chunk.order == COMBINED]


@attrs.define
class GroupWork:
    """A key group while a batch is processed: what each step leaves for the next ones.

    :ivar subject: the only `Subject`, which stands for one key after another
    :ivar touched: the keys whose state is accessed, or may be
    :ivar runs: the events to process, in order
    :ivar combined: events in combined form, with their key and their number
    :ivar events: number of events, with those that are dropped or diverted
    :ivar late: number of late events
    :ivar renewed: the declared components whose state has the structure of older code
    :ivar due: the times of the handler's due timers, in microseconds
    :ivar due_components: the due timers of components
    :ivar fired: number of timers that have fired, and of calls that were repeated
    :ivar calls: number of calls of each callback
    """

    given: GroupBatch
    group: KeyGroup
    batch: Batch
    subject: Subject
    touched: set[Key] = attrs.field(factory=set)
    runs: list[Run] = attrs.field(factory=list)
    combined: list[tuple[Key, Any, int]] = attrs.field(factory=list)
    events: int = 0
    late: int = 0
    renewed: list[Component] = attrs.field(factory=list)
    due: list[int] = attrs.field(factory=list)
    due_components: ComponentTimers = attrs.field(factory=dict)
    fired: int = 0
    calls: dict[str, int] = attrs.field(factory=dict)

    @property
    def again(self) -> ReplayedGroup:
        """The dead letters to replay."""
        return self.given.again or NO_LETTERS

    def count_calls(self, callback: str, number: int) -> None:
        """Count calls of a callback."""
        if number:
            self.calls[callback] = self.calls.get(callback, 0) + number

    def watching(self, changes: Sequence[ReferenceChange], specs: Mapping[str, str]) -> Iterator[Any]:
        """Yield updates of references, each with the keys of the group that watch the reference now.

        :param specs: the names under which keys watch references, by reference
        """
        for change in changes:
            table = self.group.tables.get(specs[change.reference])
            if table is not None and (keys := table.keys()):
                yield change, keys


class ProcessedGroup(NamedTuple):
    """A key group after a batch."""

    group: KeyGroup
    """The group as it was loaded, with the batch's changes."""
    touched: int
    """Number of keys with events or due timers, approximately."""
    changes: Any
    """The changes to the group's state; see `StoredGroup.changes`."""
    outputs: dict[str, list[Any]]
    """The encoded values collected during the batch, by port."""
    counts: Counts
    """All counts except those of records, outputs and state bytes, which the engine counts."""
    calls: dict[str, int]
    """Number of calls to each callback, for `BatchReport.callback_calls`."""
    held: Held
    """The number of held events and their oldest event time in microseconds, by source."""

    def with_counts(self, **changed: Any) -> "ProcessedGroup":
        """Return this group with changed counts."""
        return self._replace(counts=attrs.evolve(self.counts, **changed))


class GroupResult(NamedTuple):
    """What a batch has produced for a key group, without the group's state; see `ProcessedGroup`."""

    outputs: dict[str, list[Any]]
    counts: Counts
    calls: dict[str, int]
