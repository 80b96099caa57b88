from collections.abc import Sequence
from typing import Any

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._order import comparable, rank
from amadou_plugins.aggregates._reading import Of, Reader, is_missing, reader

Entry = list[Any]
"""`[value]`, or with `by` `[by, timestamp, value]`."""


def _checked(k: int) -> int:
    if type(k) is not int or k < 1:
        raise AggregateError("TopK", f"needs k to be a whole number from 1, not {k!r}, as in TopK(k=3, of='score')")
    return k


@attrs.frozen(repr=False)
class TopK(Aggregate[list[Entry], list[Any]]):
    """The greatest values, or those of the events where another is greatest; the greatest first.

    With `by`, of several events where it is the same the earliest come first, and of those of the same time the values
    that are first in the fixed order.

    :param k: so many values at most
    :param of: gives the values; without `by` what `Min` takes. `None` and NaN are skipped
    :param by: gives what `Min` takes; `None` and NaN are skipped
    :raises AggregateError: `k` is no whole number from 1
    """

    k: int = attrs.field(converter=_checked)  # before `of` is read, which is taken for it easily
    of: Of = None
    by: Of = None
    read_of: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.of), takes_self=True)
    )
    read_by: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.by, "by"), takes_self=True)
    )

    def create(self) -> list[Entry]:
        return []

    def add(self, accumulator: list[Entry], event: KeyedEvent[Any]) -> list[Entry]:
        entry = self._entry(event, accumulator[0][0] if accumulator else None)
        if entry is None or (len(accumulator) == self.k and entry[0] < accumulator[-1][0]):
            return accumulator
        return self._best([*accumulator, entry])

    def add_all(self, accumulator: list[Entry], events: Sequence[KeyedEvent[Any]]) -> list[Entry]:
        entries = accumulator.copy()
        for event in events:
            entry = self._entry(event, entries[0][0] if entries else None)
            if entry is not None:
                entries.append(entry)
        if len(entries) > self.k:
            least = sorted((entry[0] for entry in entries), reverse=True)[self.k - 1]
            entries = [entry for entry in entries if entry[0] >= least]
        return self._best(entries)

    def merge(self, left: list[Entry], right: list[Entry]) -> list[Entry]:
        if left and right:
            comparable(self, right[0][0], left[0][0])
        return self._best(left + right)

    def result(self, accumulator: list[Entry]) -> list[Any]:
        return [entry[-1] for entry in accumulator]

    def _entry(self, event: KeyedEvent[Any], other: Any) -> Entry | None:
        value = self.read_of(event)
        if is_missing(value):
            return None
        if self.by is None:
            return [comparable(self, value, other)]
        by = self.read_by(event)
        return None if is_missing(by) else [comparable(self, by, other), event.timestamp, value]

    def _best(self, entries: list[Entry]) -> list[Entry]:
        if self.by is None:
            entries.sort(key=lambda entry: rank(entry[0]), reverse=True)
        else:
            entries.sort(key=lambda entry: (entry[1], rank(entry[2])))
            entries.sort(key=lambda entry: entry[0], reverse=True)
        return entries[: self.k]
