"""Steps that change an LMDB table in a transaction."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

APPLIED = 100
"""Changes per transaction. A transaction copies the pages that it changes, and the next ones reuse the old pages: with
700 changes, a tree of 600,000 entries grows by a quarter; with 100, by 3 %. The time is the same.
"""
LOADED = 20_000
"""Entries per transaction when a table is filled. LMDB holds a transaction's pages in memory."""
_Item = TypeVar("_Item")

Step = Callable[[Any], int]
"""Changes a table in a transaction, and returns the number of changes."""


def put(table: Any, items: Sequence[tuple[bytes, bytes]]) -> Step:
    """Return a step that stores items, which are sorted."""

    def step(txn: Any) -> int:
        with txn.cursor(table) as cursor:
            follows = bool(items) and (not cursor.last() or cursor.key() < items[0][0])
            cursor.putmulti(items, append=follows)  # appending leaves full pages, inserting half full ones
        return len(items)

    return step


def delete(table: Any, keys: Sequence[bytes]) -> Step:
    """Return a step that deletes keys."""

    def step(txn: Any) -> int:
        for key in keys:
            txn.delete(key, db=table)
        return len(keys)

    return step


def batched(items: Iterable[_Item], size: int) -> Iterator[list[_Item]]:
    """Yield lists of at most this many items."""
    left = iter(items)
    while part := list(islice(left, size)):
        yield part
