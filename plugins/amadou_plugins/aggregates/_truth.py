from typing import Any, ClassVar

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._reading import OneValue, is_missing


@attrs.frozen(repr=False)
class _Truth(OneValue[bool, bool]):
    keeps_values = False

    _without_values: ClassVar[bool]

    def create(self) -> bool:
        return self._without_values

    def add(self, accumulator: bool, event: KeyedEvent[Any]) -> bool:
        value = self.read(event)
        return accumulator if accumulator is not self._without_values or is_missing(value) else bool(value)

    def merge(self, left: bool, right: bool) -> bool:
        return right if left is self._without_values else left

    def result(self, accumulator: bool) -> bool:
        return accumulator


@attrs.frozen(repr=False)
class AnyOf(_Truth):
    """`True` if at least one value is true; otherwise `False`, also if there are no values.

    :param of: the value, such as the result of a predicate; `None` and NaN are skipped
    """

    _without_values = False


@attrs.frozen(repr=False)
class AllOf(_Truth):
    """`True` if all values are true or if there are no values; otherwise `False`.

    :param of: the value, such as the result of a predicate; `None` and NaN are skipped
    """

    _without_values = True
