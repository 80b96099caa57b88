"""The *log* store: a key range as entries, of which a batch reads and writes only those that it touches."""

import uuid
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from amadou.engine import pack, unpack
from amadou.event_time import END_OF_TIME
from amadou.plugins import Counts
from amadou_runtime.core.dependencies import Held
from amadou_runtime.core.group_batch import ProcessedGroup
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.key_range import GroupStatus, StoreResult, range_status
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.stored import StoredGroup
from amadou_runtime.store.entries import Change, Entries, EntryChanges
from amadou_runtime.store.group_by_key import GroupByKey, entries_of
from amadou_runtime.store.log.entries import RangeEntries, StoreFigures
from amadou_runtime.store.log.forms import FORMS, Forms
from amadou_runtime.store.packed_group import PackedChanges, PackedGroup, divided, joined

PREFIX = 2
"""Number of bytes with which each id begins: the number of the key group."""
PACKED = b"p"
"""The rest of the id of an entry that contains a whole key group."""


class StoredForm(NamedTuple):
    """A key group between two batches.

    :param is_packed: `True` if the group is stored in one entry
    :param misfits: number of the last consecutive batches for which the other form would be better
    """

    status: GroupStatus
    is_packed: bool = True
    misfits: int = 0


_NEW = StoredForm(GroupStatus(0, 0, False, {}, []))


class LoggedRange:
    """A key range that is stored as entries; see `StoredRange`. A key group is stored in one of two forms: as a single
    entry, while it is small or while most batches touch many of its keys; otherwise as an entry per key.

    :param entries: the stored entries
    """

    def __init__(self, entries: RangeEntries, forms: Forms = FORMS) -> None:
        self.entries = entries
        self.forms = forms
        """Rules for the form of each key group."""
        self.logged: dict[bytes, Change] = {}
        """The changes that the range has taken; see `EntryChanges`."""
        self.in_memory: dict[bytes, Change] = {}
        self._epoch, groups = ("", {}) if entries.extra is None else unpack(entries.extra)
        self._has_kept_memory = not entries.lost_unlogged
        if entries.lost_unlogged or not self._epoch:
            self._epoch = uuid.uuid4().hex
        self._groups = {number: StoredForm(GroupStatus(*status), *form) for number, (status, *form) in groups.items()}
        self._taken: set[int] = set()
        self._due: dict[int, dict[int, list[bytes]]] = {}

    def called(self, operator: Operator, watermark: int | None, limits: Mapping[str, int]) -> set[int]:
        kept = self._has_kept_memory
        called = {
            number
            for number, group in self._groups.items()
            if group.status.is_called(operator, limits, has_kept_memory=kept)
        }
        return called if watermark is None else called.union(self.due(watermark))

    def due(self, by: int) -> dict[int, list[bytes]]:
        """Return the ids of the stored entries that are due by an event time in microseconds, by key group."""
        if by not in self._due:
            found = self._due[by] = {}
            for id_ in self.entries.due(by):
                found.setdefault(int.from_bytes(id_[:PREFIX], "big"), []).append(id_)
        return self._due[by]

    def group(self, number: int) -> StoredGroup:
        entries = self._group_entries(number)
        is_packed = self._groups.get(number, _NEW).is_packed
        return PackedGroup(entries.packed()) if is_packed else GroupByKey(entries)

    def take(self, number: int, processed: ProcessedGroup) -> None:
        changes, held = processed.changes, processed.held
        is_by_key = isinstance(changes, EntryChanges)
        is_misfit = self.forms.is_dense(processed) if is_by_key else self.forms.is_sparse(processed)
        misfits = self._groups.get(number, _NEW).misfits + 1 if is_misfit else 0
        if misfits >= self.forms.batches or (is_misfit and not is_by_key and len(changes.packed) > self.forms.large):
            (self._join if is_by_key else self._divide)(number, processed)
        else:
            (self._take_entries if is_by_key else self._take_packed)(number, changes, held, misfits)

    def _join(self, number: int, processed: ProcessedGroup) -> None:
        """Store a group that has an entry per key in one entry."""
        group = processed.group
        group.stored.load_all(group)
        changes = PackedGroup(None).changes(group)
        self._delete(*self._group_entries(number).ids())
        self._take_packed(number, changes, processed.held, 0)

    def _divide(self, number: int, processed: ProcessedGroup) -> None:
        """Store a group that has one entry as an entry per key."""
        prefix = prefix_of(number)
        self._delete(prefix + PACKED)
        self._take_entries(number, entries_of(processed.group, prefix, self._epoch), processed.held, 0)

    def replace(self, number: int, packed: bytes | None) -> None:
        self._delete(*self._group_entries(number).ids())
        stored = PackedGroup(packed)
        group = KeyGroup(stored)
        if self.forms.begins_packed(group):
            self._take_packed(number, stored.changes(group), group.waiting(), 0)
        else:
            self._take_entries(number, entries_of(group, prefix_of(number), self._epoch), group.waiting(), 0)

    def _group_entries(self, number: int) -> "GroupEntries":
        return GroupEntries(self, number, self._epoch, was_taken=number in self._taken)

    def _delete(self, *ids: bytes) -> None:
        for id_ in ids:
            self.logged[id_] = self.in_memory[id_] = Change(None, None)

    def _take_entries(self, number: int, changes: EntryChanges, held: Held, misfits: int) -> None:
        self.logged |= changes.logged
        self.in_memory |= changes.in_memory
        self._set(number, StoredForm(GroupStatus.of(changes, held), False, misfits))

    def _take_packed(self, number: int, changes: PackedChanges, held: Held, misfits: int) -> None:
        survives, in_memory = (None, None) if changes.packed is None else divided(changes.packed)
        id_ = prefix_of(number) + PACKED
        self.logged[id_] = Change(survives, changes.next_time)
        self.in_memory[id_] = Change(in_memory, None)
        self._set(number, StoredForm(GroupStatus.of(changes, held), True, misfits))

    def _set(self, number: int, group: StoredForm) -> None:
        self._taken.add(number)
        if group.status.keys or group.status.held or group.status.retired:
            self._groups[number] = group
        else:
            self._groups.pop(number, None)

    def store(self) -> StoreResult:
        """Store the changes that the range has taken."""
        groups = [group.status for group in self._groups.values()]
        kept = {number: [list(status), *form] for number, (status, *form) in self._groups.items()}
        next_times = [change.time for changes in (self.logged, self.in_memory) for change in changes.values()]
        next_times.append(self.entries.next_time(self.logged, self.in_memory))
        if any(status.retired for status in groups):
            next_times.append(END_OF_TIME)  # the range is called until a job has the specs again
        figures = self.entries.store(self.logged, self.in_memory, pack([self._epoch, kept]))
        status = range_status(
            groups,
            entries=figures.entries,
            state_bytes=figures.bytes,
            view_bytes=figures.view_bytes,
            next_timer=min((time for time in next_times if time is not None), default=None),
        )
        return StoreResult(status, _counts(figures), figures.rebuild_seconds)


def _counts(figures: StoreFigures) -> Counts:
    return Counts(
        state_bytes_written=figures.bytes_written,
        state_bytes_cleaned=figures.bytes_cleaned,
        state_view_hits=int(figures.view_hit),
        state_view_rebuilds=int(not figures.view_hit),
    )


def prefix_of(number: int) -> bytes:
    """Return the prefix of the ids of a key group's entries."""
    return number.to_bytes(PREFIX, "big")


class GroupEntries(Entries):
    """The entries of a key group of a range.

    :param was_taken: `True` if the range has already taken changes of the group in this batch
    """

    def __init__(self, of: LoggedRange, number: int, epoch: str, *, was_taken: bool) -> None:
        super().__init__(prefix_of(number), epoch)
        self._of = of
        self._number = number
        self._was_taken = was_taken

    def get(self, ids: list[bytes]) -> list[bytes | None]:
        found = self._of.entries.get(ids)
        return self._with_taken(ids, found, self._of.logged) if self._was_taken else found

    def get_in_memory(self, ids: list[bytes]) -> list[bytes | None]:
        found = self._of.entries.get_unlogged(ids)
        return self._with_taken(ids, found, self._of.in_memory) if self._was_taken else found

    def packed(self) -> bytes | None:
        """Return the group that is stored in one entry; `None` if there is no such entry."""
        ids = [self.prefix + PACKED]
        (survives,), (in_memory,) = self.get(ids), self.get_in_memory(ids)
        return None if survives is None else joined(survives, in_memory)

    def _with_taken(
        self, ids: list[bytes], found: list[bytes | None], taken: dict[bytes, Change]
    ) -> list[bytes | None]:
        return [taken[id_].value if id_ in taken else value for id_, value in zip(ids, found, strict=True)]

    def due(self, by: int) -> Iterable[bytes]:
        stored = self._of.due(by).get(self._number, [])
        if not self._was_taken:
            return stored
        return self._existing(stored, lambda change: change.time is not None and change.time <= by)

    def ids(self, start: bytes = b"") -> Iterable[bytes]:
        start = self.prefix + start
        stored = self._of.entries.ids(start)
        existing = self._existing(stored, lambda _: True) if self._was_taken else stored
        return [id_ for id_ in existing if id_.startswith(start)]

    def _existing(self, stored: list[bytes], is_meant: Callable[[Change], bool]) -> list[bytes]:
        """Return stored ids, and the ids of the taken changes that are meant, as far as there are such entries."""
        taken = chain(self._of.logged.items(), self._of.in_memory.items())
        meant = (id_ for id_, change in taken if id_.startswith(self.prefix) and is_meant(change))
        ids = list(dict.fromkeys(chain(stored, meant)))
        entries = zip(ids, self.get(ids), self.get_in_memory(ids), strict=True)
        return [id_ for id_, *values in entries if any(value is not None for value in values)]
