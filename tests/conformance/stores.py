"""The stores of Spark without Spark: the state of a test run in each form that a key group can have.

The embedded engine stores an entry per key in memory. Here are the stores `groups` and `log`, with the classes that
store a key range on Spark.
"""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import attrs
from tests.spark.log_storage import MemorySegments

from amadou.plugins import Counts
from amadou_runtime.core.group_batch import ProcessedGroup
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.key_range import StoreResult
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.stored import StoredGroup, StoredRange
from amadou_runtime.store.log.entries import RangeEntries
from amadou_runtime.store.log.filling import fill
from amadou_runtime.store.log.forms import ENTRY_PER_KEY, ONE_ENTRY, Forms
from amadou_runtime.store.log.logged_range import LoggedRange
from amadou_runtime.store.log.segments import Log
from amadou_runtime.store.memory import EmbeddedState, GroupState
from amadou_runtime.store.packed_group import PackedGroup
from amadou_runtime.store.packed_range import PackedRange
from amadou_runtime.testing.engines import EmbeddedEngine
from amadou_runtime.testing.test_run import defaults


class PackedState:
    """The state of a key range as one value, as on the store `groups`; see `GroupState`."""

    def __init__(self, packed: bytes | None) -> None:
        self._run = ""
        self._stored: bytes | None = None
        self._range = PackedRange(None)
        if packed is not None:
            self._range.replace(0, packed)
            self._stored = self._range.pack()

    def load(self, run: str) -> StoredRange:
        self._run = run
        self._range = PackedRange(self._stored)
        return AlwaysCalled(self._range)

    def fill(self, groups: Iterable[tuple[int, KeyGroup]], run: str) -> StoreResult:
        self._range.fill(groups)
        return self.store()

    def store(self) -> StoreResult:
        self._stored = self._range.pack()
        return StoreResult(self._range.status(self._stored), Counts(state_bytes_written=len(self._stored or b"")))

    def whole(self) -> KeyGroup:
        return KeyGroup(PackedRange(self._stored).group(0), self._run)


class LoggedState:
    """The state of a key range as a log with a local view, as on the store `log`; see `GroupState`.

    Every other batch begins without the view, as on another executor. A view with in-memory state is not removed, since
    this state would be lost.

    :param directory: the directory of the view
    """

    def __init__(self, packed: bytes | None, forms: Forms, directory: Path) -> None:
        self._forms = forms
        self._directory = directory
        self._segments = MemorySegments()
        self._run = ""
        self._batches = 0
        self._stack = ExitStack()
        self._range: LoggedRange | None = None
        if packed is not None:
            self._run = KeyGroup(PackedGroup(packed)).run or ""
            self._opened().replace(0, packed)
            self.store()

    def load(self, run: str) -> StoredRange:
        self.close()  # a failed batch leaves its changes
        self._run = run
        self._batches += 1
        return AlwaysCalled(self._opened())

    def fill(self, groups: Iterable[tuple[int, KeyGroup]], run: str) -> StoreResult:
        return fill(Log(self._segments, "0"), groups, run)

    def store(self) -> StoreResult:
        result = self._opened().store()
        self.close()
        return result

    def whole(self) -> KeyGroup:
        stored = self._opened().group(0)
        group = KeyGroup(stored, self._run)
        stored.load_all(group)
        return group

    def _opened(self) -> LoggedRange:
        """Return the key range; one batch has the same one."""
        if self._range is None:
            if self._batches % 2 and not Log(self._segments, "0").head.unlogged:
                shutil.rmtree(self._directory, ignore_errors=True)
            entries = RangeEntries.open(self._segments, self._directory, "0", self._run)
            self._range = LoggedRange(self._stack.enter_context(entries), self._forms)
        return self._range

    def ids(self) -> list[bytes]:
        """Return the ids of the stored entries."""
        return self._opened().entries.ids(b"")

    def close(self) -> None:
        """Close the view; changes that were not stored are lost."""
        self._range = None
        self._stack.close()


@attrs.frozen
class AlwaysCalled:
    """A range whose only key group is processed in each batch; see `StoredRange`."""

    stored: StoredRange

    def called(self, operator: Operator, watermark: int | None, limits: Mapping[str, int]) -> list[int]:
        return [0]

    def group(self, number: int) -> StoredGroup:
        return self.stored.group(number)

    def take(self, number: int, processed: ProcessedGroup) -> None:
        self.stored.take(number, processed)


IN_PROCESS = ("memory", "groups", "log-packed", "log-by-key")
"""The names of the stores. `memory` is that of the embedded engine."""
_FORMS = {"log-packed": ONE_ENTRY, "log-by-key": ENTRY_PER_KEY}


@contextmanager
def embedded_on(store: str) -> Iterator[list[GroupState]]:
    """Test runs on the embedded engine that start in this block have their state on a store. Yield the states, one for
    each stage and each time that a script sets a stage's state.
    """
    states: list[GroupState] = []
    before = defaults.embedded_engine

    def state_of(packed: bytes | None) -> GroupState:
        states.append(new_state(packed))
        return states[-1]

    def new_state(packed: bytes | None) -> GroupState:
        if store == "memory":
            return EmbeddedState.of(packed)
        if store == "groups":
            return PackedState(packed)
        state = LoggedState(packed, _FORMS[store], Path(directory, str(len(states))))
        stack.callback(state.close)
        return state

    with tempfile.TemporaryDirectory(prefix="amadou-views-") as directory, ExitStack() as stack:
        defaults.embedded_engine = partial(EmbeddedEngine, state_of=state_of)
        try:
            yield states
        finally:
            defaults.embedded_engine = before
