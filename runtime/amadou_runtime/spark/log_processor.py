"""What Spark calls on the *log* store.

Before the first batch of a query, Spark starts a Python process only to ask which states the processor has. This module
therefore imports amadou only when there are rows to process, and is itself sent by value: the process starts sooner,
and needs neither amadou nor the job.
"""

import io
import pickle
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

_NUMBER, _PACKED = "number long", "packed string"
"""Schemas of the map that contains a range's log: segments by number, and the head as number 0. Values are base64 text,
since Spark passes text between Python and Java several times as fast as bytes.
"""
_DRIVER_WORKER = "pyspark.sql.streaming.transform_with_state_driver_worker"


class Processor(StatefulProcessor):
    """Spark calls `handleInputRows` for each key range with rows, and then `handleExpiredTimer` for each key range with
    an expired timer, even if the range had rows.

    :param stage: the `LogStage` in pickled form
    """

    def __init__(self, stage: bytes) -> None:
        self._pickled = stage
        self._stage: Any = None
        self._processed: set[int] = set()

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        spec = getattr(sys.modules["__main__"], "__spec__", None)
        if spec is not None and spec.name == _DRIVER_WORKER:
            sys.stdout = io.StringIO()  # Spark prints how far the process has come

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
        if self._stage is None:
            self._stage = pickle.loads(self._pickled)
        return self._stage.results(number, frames, self._handle, self._log, times)
