"""The second stage: processes a key range's events and timers in Spark's workers.

A failing callback does not fail its task: the stage sends the error to the driver as a row, and the driver reports the
error to the user. Spark therefore does not retry the task; a retry would fail, too.
"""

from collections.abc import Callable, Iterable, Sequence
from time import perf_counter
from typing import Any, TypeAlias

import attrs

from amadou.errors import AmadouError
from amadou_runtime.core.batch_driver import BatchDriver, BatchInput
from amadou_runtime.core.combining import COMBINED
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.group_batch import ReplayedGroup
from amadou_runtime.core.stored import RangeState, StoredRange
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.fed_rows import take_fed
from amadou_runtime.spark.payload import Payload, Worker
from amadou_runtime.spark.rows import Combined, Events, Mark, Replay, Update, report_row, unpacked
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.summary import Summary, error_fields

Stage: TypeAlias = Callable[[int, Iterable[Any], RangeState], Any]
"""``stage(number, frames, state)`` does what Spark's stateful operator has to do with a key range.

It processes the rows in pandas data frames with the columns of `KEYED`, and returns a data frame with the columns of
`RESULT`; see `results_of`.
"""


@attrs.frozen
class StatefulStage:
    """Loads a key range from Spark's state, processes a batch with the operator core, and stores the key range. The
    modules `groups_stage` and `log.stage` connect this stage with Spark's operators.
    """

    payload: Payload
    later: Sequence[str] = ()
    """Names of the stages that Spark processes after this one, in order."""

    def __call__(self, number: int, frames: Iterable[Any], state: RangeState) -> Any:
        """Process a key range's rows, and return a data frame with the packed `Summary` and the rows for later stages.
        Rows that do not belong to a key range are returned unchanged.
        """
        contents = [content for frame in frames for content in frame["chunk"].tolist()]
        if number < 0:
            return results_of((number, content) for content in contents)
        summary, rows = Summary(), list[tuple[int, bytes]]()
        try:
            summary = self._process(number, contents, state)
            if summary.error is None:
                rows += take_fed(self.payload, self.later, summary.outputs)
        except AmadouError as error:
            summary.error = error_fields(error)
        return results_of([*rows, report_row(summary.pack())])

    def _process(self, number: int, contents: list[bytes], state: RangeState) -> Summary:
        """Process a key range's rows, and store the range's state.

        :raises AmadouError: the batch failed
        """
        worker = self.payload.opened()
        began = perf_counter()
        with errors_of_stage(self.payload.stage):
            summary = self._batch(worker, state.load(worker.operator.run), number, contents)
        result = state.store()
        summary.add_stored(number, result)
        summary.stage_seconds["processing"] = perf_counter() - began - result.rebuild_seconds
        return summary

    def _batch(self, worker: Worker, stored: StoredRange, number: int, contents: list[bytes]) -> Summary:
        time = BatchTime.of_task(self.payload.stage)
        brought = _Brought.of(contents)
        references = worker.operator.references
        if worker.job.references:  # they are the same for all key ranges of the batch
            references = worker.references.in_batch(time, brought.updates)
        given = BatchInput(
            brought.chunks,
            time.watermark,
            time.now,
            time.reported,
            references,
            brought.again,
            brought.newest,
            brought.oldest,
            time.dependency_state,
            time.before_end,
            is_first=number == range_numbers(self.payload.ranges)[0],
        )
        tally, *_ = BatchDriver(worker.operator, stored).process(given)
        return Summary.of(tally)


def results_of(rows: Iterable[tuple[int, bytes]]) -> Any:
    """Return a data frame with the columns of `RESULT`."""
    import pandas as pd

    return pd.DataFrame(rows, columns=["range", "result"])


@attrs.frozen
class _Brought:
    """What the rows of a key range bring.

    :ivar chunks: the events, with their key group
    :ivar updates: the updates of references
    :ivar newest: the newest event times by source; for `newest` and `oldest`, see `evaluate`
    :ivar again: the dead letters to replay, by key group
    """

    chunks: list[tuple[int, Chunk]] = attrs.field(factory=list)
    updates: list[Chunk] = attrs.field(factory=list)
    newest: dict[str, int] = attrs.field(factory=dict)
    oldest: dict[str, int] = attrs.field(factory=dict)
    again: dict[int, ReplayedGroup] = attrs.field(factory=dict)

    @classmethod
    def of(cls, contents: Iterable[bytes]) -> "_Brought":
        """Unpack the contents of rows."""
        found = cls()
        for content in contents:
            match unpacked(content):
                case Events(source, order, by_group):
                    found.chunks.extend((group, Chunk(source, order, events)) for group, events in by_group.items())
                case Combined(source, by_group):
                    found.chunks.extend((group, Chunk(source, COMBINED, events)) for group, events in by_group.items())
                case Update() as update:
                    found.updates.append(Chunk(*update))
                case Mark(source, newest, oldest):
                    found.newest[source] = max(newest, found.newest.get(source, newest))
                    if oldest is not None:
                        found.oldest[source] = min(oldest, found.oldest.get(source, oldest))
                case Replay(letters):
                    for group, (chunks, timers, calls) in letters.items():
                        into = found.again.setdefault(group, ReplayedGroup([], [], []))
                        into.chunks.extend(Chunk(*chunk) for chunk in chunks)
                        into.timers.extend(map(tuple, timers))
                        into.calls.extend(FailedCall(*call) for call in calls)
        return found
