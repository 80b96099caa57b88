from typing import Any

from amadou import AmadouError
from amadou.text import shown_value


class AggregateError(AmadouError):
    """An aggregate cannot be made, or cannot go on.

    :param aggregate: the aggregate, as its `repr`
    :param why: what is wrong, and what to do
    """

    def __init__(self, aggregate: str, why: str) -> None:
        self.aggregate = aggregate
        self.why = why
        super().__init__(f"{aggregate} {why}")


class NotAnAggregateError(AggregateError, TypeError):
    """Something was given as an aggregate, or as a mapping of names to aggregates, and is none.

    :param aggregate: what was given
    :param why: what is wrong, and what to do
    """


class MissingFieldError(AggregateError):
    """An event's value has no such field.

    :param aggregate: the aggregate, as its `repr`
    :param field: the field that it asks for
    :param type_: the name of the value's type
    :param fields: the fields that the value has
    """

    def __init__(self, aggregate: str, field: str, type_: str, fields: tuple[str, ...]) -> None:
        self.field = field
        self.type = type_
        self.fields = fields
        there = f"its fields are {', '.join(fields)}" if fields else "it has no fields"
        super().__init__(
            aggregate,
            f"found no field {field!r} in a value of type {type_}: {there}. Correct the name, or give a function of "
            "the event that returns None where there is nothing",
        )


class ValueKindError(AggregateError):
    """A value is of a kind that the aggregate does not take.

    :param aggregate: the aggregate, as its `repr`
    :param value: the value
    :param takes: what the aggregate takes
    """

    def __init__(self, aggregate: str, value: Any, takes: str) -> None:
        self.value = value
        self.takes = takes
        super().__init__(aggregate, f"cannot take {shown_value(value, 200)} ({type(value).__name__}): it takes {takes}")
