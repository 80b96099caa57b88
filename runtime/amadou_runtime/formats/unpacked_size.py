"""Estimates how much memory the objects of packed data will take, without creating them.

An empty map takes one byte of packed data, and 72 bytes of memory. So a limit on bytes does not limit the memory.
"""

import re
from typing import Final

_MOST: Final = 100
"""Upper bound of the memory that the objects of a packed byte take, in bytes."""
_ALONE: Final = 1 << 16
"""Size from which bytes inside packed data count as packed data: they may be a key's state. Smaller ones do not count,
because the states of all keys are not unpacked at once.
"""
_DEEPEST: Final = 200

_SLOT, _LIST, _MAP, _ENTRY, _TEXT, _NUMBER, _SET, _OTHER = 8, 64, 240, 48, 64, 40, 224, 120
"""Memory of objects of CPython, with the reference from a list. The first five entries of a map are part of `_MAP`."""
_CONTAINERS: Final = (1, 2, 3, 9, 10)
"""Extensions with packed data: tuples, sets, objects and envelopes; see `amadou._state.encoding`."""
_HEADERS: Final = bytes((*range(0x80, 0xA0), *range(0xC7, 0xCA), *range(0xD4, 0xD9), *range(0xDC, 0xE0)))
"""First bytes of lists, maps and extensions."""
_SHORT: Final = bytes((*range(0xA1, 0xA8), 0xCD, 0xD0, 0xD1, 0xD9, *range(0xE0, 0x100)))
"""First bytes of numbers and texts that take at most 8 bytes, but create an object."""
_SHARED: Final = re.compile(rb"[\x00-\x7f\xa0\xc0\xc2\xc3]+")
"""Values of one byte that create no object."""
_SIZED: Final = {
    head: (kind, width)
    for kind, first in (("bytes", 0xC4), ("extension", 0xC7), ("text", 0xD9))
    for head, width in ((first, 1), (first + 1, 2), (first + 2, 4))
} | {0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)}
"""For first bytes that a size follows: the kind of the value, and how many bytes the size takes."""
_FIXED: Final = dict(zip(range(0xCA, 0xD9), (4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 16), strict=True))
"""For first bytes of values with a fixed size: the number of the following bytes; without the code of extensions."""


def unpacks_within(packed: bytes, limit: int) -> bool:
    """Return `True` if the objects of packed data will take at most about `limit` bytes of memory.

    Nearly all data is so small that its size tells, or has so few lists and maps that counting bytes tells. Only other
    data is read value by value.
    """
    size = len(packed)
    if _MOST * size <= limit:
        return True
    headers, short = (size - len(packed.translate(None, of)) for of in (_HEADERS, _SHORT))
    return 16 * size + 80 * headers + 32 * short <= limit or _Scan(packed, limit).is_within()


class _TooLargeError(Exception):
    """The limit is exceeded."""


class _Scan:
    """Reads packed data value by value, up to a limit of memory."""

    def __init__(self, packed: bytes, limit: int) -> None:
        self._packed = packed
        self._left = limit

    def is_within(self) -> bool:
        try:
            self._read(0, len(self._packed), 0)
        except _TooLargeError:
            return False
        except IndexError:  # it ends inside a value: nothing can unpack it
            return True
        return True

    def _read(self, at: int, end: int, depth: int) -> None:
        """Read a part of the data.

        :param depth: number of extensions and bytes around the part
        """
        while at < end and depth < _DEEPEST:
            shared = _SHARED.match(self._packed, at, end)
            if shared is not None:
                self._take(_SLOT * (shared.end() - at))
                at = shared.end()
            else:
                at = self._value(at, depth)

    def _value(self, at: int, depth: int) -> int:
        """Read the first bytes of a value, and return where the next value begins."""
        head = self._packed[at]
        if head in _SIZED:
            kind, width = _SIZED[head]
            start = at + 1 + width
            return self._sized(kind, start, int.from_bytes(self._packed[at + 1 : start], "big"), depth)
        if head < 0x90:
            return self._sized("map", at + 1, head & 0x0F, depth)
        if head < 0xA0:
            return self._sized("list", at + 1, head & 0x0F, depth)
        if head < 0xC0:
            return self._sized("text", at + 1, head & 0x1F, depth)
        if 0xD4 <= head <= 0xD8:
            return self._sized("extension", at + 1, _FIXED[head], depth)
        self._take(_NUMBER)
        return at + 1 + _FIXED.get(head, 0)

    def _sized(self, kind: str, start: int, size: int, depth: int) -> int:
        if kind == "list":
            self._take(_LIST + _SLOT * size)
            return start
        if kind == "map":
            self._take(_MAP + _ENTRY * max(size - 5, 0) if size else _LIST)
            return start
        if kind == "extension":
            return self._extension(start, size, depth)
        if kind == "text":
            is_wide = not self._packed[start : start + size].isascii()
            self._take(_TEXT + (4 * size if is_wide else size))
        else:
            self._take(_TEXT + size)
            if size >= _ALONE:
                self._read(start, min(start + size, len(self._packed)), depth + 1)
        return start + size

    def _extension(self, at: int, size: int, depth: int) -> int:
        start, is_container = at + 1, self._packed[at] in _CONTAINERS
        self._take((_SET if is_container else _OTHER) + size)
        if is_container:
            self._read(start, min(start + size, len(self._packed)), depth + 1)
        return start + size

    def _take(self, memory: int) -> None:
        self._left -= memory
        if self._left < 0:
            raise _TooLargeError
