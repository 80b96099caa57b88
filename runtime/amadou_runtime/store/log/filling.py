"""Writes the first entries of a key range's log. The view is made by the first batch."""

import uuid
from collections.abc import Iterable

import attrs

from amadou.engine import pack
from amadou.plugins import Counts
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.key_range import GroupStatus, StoreResult, range_status
from amadou_runtime.store.group_by_key import entries_of
from amadou_runtime.store.log.forms import FORMS
from amadou_runtime.store.log.logged_range import PACKED, StoredForm, prefix_of
from amadou_runtime.store.log.segments import SEGMENT_BYTES, Change, Changes, Head, Log, Segment, split
from amadou_runtime.store.packed_group import PackedGroup, divided


def fill(log: Log, groups: Iterable[tuple[int, KeyGroup]], run: str) -> StoreResult:
    """Write key groups to an empty log, in bounded memory.

    :param groups: completely loaded groups by number, without in-memory state
    """
    filling = _Filling(log)
    epoch = uuid.uuid4().hex
    forms: dict[int, StoredForm] = {}
    for number, group in groups:
        prefix, held = prefix_of(number), group.waiting()
        if FORMS.begins_packed(group):
            changes = PackedGroup(None).changes(group)
            survives = None if changes.packed is None else divided(changes.packed)[0]
            filling.add({prefix + PACKED: (survives, changes.next_time)})
            forms[number] = StoredForm(GroupStatus.of(changes, held))
        else:
            entries = entries_of(group, prefix, epoch)
            filling.add(entries.logged)
            forms[number] = StoredForm(GroupStatus.of(entries, held), False)
    extra = pack([epoch, {number: [list(status), *form] for number, (status, *form) in forms.items()}])
    filling.finish(run, extra)
    head = log.head
    statuses = [form.status for form in forms.values()]
    status = range_status(statuses, entries=head.entries, state_bytes=head.size, next_timer=filling.next_time)
    return StoreResult(status, Counts(state_bytes_written=filling.written))


class _Filling:
    def __init__(self, log: Log) -> None:
        self._log = log
        self._segments: list[Segment] = []
        self._waiting: dict[bytes, Change] = {}
        self._size = self._entries = self.written = 0
        self.next_time: int | None = None

    def add(self, entries: Changes) -> None:
        """Add entries; those without a value do not count."""
        for id_, (value, time) in entries.items():
            if value is None:
                continue
            self._waiting[id_] = value, time
            self._size += len(id_) + len(value)
            if time is not None and (self.next_time is None or time < self.next_time):
                self.next_time = time
        if self._size >= SEGMENT_BYTES:
            self._write()

    def _write(self) -> None:
        last = len(self._segments)
        for segment, part in split(dict(sorted(self._waiting.items())), last):
            self.written += self._log.put(segment.number, part)
            self._segments.append(segment)
        self._entries += len(self._waiting)
        self._waiting, self._size = {}, 0

    def finish(self, run: str, extra: bytes) -> None:
        """Write the remaining entries and the head."""
        self._write()
        head = attrs.evolve(
            Head().next(run=run, extra=extra),
            segments=tuple(self._segments),
            last=len(self._segments),
            entries=self._entries,
            size=sum(segment.live for segment in self._segments),
        )
        self.written += self._log.set_head(head)
