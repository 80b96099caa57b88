"""The stateful stage on the *log* store, with Spark's `transformWithState`."""

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from amadou_runtime.spark.key_range import StoreResult
from amadou_runtime.spark.log.entries import RangeEntries
from amadou_runtime.spark.log.logged_range import LoggedRange
from amadou_runtime.spark.stateful_stage import RESULT, StatefulStage
from amadou_runtime.spark.timeouts import set_timer
from amadou_runtime.spark.worker_end import end_with_spark


def on_log(keyed: Any, stage: StatefulStage, checkpoint: str) -> Any:
    """Return the results of the stage for keyed rows.

    :param keyed: a streaming data frame with the columns of `KEYED`
    :param checkpoint: the checkpoint's id
    """
    return keyed.groupBy("range").transformWithStateInPandas(
        _Processor(stage, checkpoint), RESULT, "update", "EventTime"
    )


class _Processor(StatefulProcessor):
    """Spark calls `handleInputRows` for each key range with rows, and then `handleExpiredTimer` for each key range with
    an expired timer, even if the range had rows.
    """

    def __init__(self, stage: StatefulStage, checkpoint: str) -> None:
        self._stage = stage
        self._checkpoint = checkpoint
        self._processed: set[int] = set()

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._head = handle.getValueState("head", "packed binary")
        self._log = handle.getMapState("log", "number long", "packed binary")

    def handleInputRows(self, key: tuple[int], rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        yield self._results(int(key[0]), rows, timerValues)

    def handleExpiredTimer(self, key: tuple[int], timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: N802, N803
        if int(key[0]) not in self._processed:
            yield self._results(int(key[0]), (), timerValues)

    def close(self) -> None:
        """Called by Spark after the last key range."""

    def _results(self, number: int, frames: Iterable[Any], times: Any) -> Any:
        self._processed.add(number)
        with ExitStack() as stack:
            return self._stage.results(number, frames, LogState(self, number, times, stack))


class LogState:
    """The state of a key range in `transformWithState`; see `RangeState` and `Segments`."""

    def __init__(self, processor: _Processor, number: int, times: Any, stack: ExitStack) -> None:
        self._processor = processor
        self._number = number
        self._times = times
        self._stack = stack

    def load(self, run: str) -> LoggedRange:
        directory = local_directory() / self._processor._checkpoint
        opened = RangeEntries.open(self, directory, str(self._number), run)
        self._range = LoggedRange(self._stack.enter_context(opened))
        return self._range

    def store(self) -> StoreResult:
        result = self._range.store()
        if result.status.needs_calls:
            set_timer(self._processor._handle, self._times)
        return result

    def head(self) -> bytes | None:
        stored = self._processor._head.get()
        return None if stored is None else bytes(stored[0])

    def set_head(self, head: bytes, /) -> None:
        self._processor._head.update((head,))

    def get(self, number: int, /) -> bytes | None:
        stored = self._processor._log.getValue((number,))
        return None if stored is None else bytes(stored[0])

    def put(self, number: int, segment: bytes, /) -> None:
        self._processor._log.updateValue((number,), (segment,))

    def remove(self, number: int, /) -> None:
        self._processor._log.removeKey((number,))


def local_directory() -> Path:
    """Return the directory for the views of this executor, which Spark removes when the executor ends."""
    return Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / "amadou-views"


end_with_spark()
