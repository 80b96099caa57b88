"""Events in columnar form, for components that process many events in one call."""

from collections.abc import Iterable, Iterator
from itertools import compress
from typing import Any

import attrs

from amadou._handler.event import Key, KeyedEvent, keyed_events
from amadou.event_time import from_micros


@attrs.frozen
class EventColumns:
    """Events of many subjects from one source, in columnar form.

    :param micros: timestamps in microseconds since 1970
    """

    keys: list[Key]
    values: list[Any]
    micros: list[int]

    def __len__(self) -> int:
        return len(self.keys)

    def each(self) -> Iterator[KeyedEvent[Any]]:
        """Return an iterator over the events."""
        return keyed_events(self.keys, map(from_micros, self.micros), self.values)

    def where(self, chosen: Iterable[Any]) -> "EventColumns":
        """Return the events at the positions where `chosen` is true."""
        chosen = list(chosen)
        return EventColumns(*(list(compress(column, chosen)) for column in (self.keys, self.values, self.micros)))

    def by(self, labels: list[Any]) -> dict[Any, "EventColumns"]:
        """Group the events by label.

        :param labels: the label of each event, in the order of the events
        """
        if len(set(labels)) == 1:
            return {labels[0]: self}
        found: dict[Any, EventColumns] = {}
        for label, *event in zip(labels, self.keys, self.values, self.micros, strict=True):
            part = found.get(label)
            if part is None:
                part = found[label] = EventColumns([], [], [])
            part.keys.append(event[0])
            part.values.append(event[1])
            part.micros.append(event[2])
        return found

    def between(self, start: int, end: int) -> "EventColumns":
        """Return the events at the positions from `start` up to, but not including, `end`."""
        if (start, end) == (0, len(self)):
            return self
        return EventColumns(self.keys[start:end], self.values[start:end], self.micros[start:end])
