"""The state of the embedded engine: entries in memory."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Protocol

from amadou.plugins import Counts
from amadou_runtime.core.dependencies import Held
from amadou_runtime.core.group_batch import ProcessedGroup
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.key_range import RangeStatus, StoreResult
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.stored import RangeState
from amadou_runtime.store.entries import Change, Entries, EntryChanges
from amadou_runtime.store.group_by_key import GroupByKey, entries_of
from amadou_runtime.store.packed_group import PackedGroup


class GroupState(RangeState, Protocol):
    """The state of the only key group of the embedded engine."""

    def whole(self) -> KeyGroup:
        """Return the key group after the last batch, completely loaded."""


class EmbeddedState(Entries):
    """The entries of a key group, in memory; see `GroupState`. It is the range of its only group, too.

    :param epoch: the id of the run that stored in-memory state
    """

    def __init__(self, epoch: str = "") -> None:
        super().__init__(b"", epoch)
        self._logged = _Table()
        self._in_memory = _Table()
        self._taken: ProcessedGroup | None = None

    def load(self, run: str) -> "EmbeddedState":
        self._taken = None  # a failed batch leaves its changes
        if run != self.epoch:
            self.epoch, self._in_memory = run, _Table()
        return self

    def fill(self, groups: Iterable[tuple[int, KeyGroup]], run: str) -> StoreResult:
        self.epoch = run
        written, keys = 0, 0
        for _, group in groups:
            changes = entries_of(group, self.prefix, run)
            written, keys = written + self.put(changes), keys + changes.keys
        return self._result(written, keys, 0, {})

    def store(self) -> StoreResult:
        assert self._taken is not None
        changes, held = self._taken.changes, self._taken.held
        return self._result(self.put(changes), changes.keys, changes.pending, held)

    def _result(self, written: int, keys: int, pending: int, held: Held) -> StoreResult:
        entries, size = len(self._logged.values) + len(self._in_memory.values), self._logged.size + self._in_memory.size
        times = (time for table in (self._logged, self._in_memory) for time in table.order[:1])
        status = RangeStatus(keys, pending, entries, size, 0, min(times, default=None), held)
        return StoreResult(status, Counts(state_bytes_written=written))

    def called(self, operator: Operator, watermark: int | None, limits: Mapping[str, int]) -> Iterable[int]:
        return (0,)

    def group(self, number: int) -> GroupByKey:
        return GroupByKey(self)

    def take(self, number: int, processed: ProcessedGroup) -> None:
        self._taken = processed

    def get(self, ids: list[bytes]) -> list[bytes | None]:
        return list(map(self._logged.values.get, ids))

    def get_in_memory(self, ids: list[bytes]) -> list[bytes | None]:
        return list(map(self._in_memory.values.get, ids))

    def due(self, by: int) -> Iterable[bytes]:
        return [*self._logged.due(by), *self._in_memory.due(by)]

    def ids(self, start: bytes = b"") -> Iterable[bytes]:
        return dict.fromkeys(id_ for id_ in (*self._logged.values, *self._in_memory.values) if id_.startswith(start))

    def put(self, changes: EntryChanges) -> int:
        """Store changes. Return the size of the new and changed entries in bytes."""
        return self._logged.put(changes.logged) + self._in_memory.put(changes.in_memory)

    def whole(self) -> KeyGroup:
        stored = GroupByKey(self)
        group = KeyGroup(stored, self.epoch)
        stored.load_all(group)
        return group

    @classmethod
    def of(cls, packed: bytes | None) -> "EmbeddedState":
        """Return the state that is stored in one value; see `PackedGroup`."""
        return cls.of_group(KeyGroup(PackedGroup(packed)))

    @classmethod
    def of_group(cls, group: KeyGroup) -> "EmbeddedState":
        """Return the state of a completely loaded key group."""
        state = cls(group.run or "")
        state.put(entries_of(group, state.prefix, state.epoch))
        return state


class _Table:
    """Entries, with an index of the times at which entries are due."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.size = 0
        self._times: dict[bytes, int] = {}
        self._due: dict[int, set[bytes]] = {}
        self.order: list[int] = []
        """The times in `_due`, in ascending order."""

    def due(self, by: int) -> list[bytes]:
        found: list[bytes] = []
        for micros in self.order:
            if micros > by:
                break
            found += self._due[micros]
        return found

    def put(self, changes: dict[bytes, Change]) -> int:
        """Store changes. Return the size of the new and changed entries."""
        written = 0
        for id_, (value, time) in changes.items():
            before = self.values.pop(id_, None)
            if before is not None:
                self.size -= len(id_) + len(before)
            if value is not None:
                self.values[id_] = value
                written += len(id_) + len(value)
            if time != self._times.get(id_):
                self._move(id_, time)
        self.size += written
        return written

    def _move(self, id_: bytes, time: int | None) -> None:
        before = self._times.pop(id_, None)
        if before is not None:
            self._due[before].remove(id_)
            if not self._due[before]:
                del self._due[before]
                del self.order[bisect_left(self.order, before)]
        if time is None:
            return
        self._times[id_] = time
        if time not in self._due:
            self._due[time] = set()
            insort(self.order, time)
        self._due[time].add(id_)
