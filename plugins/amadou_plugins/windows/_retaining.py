from typing import Any

from amadou import KeyedEvent
from amadou.components import copied
from amadou_plugins.aggregates import Aggregate


class Retaining(Aggregate[list[Any], Any]):
    """Stores the events themselves so that parts of a window can be merged even if the aggregate cannot merge
    accumulators.

    :param aggregate: aggregate that is computed for each result, from the events in the order in which they were added
    """

    def __init__(self, aggregate: Aggregate[Any, Any]) -> None:
        self._aggregate = aggregate

    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], event: KeyedEvent[Any]) -> list[Any]:
        self._aggregate.add(self._aggregate.create(), event)  # raises an error now if the aggregate rejects the event
        accumulator.append(tuple(event))
        return accumulator

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        left.extend(right)
        return left

    def result(self, accumulator: list[Any]) -> Any:
        aggregate, own = self._aggregate, copied if self._aggregate.keeps_values else lambda value: value
        events = [KeyedEvent(key, timestamp, own(value)) for key, timestamp, value in accumulator]
        return aggregate.result(aggregate.add_all(aggregate.create(), events))

    def __repr__(self) -> str:
        return repr(self._aggregate)
