"""The entries of a key range during a batch: the log has the state, and the local view makes it fast to read.

An entry has an id, a value and, if it is due at some time, this time. Unlogged entries exist only in the view, and only
in the run that stored them: they hold the state of windows in memory.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import attrs
import lmdb

from amadou.errors import RunError
from amadou_runtime.store.log.cleaning import Find, after_deaths, clean
from amadou_runtime.store.log.limits import LIMITS, Limits
from amadou_runtime.store.log.records import Difference, TableChanges, ViewDamagedError, difference, table_changes
from amadou_runtime.store.log.segments import Changes, Head, Log, Segments, Version, split
from amadou_runtime.store.log.tree import Kind
from amadou_runtime.store.log.view import Pending, View, open_view

_Found = TypeVar("_Found")
_Item = TypeVar("_Item")


@attrs.frozen
class StoreFigures:
    """Figures of a stored key range.

    :param entries: number of logged entries
    :param bytes: size of the logged entries: ids, values and times
    :param bytes_written: bytes that the batch wrote to the log, head included
    :param bytes_cleaned: size of the segments that cleaning removed
    :param view_hit: `True` if the local view was usable, `False` if segments had to be read
    :param rebuild_seconds: time that it took to read segments, to rewrite the view, and to fill its index of times
    :param view_bytes: space that the view occupies on the local disk
    """

    entries: int
    bytes: int
    bytes_written: int
    bytes_cleaned: int
    view_hit: bool
    rebuild_seconds: float
    view_bytes: int


class RangeEntries:
    """The entries of one key range in one batch. Reads return the entries as of the batch's begin."""

    def __init__(self, log: Log, stack: ExitStack, directory: Path, run: str, limits: Limits) -> None:
        self._log = log
        self._stack = stack
        self._run = run
        self._limits = limits
        self._view: View = stack.enter_context(open_view(log, directory, run, limits))
        self._known: dict[Kind, dict[bytes, Version | None]] = {kind: {} for kind in Kind}

    @classmethod
    @contextmanager
    def open(
        cls, segments: Segments, directory: Path, name: str, run: str, limits: Limits = LIMITS
    ) -> Iterator["RangeEntries"]:
        """Open a key range for a batch.

        :param directory: the local directory for the views of this checkpoint
        :param name: the range's name, which is a valid file name
        :param run: id of the current run
        :raises RunError: the log is damaged; the local disk is full
        """
        with ExitStack() as stack:
            yield cls(Log(segments, name), stack, directory / name, run, limits)

    @property
    def extra(self) -> bytes | None:
        """The metadata of the last `store`; `None` if the range has not been stored."""
        return self._log.head.extra

    @property
    def lost_unlogged(self) -> bool:
        """`True` if unlogged entries are not available: the view was lost, or another run stored them."""
        return self._log.head.unlogged > 0 and not self._view.has_unlogged

    def get(self, ids: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of logged entries; `None` for ids without an entry."""
        return self._values(Kind.LOGGED, ids)

    def get_unlogged(self, ids: Iterable[bytes]) -> list[bytes | None]:
        """Return the values of unlogged entries; `None` for ids without an entry."""
        return self._values(Kind.UNLOGGED, ids)

    def due(self, by: int) -> list[bytes]:
        """Return the ids of the entries that are due, logged and unlogged.

        :param by: a time in microseconds since 1970
        """
        return self._of_kinds(lambda kind: self._due(kind, by))

    def _due(self, kind: Kind, by: int) -> list[bytes]:
        found = self._view.tree.due(kind, by)
        self._known[kind] |= found
        return [*found]

    def ids(self, prefix: bytes) -> list[bytes]:
        """Return the ids of all entries that start with a prefix, logged and unlogged."""
        return self._of_kinds(lambda kind: self._view.tree.ids(kind, prefix))

    def next_time(self, changes: Collection[bytes] = (), unlogged: Collection[bytes] = ()) -> int | None:
        """Return the earliest time of an entry; `None` if no entry has a time.

        :param changes: ids of logged entries to leave out
        :param unlogged: ids of unlogged entries to leave out
        """
        left_out = {Kind.LOGGED: changes, Kind.UNLOGGED: unlogged}
        return min(self._of_kinds(lambda kind: self._view.tree.next_times(kind, left_out[kind])), default=None)

    def _of_kinds(self, read: Callable[[Kind], list[_Item]]) -> list[_Item]:
        """Return what a function reads of the logged entries, followed by what it reads of the unlogged entries. An
        item occurs once.
        """
        logged = self._tried(lambda: read(Kind.LOGGED))
        if not self._view.has_unlogged:
            return logged
        return list(dict.fromkeys([*logged, *self._tried(lambda: read(Kind.UNLOGGED))]))

    def store(self, changes: Changes, unlogged: Changes, extra: bytes) -> StoreFigures:
        """Store the changes of the batch.

        :param changes: changed logged entries
        :param unlogged: changed unlogged entries
        :param extra: metadata for the next batch
        :raises RunError: the log is damaged; the local disk is full
        """
        logged, in_view = self._difference(Kind.LOGGED, changes), self._difference(Kind.UNLOGGED, unlogged)
        batch = _Batch(self._log, logged, self._find, self._limits) if logged.changes else None
        written = 0
        passed = self._view.tree.passed
        if batch or in_view.changes or self.lost_unlogged or passed is not None:
            tables = {Kind.UNLOGGED: table_changes(in_view, [(0, in_view.changes)])}
            if batch:
                tables[Kind.LOGGED] = batch.table_changes()
            head = self._next_head(batch, in_view, extra)
            dropped = not self._view.has_unlogged
            pending = Pending(head.token, head.version, self._run, dropped, passed, tables)
            self._view.write_pending(self._log.head.token, pending, logged.size + in_view.size)
            written = (batch.write() if batch else 0) + self._log.set_head(head)
        elif extra != self._log.head.extra:
            written = self._log.set_head(attrs.evolve(self._log.head, extra=extra))
        return self._figures(written, batch.cleaned_bytes if batch else 0)

    def _difference(self, kind: Kind, changes: Changes) -> Difference:
        return difference(changes, self._versions(kind, changes))

    def _next_head(self, batch: "_Batch | None", unlogged: Difference, extra: bytes) -> Head:
        head = self._log.head
        count, size = (head.unlogged, head.unlogged_size) if self._view.has_unlogged else (0, 0)
        after = head.next(
            run=self._run,
            extra=extra,
            unlogged=count + unlogged.entries,
            unlogged_size=size + unlogged.growth,
        )
        return batch.evolve(after) if batch else after

    def _figures(self, written: int, cleaned: int) -> StoreFigures:
        head, view = self._log.head, self._view
        space = view.files.allocated()
        return StoreFigures(head.entries, head.size, written, cleaned, view.hit, view.rebuild_seconds, space)

    def _values(self, kind: Kind, ids: Iterable[bytes]) -> list[bytes | None]:
        ids = list(ids)
        known = self._versions(kind, ids)
        return [version and version[1] for version in map(known.get, ids)]

    def _versions(self, kind: Kind, ids: Iterable[bytes]) -> dict[bytes, Version | None]:
        """Return the stored versions of some ids, among others. They are remembered until `store`."""
        known = self._known[kind]
        missing = {id_ for id_ in ids if id_ not in known}
        if missing and (kind is Kind.LOGGED or self._view.has_unlogged):
            found = self._tried(lambda: self._view.tree.versions(kind, missing))
            known |= dict.fromkeys(missing) | found
        return known

    def _find(self, ids: Iterable[bytes]) -> dict[bytes, int]:
        found = self._tried(lambda: self._view.tree.versions(Kind.LOGGED, ids))
        return {id_: version[0] for id_, version in found.items()}

    def _tried(self, read: Callable[[], _Found]) -> _Found:
        """Read from the view. If the view is damaged, replace it by one for this batch alone, and read again."""
        try:
            return read()
        except (lmdb.Error, ViewDamagedError) as error:
            damaged = self._view
            damaged.discard()
            if damaged.is_private or (self._log.head.unlogged > 0 and damaged.has_unlogged):
                raise RunError(
                    f"the local copy of the state of key range {self._log.name} in {damaged.files.directory} was "
                    "damaged and has been removed. No logged state is lost. Check the disk, and run the job again: "
                    f"{error}"
                ) from error
            self._view = self._stack.enter_context(
                open_view(self._log, damaged.files.directory, self._run, self._limits, private=True)
            )
            return read()


class _Batch:
    """The logged part of a batch."""

    def __init__(self, log: Log, changed: Difference, find: Find, limits: Limits) -> None:
        self._log = log
        self._changed = changed
        self._cleaned = clean(log, after_deaths(log.head, changed.dead), changed, find, limits)
        self._last = log.head.last
        self._forgotten = self._cleaned.forgotten
        self._new = [*split(self._entries(), self._last)]

    def _entries(self) -> Changes:
        """Return the entries of the new segments. If there are no older segments, tombstones are not needed."""
        changes = self._changed.changes
        if self._cleaned.segments or all(value is not None for value, _ in changes.values()):
            return changes
        self._last += 1
        self._forgotten = self._last
        return {id_: change for id_, change in changes.items() if change[0] is not None}

    @property
    def cleaned_bytes(self) -> int:
        """Size of the segments that were removed or rewritten."""
        return self._cleaned.bytes

    def evolve(self, head: Head) -> Head:
        """Return the head with the batch's segments."""
        return attrs.evolve(
            head,
            entries=head.entries + self._changed.entries,
            size=head.size + self._changed.growth,
            segments=(*self._cleaned.segments.values(), *(segment for segment, _ in self._new)),
            last=self._last + len(self._new),
            forgotten=self._forgotten,
            swept=self._cleaned.swept,
            sweep_end=self._cleaned.sweep_end,
        )

    def table_changes(self) -> TableChanges:
        """Return the batch's changes for the view."""
        return table_changes(self._changed, [(segment.number, part) for segment, part in self._new])

    def write(self) -> int:
        """Write new and rewritten segments, remove others, and return the number of bytes written."""
        cleaned = self._cleaned
        written = sum(self._log.put(segment.number, part) for segment, part in self._new)
        written += sum(self._log.put(number, part) for number, part in cleaned.rewritten.items())
        self._log.remove(number for number in self._log.head.numbers if number not in cleaned.segments)
        return written
