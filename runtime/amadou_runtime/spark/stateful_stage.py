"""The second stage: processes a key range's events and timers in Spark's workers.

A failing callback does not fail its task: the stage sends the error to the driver as a row, and the driver reports the
error to the user. Spark therefore does not retry the task; a retry would fail, too.
"""

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any, Protocol

import attrs

from amadou.errors import AmadouError
from amadou_runtime.core.batch_driver import BatchDriver, BatchInput
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.key_range import StoredRange, StoreResult
from amadou_runtime.core.operator import ReplayedGroup
from amadou_runtime.formats.compressed import unpack_compressed
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.keying_stage import REFERENCE_GROUP, REPORT_RANGE
from amadou_runtime.spark.passed_rows import take_fed
from amadou_runtime.spark.payload import Payload, Worker
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.summary import Summary, error_fields

RESULT = "range int, result binary"
"""Columns of the output: `REPORT_RANGE` with a packed `Summary`, or a row that is passed on."""


class RangeState(Protocol):
    """Spark's state of a key range during one call."""

    def load(self, run: str) -> StoredRange:
        """Return the range that is stored.

        :param run: the id of the current run
        """

    def fill(self, groups: Iterable[tuple[int, KeyGroup]], run: str) -> StoreResult:
        """Store the first state of the range. Make Spark call the range again if it has timers.

        :param groups: completely loaded groups by number, without in-memory state
        """

    def store(self) -> StoreResult:
        """Store the changes that the range from `load` has taken. Make Spark call the range again if it has timers; see
        `timeouts`.
        """


class Stage(Protocol):
    """What Spark's stateful operator does with a key range."""

    def results(self, number: int, frames: Iterable[Any], state: RangeState) -> Any:
        """Process a key range's rows, and return a data frame with the columns of `RESULT`; see `results_of`.

        :param number: the range's number
        :param frames: pandas data frames with the columns of `KEYED`
        """


@attrs.frozen
class StatefulStage:
    """Loads a key range from Spark's state, processes a batch with the operator core, and stores the key range. The
    modules `groups_stage` and `log.stage` connect this stage with Spark's operators.
    """

    payload: Payload
    later: Sequence[str] = ()
    """Names of the stages that Spark processes after this one, in order."""

    def results(self, number: int, frames: Iterable[Any], state: RangeState) -> Any:
        """Process a key range's rows, and return a data frame with the packed `Summary` and the rows for later stages.
        Rows that do not belong to a key range are returned unchanged.
        """
        chunks = [chunk for frame in frames for chunk in frame["chunk"].tolist()]
        if number < 0:
            return results_of((number, chunk) for chunk in chunks)
        summary, rows = Summary(), list[tuple[int, bytes]]()
        try:
            summary = self._process(number, chunks, state)
            if summary.error is None:
                rows += take_fed(self.payload, self.later, summary.outputs)
        except AmadouError as error:
            summary.error = error_fields(error)
        return results_of([*rows, (REPORT_RANGE, summary.pack())])

    def _process(self, number: int, packed: list[bytes], state: RangeState) -> Summary:
        """Process a key range's chunks, and store the range's state.

        :raises AmadouError: the batch failed
        """
        worker = self.payload.opened()
        began = perf_counter()
        with errors_of_stage(self.payload.stage):
            summary = self._batch(worker, state.load(worker.operator.run), number, packed)
        result = state.store()
        summary.add_stored(number, result)
        summary.stage_seconds["processing"] = perf_counter() - began - result.rebuild_seconds
        return summary

    def _batch(self, worker: Worker, stored: StoredRange, number: int, packed: list[bytes]) -> Summary:
        time = BatchTime.of_task(self.payload.stage)
        chunks, newest, oldest, again = _unpacked(packed)
        references = worker.operator.references
        if worker.job.references:  # they are the same for all key ranges of the batch
            updates = [chunk for group, chunk in chunks if group == REFERENCE_GROUP]
            chunks = [each for each in chunks if each[0] != REFERENCE_GROUP]
            references = worker.references.in_batch(time, updates)
        given = BatchInput(
            chunks,
            time.watermark,
            time.now,
            time.reported,
            references,
            again,
            newest,
            oldest,
            time.dependency_state,
            time.before_end,
            is_first=number == range_numbers(self.payload.ranges)[0],
        )
        tally, _ = BatchDriver(worker.operator, stored).process(given)
        return Summary.of(tally)


def results_of(rows: Iterable[tuple[int, bytes]]) -> Any:
    """Return a data frame with the columns of `RESULT`."""
    import pandas as pd

    return pd.DataFrame(rows, columns=["range", "result"])


def _unpacked(
    packed: list[bytes],
) -> tuple[list[tuple[int, Chunk]], dict[str, int], dict[str, int], dict[int, ReplayedGroup]]:
    """Unpack rows. Return the events with their key group, the newest and the oldest event times by source (for
    `evaluate`), and the dead letters to replay, by key group.
    """
    chunks: list[tuple[int, Chunk]] = []
    newest: dict[str, int] = {}
    oldest: dict[str, int] = {}
    again: dict[int, ReplayedGroup] = {}
    for row in filter(None, packed):  # an empty row only makes Spark call this stage for the range
        source, first, second = unpack_compressed(row)
        if source is None:
            for group, (replayed, timers, calls) in second.items():
                into = again.setdefault(group, ReplayedGroup([], [], []))
                into.chunks.extend(Chunk(*chunk) for chunk in replayed)
                into.timers.extend(map(tuple, timers))
                into.calls.extend(FailedCall(*call) for call in calls)
        elif isinstance(first, int):
            newest[source] = max(first, newest.get(source, first))
            if second is not None:
                oldest[source] = min(second, oldest.get(source, second))
        else:
            chunks += [(group, Chunk(source, first, events)) for group, events in second.items()]
    return chunks, newest, oldest, again
