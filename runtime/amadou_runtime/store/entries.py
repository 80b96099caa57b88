"""The entries in which a store keeps a key group; `group_by_key` decides what they contain."""

from collections.abc import Iterable
from typing import NamedTuple

import attrs

from amadou_runtime.core.stored import GroupChanges


class Change(NamedTuple):
    """The new content of an entry.

    :param value: the packed entry; `None` if the entry is deleted
    :param time: the event time in microseconds at which the entry is due; `None` if it is never due
    """

    value: bytes | None
    time: int | None


@attrs.define(kw_only=True)
class EntryChanges(GroupChanges):
    """A batch's changes to the entries of a key group, by id.

    :param logged: the changes to the entries that survive the run
    :param in_memory: the changes to the entries that are valid only in the current run
    """

    logged: dict[bytes, Change]
    in_memory: dict[bytes, Change]


class Entries:
    """The stored entries of a key group. By default, there are none.

    :param prefix: the first bytes of all ids of the group's entries
    :param epoch: identifies the time during which in-memory entries have been retained without a loss
    """

    def __init__(self, prefix: bytes, epoch: str) -> None:
        self.prefix = prefix
        self.epoch = epoch

    def get(self, ids: list[bytes]) -> list[bytes | None]:
        """Return the entries with these ids, and `None` for ids without an entry."""
        return [None] * len(ids)

    def get_in_memory(self, ids: list[bytes]) -> list[bytes | None]:
        """Return the in-memory entries with these ids, and `None` for ids without an entry."""
        return [None] * len(ids)

    def due(self, by: int) -> Iterable[bytes]:
        """Return the ids of the entries that are due by an event time in microseconds."""
        return ()

    def ids(self, start: bytes = b"") -> Iterable[bytes]:
        """Return the ids of all entries.

        :param start: the first bytes of the ids after the prefix
        """
        return ()
