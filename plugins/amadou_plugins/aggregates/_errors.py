from typing import Any

from amadou.errors import AmadouError, error_class
from amadou.text import shown_value


@error_class
class AggregateError(AmadouError):
    """An aggregate cannot be created, or an operation on an aggregate failed.

    :param aggregate: `repr` or class name of the aggregate
    :param why: the problem, and advice
    """

    aggregate: str
    why: str

    def _message(self) -> str:
        return f"{self.aggregate} {self.why}"


class NotAnAggregateError(AggregateError, TypeError):
    """A value is neither an aggregate nor a mapping of names to aggregates.

    :param aggregate: the value or name that was rejected, as text
    :param why: the problem, and advice
    """


class MissingFieldError(AggregateError):
    """An event's value does not have a field that an aggregate reads.

    :param aggregate: `repr` of the aggregate
    :param field: the missing field
    :param type_: name of the value's type
    :param fields: fields that the value has
    """

    def __init__(self, aggregate: str, field: str, type_: str, fields: tuple[str, ...]) -> None:
        self.field = field
        self.type = type_
        self.fields = fields
        there = f"the value's fields are {', '.join(fields)}" if fields else "the value has no fields"
        super().__init__(
            aggregate,
            f"found no field {field!r} in a value of type {type_}: {there}. Correct the name, or pass a function of "
            "the event that returns None for a missing value",
        )


class ValueKindError(AggregateError):
    """A value is of a kind that the aggregate does not accept.

    :param aggregate: `repr` of the aggregate
    :param value: the value
    :param takes: kinds that the aggregate accepts
    """

    def __init__(self, aggregate: str, value: Any, takes: str) -> None:
        self.value = value
        self.takes = takes
        super().__init__(aggregate, f"got {shown_value(value, 200)} ({type(value).__name__}), but accepts only {takes}")
