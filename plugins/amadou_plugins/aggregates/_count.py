from collections.abc import Sequence
from typing import Any

import attrs

from amadou import KeyedEvent
from amadou.components import EventColumns
from amadou_plugins.aggregates._reading import OneValue, fields_read, is_missing


@attrs.frozen(repr=False)
class Count(OneValue[int, int]):
    """The number of events. With `of`, only events that have this value are counted.

    :param of: the value; events in which this value is `None` or NaN are not counted. By default, every event is
        counted
    """

    keeps_values = False

    @property
    def fields(self) -> frozenset[str] | None:
        return frozenset() if self.of is None else fields_read(self.of)

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, event: KeyedEvent[Any]) -> int:
        if self.of is None or not is_missing(self.read(event)):
            return accumulator + 1
        return accumulator

    def add_each(self, column: list[int], at: Sequence[int], events: EventColumns) -> None:
        if self.of is not None:
            at = [place for place, value in zip(at, self.read_each(events), strict=True) if not is_missing(value)]
        for position in at:
            column[position] += 1

    def extend(self, column: list[int], number: int) -> None:
        column += [0] * number

    def results(self, column: list[int]) -> list[int]:
        return column

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        return accumulator
