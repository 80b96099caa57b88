"""References: the entries that all keys share (`semantics.md` 37)."""

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

from amadou import Job, Key, KeyedEvent, ReferenceSpec, TableSource, from_micros
from amadou.engine import pack, unpack
from amadou_runtime.core.events import Chunk, in_order
from amadou_runtime.core.feeding import changed_events

REFERENCES: Final = "references"
"""The directory of references in a checkpoint, and in a savepoint."""


class Entry(NamedTuple):
    """An entry of a reference.

    :param micros: the time of the event that set or removed the entry, in microseconds
    :param packed: the value; `None` if the entry was removed
    """

    micros: int
    packed: bytes | None


class ReferenceTable:
    """The entries of a reference in a batch: those before it, and the changes of the batch.

    :param before: the entries before the batch
    :param changes: the entries that the batch has changed
    """

    def __init__(self, before: dict[Key, Entry] | None = None, changes: Mapping[Key, Entry] | None = None) -> None:
        self._before = {} if before is None else before
        self._size = sum(entry.packed is not None for entry in self._before.values())
        self.changes = {} if changes is None else changes
        self.newest: int | None = None
        """The newest time of the events that the batch has brought, in microseconds; `None` without any."""

    def get(self, key: Key) -> bytes | None:
        """Return the value of an entry; `None` if there is no such entry."""
        entry = self.changes.get(key) or self._before.get(key)
        return None if entry is None else entry.packed

    def items(self) -> Iterator[tuple[Key, bytes]]:
        """Yield the keys and the values of the entries."""
        changes, before = self.changes, self._before
        new = ((key, entry) for key, entry in changes.items() if key not in before)
        for key, entry in chain(((key, changes.get(key, entry)) for key, entry in before.items()), new):
            if entry.packed is not None:
                yield key, entry.packed

    def entries(self) -> Iterator[tuple[Key, Entry]]:
        """Yield the keys and the entries, with those that were removed."""
        return iter({**self._before, **self.changes}.items())

    def __len__(self) -> int:
        replaced = sum(self._before[key].packed is not None for key in self.changes if key in self._before)
        return self._size - replaced + sum(entry.packed is not None for entry in self.changes.values())

    def updated(self, updates: Iterable[tuple[Key, int, bytes | None]]) -> "ReferenceTable":
        """Return the table with the updates of a batch. For each key, the newest update by event time wins; of those
        with the same time, the last.

        :param updates: key, time in microseconds, and value of each update, in order
        """
        changes, newest = dict(self.changes), self.newest
        for key, micros, packed in updates:
            newest = micros if newest is None else max(micros, newest)
            known = changes.get(key) or self._before.get(key)
            if known is None or micros >= known.micros:
                changes[key] = Entry(micros, packed)
        table = self.changed(changes)
        table.newest = newest
        return table

    def changed(self, changes: Mapping[Key, Entry]) -> "ReferenceTable":
        """Return the table with other changes of a batch."""
        table = ReferenceTable.__new__(ReferenceTable)
        table._before, table._size, table.changes, table.newest = self._before, self._size, changes, None
        return table

    def merge(self) -> None:
        """Make the changes of the batch part of the table, once the batch is complete."""
        self._size = len(self)
        self._before.update(self.changes)
        self.changes, self.newest = {}, None

    def take(self, entries: Iterable[Sequence[Any]]) -> None:
        """Make entries part of the table.

        :param entries: key, time in microseconds, and value of each entry
        """
        self.changes = {key: Entry(micros, packed) for key, micros, packed in entries}
        self.merge()

    def replaced_by(self, rows: Mapping[Key, bytes], micros: int) -> dict[Key, Entry]:
        """Return the changes after which the table has exactly some rows.

        :param micros: the time of the changes, in microseconds
        """
        changes = {key: Entry(micros, packed) for key, packed in rows.items() if self.get(key) != packed}
        return changes | {key: Entry(micros, None) for key, _ in self.items() if key not in rows}

    def to_bytes(self) -> bytes:
        """Return the table as one value."""
        return pack([[key, *entry] for key, entry in self.entries()])

    def to_text(self) -> str:
        """Return the table as text, for a savepoint."""
        return base64.b64encode(zlib.compress(self.to_bytes())).decode()

    @classmethod
    def of_text(cls, text: str) -> "ReferenceTable":
        """Return the table that `to_text` has converted."""
        return cls.of_bytes(zlib.decompress(base64.b64decode(text)))

    @classmethod
    def of_bytes(cls, packed: bytes | None) -> "ReferenceTable":
        """Return the table that `to_bytes` has converted; `None` for an empty one."""
        return cls({} if packed is None else {key: Entry(*entry) for key, *entry in unpack(packed)})


def saved_name(reference: str) -> str:
    """Return the name of the file of a reference in a savepoint."""
    return f"{REFERENCES}/{reference}"


def updates_of(chunks: Sequence[Chunk]) -> list[tuple[Key, int, bytes | None]]:
    """Return the updates in packed events from one source: key, time in microseconds, and value."""
    return [update for run in in_order(chunks) for update in zip(run.keys, run.micros, run.values, strict=True)]


def with_updates(job: Job, tables: Mapping[str, ReferenceTable], chunks: Iterable[Chunk]) -> dict[str, ReferenceTable]:
    """Return a job's references in a batch, by name.

    :param tables: the references before the batch
    :param chunks: the packed updates from all sources
    """
    by_source: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        by_source.setdefault(chunk.source, []).append(chunk)
    return {
        name: tables[name].updated(updates_of(by_source[spec.source])) if spec.source in by_source else tables[name]
        for name, spec in job.references.items()
    }


def read_table(source: TableSource, keying: Any, table: ReferenceTable, now: int) -> tuple[ReferenceTable, Any]:
    """Read the rows of a table source, and return the reference with them. Return the result of `Keying.pack` as well.

    :param keying: the `Keying` of the source, with one key group
    :param now: the clock time in microseconds
    :raises SourceError: the table cannot be read
    """
    keyed = keying.pack(list(source.records()), now)
    rows = {key: packed for events in keyed.events.values() for key, _, packed in updates_of([Chunk("", b"", events)])}
    changes = table.replaced_by({key: packed for key, packed in rows.items() if packed is not None}, now)
    return table.changed(changes), keyed


def new_tables(job: Job) -> dict[str, ReferenceTable]:
    """Return empty tables for a job's references, by name."""
    return {name: ReferenceTable() for name in job.references}


def entry_event(
    key_event: Callable[[Any], Any], spec: ReferenceSpec[Any, Any], *, is_table: bool
) -> Callable[[Any], Any]:
    """Return a `key_event` function whose events have encoded entries of a reference as their values.

    :param is_table: `True` if the source is a table, whose rows have no time
    """

    def encoded(event: KeyedEvent[Any]) -> KeyedEvent[Any]:
        spec.encode_key(event.key)
        timestamp = from_micros(0) if is_table else event.timestamp
        return KeyedEvent(event.key, timestamp, None if event.value is None else spec.encode_value(event.value))

    return lambda record: changed_events(key_event(record), encoded)
