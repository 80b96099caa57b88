"""The stateful stage on the *groups* store, with Spark's `applyInPandasWithState`."""

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from amadou.plugins import Counts
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.key_range import StoreResult
from amadou_runtime.spark.rows import RESULT
from amadou_runtime.spark.stateful_stage import Stage
from amadou_runtime.spark.timeouts import set_timeout
from amadou_runtime.spark.worker_end import end_with_spark
from amadou_runtime.store.packed_range import PackedRange

_STATE = "state binary"


def on_groups(keyed: Any, stage: Stage) -> Any:
    """Return the results of the stage for keyed rows.

    :param keyed: a streaming data frame with the columns of `KEYED`
    """
    function = _GroupsFunction(stage).__call__
    return keyed.groupBy("range").applyInPandasWithState(function, RESULT, _STATE, "update", "EventTimeTimeout")


@attrs.frozen
class _GroupsFunction:
    """The function that Spark calls with the rows and the state of a key range."""

    stage: Stage

    def __call__(self, key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        yield self.stage(int(key[0]), frames, GroupsState(state))


class GroupsState:
    """The state of a key range in `applyInPandasWithState`; see `RangeState`.

    :param state: Spark's `GroupState`
    """

    def __init__(self, state: Any) -> None:
        self._state = state
        self._stored = state.get[0] if state.exists else None
        self._range = PackedRange(None)

    def load(self, run: str) -> PackedRange:
        self._range = PackedRange(self._stored)
        return self._range

    def fill(self, groups: Iterable[tuple[int, KeyGroup]], run: str) -> StoreResult:
        self._range.fill(groups)
        return self.store()

    def store(self) -> StoreResult:
        packed = self._range.pack()
        if packed is not None:
            self._state.update((packed,))
        elif self._stored is not None:
            self._state.remove()
        status = self._range.status(packed)
        if status.needs_calls:
            set_timeout(self._state)
        return StoreResult(status, Counts(state_bytes_written=len(packed or b"")))


end_with_spark()
