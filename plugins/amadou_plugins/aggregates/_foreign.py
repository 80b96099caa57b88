from typing import Any, Protocol, TypeVar

import attrs

from amadou import KeyedEvent
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._shown import shown_aggregate

R_co = TypeVar("R_co", covariant=True)


class AggregateLike(Protocol[R_co]):
    """A protocol for type checkers: an aggregate of any class, whose results have the type `R_co`."""

    def create(self) -> Any: ...

    def add(self, accumulator: Any, event: KeyedEvent[Any], /) -> Any: ...

    def result(self, accumulator: Any, /) -> R_co: ...


@attrs.frozen(repr=False)
class Foreign(Aggregate[Any, Any]):
    """Adapts an aggregate whose class does not inherit from `Aggregate`.

    :param of: object that has the methods of an aggregate; see `missing_methods`
    """

    of: Any
    mergeable: bool = attrs.field(
        init=False, default=attrs.Factory(lambda self: is_mergeable(self.of), takes_self=True)
    )
    ordered: bool = attrs.field(
        init=False, default=attrs.Factory(lambda self: bool(getattr(self.of, "ordered", False)), takes_self=True)
    )

    def create(self) -> Any:
        return self.of.create()

    def add(self, accumulator: Any, event: KeyedEvent[Any]) -> Any:
        return self.of.add(accumulator, event)

    def merge(self, left: Any, right: Any) -> Any:
        return self.of.merge(left, right) if self.mergeable else super().merge(left, right)

    def result(self, accumulator: Any) -> Any:
        return self.of.result(accumulator)

    def structure(self) -> Any:
        return shown_aggregate(self.of)

    def __repr__(self) -> str:
        kind: Any = type(self.of)
        return f"{kind.__name__}()" if kind.__repr__ is object.__repr__ else repr(self.of)


def is_mergeable(value: Any) -> bool:
    return bool(getattr(value, "mergeable", True))


def missing_methods(value: Any) -> list[str]:
    """Return the names of the required aggregate methods that an object does not have."""
    names = ["create", "add", *(["merge"] if is_mergeable(value) else []), "result"]
    return [name for name in names if not callable(getattr(value, name, None))]
