"""An LMDB file with the entries of a key range, and with an index of their times."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
import lmdb

from amadou.engine import pack, unpack
from amadou.errors import AmadouError
from amadou_runtime.store.log.index import TimeIndex
from amadou_runtime.store.log.limits import Limits
from amadou_runtime.store.log.records import TableChanges, ViewDamagedError, stored_rows, versions
from amadou_runtime.store.log.segments import LoggedVersion, Version
from amadou_runtime.store.log.steps import APPLIED, LOADED, Step, batched, delete, put

_META = b"meta"
_MIN_MAP = 1 << 30
_TABLES = 4


class Kind(Enum):
    """Kind of an entry; each kind has a table for the entries and a table for the index."""

    LOGGED = "logged"
    UNLOGGED = "unlogged"


@attrs.frozen
class TreeMeta:
    """State of a tree.

    :param token: token of the head that the tree belongs to
    :param version: version of the head
    :param run: id of the run that last changed the tree
    :param has_unlogged: `True` if the tree has the unlogged entries of this version
    :param changed: number of changed entries since the tree was last written densely
    :param applying: token of the pending file that is being applied; the tree may have a part of its changes. Empty if
        the changes come from the log.
    :param passed: a time that the indexes must reach, and may not reach yet
    """

    token: bytes
    version: int
    run: str
    has_unlogged: bool
    changed: int = 0
    applying: bytes | None = None
    passed: int | None = None


class Tree:
    """An open LMDB file.

    :param path: its directory
    :param size: an upper bound of the bytes that the tree may come to hold
    :param limits: the limits of the view
    :param readonly: `True` to open the tree while another process changes it
    """

    def __init__(self, path: Path, size: int, limits: Limits, *, readonly: bool = False) -> None:
        self.path = path
        file = path / "data.mdb"
        new = not file.exists()
        stored = 0 if new else file.stat().st_size
        map_size = max(_MIN_MAP, 8 * (stored + size))
        self._env = lmdb.open(str(path), map_size, readonly=readonly, sync=False, metasync=False, max_dbs=_TABLES)
        try:
            info, page = self._env.info(), self._env.stat()["psize"]
            if not new and (info["last_pgno"] + 1) * page > stored:
                raise ViewDamagedError(f"{file} is too short")
            self._env.reader_check()
            self._entries = {kind: self._env.open_db(kind.value.encode(), create=new) for kind in Kind}
            tables = {kind: self._env.open_db(f"{kind.value} times".encode(), create=new) for kind in Kind}
        except BaseException:
            self._env.close()
            raise
        self._indexes = {
            kind: TimeIndex(f"{kind.value} horizon".encode(), self._entries[kind], tables[kind], limits.indexed)
            for kind in Kind
        }
        self._read: lmdb.Transaction[bytes] | None = None

    def close(self) -> None:
        """Close the file."""
        self.end()
        self._env.close()

    def begin(self) -> None:
        """Begin to read: until `end`, reads see the present entries, whatever other processes write."""
        self._read = self._env.begin()

    def end(self) -> None:
        """Stop reading."""
        if self._read is not None:
            self._read.abort()
            self._read = None

    @property
    def _txn(self) -> "lmdb.Transaction[bytes]":
        assert self._read is not None
        return self._read

    def meta(self) -> TreeMeta:
        """Return the tree's state, as of `begin` while reading.

        :raises ViewDamagedError: the tree has not been filled completely
        """
        if self._read is not None:
            stored = self._read.get(_META)
        else:
            with self._env.begin() as txn:
                stored = txn.get(_META)
        try:
            return TreeMeta(*unpack(stored or b""))
        except (AmadouError, ValueError, TypeError) as error:
            raise ViewDamagedError(f"{self.path} is incomplete") from error

    def count(self, kind: Kind) -> int:
        """Return the number of entries."""
        with self._env.begin() as txn:
            return txn.stat(self._entries[kind])["entries"]

    def allocated(self) -> int:
        """Return the size of the file on disk."""
        return (self.path / "data.mdb").stat().st_blocks * 512

    def versions(self, kind: Kind, ids: Iterable[bytes]) -> dict[bytes, Version]:
        """Return the stored entries among some ids.

        :raises ViewDamagedError: an entry's checksum is wrong
        """
        with self._txn.cursor(self._entries[kind]) as cursor:
            return versions(cursor.getmulti(sorted(ids)))

    def ids(self, kind: Kind, prefix: bytes) -> list[bytes]:
        """Return all ids with a prefix, sorted."""
        found: list[bytes] = []
        with self._txn.cursor(self._entries[kind]) as cursor:
            if cursor.set_range(prefix) if prefix else cursor.first():
                for id_ in cursor.iternext(values=False):
                    if not id_.startswith(prefix):
                        break
                    found.append(id_)
        return found

    def due(self, kind: Kind, by: int) -> dict[bytes, Version]:
        """Return the entries that are due, in the order of their times.

        :raises ViewDamagedError: the index does not fit the entries
        """
        ids = self._indexes[kind].due(self._txn, by)
        found = self.versions(kind, ids)
        if len(found) < len(ids) or any(time is None or time > by for _, _, time in found.values()):
            raise ViewDamagedError(f"the index of {self.path} is wrong")
        return {id_: found[id_] for id_ in ids}

    def next_times(self, kind: Kind, left_out: Collection[bytes]) -> list[int]:
        """See `TimeIndex.next_times`."""
        return self._indexes[kind].next_times(self._txn, left_out)

    @property
    def passed(self) -> int | None:
        """See `TimeIndex.passed`."""
        times = [index.passed for index in self._indexes.values() if index.passed is not None]
        return max(times, default=None)

    def fill_indexes(self, passed: int | None) -> bool:
        """Fill the indexes if necessary. Return `True` if it was.

        :param passed: a time that the indexes must reach
        """
        with self._env.begin() as txn:
            indexes = [each for each in self._indexes.values() if passed is not None or each.needs_filling(txn)]
            steps = [index.filling(txn, passed) for index in indexes]
        for each in steps:
            self._write(each, LOADED)
        return bool(steps)

    def apply(self, meta: TreeMeta, changes: Mapping[Kind, TableChanges], dropped: bool) -> None:
        """Change the tree in several transactions. Until the last one, `TreeMeta.applying` is set.

        :param meta: the state after the changes
        :param dropped: `True` to drop all unlogged entries first
        """
        applying = meta.token if meta.applying is None else meta.applying
        begun = attrs.evolve(self.meta(), applying=applying)
        if dropped:
            self._write([_put_meta(begun), self._drop_unlogged], APPLIED)
        with self._env.begin() as txn:
            steps = [step for kind, changed in changes.items() for step in self._steps(txn, kind, changed)]
        self._write([_put_meta(begun), *steps, _put_meta(meta)], APPLIED)

    def _steps(self, txn: Any, kind: Kind, changed: TableChanges) -> Iterator[Step]:
        table = self._entries[kind]
        stored = zip(changed.ids, changed.stored, strict=True)
        yield from self._indexes[kind].changing(txn, changed)
        yield from (delete(table, part) for part in batched(changed.deleted, APPLIED))
        yield from (put(table, part) for part in batched(stored, APPLIED))

    def _drop_unlogged(self, txn: Any) -> int:
        txn.drop(self._entries[Kind.UNLOGGED], delete=False)
        self._indexes[Kind.UNLOGGED].clear_all(txn)
        return 1

    def set_meta(self, meta: TreeMeta) -> None:
        """Store the tree's state."""
        self._write([_put_meta(meta)], APPLIED)

    def load(self, ranges: Iterable[Mapping[bytes, LoggedVersion]]) -> None:
        """Fill the empty tree with logged entries.

        :param ranges: versions by id, for one range of ids after another
        """
        for found in ranges:
            self._write([put(self._entries[Kind.LOGGED], stored_rows(found))], LOADED)

    def copy(self, other: "Tree") -> None:
        """Copy all entries to a new tree, densely."""
        with self._env.begin() as txn:
            for kind, table in self._entries.items():
                for rows in batched(txn.cursor(table), LOADED):
                    versions(rows)
                    other._write([put(other._entries[kind], rows)], LOADED)

    def _write(self, steps: Iterable[Step], limit: int) -> None:
        """Take steps, and commit when about this many changes have been made."""
        txn = self._env.begin(write=True)
        changes = 0
        try:
            for step in steps:
                if changes >= limit:
                    txn.commit()
                    txn = self._env.begin(write=True)
                    changes = 0
                changes += step(txn)
            txn.commit()
        except BaseException:
            txn.abort()
            raise


def _put_meta(meta: TreeMeta) -> Step:
    return lambda txn: int(txn.put(_META, pack(list(attrs.astuple(meta)))))
