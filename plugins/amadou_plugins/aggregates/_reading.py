from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from numbers import Real
from operator import itemgetter
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from amadou import KeyedEvent
from amadou.components import EventColumns
from amadou.fields import fields_of, has_fields
from amadou_plugins.aggregates._aggregate import Aggregate
from amadou_plugins.aggregates._errors import AggregateError, MissingFieldError

A = TypeVar("A")
R = TypeVar("R")

Of: TypeAlias = str | Callable[[KeyedEvent[Any]], Any] | None
Reader: TypeAlias = Callable[[KeyedEvent[Any]], Any]

_NEVER_MISSING: Final = frozenset({int, str, bytes, bool, list, dict, tuple})


def reader(aggregate: Any, of: Of, keyword: str = "of") -> Reader:
    """Return a function that reads an aggregate's value from an event.

    :param of: a field name, a function of the event, or `None` for the event's value
    :param keyword: name of the aggregate's parameter, for error messages
    :raises AggregateError: `of` is none of these
    """
    if of is None:
        return itemgetter(KeyedEvent._fields.index("value"))
    if isinstance(of, str):
        return partial(_read_field, of, aggregate)
    if callable(of):
        return of
    raise AggregateError(
        type(aggregate).__name__, f"cannot read {keyword}={of!r}: pass a field name or a function of the event"
    )


@attrs.frozen(repr=False)
class OneValue(Aggregate[A, R]):
    """The base class of aggregates that read one value from each event."""

    of: Of = None
    read: Reader = attrs.field(
        init=False, eq=False, default=attrs.Factory(lambda self: reader(self, self.of), takes_self=True)
    )

    @property
    def fields(self) -> frozenset[str] | None:
        return fields_read(self.of)

    def read_each(self, events: EventColumns) -> list[Any]:
        """Return the result of `read` for each event."""
        name = self.of
        if name is None:
            return events.values
        if isinstance(name, str) and set(map(type, events.values)) == {dict}:
            with suppress(KeyError):
                return [value[name] for value in events.values]
        return list(map(self.read, events.each()))

    def present(self, events: Sequence[KeyedEvent[Any]]) -> list[Any]:
        return [value for value in map(self.read, events) if not is_missing(value)]


def fields_read(*read: Of) -> frozenset[str] | None:
    """Return the names of the fields that an aggregate reads; `None` if a value is not selected by a field name."""
    names = [of for of in read if isinstance(of, str)]
    return frozenset(names) if len(names) == len(read) else None


def is_missing(value: Any) -> bool:
    if value is None:
        return True
    kind = type(value)
    if kind is float:
        return value != value  # type: ignore[no-any-return]
    if kind in _NEVER_MISSING:
        return False
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, (Real, datetime)) and value != value  # NaN in numpy; NaT in pandas, a datetime


def _read_field(name: str, aggregate: Any, event: KeyedEvent[Any]) -> Any:
    value = event[2]
    try:
        if type(value) is dict or isinstance(value, Mapping):
            return value[name]
        return getattr(value, name)
    except (KeyError, AttributeError):
        fields = _fields(value)
        if name in fields:
            raise  # the error comes from inside a property
        raise MissingFieldError(repr(aggregate), name, type(value).__name__, fields) from None


def _fields(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(map(str, value))
    kind = type(value)
    if has_fields(kind):
        return tuple(field.name for field in fields_of(kind))
    return tuple(map(str, getattr(value, "__dict__", ())))
