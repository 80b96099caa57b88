"""The stateful stage on the *log* store, with Spark's `transformWithState`."""

import base64
import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
from pyspark import cloudpickle

from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.key_range import StoreResult
from amadou_runtime.spark import log_processor as processor
from amadou_runtime.spark.rows import RESULT
from amadou_runtime.spark.stateful_stage import Stage
from amadou_runtime.spark.timeouts import set_timer as set_spark_timer
from amadou_runtime.spark.worker_end import end_with_spark
from amadou_runtime.store.log.entries import RangeEntries
from amadou_runtime.store.log.filling import fill
from amadou_runtime.store.log.logged_range import LoggedRange
from amadou_runtime.store.log.segments import Log

_HEAD: Final = 0


def on_log(keyed: Any, stage: Stage, name: str, mode: str, *, has_timers: bool) -> Any:
    """Return the results of the stage for keyed rows.

    :param keyed: a streaming data frame with the columns of `KEYED`
    :param name: a name that no other stage with state has: the checkpoint's id, and the stage's name if there are
        several stages
    :param mode: the query's output mode
    :param has_timers: `True` to use Spark's timers; see `timeouts`
    """
    cloudpickle.register_pickle_by_value(processor)
    pickled = cloudpickle.dumps(LogStage(stage, name, has_timers))
    return keyed.groupBy("range").transformWithStateInPandas(
        processor.Processor(pickled), RESULT, mode, "EventTime" if has_timers else "None"
    )


@attrs.frozen
class LogStage:
    """The stage on the *log* store; for the parameters, see `on_log`."""

    stage: Stage
    name: str
    has_timers: bool

    def results(self, number: int, frames: Iterable[Any], handle: Any, log: Any, times: Any) -> Any:
        """Process a key range's rows; see `Stage`.

        :param handle: Spark's `StatefulProcessorHandle`
        :param log: the `MapState` with the log
        :param times: Spark's `TimerValues`
        """
        directory = local_directory(number) / self.name
        set_timer = partial(set_spark_timer, handle, times) if self.has_timers else None
        with ExitStack() as stack:
            return self.stage(number, frames, LogState(log, directory, number, stack, set_timer))


class LogState:
    """The state of a key range in `transformWithState`; see `RangeState` and `Segments`.

    :param set_timer: function that makes Spark call the range again, if it has to
    """

    def __init__(
        self, log: Any, directory: Path, number: int, stack: ExitStack, set_timer: Callable[[], None] | None
    ) -> None:
        self._log = log
        self._set_timer = set_timer
        self._directory = directory
        self._number = number
        self._stack = stack

    def load(self, run: str) -> LoggedRange:
        opened = RangeEntries.open(self, self._directory, str(self._number), run)
        self._range = LoggedRange(self._stack.enter_context(opened))
        return self._range

    def fill(self, groups: Iterable[tuple[int, KeyGroup]], run: str) -> StoreResult:
        return self._scheduled(fill(Log(self, str(self._number)), groups, run))

    def store(self) -> StoreResult:
        return self._scheduled(self._range.store())

    def _scheduled(self, result: StoreResult) -> StoreResult:
        if result.status.needs_calls and self._set_timer is not None:
            self._set_timer()
        return result

    def head(self) -> bytes | None:
        return self.get(_HEAD)

    def set_head(self, head: bytes, /) -> None:
        self.put(_HEAD, head)

    def get(self, number: int, /) -> bytes | None:
        stored = self._log.getValue((number,))
        return None if stored is None else base64.b64decode(stored[0])

    def put(self, number: int, segment: bytes, /) -> None:
        self._log.updateValue((number,), (base64.b64encode(segment).decode("ascii"),))

    def remove(self, number: int, /) -> None:
        self._log.removeKey((number,))


def local_directory(number: int) -> Path:
    """Return the directory for the view of a key range on this executor. Spark removes it when the application ends.
    The views of the ranges are spread over Spark's local directories.
    """
    directories = os.environ["SPARK_LOCAL_DIRS"].split(",")
    return Path(directories[number % len(directories)]) / "amadou-views"


end_with_spark()
