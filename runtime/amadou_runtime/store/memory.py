"""The state of the embedded engine: entries in memory."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Protocol

from amadou import Key
from amadou_runtime.core.group_batch import ProcessedGroup
from amadou_runtime.core.key_group import KeyGroup, StoredGroup
from amadou_runtime.store.entries import Change, EntryChanges
from amadou_runtime.store.group_by_key import GroupByKey, entries_of
from amadou_runtime.store.packed_group import PackedGroup


class GroupState(Protocol):
    """The state of the only key group of the embedded engine, between batches."""

    def begin(self, run: str) -> None:
        """Begin a batch of a run. The in-memory state of other runs is lost."""

    def stored(self) -> StoredGroup:
        """Return the state as of the batch's begin."""

    def take(self, processed: ProcessedGroup) -> int:
        """Store the changes of a batch. Return the size of what is written, in bytes."""

    @property
    def entries(self) -> int:
        """Number of stored entries; see `Counts.state_entries`."""

    @property
    def size(self) -> int:
        """Size of the stored state in bytes."""

    def group(self) -> KeyGroup:
        """Return the key group, completely loaded."""


class EmbeddedState:
    """The entries of a key group, in memory; see `Entries` and `GroupState`.

    :param epoch: the id of the run; see `begin`
    """

    prefix = b""

    def __init__(self, epoch: str = "") -> None:
        self.epoch = epoch
        self._logged = _Table()
        self._in_memory = _Table()

    def begin(self, run: str) -> None:
        if run != self.epoch:
            self.epoch, self._in_memory = run, _Table()

    def get(self, ids: list[bytes]) -> list[bytes | None]:
        return list(map(self._logged.values.get, ids))

    def get_in_memory(self, ids: list[bytes]) -> list[bytes | None]:
        return list(map(self._in_memory.values.get, ids))

    def due(self, by: int) -> Iterable[bytes]:
        return [*self._logged.due(by), *self._in_memory.due(by)]

    def ids(self, start: bytes = b"") -> Iterable[bytes]:
        return dict.fromkeys(id_ for id_ in (*self._logged.values, *self._in_memory.values) if id_.startswith(start))

    def stored(self) -> GroupByKey:
        return GroupByKey(self)

    def take(self, processed: ProcessedGroup) -> int:
        return self.store(processed.changes)

    def store(self, changes: EntryChanges) -> int:
        """Store changes. Return the size of the new and changed entries in bytes."""
        return self._logged.store(changes.logged) + self._in_memory.store(changes.in_memory)

    @property
    def entries(self) -> int:
        return len(self._logged.values) + len(self._in_memory.values)

    @property
    def size(self) -> int:
        return self._logged.size + self._in_memory.size

    def keys(self) -> list[Key]:
        """Return the keys that have state or timers."""
        return self.group().keys()

    def group(self) -> KeyGroup:
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
        state.store(entries_of(group, state.prefix, state.epoch))
        return state


class _Table:
    """Entries, with an index of the times at which entries are due."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.size = 0
        self._times: dict[bytes, int] = {}
        self._due: dict[int, set[bytes]] = {}
        self._order: list[int] = []
        """The times in `_due`, in ascending order."""

    def due(self, by: int) -> list[bytes]:
        found: list[bytes] = []
        for micros in self._order:
            if micros > by:
                break
            found += self._due[micros]
        return found

    def store(self, changes: dict[bytes, Change]) -> int:
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
                del self._order[bisect_left(self._order, before)]
        if time is None:
            return
        self._times[id_] = time
        if time not in self._due:
            self._due[time] = set()
            insort(self._order, time)
        self._due[time].add(id_)
