"""The second stage: processes a key range's events and timers in Spark's workers.

A failing callback does not fail its task: the stage sends the error to the driver as a row, and the driver reports the
error to the user. Spark therefore does not retry the task; a retry would fail, too.
"""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import attrs

from amadou import Counts
from amadou.engine import sum_counts
from amadou.errors import AmadouError
from amadou_runtime.core.dependencies import evaluate
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.operator import Evaluation, ReplayedGroup, together
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.compressed import unpack_compressed
from amadou_runtime.spark.key_range import KeyRange, RangeStatus
from amadou_runtime.spark.keying_stage import REPORT_RANGE
from amadou_runtime.spark.payload import Payload, Worker
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.summary import Summary, error_fields
from amadou_runtime.spark.timeouts import set_timeout
from amadou_runtime.spark.worker_end import end_with_spark

RESULT = "result binary"
STATE = "state binary"


@attrs.frozen
class StatefulStage:
    """Loads a key range from Spark's state, processes a batch with the operator core, and stores the key range.

    Also sets the range's timeout; see `timeouts`.
    """

    payload: Payload

    def __call__(self, key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        chunks = [chunk for frame in frames for chunk in frame["chunk"].tolist()]
        if key[0] == REPORT_RANGE:
            yield pd.DataFrame({"result": chunks})
            return
        try:
            summary = self._process(int(key[0]), chunks, state)
        except AmadouError as error:
            summary = Summary(error=error_fields(error))
        yield pd.DataFrame({"result": [summary.pack()]})

    def _process(self, number: int, packed: list[bytes], state: Any) -> Summary:
        """Process a key range's rows, and store the range's state.

        :raises AmadouError: the batch failed
        """
        stored = state.get[0] if state.exists else None
        key_range = KeyRange(stored)
        summary = self._batch(self.payload.load().opened(), key_range, number, packed)
        summary.ranges = {number: self._store(key_range, stored, state)}
        return summary

    def _batch(self, worker: Worker, key_range: KeyRange, number: int, packed: list[bytes]) -> Summary:
        began = perf_counter()
        time = BatchTime.of_task()
        worker.operator.take_failures()
        worker.operator.stopwatch.take()  # workers are reused, and a failed batch leaves its times here
        chunks, newest, oldest, again = _unpacked(packed)
        evaluation = self._evaluate(worker, time, newest, oldest, number)
        limits = evaluation.decision.limits
        replayed = key_range.replay(worker.operator, again, time.watermark, limits)
        processed = key_range.process(worker.operator, chunks, time.watermark, limits)
        given = [*replayed, *processed.values()]
        return Summary(
            outputs=together((evaluation.outputs, *(processed.outputs for processed in given))),
            counts=Counts.total([processed.counts for processed in given]),
            stage_seconds={"processing": perf_counter() - began},
            callback_seconds=worker.operator.stopwatch.take(),
            callback_calls=sum_counts((evaluation.calls, *(processed.calls for processed in given))),
            failures=worker.operator.take_failures(),
        )

    def _store(self, key_range: KeyRange, stored: bytes | None, state: Any) -> RangeStatus:
        """Store a key range in Spark's state and set its timeout.

        :param stored: the packed key range that is currently in Spark's state
        """
        kept = key_range.pack()
        if kept is not None:
            state.update((kept,))
        elif stored is not None:
            state.remove()
        status = key_range.status(kept)
        if status.next_timer is not None or status.held:
            set_timeout(state)
        return status

    def _evaluate(
        self, worker: Worker, time: BatchTime, newest: dict[str, int], oldest: dict[str, int], number: int
    ) -> Evaluation:
        """Determine which sources are down. All key ranges do this, but only the first range calls the handler."""
        if number == range_numbers(self.payload.ranges)[0]:
            return worker.operator.evaluate(time.dependency_state, newest, oldest, time.number, time.watermark)
        return Evaluation(evaluate(worker.job, time.dependency_state, newest, oldest, time.number), {}, {})


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


end_with_spark()
