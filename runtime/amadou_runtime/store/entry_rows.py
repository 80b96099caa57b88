"""The entries of keys as lists; see `group_by_key`."""

from collections.abc import Iterator
from typing import Any

from amadou import Key
from amadou.engine import StateTable, Timers, pack

TIMES, TAGGED, OWN_KEY = 1, 2, 4
"""Flags of an entry: it has timers without tags, it has timers with tags, it contains its key."""
EXPIRES, TIMER = 1, 2
"""Flags of a name in an entry: the state expires, the component has a timer."""


class EntryRows:
    """Entries in unpacked form, while they are put together."""

    def __init__(self) -> None:
        self.flags: dict[Key, int] = {}
        self.shapes: dict[Key, bytes] = {}
        self.parts: dict[Key, list[Any]] = {}
        self.times: dict[Key, int] = {}
        """The time at which each entry is due."""

    def add_timers(self, plain: dict[int, dict[Key, None]], tagged: dict[int, dict[Key, set[str]]]) -> None:
        """Add timers. Call this method before `add_table`."""
        listed: dict[Key, list[int]] = {}
        for micros in sorted(plain):
            for key in plain[micros]:
                if key in listed:
                    listed[key].append(micros)
                else:
                    listed[key] = [micros]
        with_tags: dict[Key, list[Any]] = {}
        for micros in sorted(tagged):
            for key, tags in tagged[micros].items():
                with_tags.setdefault(key, []).append([micros, sorted(tags)])
        for key, times in listed.items():
            self.flags[key], self.parts[key], self.times[key] = TIMES, [times], times[0]
        for key, pairs in with_tags.items():
            self.flags[key] = self.flags.get(key, 0) | TAGGED
            self.parts.setdefault(key, []).append(pairs)
            self._due_at(key, pairs[0][0])

    def add_table(self, at: int, table: StateTable, *, is_kept: bool, by: int | None) -> bool:
        """Add the state of keys under a name.

        :param at: the name's slot number
        :param by: the event time by which state has expired, so that only a spec with a time to live can still remove
            it; the entry is no longer due for this state
        :returns: `True` if all of the state has an expiry time at which its entry is due
        """
        expiring = 0
        shapes, parts = self.shapes, self.parts
        codes = [at.to_bytes(2, "big") + bytes([flags]) for flags in range(4)]
        expires, next_timers = table.expires, table.next_timers
        for key, packed in table.packed.items():
            row = parts.get(key)
            if row is None:
                row = parts[key] = []
            row.append(packed)
            flags = 0
            if expires and (expiry := expires.get(key)) is not None:
                flags = EXPIRES
                row.append(expiry)
                if not is_kept and (by is None or expiry > by):
                    expiring += 1
                    self._due_at(key, expiry)
            if next_timers and (next_timer := next_timers.get(key)) is not None:
                flags |= TIMER
                row.append(next_timer)
                if not is_kept:
                    self._due_at(key, next_timer)
            shapes[key] = shapes.get(key, b"") + codes[flags]
        return expiring == len(table.packed)

    def _due_at(self, key: Key, micros: int) -> None:
        self.times[key] = min(micros, self.times.get(key, micros))

    def packed(self, key: Key, *, has_own_key: bool) -> bytes | None:
        """Return the packed entry of a key; `None` if there is nothing to store."""
        parts = self.parts.get(key)
        if parts is None:
            return None
        flags = self.flags.get(key, 0)
        shape = self.shapes.get(key, b"")
        if has_own_key:
            return pack([bytes([flags | OWN_KEY]) + shape, key, *parts])
        return pack([_FLAGS[flags] + shape, *parts])


_FLAGS = [bytes([flags]) for flags in range(8)]


def read_timers(timers: Timers, flags: int, keys: list[Key], columns: Iterator[tuple[Any, ...]]) -> int:
    """Read the timers of entries with the same shape. Return their number."""
    number, plain = 0, timers.plain
    if flags & TIMES:
        for key, times in zip(keys, next(columns), strict=True):
            number += len(times)
            for micros in times:
                if micros in plain:
                    plain[micros][key] = None
                else:
                    plain[micros] = {key: None}
    if flags & TAGGED:
        for key, pairs in zip(keys, next(columns), strict=True):
            for micros, tags in pairs:
                number += len(tags)
                timers.tagged.setdefault(micros, {})[key] = set(tags)
    timers.count_loaded(number)
    return number
