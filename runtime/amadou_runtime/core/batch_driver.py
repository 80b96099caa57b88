"""Drives a batch through the operator: the steps and their order are the same on each engine and store."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from amadou.engine import BeforeEnd
from amadou_runtime.core.dependencies import Decision, Held, all_held
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.group_batch import GroupBatch, GroupResult, ReplayedGroup
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.references import ReferenceTable
from amadou_runtime.core.stored import StoredRange
from amadou_runtime.core.tally import BatchTally

_NONE: Mapping[Any, Any] = MappingProxyType({})


class BatchInput(NamedTuple):
    """What a batch brings for some key groups.

    :param chunks: the events, as pairs of key group and chunk, in any order
    :param watermark: the batch's watermark in microseconds; `None` before the first watermark
    :param now: the clock time in microseconds
    :param number: the batch's number
    :param references: the job's references in the batch, by name; the same object in all parts of a batch
    :param again: the dead letters to replay, by key group
    :param newest: the newest event times in the batch, by source; for `oldest`, see `evaluate` in `core.dependencies`
    :param dependency_state: the `Decision.state` of the previous batch
    :param before_end: see `Watermark.before_end`
    :param is_first: `True` in one part of the batch: there, the handler is called for changes of dependencies
    """

    chunks: Sequence[tuple[int, Chunk]]
    watermark: int | None
    now: int
    number: int
    references: Mapping[str, ReferenceTable] = _NONE
    again: Mapping[int, ReplayedGroup] = _NONE
    newest: Mapping[str, int] = _NONE
    oldest: Mapping[str, int] = _NONE
    dependency_state: bytes | None = None
    before_end: BeforeEnd | None = None
    is_first: bool = True


class BatchDriver:
    """Processes batches in the key groups of a range.

    There are many key groups so that the subjects of one key group fit into the CPU cache while the key group is
    processed. There are few ranges, since Spark needs a separate call for each range.

    :param stored: the range in its store
    """

    def __init__(self, operator: Operator, stored: StoredRange) -> None:
        self._operator = operator
        self._stored = stored
        self._held: dict[int, Held] = {}

    def process(self, given: BatchInput) -> tuple[BatchTally, Decision, Held]:
        """Process a batch: decide which sources are down, replay dead letters, then process events and timers. Return
        also which events the processed key groups hold.

        :raises AmadouError: the batch failed
        """
        operator, watermark = self._operator, given.watermark
        operator.begin(given.references, given.now, given.before_end)
        evaluation = operator.evaluate(
            given.dependency_state, given.newest, given.oldest, given.number, watermark, notifies=given.is_first
        )
        limits = evaluation.decision.limits
        again = {group: (replayed.chunks, watermark, limits, replayed) for group, replayed in given.again.items()}
        replayed = self._process_each(dict(sorted(again.items())))
        processed = self.process_groups(given.chunks, watermark, limits)
        tally = operator.tally((evaluation.result, *replayed.values(), *processed.values()))
        return tally, evaluation.decision, all_held(self._held.values())

    def process_groups(
        self, chunks: Iterable[tuple[int, Chunk]], watermark: int | None, limits: Mapping[str, int] = _NONE
    ) -> dict[int, GroupResult]:
        """Process events and timers in the key groups that have events, and in those that must be processed even
        without events. For the parameters, see `BatchInput` and `GroupBatch`.

        :returns: results by key group
        """
        by_group: dict[int, list[Chunk]] = {}
        for group, chunk in chunks:
            by_group.setdefault(group, []).append(chunk)
        for group in self._stored.called(self._operator, watermark, limits):
            by_group.setdefault(group, [])
        return self._process_each({group: (of, watermark, limits) for group, of in sorted(by_group.items())})

    def _process_each(self, batches: Mapping[int, tuple[Any, ...]]) -> dict[int, GroupResult]:
        """
        :param batches: by key group, the fields of the `GroupBatch` after `stored`
        """
        self._operator.fetch(GroupBatch(self._stored.group(group), *given) for group, given in batches.items())
        return {group: self._process_group(group, *given) for group, given in batches.items()}

    def _process_group(self, group: int, *given: Any) -> GroupResult:
        """Process one batch in a key group. The group's state is freed before the next group is loaded."""
        processed = self._operator.process(GroupBatch(self._stored.group(group), *given))
        self._stored.take(group, processed)
        self._held[group] = processed.held
        return GroupResult(processed.outputs, processed.counts, processed.calls)
