"""What a key group keeps between batches, and how it is stored."""

from itertools import chain
from typing import Any

from amadou import Key
from amadou._group import Column, Timers
from amadou._wire import pack, unpack
from amadou.errors import StateDecodeError

_VERSION = 1


class KeyGroup:
    """The state and the timers of one key group. A subject's state stays packed until it is touched.

    Stored as ``[version, {spec: [keys, packed]}, [keys, earliest timers], [keys, packed timers], pending timers]``:
    lists, since msgpack takes four times as long to read the keys of a map.
    """

    __slots__ = ("columns", "timers")

    def __init__(self, stored: bytes | None) -> None:
        self.columns: dict[str, Column] = {}
        self.timers = Timers({}, {}, 0)
        if stored is not None:
            version, *rest = unpack(stored)
            if version != _VERSION:
                raise StateDecodeError(version, int, f"this release reads version {_VERSION} of a key group's state")
            columns, earliest, several, pending = rest
            self.columns = {spec: Column(_dict(column)) for spec, column in columns.items()}
            self.timers = Timers(_dict(earliest), _dict(several), pending)

    def keys(self) -> list[Key]:
        """The keys that have state or timers."""
        columns = (column.packed for column in self.columns.values())
        return list(dict.fromkeys(chain(*columns, self.timers.earliest)))

    def pack(self) -> bytes | None:
        """The group as it is stored; `None` where nothing is left."""
        timers = self.timers
        columns = {spec: _lists(column.packed) for spec, column in self.columns.items() if column.packed}
        if not columns and not timers.earliest:
            return None
        return pack([_VERSION, columns, _lists(timers.earliest), _lists(timers.several), timers.pending])


def _dict(lists: list[list[Any]]) -> dict[Key, Any]:
    return dict(zip(*lists, strict=True))


def _lists(mapping: dict[Key, Any]) -> list[list[Any]]:
    return [list(mapping), list(mapping.values())]
