"""How a view stores entries, and what a batch changes in a view.

An entry is stored as ``[checksum of id and the rest][segment number and time flag][time][value]``. The header has a
fixed size, so that an update usually leaves the size of an entry as it is: LMDB then does not move other entries. Times
are stored such that they sort as bytes. A key of the index consists of an entry's time and id.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping
from operator import itemgetter

import attrs

from amadou_runtime.store.log.segments import TIME_BYTES, Change, Changes, LoggedVersion, Version

_CHECKSUM = 4
HEADER_BYTES = 8
"""Size of an entry's header. The lowest bit of its last byte is set if an entry has a time, which then follows."""
_TIMED = HEADER_BYTES + TIME_BYTES
_TIME_OFFSET = 1 << 63
_pack_header = struct.Struct(">I").pack
_pack_timed_header = struct.Struct(">IQ").pack
_unpack_header = struct.Struct(">II").unpack_from
_unpack_timed_header = struct.Struct(">IIQ").unpack_from


class ViewDamagedError(Exception):
    """A view cannot be used. It must be rebuilt."""


@attrs.frozen
class Difference:
    """The changes of a batch to one kind of entry, compared with the entries before the batch.

    :param changes: the changes that have an effect, sorted by id
    :param size: size of the changes
    :param live: size of the changes without deletions
    :param dead: size of the replaced and deleted entries, by segment
    :param entries: the increase of the number of entries
    :param timed: sorted keys to add to the index
    :param untimed: sorted keys to delete from the index
    """

    changes: dict[bytes, Change]
    size: int
    live: int
    dead: dict[int, int]
    entries: int
    timed: list[bytes]
    untimed: list[bytes]

    @property
    def growth(self) -> int:
        """The increase of the size of the entries."""
        return self.live - sum(self.dead.values())


def difference(changes: Changes, old: Mapping[bytes, Version | None]) -> Difference:
    """Compare changes with the entries before the batch.

    :param old: versions by id; missing or `None` for an id without an entry
    """
    effective: dict[bytes, Change] = {}
    size = live = entries = 0
    dead: dict[int, int] = {}
    timed, untimed = [], []
    for id_ in sorted(changes):
        value, time = changes[id_]
        before = old.get(id_)
        old_time = None
        if before is not None:
            segment, old_value, old_time = before
            if value == old_value and time == old_time:
                continue
            dead[segment] = dead.get(segment, 0) + len(id_) + len(old_value) + (0 if old_time is None else TIME_BYTES)
            entries -= 1
        elif value is None:
            continue
        if value is None:
            time = None
        else:
            live += len(id_) + len(value) + (0 if time is None else TIME_BYTES)
            entries += 1
        if time != old_time:
            if time is not None:
                timed.append(time_key(time) + id_)
            if old_time is not None:
                untimed.append(time_key(old_time) + id_)
        size += len(id_) if value is None else 0
        effective[id_] = value, time
    return Difference(effective, size + live, live, dead, entries, sorted(timed), sorted(untimed))


@attrs.frozen
class TableChanges:
    """Changes of one kind of entry, ready to be written. Applying them twice has the same result as applying them once.

    :param ids: the ids of `stored`, sorted
    :param stored: new and changed entries, as they are stored
    :param deleted: ids to delete
    :param timed: keys to add to the index
    :param untimed: keys to delete from the index
    """

    ids: list[bytes]
    stored: list[bytes]
    deleted: list[bytes]
    timed: list[bytes]
    untimed: list[bytes]


def table_changes(changed: Difference, parts: Iterable[tuple[int, Changes]]) -> TableChanges:
    """Return what changes in the tables.

    :param parts: the entries to be stored, by the number of their segment; they may include entries that only move to
        the segment
    """
    entries = {id_: (number, value, time) for number, part in parts for id_, (value, time) in part.items()}
    rows = stored_rows(entries)
    deleted = [id_ for id_, (value, _) in changed.changes.items() if value is None]
    return TableChanges([id_ for id_, _ in rows], [data for _, data in rows], deleted, changed.timed, changed.untimed)


def stored_rows(entries: Mapping[bytes, LoggedVersion]) -> list[tuple[bytes, bytes]]:
    """Return the ids, sorted, and the entries as they are stored. Tombstones are left out."""
    rows = []
    checksum, header, timed_header = zlib.crc32, _pack_header, _pack_timed_header
    for id_, (segment, value, time) in entries.items():
        if value is not None:
            if time is None:
                data = header(segment << 1) + value
            else:
                data = timed_header(segment << 1 | 1, time + _TIME_OFFSET) + value
            rows.append((id_, header(checksum(data, checksum(id_))) + data))
    rows.sort(key=itemgetter(0))
    return rows


def versions(rows: Iterable[tuple[bytes, bytes]]) -> dict[bytes, Version]:
    """Return stored entries by id.

    :raises ViewDamagedError: a checksum is wrong
    """
    found: dict[bytes, Version] = {}
    checksum, header, timed_header = zlib.crc32, _unpack_header, _unpack_timed_header
    for id_, data in rows:
        expected, tag = header(data) if len(data) >= HEADER_BYTES else (-1, 0)
        if checksum(data[_CHECKSUM:], checksum(id_)) != expected:
            raise ViewDamagedError("the checksum of an entry is wrong")
        if tag & 1:
            found[id_] = tag >> 1, data[_TIMED:], timed_header(data)[2] - _TIME_OFFSET
        else:
            found[id_] = tag >> 1, data[HEADER_BYTES:], None
    return found


def time_key(time: int) -> bytes:
    """Return a time as bytes, which sort like times."""
    return (time + _TIME_OFFSET).to_bytes(TIME_BYTES, "big")


def time_of(key: bytes) -> int:
    """Return the time of a key of the index."""
    return int.from_bytes(key[:TIME_BYTES], "big") - _TIME_OFFSET


def id_of(key: bytes) -> bytes:
    """Return the id of a key of the index."""
    return key[TIME_BYTES:]
