from operator import gt, lt
from typing import Any, ClassVar

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._order import rank
from amadou_plugins.aggregates._reading import OneValue, is_missing


@attrs.frozen(repr=False)
class _ByTime(OneValue[list[Any] | None, Any]):
    """The base class of `Earliest` and `Latest`. The accumulator is `[timestamp, value]`, or `None` without a value."""

    _beats: ClassVar[Any]

    def create(self) -> list[Any] | None:
        return None

    def add(self, accumulator: list[Any] | None, event: KeyedEvent[Any]) -> list[Any] | None:
        value = self.read(event)
        return accumulator if is_missing(value) else self._better(accumulator, [event.timestamp, value])

    def merge(self, left: list[Any] | None, right: list[Any] | None) -> list[Any] | None:
        return left if right is None else self._better(left, right)

    def result(self, accumulator: list[Any] | None) -> Any:
        return None if accumulator is None else accumulator[1]

    def _better(self, best: list[Any] | None, entry: list[Any]) -> list[Any]:
        if best is None or self._beats(entry[0], best[0]):
            return entry
        return entry if entry[0] == best[0] and self._beats(rank(entry[1]), rank(best[1])) else best


@attrs.frozen(repr=False)
class Earliest(_ByTime):
    """The value of the event with the earliest timestamp; `None` if no event has a value.

    If several events have the earliest timestamp, the result is the value that comes first in the fixed order of
    values; see `amadou_plugins.aggregates`.

    :param of: the value; events in which this value is `None` or NaN are skipped
    """

    _beats = lt


@attrs.frozen(repr=False)
class Latest(_ByTime):
    """The value of the event with the latest timestamp; `None` if no event has a value.

    If several events have the latest timestamp, the result is the value that comes last in the fixed order of
    values; see `amadou_plugins.aggregates`.

    :param of: the value; events in which this value is `None` or NaN are skipped
    """

    _beats = gt
