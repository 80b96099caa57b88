from typing import Any

from amadou import KeyedEvent
from amadou_plugins.aggregates import Aggregate


class Retaining(Aggregate[list[Any], Any]):
    """Keeps the events themselves, for aggregates that cannot be merged, in windows whose parts are merged.

    :param aggregate: aggregate of the events at the end, in the order in which they were kept
    """

    def __init__(self, aggregate: Aggregate[Any, Any]) -> None:
        self._aggregate = aggregate

    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], event: KeyedEvent[Any]) -> list[Any]:
        self._aggregate.add(self._aggregate.create(), event)  # refuses a bad event now rather than at the end
        accumulator.append(tuple(event))
        return accumulator

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        left.extend(right)
        return left

    def result(self, accumulator: list[Any]) -> Any:
        aggregate = self._aggregate
        return aggregate.result(aggregate.add_all(aggregate.create(), [KeyedEvent(*kept) for kept in accumulator]))

    def __repr__(self) -> str:
        return repr(self._aggregate)
