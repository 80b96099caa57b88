from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

import attrs

from amadou import KeyedEvent
from amadou.components import EventColumns, Plain
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._errors import AggregateError, NotAnAggregateError
from amadou_plugins.aggregates._foreign import Foreign, missing_methods
from amadou_plugins.aggregates._totals import Sum

Accumulators: TypeAlias = dict[str, Any]


def aggregate_of(value: Any) -> Aggregate[Any, Any]:
    """Convert an aggregate, or a mapping of names to aggregates, into an `Aggregate`.

    Any object with the methods of an aggregate is accepted, regardless of its class.

    :raises NotAnAggregateError: the value is neither an aggregate nor a valid mapping of names to aggregates
    """
    if isinstance(value, Aggregate):
        return value
    if isinstance(value, Mapping):
        return CompositeAggregate(value)
    missing = missing_methods(value)
    if not missing:
        if isinstance(value, type):
            name = value.__name__
            raise NotAnAggregateError(name, f"is a class: pass an instance, such as {name}()")
        return Foreign(value)
    given = f"{value!r} ({type(value).__name__})"
    if {"create", "add", "result"}.issubset(missing):
        raise NotAnAggregateError(
            given, "is not an aggregate: pass one, such as Count(), or a mapping of names to aggregates"
        )
    methods = [f"{name} (or set mergeable = False)" if name == "merge" else name for name in missing]
    raise NotAnAggregateError(
        given, f"is not an aggregate: define {' and '.join(methods)} (see the base class Aggregate)"
    )


def _aggregates(value: Any) -> dict[str, Aggregate[Any, Any]]:
    if not isinstance(value, Mapping):
        raise NotAnAggregateError(f"{value!r} ({type(value).__name__})", "is not a mapping of names to aggregates")
    if not value:
        raise NotAnAggregateError("an empty mapping", "of names to aggregates has no results: add an aggregate")
    for name in value:
        if not isinstance(name, str):
            raise NotAnAggregateError(f"the name {name!r} ({type(name).__name__})", "of an aggregate must be a string")
    return {name: aggregate_of(part) for name, part in value.items()}


def accumulators_of(aggregate: Aggregate[Any, Any], layout: Any, column: Any, number: int) -> list[Any]:
    """Return the accumulators in a stored column.

    :param aggregate: aggregate that continues from the accumulators; the names in this aggregate can differ from those
        in the column
    :param layout: `layout` of the aggregate that stored the column
    :param number: number of accumulators
    :raises AggregateError: only the class of the aggregate that stored the column can read it, and `aggregate` has a
        different class
    """
    if layout is None:
        return list(column)
    if isinstance(layout, dict):
        parts = aggregate.aggregates if isinstance(aggregate, CompositeAggregate) else {}
        columns = {
            name: accumulators_of(parts.get(name, aggregate), inner, column[name], number)
            for name, inner in layout.items()
        }
        return [{name: found[at] for name, found in columns.items()} for at in range(number)]
    for known in (aggregate, Sum()):
        if known.layout == layout:
            return known.accumulators(column)
    raise AggregateError(
        repr(aggregate), f"cannot read accumulators in the layout {layout}: use the aggregate class that stored them"
    )


def forget_removed(aggregate: Aggregate[Any, Any], accumulator: Any) -> bool:
    """Remove the accumulators of removed aggregates from a composite accumulator. An aggregate that is later added
    under the same name then starts empty.

    :returns: `True` if an accumulator was removed, including from a nested composite
    """
    if not isinstance(aggregate, CompositeAggregate) or not isinstance(accumulator, dict):
        return False
    removed = accumulator.keys() - aggregate.aggregates.keys()
    for name in removed:
        del accumulator[name]
    forgotten = [forget_removed(aggregate.aggregates[name], part) for name, part in accumulator.items()]
    return bool(removed) or any(forgotten)


@cache
def _dicts(*names: str) -> Callable[[Iterable[tuple[Any, ...]]], list[dict[str, Any]]]:
    """Return a function that converts rows into dicts with these keys. The function is three times as fast as calling
    `dict(zip(…))` for each row.
    """
    items = ", ".join(f"{name!r}: row[{position}]" for position, name in enumerate(names))
    return eval(f"lambda rows: [{{{items}}} for row in rows]")  # type: ignore[no-any-return]


@attrs.frozen(repr=False)
class CompositeAggregate(Aggregate[Accumulators, dict[str, Any]]):
    """Several aggregates of the same events; the result is a dict that maps the aggregates' names to their results.

    The composite is mergeable if all its aggregates are mergeable, and ordered if any of them is ordered. The state of
    each aggregate is stored under its name: an aggregate with a new name starts empty, and the state of a removed
    aggregate is dropped.

    :param aggregates: mapping of names to aggregates or to nested mappings
    :raises NotAnAggregateError: the mapping is empty, a name is not a string, or a value is neither an aggregate nor a
        mapping
    """

    aggregates: Mapping[str, Aggregate[Any, Any]] = attrs.field(converter=_aggregates)
    mergeable: bool = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: all(part.mergeable for part in self.aggregates.values()), takes_self=True),
    )
    ordered: bool = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: any(part.ordered for part in self.aggregates.values()), takes_self=True),
    )

    has_kinds: bool = attrs.field(
        init=False,
        default=attrs.Factory(lambda self: any(part.has_kinds for part in self.aggregates.values()), takes_self=True),
    )
    keeps_values: bool = attrs.field(
        init=False,
        default=attrs.Factory(
            lambda self: any(part.keeps_values for part in self.aggregates.values()), takes_self=True
        ),
    )

    @property
    def fields(self) -> frozenset[str] | None:
        read = [part.fields for part in self.aggregates.values()]
        return None if None in read else frozenset[str]().union(*filter(None, read))

    def structure(self) -> Any:
        return {name: self.aggregates[name].structure() for name in sorted(self.aggregates)}

    def create(self) -> Accumulators:
        return {name: part.create() for name, part in self.aggregates.items()}

    def add(self, accumulator: Accumulators, event: KeyedEvent[Any]) -> Accumulators:
        self._fit(accumulator)
        for name, part in self.aggregates.items():
            accumulator[name] = part.add(accumulator[name], event)
        return accumulator

    def add_all(self, accumulator: Accumulators, events: Sequence[KeyedEvent[Any]]) -> Accumulators:
        if len(events) == 1:
            return self.add(accumulator, events[0])
        self._fit(accumulator)
        for name, part in self.aggregates.items():
            accumulator[name] = part.add_all(accumulator[name], events)
        return accumulator

    def merge(self, left: Accumulators, right: Accumulators) -> Accumulators:
        if not self.mergeable:
            stuck = ", ".join(name for name, part in self.aggregates.items() if not part.mergeable)
            raise AggregateError(repr(self), f"cannot merge accumulators of {stuck}: check mergeable first")
        self._fit(left)
        for name, part in self.aggregates.items():
            if name in right:
                left[name] = part.merge(left[name], right[name])
        return left

    def kind(self, accumulator: Accumulators) -> dict[str, Any]:
        found = {
            name: part.kind(accumulator[name])
            for name, part in self.aggregates.items()
            if part.has_kinds and name in accumulator
        }
        return {name: kind for name, kind in found.items() if kind is not None}

    def are_alike(self, columns: Sequence[dict[str, Any]]) -> bool:
        return all(part.are_alike([column[name] for column in columns]) for name, part in self.aggregates.items())

    def result(self, accumulator: Accumulators) -> dict[str, Any]:
        self._fit(accumulator)
        return {name: part.result(accumulator[name]) for name, part in self.aggregates.items()}

    def __repr__(self) -> str:
        return f"CompositeAggregate({{{', '.join(f'{name!r}: {part!r}' for name, part in self.aggregates.items())}}})"

    # A column is a dict with one column per name: msgpack encodes such a dict twice as fast as a list of dicts.

    @property
    def layout(self) -> Plain:
        return {name: part.layout for name, part in self.aggregates.items()}

    def column(self, accumulators: Iterable[Accumulators]) -> dict[str, Any]:
        given = list(accumulators)
        for accumulator in given:
            self._fit(accumulator)
        return {name: part.column(accumulator[name] for accumulator in given) for name, part in self.aggregates.items()}

    def accumulators(self, column: dict[str, Any]) -> list[Accumulators]:
        parts = [part.accumulators(column[name]) for name, part in self.aggregates.items()]
        return [dict(zip(self.aggregates, row, strict=True)) for row in zip(*parts, strict=True)]

    def extend(self, column: dict[str, Any], number: int) -> None:
        for name, part in self.aggregates.items():
            part.extend(column[name], number)

    def taken(self, column: dict[str, Any], at: Iterable[int]) -> dict[str, Any]:
        at = list(at)
        return {name: part.taken(column[name], at) for name, part in self.aggregates.items()}

    def add_each(self, column: dict[str, Any], at: Sequence[int], events: EventColumns) -> None:
        for name, part in self.aggregates.items():
            part.add_each(column[name], at, events)

    def merge_each(self, column: dict[str, Any], at: Sequence[int], other: dict[str, Any]) -> None:
        for name, part in self.aggregates.items():
            part.merge_each(column[name], at, other[name])

    def results(self, column: dict[str, Any]) -> list[dict[str, Any]]:
        parts = [part.results(column[name]) for name, part in self.aggregates.items()]
        return _dicts(*self.aggregates)(zip(*parts, strict=True))

    def _fit(self, accumulator: Accumulators) -> None:
        if accumulator.keys() != self.aggregates.keys():
            for name in accumulator.keys() - self.aggregates.keys():
                del accumulator[name]
            for name in self.aggregates.keys() - accumulator.keys():
                accumulator[name] = self.aggregates[name].create()
