"""Decides how the log stores a key group: in one entry, or as an entry per key."""

import sys
from typing import Final

import attrs

from amadou_runtime.core.group_batch import ProcessedGroup
from amadou_runtime.core.key_group import KeyGroup


@attrs.frozen
class Forms:
    """Rules for the form in which a key group is stored. Sizes are in bytes.

    :param small: a group always stays in one entry up to this size
    :param large: a group never stays in one entry above this size, so that the memory for a batch does not grow with
        the state
    :param sparse: a batch is sparse for a group if its keys, in entries of their own, would take less than the size of
        the group, divided by this number
    :param dense: a batch is dense if it touches at least all keys, divided by this number
    :param batches: number of consecutive sparse or dense batches after which a group is stored in the other form. A
        single batch, such as a no-data batch, does not convert a group: a conversion reads and writes all its keys
    :param entry: size that an entry takes in addition to the state of its key, also as a measure of the time it takes
    """

    small: int = 1 << 11
    large: int = 1 << 18
    sparse: int = 4
    dense: int = 2
    batches: int = 3
    entry: int = 32

    def begins_packed(self, group: KeyGroup) -> bool:
        """Return `True` if a new group is stored in one entry.

        :param group: the group, completely loaded
        """
        if group.group_states or group.in_memory:
            return True
        tables = group.tables.values()
        size = sum(sum(map(len, table.packed.values())) + self.entry * len(table.packed) for table in tables)
        return size <= self.small

    def is_dense(self, processed: ProcessedGroup) -> bool:
        """Return `True` if a group with an entry per key would better be stored in one entry."""
        changes = processed.changes
        if processed.held or changes.retired or processed.touched * self.dense < changes.keys:
            return False
        return sum(len(change.value or b"") for change in changes.logged.values()) * self.dense < self.large

    def is_sparse(self, processed: ProcessedGroup) -> bool:
        """Return `True` if a group in one entry would better be stored as an entry per key."""
        changes, group = processed.changes, processed.group
        if changes.packed is None or group.kept_states or not group.group_states.keys() <= group.columnar.keys():
            return False
        size, keys = len(changes.packed), max(changes.keys, 1)  # a group with held events may have no keys
        is_sparse = processed.touched * (size / keys + self.entry) * self.sparse < size
        return size > self.large or (size > self.small and is_sparse)


FORMS: Final = Forms()
ONE_ENTRY: Final = Forms(small=sys.maxsize, large=sys.maxsize)
"""Stores all key groups in one entry."""
ENTRY_PER_KEY: Final = Forms(small=-1, large=-1, batches=1)
"""Stores all key groups as an entry per key, except for state that has no such form."""
