from collections.abc import Sequence
from functools import partial
from typing import Any

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._order import comparable, kind_name, rank
from amadou_plugins.aggregates._reading import Of, Reader, fields_read, is_missing, reader

Entry = list[Any]
"""An accumulator's entry: `[rank]` if the results are the ranks themselves; otherwise `[rank, timestamp, result]`."""


def _checked(k: int) -> int:
    if type(k) is not int or k < 1:
        raise AggregateError("TopK", f"needs a positive integer k, such as TopK(k=3, of='score'), not {k!r}")
    return k


def _read_several(readers: list[Reader], event: KeyedEvent[Any]) -> tuple[Any, ...]:
    return tuple(read(event) for read in readers)


def _several(give: Any) -> Any:
    return tuple(give) if isinstance(give, list | tuple) else give


@attrs.frozen(repr=False)
class TopK(Aggregate[list[Entry], list[Any]]):
    """The `k` largest values in descending order, or other results from the events with the `k` largest values.

    ::

        TopK(10, "price")                                         # prices
        TopK(10, by="price", give="item")                         # the most expensive items
        TopK(10, by="price", give=("item", "price"))              # pairs of item and price
        TopK(10, by="price")                                      # the events' values
        TopK(10, by="price", give=lambda event: event)            # the events, with key and time

    Events are sorted by rank, highest first. If the results are not the ranks themselves, events with the same rank are
    sorted by time, earliest first. Events with the same rank and time are sorted by their results, in the fixed order
    of values that `amadou_plugins.aggregates` describes.

    :param k: maximum number of results
    :param of: the rank if `by` is not set, and the result if `give` is not set: a field name, a function of the event,
        or `None` for the event's value
    :param by: the rank: a field name or a function of the event, with values as for `Min`
    :param give: the result: a field name, a list of field names (read as a tuple), or a function of the event; defaults
        to `of`. Events whose rank or result is `None` or NaN are skipped
    :raises AggregateError: `k` is not a positive integer; `of`, `by` or `give` is invalid; or `of`, `by` and `give` are
        all set
    """

    has_kinds = True

    k: int = attrs.field(converter=_checked)  # checked before `of`, because the two are easily swapped
    of: Of = None
    by: Of = None
    give: Of | Sequence[str] = attrs.field(default=None, kw_only=True, converter=_several)
    _read_rank: Reader = attrs.field(
        init=False,
        eq=False,
        default=attrs.Factory(
            lambda self: reader(self, self.of) if self.by is None else reader(self, self.by, "by"), takes_self=True
        ),
    )
    _read_given: Reader | None = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: self._given_reader(), takes_self=True)
    )

    def _given_reader(self) -> Reader | None:
        if self.give is None:
            return None if self.by is None else reader(self, self.of)
        if self.of is not None and self.by is not None:
            raise AggregateError(
                repr(self), "has by= for the rank and give= for the result: remove of=, which has no effect"
            )
        if not isinstance(self.give, tuple):
            return reader(self, self.give, "give")  # type: ignore[arg-type]
        if not self.give or not all(isinstance(name, str) for name in self.give):
            raise AggregateError(repr(self), "needs give= to be a field name, a list of field names, or a function")
        return partial(_read_several, [reader(self, name, "give") for name in self.give])

    @property
    def fields(self) -> frozenset[str] | None:
        given = self.give if isinstance(self.give, tuple) else (self.of if self.give is None else self.give,)
        return fields_read(self.of if self.by is None else self.by, *given)

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

    def kind(self, accumulator: list[Entry]) -> str | None:
        return kind_name(accumulator[0][0]) if accumulator else None

    def result(self, accumulator: list[Entry]) -> list[Any]:
        return [entry[-1] for entry in accumulator]

    def _entry(self, event: KeyedEvent[Any], other: Any) -> Entry | None:
        rank = self._read_rank(event)
        if is_missing(rank):
            return None
        if self._read_given is None:
            return [comparable(self, rank, other)]
        given = self._read_given(event)
        return None if is_missing(given) else [comparable(self, rank, other), event.timestamp, given]

    def _best(self, entries: list[Entry]) -> list[Entry]:
        if self._read_given is None:
            entries.sort(key=lambda entry: rank(entry[0]), reverse=True)
        else:
            entries.sort(key=lambda entry: (entry[1], rank(entry[2])))
            entries.sort(key=lambda entry: entry[0], reverse=True)
        return entries[: self.k]
