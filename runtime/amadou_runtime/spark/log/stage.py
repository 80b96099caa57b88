"""The stateful stage on the *log* store, with Spark's `transformWithState`."""

import base64
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from amadou_runtime.spark.key_range import StoreResult
from amadou_runtime.spark.log.entries import RangeEntries
from amadou_runtime.spark.log.logged_range import LoggedRange
from amadou_runtime.spark.stateful_stage import RESULT, StatefulStage
from amadou_runtime.spark.timeouts import set_timer
from amadou_runtime.spark.worker_end import end_with_spark

_NUMBER, _PACKED = "number long", "packed string"
"""Schemas of the map that contains a range's log: segments by number, and the head as number 0. Values are base64 text,
since Spark passes text between Python and Java several times as fast as bytes.
"""
_HEAD: Final = 0
_DRIVER_WORKER: Final = "pyspark.sql.streaming.transform_with_state_driver_worker"


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
        self._log = handle.getMapState("log", _NUMBER, _PACKED)

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
        directory = local_directory(self._number) / self._processor._checkpoint
        opened = RangeEntries.open(self, directory, str(self._number), run)
        self._range = LoggedRange(self._stack.enter_context(opened))
        return self._range

    def store(self) -> StoreResult:
        result = self._range.store()
        if result.status.needs_calls:
            set_timer(self._processor._handle, self._times)
        return result

    def head(self) -> bytes | None:
        return self.get(_HEAD)

    def set_head(self, head: bytes, /) -> None:
        self.put(_HEAD, head)

    def get(self, number: int, /) -> bytes | None:
        stored = self._processor._log.getValue((number,))
        return None if stored is None else base64.b64decode(stored[0])

    def put(self, number: int, segment: bytes, /) -> None:
        self._processor._log.updateValue((number,), (base64.b64encode(segment).decode("ascii"),))

    def remove(self, number: int, /) -> None:
        self._processor._log.removeKey((number,))


def local_directory(number: int) -> Path:
    """Return the directory for the view of a key range on this executor. Spark removes it when the application ends.
    The views of the ranges are spread over Spark's local directories.
    """
    directories = os.environ["SPARK_LOCAL_DIRS"].split(",")
    return Path(directories[number % len(directories)]) / "amadou-views"


def _discard_start_messages() -> None:
    """If Spark has started this process only to ask which states a new query has, discard what Spark prints in it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == _DRIVER_WORKER:
        sys.stdout = io.StringIO()


end_with_spark()
_discard_start_messages()
