from typing import Any

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._reading import OneValue, is_missing
from amadou_plugins.aggregates._totals import Value, mean_of, new_total, take


@attrs.frozen(repr=False)
class MovingAverage(OneValue[list[Value], Any]):
    """The mean of the last `n` values in stream order, with the same result types and rounding as `Mean`.

    This aggregate is meant for `RunningSpec`. The result depends on the order of the events. Accumulators cannot be
    merged.

    :param of: values as for `Mean`; `None` and NaN are skipped
    :param n: number of values to average
    :raises AggregateError: `n` is missing or not a positive integer
    """

    mergeable = False
    ordered = True
    keeps_values = False

    n: int = 0

    def __attrs_post_init__(self) -> None:
        if type(self.n) is not int or self.n < 1:
            raise AggregateError(repr(self), "needs a positive integer n, such as MovingAverage(n=100)")

    def create(self) -> list[Value]:
        return []

    def add(self, accumulator: list[Value], event: KeyedEvent[Any]) -> list[Value]:
        value = self.read(event)
        if not is_missing(value):
            if type(value) is not float or (accumulator and type(accumulator[-1]) is not float):
                total = new_total()
                for each in (*accumulator[-1:], value):  # rejects a value of a different kind, such as a string
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
