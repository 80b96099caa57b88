"""Finds single entries in a log that has been copied out of Spark's state."""

from bisect import bisect_right
from collections.abc import Iterable

from amadou import Key
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.store.entries import Entries
from amadou_runtime.store.group_by_key import GroupByKey
from amadou_runtime.store.log.logged_range import PACKED, prefix_of
from amadou_runtime.store.log.segments import Log
from amadou_runtime.store.packed_group import PackedGroup, joined


class SearchedEntries(Entries):
    """The logged entries of a key group. Of each segment, only the blocks that can contain the wanted entries are
    unpacked.
    """

    def __init__(self, log: Log, number: int) -> None:
        super().__init__(prefix_of(number), "")
        self._log = log

    def get(self, ids: list[bytes]) -> list[bytes | None]:
        found: dict[bytes, bytes | None] = {}
        for segment in reversed(self._log.head.segments):
            missing = [id_ for id_ in ids if id_ not in found]
            if not missing:
                break
            blocks = list(self._log.blocks(segment.number))
            firsts = [block.first for block in blocks]
            for at in {bisect_right(firsts, id_) - 1 for id_ in missing} - {-1}:
                entries = dict(zip(*blocks[at].columns()[:2], strict=True))
                found |= {id_: entries[id_] for id_ in missing if id_ in entries}
        return list(map(found.get, ids))

    def due(self, by: int) -> Iterable[bytes]:
        raise NotImplementedError

    def ids(self, start: bytes = b"") -> Iterable[bytes]:
        raise NotImplementedError


def group_of_key(log: Log, number: int, key: Key) -> KeyGroup:
    """Return a key group with the state, timers and held events of a key. Other keys may not be loaded."""
    entries = SearchedEntries(log, number)
    (packed,) = entries.get([entries.prefix + PACKED])
    if packed is not None:
        return KeyGroup(PackedGroup(joined(packed, None)))
    stored = GroupByKey(entries)
    group = KeyGroup(stored)
    stored.load_keys(group, [key])
    return group
