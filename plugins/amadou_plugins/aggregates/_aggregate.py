from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from amadou import KeyedEvent
from amadou.components import EventColumns, Plain
from amadou_plugins.aggregates._errors import AggregateError
from amadou_plugins.aggregates._kinds import are_alike
from amadou_plugins.aggregates._shown import settings, shown_aggregate

A = TypeVar("A")
R = TypeVar("R")


_METHODS = frozenset({"create", "add", "merge", "result"})
_COLUMN_METHODS = frozenset(
    {"column", "accumulators", "extend", "taken", "add_each", "merge_each", "results", "are_alike"}
)


class Aggregate(ABC, Generic[A, R]):
    """Aggregates the events in a window, or all events of a key.

    amadou adds events to an accumulator, and stores the accumulator between batches. An accumulator can contain
    anything that an event's value can contain: `None`, numbers, strings, bytes, lists, dicts with string or integer
    keys, and so on. amadou can replace the accumulator with an equal copy at any time. The `Aggregate` object itself
    contains only settings, and does not change.

    An aggregate that returns the longest string::

        class Longest(Aggregate[str, str]):
            def create(self):
                return ""

            def add(self, accumulator, event):
                return max(accumulator, event.value, key=lambda text: (len(text), text))

            def merge(self, left, right):
                return max(left, right, key=lambda text: (len(text), text))

            def result(self, accumulator):
                return accumulator
    """

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """Reset the column methods of a class that overrides `create`, `add`, `merge` or `result`, but no column
        method. Inherited column methods would ignore the override, so the class gets the column methods of `Aggregate`.
        If the class does not define `kind`, `has_kinds` is also reset to `False`. A class that overrides `add` gets
        `keeps_values = True`.
        """
        super().__init_subclass__()
        if "add" in vars(cls) and "keeps_values" not in vars(cls):
            cls.keeps_values = True
        if not _COLUMN_METHODS.isdisjoint(vars(cls)) or _METHODS.isdisjoint(vars(cls)):
            return
        for name in _COLUMN_METHODS:
            setattr(cls, name, vars(Aggregate)[name])
        if "kind" not in vars(cls):
            cls.has_kinds = False

    mergeable: bool = True
    """`True` if accumulators can be merged, as when two session windows become one."""

    ordered: bool = False
    """`True` if the result depends on the order of the events in the stream."""

    has_kinds: bool = False
    """`True` if only accumulators with values of the same kind can be merged; `kind` then returns the kind."""

    keeps_values: bool = True
    """`True` if an accumulator can contain an event's value or a part of it. A window then adds a copy of the event, so
    that a callback that changes the value does not change the window. `False` saves the copy."""

    @property
    def fields(self) -> frozenset[str] | None:
        """Names of the fields that the aggregate reads from an event's value; `None` if it may read everything."""
        return None

    @abstractmethod
    def create(self) -> A:
        """Return a new, empty accumulator."""

    @abstractmethod
    def add(self, accumulator: A, event: KeyedEvent[Any]) -> A:
        """Add an event to an accumulator. Return the changed accumulator, or a new one."""

    def add_all(self, accumulator: A, events: Sequence[KeyedEvent[Any]]) -> A:
        """Add several events to an accumulator, with the same result as calling `add` for each event. Override this
        method if events can be added faster in bulk.
        """
        for event in events:
            accumulator = self.add(accumulator, event)
        return accumulator

    def merge(self, left: A, right: A) -> A:
        """Return an accumulator with the events from two accumulators. The method may change `left`, but must not
        change `right`.

        If the aggregate is `ordered`, the events in `left` precede the events in `right`.
        """
        hint = ": define merge, or set mergeable = False" if self.mergeable else ""
        raise AggregateError(repr(self), f"cannot merge accumulators{hint}")

    def kind(self, accumulator: A) -> Any:
        """Return the kind of an accumulator's values, as a string or, for a mapping of aggregates, as a dict of kinds
        by name. Return `None` if the accumulator has no kind. Accumulators of different kinds cannot be merged. A
        window rejects an event that would add a value of a second kind.
        """
        return None

    def are_alike(self, columns: Sequence[Any]) -> bool:
        """Return `True` if all accumulators in these columns that have a kind have the same kind."""
        if not self.has_kinds:
            return True
        return are_alike(self.kind(accumulator) for column in columns for accumulator in self.accumulators(column))

    @abstractmethod
    def result(self, accumulator: A) -> R:
        """Return the result for the events in an accumulator. Events can be added to the accumulator afterwards."""

    # Windows store many accumulators as a column. By default, a column is a list; an aggregate can define a faster
    # layout.

    @property
    def layout(self) -> Plain:
        """Name of a column's layout or, for a mapping of aggregates, a dict of layouts by name; `None` if a column is a
        list of accumulators.
        """
        kind: Any = type(self)
        return None if kind.accumulators is Aggregate.accumulators else kind.accumulators.__qualname__

    def column(self, accumulators: Iterable[A]) -> Any:
        """Return accumulators as a column that plain msgpack can encode."""
        return list(accumulators)

    def accumulators(self, column: Any) -> list[A]:
        """Return the accumulators in a column."""
        return list(column)

    def extend(self, column: Any, number: int) -> None:
        """Append `number` new accumulators to a column."""
        column.extend(self.create() for _ in range(number))

    def taken(self, column: Any, at: Iterable[int]) -> Any:
        """Return a column with the accumulators at the given positions of a column. The caller does not use the
        original column again.
        """
        return list(map(column.__getitem__, at))

    def add_each(self, column: Any, at: Sequence[int], events: EventColumns) -> None:
        """Add each event to an accumulator in a column, with the same result as calling `add` for each event.

        :param at: for each event, the position of its accumulator
        """
        grouped: dict[int, list[KeyedEvent[Any]]] = {}
        for position, event in zip(at, events.each(), strict=True):
            grouped.setdefault(position, []).append(event)
        for position, some in grouped.items():
            column[position] = self.add_all(column[position], some)

    def merge_each(self, column: Any, at: Sequence[int], other: Any) -> None:
        """Merge each accumulator in another column into an accumulator in this column.

        :param at: for each accumulator in `other`, the position of the accumulator in `column`
        """
        for position, accumulator in zip(at, other, strict=True):
            column[position] = self.merge(column[position], accumulator)

    def results(self, column: Any) -> list[R]:
        """Return the result of each accumulator in a column."""
        return list(map(self.result, column))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(settings(self))})"

    def structure(self) -> Any:
        """Return the aggregate's identity in checkpoints: a string or, for a mapping of aggregates, a dict of
        identities by name. Entries can be added to this dict, or removed from it, between runs.
        """
        return shown_aggregate(self)
