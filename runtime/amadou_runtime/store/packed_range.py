"""The *groups* store: Spark stores a key range as one value."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from amadou.errors import StateDecodeError
from amadou_runtime.core.dependencies import Held
from amadou_runtime.core.group_batch import ProcessedGroup
from amadou_runtime.core.key_group import OTHER_RELEASE, KeyGroup
from amadou_runtime.core.key_range import GroupStatus, RangeStatus, range_status
from amadou_runtime.core.operator import Operator
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed
from amadou_runtime.formats.documents import UNREADABLE, check_column
from amadou_runtime.store.packed_group import PackedChanges, PackedGroup

_VERSION = 5


class _Kept(NamedTuple):
    """A stored key group between two batches; see `PackedChanges`."""

    packed: bytes
    next_time: int | None
    status: GroupStatus


class PackedRange:
    """A key range that is stored as one value; see `StoredRange`. A group without work stays packed.

    The value is compressed. It contains ``[version, {group: [packed group, next time, *status]}, run that stored the
    range]``.
    """

    def __init__(self, stored: bytes | None) -> None:
        self._groups: dict[int, _Kept] = {}
        self._run: str | None = None
        """The run that stored the range."""
        if stored is None:
            return
        try:
            version, *rest = unpack_compressed(stored)
            if version == _VERSION:
                groups, self._run = rest
                self._groups = {
                    group: _Kept(packed, next_time, GroupStatus(*status))
                    for group, (packed, next_time, *status) in groups.items()
                }
                check_column(self._groups, int)
                check_column((kept.packed for kept in self._groups.values()), bytes)
                check_column([kept.next_time for kept in self._groups.values()], int, type(None))
        except UNREADABLE as error:
            why = f"this is not the state of a key range ({type(error).__name__}: {error})"
            raise StateDecodeError(stored, dict, why) from error
        if version != _VERSION:
            why = f"this release reads only version {_VERSION} of a key range's state"
            raise StateDecodeError(version, int, why, advice=OTHER_RELEASE)

    def called(self, operator: Operator, watermark: int | None, limits: Mapping[str, int]) -> Iterator[int]:
        same_run, self._run = self._run == operator.run, operator.run
        for group, kept in self._groups.items():
            is_due = watermark is not None and kept.next_time is not None and kept.next_time <= watermark
            if is_due or kept.status.is_called(operator, limits, has_kept_memory=same_run):
                yield group

    @property
    def numbers(self) -> Collection[int]:
        """The numbers of the groups with state."""
        return self._groups.keys()

    def packed(self, number: int) -> bytes | None:
        """Return a group in packed form; `None` if it has no state."""
        kept = self._groups.get(number)
        return None if kept is None else kept.packed

    def group(self, number: int) -> PackedGroup:
        return PackedGroup(self.packed(number))

    def take(self, number: int, processed: ProcessedGroup) -> None:
        self._take(number, processed.changes, processed.held)

    def _take(self, number: int, changes: PackedChanges, held: Held) -> None:
        if changes.packed is None:
            self._groups.pop(number, None)
        else:
            self._groups[number] = _Kept(changes.packed, changes.next_time, GroupStatus.of(changes, held))

    def fill(self, groups: Iterable[tuple[int, KeyGroup]]) -> None:
        """Take completely loaded groups by number, without in-memory state."""
        for number, group in groups:
            self._take(number, PackedGroup(None).changes(group), group.waiting())

    def replace(self, number: int, packed: bytes | None) -> None:
        stored = PackedGroup(packed)
        group = KeyGroup(stored)
        self._run = group.run
        self._take(number, stored.changes(group), group.waiting())

    def status(self, stored: bytes | None) -> RangeStatus:
        """Return the status of the range.

        :param stored: the packed range; see `pack`
        """
        groups = self._groups.values()
        statuses = [kept.status for kept in groups]
        return range_status(
            statuses,
            entries=sum(status.keys for status in statuses),
            state_bytes=len(stored or b""),
            next_timer=min((kept.next_time for kept in groups if kept.next_time is not None), default=None),
        )

    def pack(self) -> bytes | None:
        """Return the range in its stored form; `None` if the range is empty."""
        if not self._groups:
            return None
        groups = {group: [kept.packed, kept.next_time, *kept.status] for group, kept in self._groups.items()}
        return pack_compressed([_VERSION, groups, self._run])
