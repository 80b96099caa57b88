from collections.abc import Sequence
from operator import gt, lt
from typing import Any, ClassVar

import attrs

from amadou import KeyedEvent
from amadou.components import EventColumns
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._kinds import are_alike
from amadou_plugins.aggregates._order import comparable, kind_name, rank
from amadou_plugins.aggregates._reading import Of, OneValue, Reader, fields_read, is_missing, reader


@attrs.frozen(repr=False)
class _Extreme(OneValue[Any, Any]):
    has_kinds = True
    keeps_values = False
    _beats: ClassVar[Any]

    def create(self) -> Any:
        return None

    def add(self, accumulator: Any, event: KeyedEvent[Any]) -> Any:
        return self._better(accumulator, self.read(event))

    def add_each(self, column: list[Any], at: Sequence[int], events: EventColumns) -> None:
        for position, value in zip(at, self.read_each(events), strict=True):
            column[position] = self._better(column[position], value)

    def merge(self, left: Any, right: Any) -> Any:
        return self._better(left, right)

    def kind(self, accumulator: Any) -> str | None:
        return kind_name(accumulator)

    def are_alike(self, columns: Sequence[list[Any]]) -> bool:
        if len(set[type]().union(*(map(type, column) for column in columns)) - {type(None)}) < 2:
            return True
        some = {type(value): value for column in columns for value in column}  # a value's type determines its kind
        return are_alike(map(kind_name, some.values()))

    def result(self, accumulator: Any) -> Any:
        return accumulator

    def _better(self, best: Any, value: Any) -> Any:
        kind = type(value)
        if kind is not type(best) or (kind is not float and kind is not int):
            if is_missing(value):
                return best
            value = comparable(self, value, best)
            if best is None:
                return value
        if self._beats(value, best):
            return value
        if value == best and self._beats(rank(value), rank(best)):
            return value
        return best


@attrs.frozen(repr=False)
class Min(_Extreme):
    """The smallest value; `None` if there are no values. If equal values of different types, such as 1 and 1.0, are the
    smallest, the result is the one that comes first in the fixed order of values; see `amadou_plugins.aggregates`.

    :param of: values of one kind: numbers, strings, bytes, aware datetimes, dates or `timedelta`; `None` and NaN are
        skipped
    """

    _beats = lt


@attrs.frozen(repr=False)
class Max(_Extreme):
    """The largest value; `None` if there are no values. If equal values of different types, such as 1 and 1.0, are the
    largest, the result is the one that comes last in the fixed order of values; see `amadou_plugins.aggregates`.

    :param of: values as for `Min`; `None` and NaN are skipped
    """

    _beats = gt


@attrs.frozen(repr=False)
class _ArgExtreme(Aggregate[list[Any] | None, Any]):
    """The accumulator is `[by, timestamp, of]` for the best event, or `None` if there is no event yet."""

    has_kinds = True
    _beats: ClassVar[Any]

    of: Of
    by: Of
    read_of: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.of), takes_self=True)
    )
    read_by: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.by, "by"), takes_self=True)
    )

    @property
    def fields(self) -> frozenset[str] | None:
        return fields_read(self.of, self.by)

    def create(self) -> list[Any] | None:
        return None

    def add(self, accumulator: list[Any] | None, event: KeyedEvent[Any]) -> list[Any] | None:
        of, by = self.read_of(event), self.read_by(event)
        if is_missing(of) or is_missing(by):
            return accumulator
        by = comparable(self, by, None if accumulator is None else accumulator[0])
        return self._better(accumulator, [by, event.timestamp, of])

    def merge(self, left: list[Any] | None, right: list[Any] | None) -> list[Any] | None:
        if right is not None and left is not None:
            comparable(self, right[0], left[0])
        return left if right is None else self._better(left, right)

    def kind(self, accumulator: list[Any] | None) -> str | None:
        return None if accumulator is None else kind_name(accumulator[0])

    def result(self, accumulator: list[Any] | None) -> Any:
        return None if accumulator is None else accumulator[2]

    def _better(self, best: list[Any] | None, entry: list[Any]) -> list[Any]:
        if best is None or self._beats(entry[0], best[0]):
            return entry
        if entry[0] == best[0] and (entry[1] < best[1] or (entry[1] == best[1] and rank(entry[2]) < rank(best[2]))):
            return entry
        return best


@attrs.frozen(repr=False)
class ArgMin(_ArgExtreme):
    """The `of` value of the event with the smallest `by` value; `None` if there is no such event.

    If several events have the smallest `by` value, the earliest event wins. If several of these events are equally
    early, the result is the `of` value that comes first in the fixed order of values; see
    `amadou_plugins.aggregates`.

    :param of: the value to return; events for which this value is `None` or NaN are skipped
    :param by: the value to compare, as for `Min`; events for which this value is `None` or NaN are skipped
    """

    _beats = lt


@attrs.frozen(repr=False)
class ArgMax(_ArgExtreme):
    """The `of` value of the event with the largest `by` value; `None` if there is no such event.

    If several events have the largest `by` value, the earliest event wins. If several of these events are equally
    early, the result is the `of` value that comes first in the fixed order of values; see
    `amadou_plugins.aggregates`.

    :param of: the value to return; events for which this value is `None` or NaN are skipped
    :param by: the value to compare, as for `Min`; events for which this value is `None` or NaN are skipped
    """

    _beats = gt
