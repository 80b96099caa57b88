from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from amadou import Key, KeyedEvent
from amadou.components import EventColumns
from amadou_plugins.aggregates import Aggregate
from amadou_plugins.aggregates._composite import CompositeAggregate, forget_removed
from amadou_plugins.aggregates._kinds import joined


class ByTurns(Aggregate[list[Any], Any]):
    """Preserves the stream's order for an ordered aggregate whose events are spread over several window parts.

    Consecutive events of a subject in the same part form a turn. An accumulator is a list of turns. Each turn is a pair
    of the turn's number and the ordered aggregate's accumulator for the turn's events. Sorting the turns by number
    restores the stream's order.

    :param aggregate: a mergeable aggregate
    """

    def __init__(self, aggregate: Aggregate[Any, Any]) -> None:
        self.aggregate = aggregate
        self.has_kinds = aggregate.has_kinds
        self.keeps_values = aggregate.keeps_values

    @property
    def names(self) -> Any:
        """Names of the aggregates, including nested ones; `None` for a single aggregate."""
        return _names(self.aggregate)

    def forget_removed(self, accumulator: list[Any]) -> bool:
        """Remove the accumulators of removed aggregates; see the function `forget_removed`.

        :returns: `True` if an accumulator was removed
        """
        forgotten = [forget_removed(self.aggregate, part) for _, part in accumulator]
        return any(forgotten)

    def create(self) -> list[Any]:
        return []

    def column(self, accumulators: Iterable[list[Any]]) -> list[Any]:
        column = list(accumulators)
        for accumulator in column:
            self.forget_removed(accumulator)
        return column

    def add(self, accumulator: list[Any], event: KeyedEvent[Any]) -> list[Any]:
        return self.add_in(accumulator, event, turn_of(accumulator) or 1)

    def add_in(self, accumulator: list[Any], event: KeyedEvent[Any], turn: int) -> list[Any]:
        """Add an event that belongs to the accumulator's last turn or to a later one."""
        if turn_of(accumulator) == turn:
            last = accumulator[-1]
            last[1] = self.aggregate.add(last[1], event)
        else:
            accumulator.append([turn, self.aggregate.add(self.aggregate.create(), event)])
        return accumulator

    def add_each_in(self, column: list[Any], at: Sequence[int], events: EventColumns, turns: list[int]) -> None:
        """Add each event, in the event's turn, to the accumulator at the event's position; see `add_in`."""
        grouped: dict[tuple[int, int], list[KeyedEvent[Any]]] = {}
        for position, turn, event in zip(at, turns, events.each(), strict=True):
            grouped.setdefault((position, turn), []).append(event)
        aggregate = self.aggregate
        for (position, turn), some in grouped.items():
            accumulator = column[position]
            if turn_of(accumulator) == turn:
                accumulator[-1][1] = aggregate.add_all(accumulator[-1][1], some)
            else:
                accumulator.append([turn, aggregate.add_all(aggregate.create(), some)])

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return sorted([*left, *right], key=itemgetter(0))

    def result(self, accumulator: list[Any]) -> Any:
        aggregate = self.aggregate
        if len(accumulator) == 1:
            return aggregate.result(accumulator[0][1])
        whole = aggregate.create()
        for _, part in accumulator:
            whole = aggregate.merge(whole, part)
        return aggregate.result(whole)

    def kind(self, accumulator: list[Any]) -> Any:
        return joined([self.aggregate.kind(part) for _, part in accumulator])

    def __repr__(self) -> str:
        return repr(self.aggregate)


def turns_of(keys: list[Key], places: list[int], newest: Callable[[Key], tuple[int, int]]) -> list[int]:
    """Return the turn number of each event. The events are in stream order.

    :param keys: the key of each event
    :param places: the window part of each event
    :param newest: function that returns the number of a key's newest turn, and the window part of this turn; the number
        is 0 if the key has no turns yet
    """
    found = []
    known: dict[Key, tuple[int, int]] = {}
    for key, place in zip(keys, places, strict=True):
        turn, last = known.get(key) or newest(key)
        if not turn or place != last:
            turn += 1
        known[key] = turn, place
        found.append(turn)
    return found


def turn_of(accumulator: list[Any]) -> int:
    """Return the number of an accumulator's last turn; 0 if the accumulator has no turns."""
    return accumulator[-1][0] if accumulator else 0


def _names(aggregate: Aggregate[Any, Any]) -> Any:
    if not isinstance(aggregate, CompositeAggregate):
        return None
    return {name: _names(part) for name, part in aggregate.aggregates.items()}
