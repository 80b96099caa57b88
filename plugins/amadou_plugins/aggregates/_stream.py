from collections.abc import Sequence
from typing import Any

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._reading import OneValue, is_missing


@attrs.frozen(repr=False)
class _InOrder(OneValue[Any, Any]):
    ordered = True

    def create(self) -> Any:
        return None

    def result(self, accumulator: Any) -> Any:
        return accumulator


@attrs.frozen(repr=False)
class First(_InOrder):
    """The first value in stream order; `None` if there are no values. The result depends on the order of the events.

    :param of: the value; `None` and NaN are skipped
    """

    def add(self, accumulator: Any, event: KeyedEvent[Any]) -> Any:
        if accumulator is not None:
            return accumulator
        value = self.read(event)
        return None if is_missing(value) else value

    def merge(self, left: Any, right: Any) -> Any:
        return right if left is None else left


@attrs.frozen(repr=False)
class Last(_InOrder):
    """The last value in stream order; `None` if there are no values. The result depends on the order of the events.

    :param of: the value; `None` and NaN are skipped
    """

    def add(self, accumulator: Any, event: KeyedEvent[Any]) -> Any:
        value = self.read(event)
        return accumulator if is_missing(value) else value

    def merge(self, left: Any, right: Any) -> Any:
        return left if right is None else right


@attrs.frozen(repr=False)
class Collect(OneValue[list[Any], list[Any]]):
    """A list of the values in stream order. The result depends on the order of the events.

    :param of: the values; `None` and NaN are skipped
    :param limit: maximum number of values; further values are ignored. Unlimited by default, so the state grows with
        each event
    :raises AggregateError: `limit` is negative or is not an integer
    """

    ordered = True

    limit: int | None = attrs.field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.limit is not None and (type(self.limit) is not int or self.limit < 0):
            raise AggregateError(repr(self), "needs an integer limit of zero or more, such as Collect(limit=100)")

    def create(self) -> list[Any]:
        return []

    def add(self, accumulator: list[Any], event: KeyedEvent[Any]) -> list[Any]:
        if self.limit is None or len(accumulator) < self.limit:
            value = self.read(event)
            if not is_missing(value):
                accumulator.append(value)
        return accumulator

    def add_all(self, accumulator: list[Any], events: Sequence[KeyedEvent[Any]]) -> list[Any]:
        if self.limit is not None:
            return super().add_all(accumulator, events)
        accumulator += self.present(events)
        return accumulator

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        left += right if self.limit is None else right[: self.limit - len(left)]
        return left

    def result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator.copy()
