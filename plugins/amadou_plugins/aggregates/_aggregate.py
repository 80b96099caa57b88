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
    """Sums up the events of a window, or of a key.

    The events are taken into an accumulator, which is kept between batches: it holds what an event's value may hold,
    such as `None`, numbers, texts, bytes, lists, and dicts with keys of text or integers. It may come back as an equal
    one at any time. An aggregate itself holds its settings only, and does not change.

    One for the longest text::

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
        """What works on columns goes by the methods for one accumulator that are defined beside it: a class with other
        ones of these has the general form.
        """
        super().__init_subclass__()
        if not _COLUMN_METHODS.isdisjoint(vars(cls)) or _METHODS.isdisjoint(vars(cls)):
            return
        for name in _COLUMN_METHODS:
            setattr(cls, name, vars(Aggregate)[name])
        if "kind" not in vars(cls):
            cls.has_kinds = False

    mergeable: bool = True
    """Whether accumulators can be merged, as windows that grow together need it."""

    ordered: bool = False
    """Whether the result depends on the order of the events in the stream."""

    has_kinds: bool = False
    """Whether values of several kinds cannot be merged; then `kind` tells them apart."""

    @property
    def fields(self) -> frozenset[str] | None:
        """The fields of an event's value that are read; `None` where this cannot be known."""
        return None

    @abstractmethod
    def create(self) -> A:
        """A new accumulator, of no events."""

    @abstractmethod
    def add(self, accumulator: A, event: KeyedEvent[Any]) -> A:
        """Takes in an event: gives a new accumulator, or the same one, changed."""

    def add_all(self, accumulator: A, events: Sequence[KeyedEvent[Any]]) -> A:
        """Takes in events, to the same result as `add` for each; define it where this can be faster."""
        for event in events:
            accumulator = self.add(accumulator, event)
        return accumulator

    def merge(self, left: A, right: A) -> A:
        """The accumulator of what is in both; may use up `left`, must not change `right`.

        Where the aggregate is `ordered`, the events of `left` come first.
        """
        hint = ": define merge, or say mergeable = False" if self.mergeable else ""
        raise AggregateError(repr(self), f"cannot merge accumulators{hint}")

    def kind(self, accumulator: A) -> Any:
        """The kind of the values that an accumulator has, as a text, or as a dict of such by names; `None` where there
        is none. Accumulators of two kinds cannot be merged: a window refuses the event that brings the second kind.
        """
        return None

    def are_alike(self, columns: Sequence[Any]) -> bool:
        """Whether all accumulators of some columns are of one kind at most."""
        if not self.has_kinds:
            return True
        return are_alike(self.kind(accumulator) for column in columns for accumulator in self.accumulators(column))

    @abstractmethod
    def result(self, accumulator: A) -> R:
        """What the events sum up to; the accumulator can be added to afterwards."""

    # Many accumulators at once, which windows keep as a column: a list, where an aggregate does not know a faster form.

    @property
    def layout(self) -> Any:
        """The form of a column: `None` for a list of accumulators, a name for one that the aggregate makes itself."""
        kind: Any = type(self)
        return None if kind.accumulators is Aggregate.accumulators else kind.accumulators.__qualname__

    def column(self, accumulators: Iterable[A]) -> Any:
        """Accumulators as a column: what plain msgpack carries."""
        return list(accumulators)

    def accumulators(self, column: Any) -> list[A]:
        """The accumulators of a column."""
        return list(column)

    def extend(self, column: Any, number: int) -> None:
        """Put so many new accumulators at a column's end."""
        column.extend(self.create() for _ in range(number))

    def taken(self, column: Any, at: Iterable[int]) -> Any:
        """A column of the accumulators at some positions of another, which is not used again."""
        return list(map(column.__getitem__, at))

    def add_each(self, column: Any, at: Sequence[int], events: EventColumns) -> None:
        """Take each event into the accumulator at a position of its own, to the same result as `add` for each."""
        grouped: dict[int, list[KeyedEvent[Any]]] = {}
        for position, event in zip(at, events.each(), strict=True):
            grouped.setdefault(position, []).append(event)
        for position, some in grouped.items():
            column[position] = self.add_all(column[position], some)

    def merge_each(self, column: Any, at: Sequence[int], other: Any) -> None:
        """Merge each accumulator of another column into the one at a position of its own."""
        for position, accumulator in zip(at, other, strict=True):
            column[position] = self.merge(column[position], accumulator)

    def results(self, column: Any) -> list[R]:
        """The result of each accumulator."""
        return list(map(self.result, column))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(settings(self))})"

    def structure(self) -> Any:
        """What a checkpoint knows the aggregate by: a text, or texts by name, of which some may come and others go."""
        return shown_aggregate(self)
