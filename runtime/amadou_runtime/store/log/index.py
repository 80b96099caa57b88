"""The index of a view's times: it finds entries that are due without reading the others.

An index of all times would take more space than small entries do: LMDB's pages are half empty after random changes. So
if many entries have a time, the index has only those before its *horizon*. Changes of later times cost nothing. A batch
that asks for entries beyond the horizon scans all entries, and the next batch fills the index again.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from itertools import chain, takewhile
from typing import Any

import attrs

from amadou_runtime.store.log.records import HEADER_BYTES, TableChanges, id_of, time_key, time_of
from amadou_runtime.store.log.segments import TIME_BYTES
from amadou_runtime.store.log.steps import APPLIED, LOADED, Step, batched, delete, put

_FLAGS, _TIME = HEADER_BYTES - 1, slice(HEADER_BYTES, HEADER_BYTES + TIME_BYTES)
_MOST = 100_000
_SHARE = 8
"""When the index is filled, it gets one or two entries in eight, at least `Limits.indexed` and at most as many as
above. It is filled again when it has three in eight.
"""
_EVERYTHING = b"\xff" * 512
"""The horizon of an index of all times: no key of the index is greater."""
_NOTHING = b""
"""The horizon of an index that has not been filled."""


@attrs.frozen
class _Beyond:
    """What a scan found beyond the horizon.

    :param due: keys of the entries that are due, sorted
    :param following: the earliest time of the others
    """

    due: list[bytes]
    following: bytes


class TimeIndex:
    """The index of one table.

    :param name: the name under which the horizon is stored
    :param entries: the table
    :param table: the table of the index
    :param least: see `Limits.indexed`
    """

    def __init__(self, name: bytes, entries: Any, table: Any, least: int) -> None:
        self._name = name
        self._entries = entries
        self._table = table
        self._at_least = least
        self._beyond: _Beyond | None = None
        self.passed: int | None = None
        """The latest time that `due` was called with, if it is beyond the horizon."""

    def due(self, txn: Any, by: int) -> list[bytes]:
        """Return the ids of the entries that are due, in the order of their times."""
        end, horizon = time_key(by + 1), self._horizon(txn)
        with txn.cursor(self._table) as cursor:
            # while the index is filled, it has keys beyond the horizon
            keys = [*takewhile(min(end, horizon).__gt__, cursor.iternext(values=False))]
        if end > horizon:
            self._beyond = self._scan(txn, horizon, end)
            self.passed = by if self.passed is None else max(by, self.passed)
            keys += self._beyond.due
        return [id_of(key) for key in keys]

    def _scan(self, txn: Any, horizon: bytes, end: bytes) -> _Beyond:
        due = []
        following = _EVERYTHING
        for id_, data in txn.cursor(self._entries):
            if data[_FLAGS] & 1 and (time := data[_TIME]) >= horizon:
                if time < end:
                    due.append(time + id_)
                elif time < following:
                    following = time
        return _Beyond(sorted(due), following)

    def next_times(self, txn: Any, left_out: Collection[bytes]) -> list[int]:
        """Return the earliest time, in a list; an empty list if there is none. If the index has no entry, this is the
        horizon: the time of an entry that may have been changed since the index was filled.

        :param left_out: ids of entries to leave out
        """
        beyond = self._beyond or _Beyond([], self._horizon(txn))
        with txn.cursor(self._table) as cursor:
            keys = (key for key in chain(cursor.iternext(values=False), beyond.due) if id_of(key) not in left_out)
            following = next(keys, beyond.following)
        return [] if following == _EVERYTHING else [time_of(following)]

    def changing(self, txn: Any, changed: TableChanges) -> Iterator[Step]:
        """Yield the steps that change the index."""
        horizon = self._horizon(txn)
        timed, untimed = (keys[: bisect_left(keys, horizon)] for keys in (changed.timed, changed.untimed))
        if self._count(txn) + len(timed) > self._most(txn):
            yield self._clear  # the index is filled after the changes
            return
        yield from (delete(self._table, part) for part in batched(untimed, APPLIED))
        yield from (put(self._table, part) for part in batched(((key, b"") for key in timed), APPLIED))

    def needs_filling(self, txn: Any) -> bool:
        """Return `True` if the index has not been filled, or has become too large."""
        return self._horizon(txn) == _NOTHING or self._count(txn) > self._most(txn)

    def filling(self, txn: Any, passed: int | None) -> Iterator[Step]:
        """Return the steps that fill the index with the times that come first.

        :param passed: a time that the index must reach
        """
        keys, horizon = self._first_keys(txn, _NOTHING if passed is None else time_key(passed + 1))
        puts = (put(self._table, part) for part in batched(((key, b"") for key in keys), LOADED))
        return chain([self._clear], puts, [lambda txn: int(txn.put(self._name, horizon))])

    def _first_keys(self, txn: Any, reached: bytes) -> tuple[list[bytes], bytes]:
        """Return the keys of the entries that are due first, and the time of the first entry that is left out."""
        keys: list[bytes] = []
        horizon = _EVERYTHING
        wanted = self._least(txn)
        limit = 2 * wanted
        for id_, data in txn.cursor(self._entries):
            if data[_FLAGS] & 1 and (time := data[_TIME]) < horizon:
                keys.append(time + id_)
                if len(keys) > limit:
                    keys.sort()
                    end = bisect_left(keys, max(keys[wanted][:TIME_BYTES], reached))
                    if end < len(keys):
                        horizon = keys[end][:TIME_BYTES]
                    del keys[end:]
                    limit = max(limit, 2 * end)
        return sorted(keys), horizon

    def clear_all(self, txn: Any) -> None:
        """Clear the index of a table that becomes empty."""
        txn.drop(self._table, delete=False)
        txn.put(self._name, _EVERYTHING)

    def _clear(self, txn: Any) -> int:
        txn.drop(self._table, delete=False)
        txn.put(self._name, _NOTHING)
        return 1

    def _horizon(self, txn: Any) -> bytes:
        return txn.get(self._name) or _NOTHING

    def _count(self, txn: Any) -> int:
        return int(txn.stat(self._table)["entries"])

    def _least(self, txn: Any) -> int:
        share = int(txn.stat(self._entries)["entries"]) // _SHARE
        return min(max(share, self._at_least), _MOST)

    def _most(self, txn: Any) -> int:
        return 3 * self._least(txn)
