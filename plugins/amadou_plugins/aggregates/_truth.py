from typing import Any

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._reading import OneValue, is_missing


@attrs.frozen(repr=False)
class AnyOf(OneValue[bool, bool]):
    """`True` if the value of any event is true; `False` without values.

    :param of: the value, such as the result of a predicate; `None` and NaN are skipped
    """

    def create(self) -> bool:
        return False

    def add(self, accumulator: bool, event: KeyedEvent[Any]) -> bool:
        value = self.read(event)
        return accumulator or (not is_missing(value) and bool(value))

    def merge(self, left: bool, right: bool) -> bool:
        return left or right

    def result(self, accumulator: bool) -> bool:
        return accumulator


@attrs.frozen(repr=False)
class AllOf(OneValue[bool, bool]):
    """`True` if the value of each event is true; `True` without values.

    :param of: the value, such as the result of a predicate; `None` and NaN are skipped
    """

    def create(self) -> bool:
        return True

    def add(self, accumulator: bool, event: KeyedEvent[Any]) -> bool:
        value = self.read(event)
        return accumulator and (is_missing(value) or bool(value))

    def merge(self, left: bool, right: bool) -> bool:
        return left and right

    def result(self, accumulator: bool) -> bool:
        return accumulator
