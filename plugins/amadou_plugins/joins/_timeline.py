from bisect import bisect_left, bisect_right
from typing import Any


class Timeline:
    """What is kept of one side's events, in the order of their times; of the same time, as they came.

    :param stored: what `stored` gave, which it goes on using; nothing without it
    """

    __slots__ = ("entries", "times")

    def __init__(self, stored: list[list[Any]] | None = None) -> None:
        self.times: list[int]
        self.entries: list[Any]
        self.times, self.entries = ([], []) if stored is None else stored

    def stored(self) -> list[list[Any]]:
        """As plain msgpack carries it."""
        return [self.times, self.entries]

    def insert(self, micros: int, entry: Any) -> None:
        """Take an entry in."""
        at = bisect_right(self.times, micros)
        self.times.insert(at, micros)
        self.entries.insert(at, entry)

    def replace(self, micros: int, entry: Any) -> None:
        """Take an entry in, as the only one of its time."""
        at = bisect_left(self.times, micros)
        if at < len(self.times) and self.times[at] == micros:
            self.entries[at] = entry
        else:
            self.insert(micros, entry)

    def between(self, first: int, last: int) -> list[tuple[int, Any]]:
        """The entries from a time up to another one, both among them, with their times."""
        inside = slice(bisect_left(self.times, first), bisect_right(self.times, last))
        return list(zip(self.times[inside], self.entries[inside], strict=True))

    def take_before(self, micros: int) -> list[tuple[int, Any]]:
        """Remove the entries before a time. Returns them with their times."""
        return self.take(bisect_left(self.times, micros))

    def take(self, count: int) -> list[tuple[int, Any]]:
        """Remove so many of the oldest entries. Returns them with their times."""
        taken = list(zip(self.times[:count], self.entries[:count], strict=True))
        del self.times[:count], self.entries[:count]
        return taken


def timelines(value: Any) -> tuple[Timeline, Timeline]:
    """The left and the right events in a key's value, which the join goes on using; none in `None`."""
    left, right = (None, None) if value is None else value
    return Timeline(left), Timeline(right)
