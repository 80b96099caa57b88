from collections.abc import Callable
from copy import deepcopy
from typing import Any

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._reading import Of, Reader, is_missing, reader


@attrs.frozen(repr=False)
class Reduce(Aggregate[Any, Any]):
    """Combines the events' values with a function, one by one in stream order. So the result can depend on the order of
    the events.

    :param function: function that takes the current result and a value, and returns the new result
    :param of: the values to combine; `None` and NaN are skipped
    :param initial: result before the first value; by default, the first value is the first result, and the result is
        `None` if there are no values
    :param mergeable: `True` if the function can also combine the result for earlier values with the result for later
        values; `initial` must then be a neutral element, such as 0 for a sum
    :raises AggregateError: `function` is not callable
    """

    ordered = True

    function: Callable[[Any, Any], Any]
    of: Of = None
    initial: Any = attrs.field(default=None, kw_only=True)
    mergeable: bool = attrs.field(default=False, kw_only=True)
    read: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.of), takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        if not callable(self.function):
            raise AggregateError(
                repr(self),
                "needs a function of the current result and a value, as in Reduce(function=max, of='score')",
            )

    def create(self) -> Any:
        return deepcopy(self.initial)

    def add(self, accumulator: Any, event: KeyedEvent[Any]) -> Any:
        value = self.read(event)
        if is_missing(value):
            return accumulator
        return value if accumulator is None else self.function(accumulator, value)

    def merge(self, left: Any, right: Any) -> Any:
        if not self.mergeable:
            return super().merge(left, right)
        if left is None or right is None:
            return deepcopy(right) if left is None else left
        return self.function(left, deepcopy(right))

    def result(self, accumulator: Any) -> Any:
        return accumulator
