"""What the subjects of a key group have while a batch is processed: state by spec, and timers."""

from collections.abc import Iterable
from typing import Any

from amadou._event import Key
from amadou._spec import MISSING
from amadou._wire import pack, unpack, unpack_all


class Column:
    """What the subjects have under one spec.

    A subject's part stays packed until a callback asks for the spec; then those of all subjects that the batch touches
    are unpacked in one call, which takes a third of unpacking each alone.
    """

    __slots__ = ("packed", "states", "wires")

    def __init__(self, packed: dict[Key, bytes]) -> None:
        self.packed = packed
        """As it is stored, by key."""
        self.wires: dict[Key, Any] = {}
        """Unpacked, of the subjects that the batch touches; as the batch found it."""
        self.states: dict[Key, Any] = {}
        """What callbacks asked for, as they left it."""

    def load(self, keys: Iterable[Key]) -> None:
        """Unpack what some subjects have."""
        packed = self.packed
        known = [key for key in keys if key in packed]
        self.wires = dict(zip(known, unpack_all(b"".join([packed[key] for key in known])), strict=True))

    def store(self) -> None:
        """Pack what changed; nothing stays of a subject that has nothing (`semantics.md` 15).

        :raises EncodeError: msgpack cannot carry what the first of `unstored` has
        """
        packed = self.packed
        for key, state in self.states.items():
            if state._changed:
                wire = state._stored()
                if wire is not MISSING:
                    packed[key] = pack(wire)
                elif key in packed:
                    del packed[key]
                state._changed = False

    def unstored(self) -> list[Key]:
        """The keys whose state changed and is not packed yet."""
        return [key for key, state in self.states.items() if state._changed]


class Timers:
    """The pending timers of the subjects. Times are in microseconds.

    Most subjects have one timer without a tag: its time in `earliest` is all that there is of it.
    """

    __slots__ = ("earliest", "pending", "several")

    def __init__(self, earliest: dict[Key, int], several: dict[Key, Any], pending: int) -> None:
        self.earliest = earliest
        """Each subject's earliest time, as of the last `store`."""
        self.several = several
        """All timers of the other subjects: a set of (time, tag), packed until it is touched."""
        self.pending = pending
        """How many timers there are."""

    def add(self, key: Key, micros: int, tag: str) -> None:
        """Add a timer; one that is there already stays (`semantics.md` 10)."""
        timers = self._several_of(key)
        if timers is None:
            first = self.earliest.get(key)
            if first is None and not tag:
                self.earliest[key] = micros
                self.pending += 1
                return
            if first == micros and not tag:
                return
            timers = self.several[key] = set() if first is None else {(first, "")}
            self.earliest.setdefault(key, micros)
        elif (micros, tag) in timers:
            return
        timers.add((micros, tag))
        self.pending += 1

    def discard(self, key: Key, micros: int, tag: str) -> bool:
        """Remove a timer. Returns whether there was one."""
        timers = self._several_of(key)
        if timers is None:
            if tag or self.earliest.get(key) != micros:
                return False
        elif (micros, tag) in timers:
            timers.remove((micros, tag))
        else:
            return False
        if not timers:
            del self.earliest[key]
            self.several.pop(key, None)
        self.pending -= 1
        return True

    def of(self, key: Key) -> list[tuple[int, str]]:
        """A subject's timers, by time and tag."""
        timers = self._several_of(key)
        if timers is not None:
            return sorted(timers)
        return [(self.earliest[key], "")] if key in self.earliest else []

    def store(self) -> None:
        """Pack what was touched."""
        for key, timers in list(self.several.items()):
            if type(timers) is not bytes:
                ordered = sorted(timers)
                self.earliest[key] = ordered[0][0]
                if len(ordered) > 1 or ordered[0][1]:
                    self.several[key] = pack([part for timer in ordered for part in timer])
                else:
                    del self.several[key]

    def _several_of(self, key: Key) -> set[tuple[int, str]] | None:
        timers = self.several.get(key) if self.several else None
        if type(timers) is bytes:
            parts = iter(unpack(timers))
            timers = self.several[key] = set(zip(parts, parts, strict=True))
        return timers
