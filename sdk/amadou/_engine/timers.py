"""The pending timers of a key group while a batch is processed."""

from typing import Any

from amadou._handler.event import Key


class Timers:
    """The pending timers of a key group's subjects, grouped by time because many subjects have timers for the same
    time. Times are in microseconds.
    """

    __slots__ = ("_before", "_times", "changes", "pending", "plain", "removed", "tagged")

    def __init__(self, plain: dict[int, dict[Key, None]], tagged: dict[int, dict[Key, set[str]]]) -> None:
        self.plain = plain
        """Keys of the timers without a tag, by time: a dict serves as an ordered set."""
        self.tagged = tagged
        """Tags of the timers with a tag, by time and key."""
        self.pending = sum(map(len, plain.values()))
        """Number of pending timers."""
        self.pending += sum(len(tags) for keys in tagged.values() for tags in keys.values())
        self.removed = 0
        """Number of timers removed since this object was created."""
        self.changes: list[tuple[Key, int, str, bool]] | None = None
        """The changes to the timers, oldest first, as key, time, tag, and `True` if the timer was added or `False` if
        it was removed. Dead letters use the changes to undo a callback. Removals by `take` are not recorded. `None` if
        no changes are recorded.
        """
        self._before = self.pending
        # Times by key, collected when a callback first lists timers. May include times whose timers have been removed.
        self._times: dict[Key, set[int]] | None = None

    @property
    def added(self) -> int:
        """The number of timers added since this object was created. Calculated on access: timers are added often, and
        counting each addition would slow down processing.
        """
        return self.pending - self._before + self.removed

    def count_loaded(self, number: int) -> None:
        """Count timers that a store has loaded into `plain` and `tagged`."""
        self.pending += number
        self._before += number

    def add(self, key: Key, micros: int, tag: str) -> None:
        """Add a timer. Adding a pending timer again has no effect (`semantics.md` 10)."""
        if tag:
            tags = self.tagged.setdefault(micros, {}).setdefault(key, set())
            if tag in tags:
                return
            tags.add(tag)
        else:
            keys = self.plain.get(micros)
            if keys is None:
                keys = self.plain[micros] = {}
            elif key in keys:
                return
            keys[key] = None
        self.pending += 1
        if self.changes is not None:
            self.changes.append((key, micros, tag, True))
        if self._times is not None:
            self._times.setdefault(key, set()).add(micros)

    def discard(self, key: Key, micros: int, tag: str) -> bool:
        """Remove a timer. Return `True` if the timer was pending."""
        times: dict[int, dict[Key, Any]] = self.tagged if tag else self.plain
        keys = times.get(micros)
        if keys is None or key not in keys:
            return False
        if tag:
            tags = keys[key]
            if tag not in tags:
                return False
            tags.remove(tag)
        if not tag or not tags:
            del keys[key]
            if not keys:
                del times[micros]
        self.pending -= 1
        self.removed += 1
        if self.changes is not None:
            self.changes.append((key, micros, tag, False))
        return True

    def take(self, micros: int) -> dict[Key, None]:
        """Remove the untagged timers for a time, and return their keys."""
        keys = self.plain.pop(micros, {})
        self.pending -= len(keys)
        self.removed += len(keys)
        return keys

    def due(self, watermark: int | None) -> list[int]:
        """Return the times of the timers that a watermark has reached, in ascending order."""
        if watermark is None:
            return []
        return sorted(micros for micros in {*self.plain, *self.tagged} if micros <= watermark)

    def at(self, micros: int) -> dict[Key, Any]:
        """Return the keys that have a timer for a time."""
        plain, tagged = self.plain.get(micros, {}), self.tagged.get(micros)
        return {**plain, **tagged} if tagged else plain

    def tags(self, key: Key, micros: int) -> list[str]:
        """Return the sorted tags of a key's timers for a time; an untagged timer has an empty tag."""
        plain = [""] if key in self.plain.get(micros, ()) else []
        tagged = self.tagged.get(micros)
        return [*plain, *sorted(tagged.get(key, ()))] if tagged else plain

    def of(self, key: Key) -> list[tuple[int, str]]:
        """Return a subject's timers, ordered by time and tag."""
        if self._times is None:
            self._times = {}
            for times in (self.plain, self.tagged):
                for micros, keys in times.items():
                    for other in keys:
                        self._times.setdefault(other, set()).add(micros)
        return [(micros, tag) for micros in sorted(self._times.get(key, ())) for tag in self.tags(key, micros)]

    def next_time(self) -> int | None:
        """Return the time of the next timer; `None` if there are no timers."""
        return min((*self.plain, *self.tagged), default=None)
