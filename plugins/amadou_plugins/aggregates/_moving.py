from typing import Any

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._reading import Of, Reader, is_missing, reader
from amadou_plugins.aggregates._totals import Value, mean_of, new_total, take


@attrs.frozen(repr=False)
class MovingAverage(Aggregate[list[Value], Any]):
    """The mean of the newest values in the order of the stream, as `Mean` gives it; for running values.

    Depends on the order of the events, and cannot be merged.

    :param of: values as for `Mean`; `None` and NaN are skipped
    :param n: number of values
    :raises AggregateError: `n` is missing, or not a whole number from 1
    """

    mergeable = False
    ordered = True

    of: Of = None
    n: int = 0
    read: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.of), takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        if type(self.n) is not int or self.n < 1:
            raise AggregateError(repr(self), "needs n to be a whole number from 1")

    def create(self) -> list[Value]:
        return []

    def add(self, accumulator: list[Value], event: KeyedEvent[Any]) -> list[Value]:
        value = self.read(event)
        if not is_missing(value):
            if type(value) is not float or (accumulator and type(accumulator[-1]) is not float):
                total = new_total()
                for each in (*accumulator[-1:], value):  # refuses other values than numbers, and another kind of number
                    take(self, total, each)
            accumulator.append(value)
            if len(accumulator) > self.n:
                del accumulator[0]
        return accumulator

    def result(self, accumulator: list[Value]) -> Any:
        total = new_total()
        for value in accumulator:
            take(self, total, value)
        return mean_of(self, total)
