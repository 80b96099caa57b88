"""The state of a key group as one entry per key. A batch reads and writes only the entries of the keys that it touches.

An entry is a list in packed form: the entry's *shape*, followed by the parts that the shape announces. The shape
consists of a byte with flags, and of three bytes for each name under which the key has state: the number of the name's
slot, and flags. Entries with the same shape are read column by column.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

from amadou import Key
from amadou.engine import StateTable, is_watching, pack, unpack, unpack_all
from amadou_runtime.core.key_group import HeldChunk, HeldEvents, KeyGroup
from amadou_runtime.store.entries import Change, Entries, EntryChanges
from amadou_runtime.store.entry_rows import EXPIRES, OWN_KEY, TAGGED, TIMER, TIMES, EntryRows, read_timers
from amadou_runtime.store.group_meta import Figures, GroupMeta, Slot

_KEY, _LONG_KEY, _HELD, _META, _WATCHING = b"k", b"l", b"h", b"m", b"w"
"""First byte of the id of a key's entry, of a long key's entry, of a chunk of held events, of the group's metadata, and
of an entry with a key that watches a reference."""
_LONGEST_KEY: Final = 400
"""Maximum size of a packed key that is part of an id, in bytes. The entry of a longer key has an id with the key's
hash, and contains the key.
"""


class _Stored(NamedTuple):
    """The stored form of a key that the batch has loaded."""

    id: bytes
    logged: bytes | None
    in_memory: bytes | None


class GroupByKey:
    """A key group that is stored as one entry per key; see `StoredGroup`."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._start = len(entries.prefix)
        self._key_prefix = entries.prefix + _KEY
        self._meta_id = entries.prefix + _META
        (self._stored_meta,) = entries.get([self._meta_id])

    def begin(self, group: KeyGroup) -> None:
        self._by: int | None = None
        self._stored: dict[Key, _Stored] = {}
        self._due: set[bytes] = set()
        self._watching: dict[str, set[Key]] = {}
        """The loaded keys that watched a reference before the batch, by name of the state."""
        self._before = Figures()
        meta = self._meta = GroupMeta.unpack(self._stored_meta)
        group.take_structures(
            {slot.name: [meta.structures[at] for at in slot.structures] for slot in meta.slots if slot.structures}
        )
        if meta.epoch != self._entries.epoch:
            group.lost = {slot.name: slot.keys for slot in meta.slots if slot.in_memory and slot.keys}
            meta.lose_in_memory(self._entries.epoch)
        group.in_memory = frozenset(slot.name for slot in meta.slots if slot.in_memory and slot.keys)
        group.held = {
            source: HeldEvents([HeldChunk(number, oldest, None, id_) for number, oldest, id_ in chunks])
            for source, chunks in meta.held.items()
        }

    def load(self, group: KeyGroup, keys: Collection[Key], by: int | None) -> None:
        self._by = by
        if by is not None:
            self._due.update(self._entries.due(by))
        if self._concerns_all(group):
            self._due.update(self._key_ids())  # the times of entries may change although their content does not
        self._load(group, keys, self._due)

    def load_all(self, group: KeyGroup) -> None:
        self._load(group, (), self._key_ids())

    def load_keys(self, group: KeyGroup, keys: Collection[Key]) -> None:
        """Load the state and timers of keys, to look at them."""
        self._load(group, keys, ())

    def load_watching(self, group: KeyGroup, name: str) -> None:
        ids = list(self._entries.ids(_watching_id(name)))
        self._load(group, [unpack(packed) for packed in self._entries.get(ids) if packed is not None], ())

    def _key_ids(self) -> list[bytes]:
        """Return the ids of the entries of all keys."""
        at = self._start
        return [id_ for id_ in self._entries.ids() if id_[at : at + 1] in (_KEY, _LONG_KEY)]

    def has_loaded(self, key: Key) -> bool:
        return key in self._stored

    def held_events(self, chunk: HeldChunk) -> bytes:
        assert chunk.id is not None
        (packed,) = self._entries.get([self._held_id(chunk.id)])
        assert packed is not None
        return packed

    def others(self, name: str) -> int:
        slots, before = self._meta.slots, self._before.slots
        return sum(slot.keys - before.get(at, 0) for at, slot in enumerate(slots) if slot.name == name)

    def changes(self, group: KeyGroup) -> EntryChanges:
        for name in list(group.group_states):
            group.by_subject(group.columnar[name])
        meta, after = self._meta, Figures()
        becomes_in_memory = (slot.name for slot in meta.slots if slot.name in group.in_memory and not slot.in_memory)
        if any(map(self.others, becomes_in_memory)):
            self.load_all(group)
        self._before.add_to(meta, -1)
        logged, in_memory = EntryRows(), EntryRows()
        logged.add_timers(group.timers.plain, group.timers.tagged)
        after.logged_keys.update(logged.parts)
        after.pending = group.timers.pending
        self._add_tables(group, logged, in_memory, after)
        after.add_to(meta, 1)
        changed, changed_in_memory = self._changed(logged, in_memory)
        self._store_watching(group, changed)
        self._store_held(group, changed)
        self._store_meta(group, changed)
        retired = [slot.name for slot in meta.slots if slot.kept and slot.keys]
        has_in_memory = any(slot.in_memory and slot.keys for slot in meta.slots)
        watched = [slot.name for slot in meta.slots if is_watching(slot.name) and slot.keys]
        return EntryChanges(
            logged=changed,
            in_memory=changed_in_memory,
            keys=meta.keys,
            pending=meta.pending,
            retired=retired,
            has_in_memory=has_in_memory,
            watched=watched,
        )

    def _add_tables(self, group: KeyGroup, logged: EntryRows, in_memory: EntryRows, after: Figures) -> None:
        """Add the state of keys, in the order of slots."""
        tables = [*((name, table, False) for name, table in group.tables.items())]
        tables += ((name, table, True) for name, table in group.kept.items())
        by_slot = sorted((self._slot(name), name, table, is_kept) for name, table, is_kept in tables if table.packed)
        for at, name, table, is_kept in by_slot:
            slot, is_in_memory = self._meta.slots[at], name in group.in_memory
            rows = in_memory if is_in_memory else logged
            has_ttl = rows.add_table(at, table, is_kept=is_kept, by=self._by)
            slot.has_ttl = (slot.has_ttl or not slot.keys) and has_ttl
            slot.in_memory = is_in_memory
            after.slots[at] = len(table.packed)
            if not is_kept and is_in_memory:
                after.in_memory_keys.update(table.packed)
                after.in_memory_pending += len(table.next_timers)
            elif not is_kept:
                after.logged_keys.update(table.packed)
                after.pending += len(table.next_timers)

    def _concerns_all(self, group: KeyGroup) -> bool:
        """Return `True` if the job's specs have changed in a way that concerns all keys: state has been retired or has
        returned, or a spec has a time to live for the first time.
        """
        return any(
            slot.kept != (slot.name in group.retired)
            or group.retired.get(slot.name) == "drop"
            or (self._by is not None and slot.name in group.lives and not slot.has_ttl)
            for slot in self._meta.slots
            if slot.keys
        )

    def _load(self, group: KeyGroup, keys: Iterable[Key], ids: Iterable[bytes]) -> None:
        """Load keys that are not loaded yet.

        :param ids: the ids of entries to load, in addition to those of the keys
        """
        stored = self._stored
        known = {each.id for each in stored.values()}
        wanted = {self._id_of(key): key for key in keys if key not in stored}
        listed = list(dict.fromkeys(chain(wanted, (id_ for id_ in ids if id_ not in known))))
        logged = self._entries.get(listed)
        in_memory: list[bytes | None] = [None] * len(listed)
        if any(slot.in_memory and slot.keys for slot in self._meta.slots):
            in_memory = self._entries.get_in_memory(listed)
        loaded = [
            wanted[id_] if id_ in wanted else self._key_of(id_, one or other)
            for id_, one, other in zip(listed, logged, in_memory, strict=True)
        ]
        stored.update(zip(loaded, map(_Stored, listed, logged, in_memory), strict=True))
        self._before.pending += self._read(group, loaded, logged, self._before.logged_keys)
        self._before.in_memory_pending += self._read(group, loaded, in_memory, self._before.in_memory_keys)

    def _read(self, group: KeyGroup, keys: list[Key], packed: list[bytes | None], live: set[Key]) -> int:
        """Read entries into a group's tables and timers.

        :param live: the set to which the keys with timers, or with state that is not retained, are added
        :returns: number of pending timers
        """
        present = [key for key, each in zip(keys, packed, strict=True) if each is not None]
        by_shape: dict[bytes, tuple[list[Key], list[Any]]] = {}
        for key, row in zip(present, unpack_all(b"".join(filter(None, packed))), strict=True):
            found = by_shape.get(row[0])
            if found is None:
                found = by_shape[row[0]] = [], []
            found[0].append(key)
            found[1].append(row)
        return sum(
            self._read_shape(group, shape, some, iter(list(zip(*rows, strict=True))[1:]), live)
            for shape, (some, rows) in by_shape.items()
        )

    def _read_shape(
        self, group: KeyGroup, shape: bytes, keys: list[Key], columns: Iterator[tuple[Any, ...]], live: set[Key]
    ) -> int:
        """Read entries with the same shape, column by column; see `_read`."""
        flags, pending = shape[0], 0
        is_live = bool(flags & (TIMES | TAGGED))
        if flags & OWN_KEY:
            next(columns)
        timers = read_timers(group.timers, flags, keys, columns)
        for place in range(1, len(shape), 3):
            at = int.from_bytes(shape[place : place + 2], "big")
            slot, of_name = self._meta.slots[at], shape[place + 2]
            values = next(columns)
            expires = next(columns) if of_name & EXPIRES else None
            next_timers = next(columns) if of_name & TIMER else None
            self._before.slots[at] = self._before.slots.get(at, 0) + len(keys)
            is_live |= not slot.kept
            pending += len(keys) if next_timers is not None and not slot.kept else 0
            if is_watching(slot.name):
                self._watching.setdefault(slot.name, set()).update(keys)
            table = _table_of(group, slot.name, len(keys))
            if table is None:
                continue
            table.packed.update(zip(keys, values, strict=True))
            if expires is not None:
                table.expires.update(zip(keys, expires, strict=True))
            if next_timers is not None:
                table.next_timers.update(zip(keys, next_timers, strict=True))
        if is_live:
            live.update(keys)
        return timers + pending

    def _changed(self, logged: EntryRows, in_memory: EntryRows) -> tuple[dict[bytes, Change], dict[bytes, Change]]:
        """Return the changed entries of keys. An entry that was due is stored again with its next time."""
        changed: dict[bytes, Change] = {}
        changed_in_memory: dict[bytes, Change] = {}
        for key, (id_, before, before_in_memory) in self._stored.items():
            is_due, is_long = id_ in self._due, id_[self._start] == _LONG_KEY[0]
            packed = logged.packed(key, has_own_key=is_long)
            if packed != before or (is_due and packed is not None):
                changed[id_] = Change(packed, logged.times.get(key))
            if before_in_memory is None and not in_memory.parts:
                continue
            packed = in_memory.packed(key, has_own_key=is_long)
            if packed != before_in_memory or (is_due and packed is not None):
                changed_in_memory[id_] = Change(packed, in_memory.times.get(key))
        return changed, changed_in_memory

    def _slot(self, name: str) -> int:
        """Return the number of a name's slot. A new name takes a slot without state, or a new slot."""
        slots = self._meta.slots
        free = None
        for at, slot in enumerate(slots):
            if slot.name == name:
                return at
            if not slot.name and free is None:
                free = at
        if free is None:
            free = len(slots)
            slots.append(Slot(name))
        slots[free] = Slot(name)
        return free

    def _store_watching(self, group: KeyGroup, changed: dict[bytes, Change]) -> None:
        tables = {name: table for name, table in {**group.kept, **group.tables}.items() if is_watching(name)}
        for name in {*self._watching, *tables}:
            after = tables[name].packed.keys() if name in tables else set[Key]()
            for key in self._watching.get(name, set()) ^ after:
                id_ = self._entries.prefix + _watching_id(name) + self._id_of(key)[self._start :]
                changed[id_] = Change(pack(key) if key in after else None, None)

    def _store_held(self, group: KeyGroup, changed: dict[bytes, Change]) -> None:
        meta = self._meta
        gone = {id_ for chunks in meta.held.values() for *_, id_ in chunks}
        meta.held = {}
        for source, held in group.held.items():
            listed = meta.held[source] = []
            for number, oldest, packed, id_ in held.chunks:
                if id_ is None:
                    id_, meta.next_chunk = meta.next_chunk, meta.next_chunk + 1
                    changed[self._held_id(id_)] = Change(packed, None)
                gone.discard(id_)
                listed.append([number, oldest, id_])
        for id_ in gone:
            changed[self._held_id(id_)] = Change(None, None)

    def _store_meta(self, group: KeyGroup, changed: dict[bytes, Change]) -> None:
        meta = self._meta
        places: dict[bytes, int] = {}
        for slot in meta.slots:
            if not slot.keys:
                slot.name, slot.structures = "", []
                continue
            slot.kept = slot.name in group.retired
            known = group.structures.get(slot.name, ())
            slot.structures = [places.setdefault(each, len(places)) for each in known]
        while meta.slots and not meta.slots[-1].name:
            meta.slots.pop()
        meta.structures = list(places)
        packed = None if meta.is_empty else meta.pack()
        if packed != self._stored_meta:
            changed[self._meta_id] = Change(packed, None)

    def _id_of(self, key: Key) -> bytes:
        packed = pack(key)
        if len(packed) <= _LONGEST_KEY:
            return self._key_prefix + packed
        return self._entries.prefix + _LONG_KEY + hashlib.sha256(packed).digest()

    def _key_of(self, id_: bytes, packed: bytes | None) -> Key:
        """Return the key of an entry.

        :param packed: the packed entry
        """
        if id_[self._start] == _KEY[0]:
            return unpack(id_[self._start + 1 :])  # type: ignore[no-any-return]
        assert packed is not None
        return unpack(packed)[1]  # type: ignore[no-any-return]

    def _held_id(self, number: int) -> bytes:
        return self._entries.prefix + _HELD + number.to_bytes(8, "big")


def _watching_id(name: str) -> bytes:
    """Return the first bytes of the ids of entries with keys that have state under a name, after the prefix."""
    return _WATCHING + pack(name)


def entries_of(given: KeyGroup, prefix: bytes, epoch: str) -> EntryChanges:
    """Return the entries of a completely loaded group without key-group state of unknown components.

    :param epoch: see `Entries.epoch`
    """
    for component in given.columnar.values():
        given.by_subject(component)
    assert not given.group_states
    stored = GroupByKey(Entries(prefix, epoch))
    group = KeyGroup(stored, epoch, given.retired)
    group.load(list(dict.fromkeys(chain(*given.holders(), *(table.packed for table in given.kept.values())))), None)
    group.tables, group.timers, group.held, group.kept = given.tables, given.timers, given.held, given.kept
    group.structures, group.in_memory, group.lives = given.structures, given.in_memory, given.lives
    return stored.changes(group)


def _table_of(group: KeyGroup, name: str, keys: int) -> StateTable | None:
    """Return the table into which state is loaded; `None` if the state is dropped.

    :param keys: the number of keys that are loaded
    """
    fate = group.retired.get(name)
    if fate == "drop":
        group.dropped[name] = group.dropped.get(name, 0) + keys
        return None
    tables = group.tables if fate is None else group.kept
    table = tables.get(name)
    if table is None:
        table = tables[name] = StateTable({})
    return table
