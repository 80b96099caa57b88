from bisect import bisect_left, bisect_right
from typing import Any

from amadou_plugins._stored_form import are_times


class Timeline:
    """The stored events of one side of a join, in time order; events with the same time are in arrival order.

    :param stored: value that `stored` returned; the timeline changes this value in place. By default, the timeline is
        empty
    """

    __slots__ = ("entries", "times")

    def __init__(self, stored: list[list[Any]] | None = None) -> None:
        self.times: list[int]
        self.entries: list[Any]
        self.times, self.entries = ([], []) if stored is None else stored

    def stored(self) -> list[list[Any]]:
        """Return the timeline as lists that plain msgpack can encode."""
        return [self.times, self.entries]

    def insert(self, micros: int, entry: Any) -> None:
        """Add an entry after all entries with the same time."""
        at = bisect_right(self.times, micros)
        self.times.insert(at, micros)
        self.entries.insert(at, entry)

    def replace(self, micros: int, entry: Any) -> None:
        """Add an entry, replacing any entry with the same time."""
        at = bisect_left(self.times, micros)
        if at < len(self.times) and self.times[at] == micros:
            self.entries[at] = entry
        else:
            self.insert(micros, entry)

    def between(self, first: int, last: int) -> list[tuple[int, Any]]:
        """Return the entries from the time `first` to the time `last`, both inclusive, with their times."""
        inside = slice(bisect_left(self.times, first), bisect_right(self.times, last))
        return list(zip(self.times[inside], self.entries[inside], strict=True))

    def take_before(self, micros: int) -> list[tuple[int, Any]]:
        """Remove the entries before a time and return them with their times."""
        return self.take(bisect_left(self.times, micros))

    def take(self, count: int) -> list[tuple[int, Any]]:
        """Remove the oldest `count` entries and return them with their times."""
        taken = list(zip(self.times[:count], self.entries[:count], strict=True))
        del self.times[:count], self.entries[:count]
        return taken


def timelines(value: Any) -> tuple[Timeline, Timeline]:
    """Return the timelines of the left and the right events in a key's state. The timelines change the stored lists in
    place.

    :param value: the key's state; `None` for an empty state
    """
    left, right = (None, None) if value is None else value
    return Timeline(left), Timeline(right)


def is_timeline(stored: Any) -> bool:
    """Return `True` if a stored value is what `Timeline.stored` returns."""
    if type(stored) is not list or len(stored) != 2 or not type(stored[0]) is type(stored[1]) is list:
        return False
    times, entries = stored
    return len(times) == len(entries) and are_times(times) and times == sorted(times)
