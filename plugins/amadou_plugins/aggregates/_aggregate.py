from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeVar

from amadou import EventColumns, KeyedEvent
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
    """Aggregates the events of a window, or of a key.

    Events are added to an accumulator, which is kept between batches. An accumulator may hold whatever an event's value
    may: `None`, numbers, texts, bytes, lists, dicts with keys of text or integers, and the like. An equal copy may
    replace it at any time. The aggregate itself holds only its settings, and does not change.

    An aggregate for the longest text::

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
        """Reset the column methods of a class that overrides methods for one accumulator: inherited column methods
        would ignore the overrides, so the class gets the general form.
        """
        super().__init_subclass__()
        if not _COLUMN_METHODS.isdisjoint(vars(cls)) or _METHODS.isdisjoint(vars(cls)):
            return
        for name in _COLUMN_METHODS:
            setattr(cls, name, vars(Aggregate)[name])
        if "kind" not in vars(cls):
            cls.has_kinds = False

    mergeable: bool = True
    """True if accumulators can be merged, as windows that grow together need."""

    ordered: bool = False
    """True if the result depends on the order of the events in the stream."""

    has_kinds: bool = False
    """True if values of different kinds cannot be merged; `kind` then returns the kind."""

    @property
    def fields(self) -> frozenset[str] | None:
        """Fields of an event's value that are read; `None` where this cannot be known."""
        return None

    @abstractmethod
    def create(self) -> A:
        """Return a new accumulator, of no events."""

    @abstractmethod
    def add(self, accumulator: A, event: KeyedEvent[Any]) -> A:
        """Add an event and return a new accumulator, or the same one, changed."""

    def add_all(self, accumulator: A, events: Sequence[KeyedEvent[Any]]) -> A:
        """Add events, with the same result as `add` for each; override it where this can be faster."""
        for event in events:
            accumulator = self.add(accumulator, event)
        return accumulator

    def merge(self, left: A, right: A) -> A:
        """Return the accumulator of the events of both; may reuse `left`, must not change `right`.

        Where the aggregate is `ordered`, the events of `left` come first.
        """
        hint = ": define merge, or say mergeable = False" if self.mergeable else ""
        raise AggregateError(repr(self), f"cannot merge accumulators{hint}")

    def kind(self, accumulator: A) -> Any:
        """Return the kind of an accumulator's values, as a text or as a dict of kinds by name; `None` where it has
        none. Accumulators of two kinds cannot be merged: a window refuses the event that brings the second kind.
        """
        return None

    def are_alike(self, columns: Sequence[Any]) -> bool:
        """Return true if all accumulators of some columns are of at most one kind."""
        if not self.has_kinds:
            return True
        return are_alike(self.kind(accumulator) for column in columns for accumulator in self.accumulators(column))

    @abstractmethod
    def result(self, accumulator: A) -> R:
        """Return the result of the events so far; more events can be added afterwards."""

    # Windows keep many accumulators as a column: a list, unless the aggregate has a faster form.

    @property
    def layout(self) -> Any:
        """Form of a column: `None` for a list of accumulators, a name for the aggregate's own form."""
        kind: Any = type(self)
        return None if kind.accumulators is Aggregate.accumulators else kind.accumulators.__qualname__

    def column(self, accumulators: Iterable[A]) -> Any:
        """Return accumulators as a column that plain msgpack carries."""
        return list(accumulators)

    def accumulators(self, column: Any) -> list[A]:
        """Return the accumulators of a column."""
        return list(column)

    def extend(self, column: Any, number: int) -> None:
        """Append a number of new accumulators to a column."""
        column.extend(self.create() for _ in range(number))

    def taken(self, column: Any, at: Iterable[int]) -> Any:
        """Return a column of the accumulators at some positions of another column, which is not used again."""
        return list(map(column.__getitem__, at))

    def add_each(self, column: Any, at: Sequence[int], events: EventColumns) -> None:
        """Add each event to the accumulator at its position, with the same result as `add` for each."""
        grouped: dict[int, list[KeyedEvent[Any]]] = {}
        for position, event in zip(at, events.each(), strict=True):
            grouped.setdefault(position, []).append(event)
        for position, some in grouped.items():
            column[position] = self.add_all(column[position], some)

    def merge_each(self, column: Any, at: Sequence[int], other: Any) -> None:
        """Merge each accumulator of another column into the one at its position."""
        for position, accumulator in zip(at, other, strict=True):
            column[position] = self.merge(column[position], accumulator)

    def results(self, column: Any) -> list[R]:
        """Return the result of each accumulator."""
        return list(map(self.result, column))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(settings(self))})"

    def structure(self) -> Any:
        """Return the aggregate's identity in a checkpoint: a text, or texts by name; names may be added and removed."""
        return shown_aggregate(self)
