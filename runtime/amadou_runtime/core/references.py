"""References: the entries that all keys share (`semantics.md` 37)."""

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from amadou import Job, Key, KeyedEvent, ReferenceSpec
from amadou.engine import ON_CHANGE, pack, unpack
from amadou_runtime.core.events import Chunk, in_order
from amadou_runtime.core.feeding import changed_events
from amadou_runtime.formats.documents import check_column, check_keys
from amadou_runtime.formats.inflating import deflated, inflated

REFERENCES: Final = "references"
"""The directory of references in a checkpoint, and in a savepoint."""


class Entry(NamedTuple):
    """An entry of a reference.

    :param micros: the time of the event that set or removed the entry, in microseconds
    :param packed: the value; `None` if the entry was removed
    """

    micros: int
    packed: bytes | None


class Columns(NamedTuple):
    """Entries of a reference in the form in which they are stored: workers load a million of them in half a second.

    :param keys: the keys, each of them once
    :param times: the times of the entries in microseconds
    :param values: the values; `None` for removed entries
    """

    keys: list[Key]
    times: list[int]
    values: list[bytes | None]


class ReferenceTable:
    """The entries of a reference in a batch: those before it, and the changes of the batch.

    :param before: the entries before the batch
    """

    def __init__(self, before: Columns | None = None) -> None:
        self._before: dict[Key, bytes | None] = {}
        self._times: dict[Key, int] = {}
        self._untimed: list[Columns] = []
        """The last entries, whose times are not in `_times` yet: only updates need the times."""
        self._size = 0
        self.changes: Mapping[Key, Entry] = {}
        """The entries that the batch has changed."""
        self.newest: int | None = None
        """The newest time of the events that the batch has brought, in microseconds; `None` without any."""
        if before is not None:
            self.take(before)

    def get(self, key: Key) -> bytes | None:
        """Return the value of an entry; `None` if there is no such entry."""
        if self.changes and key in self.changes:
            return self.changes[key].packed
        return self._before.get(key)

    def items(self) -> Iterator[tuple[Key, bytes]]:
        """Yield the keys and the values of the entries."""
        changed = {key: entry.packed for key, entry in self.changes.items()}
        for key, packed in (self._before | changed if changed else self._before).items():
            if packed is not None:
                yield key, packed

    def __len__(self) -> int:
        return self._size + self._growth(self.changes, [entry.packed for entry in self.changes.values()])

    def _growth(self, keys: Iterable[Key], values: list[bytes | None]) -> int:
        """Return by how much these entries change the number of entries."""
        replaced = sum(self._before.get(key) is not None for key in keys) if self._before else 0
        return len(values) - values.count(None) - replaced

    def updated(self, updates: Iterable[tuple[Key, int, bytes | None]]) -> "ReferenceTable":
        """Return the table with the updates of a batch. For each key, the newest update by event time wins; of those
        with the same time, the last.

        :param updates: key, time in microseconds, and value of each update, in order
        """
        changes, newest, times = dict(self.changes), self.newest, self._known_times()
        for key, micros, packed in updates:
            newest = micros if newest is None else max(micros, newest)
            known = changes[key].micros if key in changes else times.get(key)
            if known is None or micros >= known:
                changes[key] = Entry(micros, packed)
        return self.changed(changes, newest)

    def _known_times(self) -> dict[Key, int]:
        for entries in self._untimed:
            self._times.update(zip(entries.keys, entries.times, strict=True))
        self._untimed.clear()
        return self._times

    def changed(self, changes: Mapping[Key, Entry], newest: int | None) -> "ReferenceTable":
        """Return the table with other changes of a batch.

        :param newest: the newest time of the events that the batch has brought, in microseconds
        """
        table = ReferenceTable.__new__(ReferenceTable)
        table._before, table._times, table._untimed, table._size = self._before, self._times, self._untimed, self._size
        table.changes, table.newest = changes, newest
        return table

    def merge(self) -> None:
        """Make the changes of the batch part of the table, once the batch is complete."""
        changes, self.changes, self.newest = self.changed_columns(), {}, None
        self.take(changes)

    def with_rows(self, rows: Columns) -> "ReferenceTable":
        """Return the table with the rows of a table source that have changed before a batch."""
        entries = map(Entry, rows.times, rows.values)
        return self.changed(dict(zip(rows.keys, entries, strict=True)), max(rows.times))

    def take(self, entries: Columns) -> None:
        """Make entries part of the table."""
        self._size += self._growth(entries.keys, entries.values)
        self._before.update(zip(entries.keys, entries.values, strict=True))
        self._known_times()  # a table that is read again and again, without updates, must not keep all of its changes
        self._untimed.append(entries)

    def replaced_by(self, rows: Mapping[Key, bytes | None], micros: int, *, removes: bool) -> dict[Key, Entry]:
        """Return the changes after which the table has some rows.

        :param rows: the values by key; `None` for an entry to remove
        :param micros: the time of the changes, in microseconds
        :param removes: `True` to remove all other entries
        """
        changes = {key: Entry(micros, packed) for key, packed in rows.items() if self.get(key) != packed}
        others = [key for key, _ in self.items() if key not in rows] if removes else []
        return changes | dict.fromkeys(others, Entry(micros, None))

    def changed_columns(self) -> Columns:
        """Return the entries that the batch has changed."""
        entries = self.changes.values()
        return Columns(list(self.changes), [entry.micros for entry in entries], [entry.packed for entry in entries])

    def columns(self) -> Columns:
        """Return all entries, with those that were removed."""
        changed = self.changed_columns()
        times = self._known_times() | dict(zip(changed.keys, changed.times, strict=True))
        values = self._before | dict(zip(changed.keys, changed.values, strict=True))
        return Columns(list(values), [times[key] for key in values], list(values.values()))

    def to_bytes(self) -> bytes:
        """Return the table as one value."""
        return pack(list(self.columns()))

    def to_text(self) -> str:
        """Return the table as text, for a savepoint."""
        return base64.b64encode(deflated(self.to_bytes())).decode()

    @classmethod
    def of_text(cls, text: str) -> "ReferenceTable":
        """Return the table that `to_text` has converted.

        :raises ValueError: the text is damaged, or too large
        """
        table = cls.of_bytes(inflated(base64.b64decode(text, validate=True)))
        for keys, times, values in table._untimed:
            if not len(keys) == len(times) == len(values):
                raise ValueError("its columns have different lengths")
            check_keys(keys)
            check_column(times, int)
            check_column(values, bytes, type(None))
        return table

    @classmethod
    def of_bytes(cls, packed: bytes | None) -> "ReferenceTable":
        """Return the table that `to_bytes` has converted; `None` for an empty one."""
        return cls(None if packed is None else Columns(*unpack(packed)))


def saved_name(reference: str) -> str:
    """Return the name of the file of a reference in a savepoint."""
    return f"{REFERENCES}/{reference}"


def is_reference(file: str) -> bool:
    """Return `True` for the name of a reference's file in a savepoint."""
    return file.startswith(saved_name(""))


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


def notifies_keys(job: Job) -> bool:
    """Return `True` if a job notifies keys of changed rows of tables."""
    return bool(job.table_sources) and hasattr(job.handler, ON_CHANGE)


def new_tables(job: Job) -> dict[str, ReferenceTable]:
    """Return empty tables for a job's references, by name."""
    return {name: ReferenceTable() for name in job.references}


def entry_event(key_event: Callable[[Any], Any], spec: ReferenceSpec[Any, Any]) -> Callable[[Any], Any]:
    """Return a `key_event` function whose events have encoded entries of a reference as their values."""

    def encoded(event: KeyedEvent[Any]) -> KeyedEvent[Any]:
        spec.encode_key(event.key)
        return KeyedEvent(event.key, event.timestamp, None if event.value is None else spec.encode_value(event.value))

    return lambda record: changed_events(key_event(record), encoded)
