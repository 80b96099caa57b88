"""The stores of Spark without Spark: the state of a test run in each form that a key group can have.

The embedded engine stores an entry per key in memory. Here are the stores `groups` and `log`, with the classes that
store a key range on Spark.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.spark.log_storage import MemorySegments

from amadou_runtime.core.group_batch import ProcessedGroup
from amadou_runtime.core.key_group import KeyGroup, StoredGroup
from amadou_runtime.core.key_range import RangeStatus
from amadou_runtime.store.log.entries import RangeEntries
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

    def begin(self, run: str) -> None:
        self._run = run
        self._range = PackedRange(self._stored)

    def stored(self) -> StoredGroup:
        return self._range.group(0)

    def take(self, processed: ProcessedGroup) -> int:
        self._range.take(0, processed)
        self._stored = self._range.pack()
        return len(self._stored or b"")

    @property
    def _status(self) -> RangeStatus:
        return self._range.status(self._stored)

    @property
    def entries(self) -> int:
        return self._status.entries

    @property
    def size(self) -> int:
        return self._status.state_bytes

    def group(self) -> KeyGroup:
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
        self._status = RangeStatus(0, 0, 0, 0, 0, None, {})
        if packed is not None:
            group = KeyGroup(PackedGroup(packed))
            self._run = group.run or ""
            logged = self._opened()
            logged.replace(0, packed)
            self._status = logged.store().status
            self.close()

    def begin(self, run: str) -> None:
        self.close()  # a failed batch leaves its changes
        self._run = run
        self._batches += 1

    def stored(self) -> StoredGroup:
        return self._opened().group(0)

    def take(self, processed: ProcessedGroup) -> int:
        logged = self._opened()
        logged.take(0, processed)
        result = logged.store()
        self._status = result.status
        self.close()
        return result.counts.state_bytes_written

    @property
    def entries(self) -> int:
        return self._status.entries

    @property
    def size(self) -> int:
        return self._status.state_bytes

    def group(self) -> KeyGroup:
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
