"""The columns of a PostgreSQL table, and what of a port's type goes into them."""

from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict
from uuid import UUID

import attrs

from amadou.fields import field_types, is_named_tuple

_COLUMNS = """
SELECT
    a.attname,
    format_type(a.atttypid, a.atttypmod),
    format_type(CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END, NULL),
    t.typcategory,
    e.typcategory,
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '',
    a.attgenerated <> '' OR a.attidentity = 'a'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e ON e.oid = t.typelem
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
_FRACTIONS = ("numeric", "real", "double precision")
_POINTS = ("timestamp with time zone", "timestamp without time zone")
_SCALARS: dict[type, tuple[str, ...]] = {
    bool: ("boolean",),
    int: ("bigint", "integer", "smallint", *_FRACTIONS),
    float: ("double precision", "real", "numeric"),
    Decimal: _FRACTIONS,
    datetime: _POINTS,
    date: ("date", *_POINTS),
    time: ("time without time zone", "time with time zone"),
    timedelta: ("interval", *_FRACTIONS),
    UUID: ("uuid",),
    bytes: ("bytea",),
    str: ("text",),
}
"""The columns that take a type, the best one first; those of text and JSON take each. A class comes before its base."""
_NO_TEXT = "NBA"
"""PostgreSQL's categories of what a text is no sensible form of: numbers, booleans, arrays. Of others, such as dates,
enums and addresses, it may be one.
"""
_ARRAYS = (Sequence, Set)


@attrs.frozen
class Column:
    """A column of a table.

    :param type: as SQL has it
    :param base: the same without length and precision; of a domain, what it is made of
    :param category: PostgreSQL's `typcategory`
    :param element: that of an array's elements
    :param is_required: it cannot be left out
    :param is_generated: it cannot be given
    """

    name: str
    type: str
    base: str
    category: str
    element: str | None
    is_required: bool
    is_generated: bool

    @property
    def read_as(self) -> str:
        """The type that it is read from JSON as."""
        return {"bytea": "text", "timestamp without time zone": "timestamp with time zone"}.get(self.base, self.type)

    @property
    def expression(self) -> str:
        """SQL that makes its value from what was read, ``{}``."""
        return "decode({}, 'base64')" if self.base == "bytea" else "{}"

    def takes(self, type_: Any) -> bool:
        """Whether values of a Python type can go into it, as far as types tell."""
        return _takes(self.base, self.category, self.element, type_)


def columns_of(connection: Any, table: str) -> dict[str, Column]:
    """The columns of a table by name; none where there is no such table.

    :param table: its name, quoted
    """
    return {row[0]: Column(*row) for row in connection.execute(_COLUMNS, (table,))}


def fields_for(type_: Any) -> Mapping[str, Any] | None:
    """The types of the fields of a port's type by name; `None` where it has no fields."""
    class_ = get_origin(type_) or type_
    return get_type_hints(class_) if is_typeddict(class_) else field_types(type_)


def definition(type_: Any) -> str:
    """The SQL type of a column that fits a Python type."""
    kinds = {_sql_type(kind) for kind in _kinds(type_) if kind is not type(None)}
    may_be_none = not {Any, object, type(None)}.isdisjoint(_kinds(type_))
    return (kinds.pop() if len(kinds) == 1 else "jsonb") + ("" if may_be_none else " NOT NULL")


def _sql_type(kind: Any) -> str:
    scalar = _scalar(kind)
    if scalar is not None:
        return _SCALARS[scalar][0]
    elements = {_scalar(element) for element in _elements(kind) or ()}
    element = elements.pop() if len(elements) == 1 else None
    return "jsonb" if element in (None, bytes) else f"{_SCALARS[element][0]}[]"


def _takes(base: str, category: str, element: str | None, type_: Any) -> bool:
    return (
        base in ("json", "jsonb")
        or category == "S"
        or all(_takes_kind(base, category, element, kind) for kind in _kinds(type_))
    )


def _takes_kind(base: str, category: str, element: str | None, kind: Any) -> bool:
    if kind in (Any, object, type(None)):
        return True
    scalar = _scalar(kind)
    if scalar is str:
        return category not in _NO_TEXT and base != "bytea"
    if scalar is not None:
        return base in _SCALARS[scalar]
    elements = _elements(kind)
    if elements is None:
        return category == "C"
    # what is in an array is not made from what was read, and `bytes` are read as their base64
    of = (base.removesuffix("[]"), element or "", None)
    return category == "A" and all(_takes(*of, each) and (each is not bytes or of[1] == "S") for each in elements)


def _kinds(type_: Any) -> list[Any]:
    """What a value of a type may be: types that are no unions, no literals and no other names of a type."""
    if isinstance(type_, TypeVar):
        return [Any]
    if isinstance(type_, NewType):
        return _kinds(type_.__supertype__)
    origin = get_origin(type_)
    if origin is Annotated:
        return _kinds(get_args(type_)[0])
    if origin in (Union, UnionType):
        return [kind for each in get_args(type_) for kind in _kinds(each)]
    if origin is Literal:
        return [type(value) for value in get_args(type_)]
    if isinstance(type_, type) and issubclass(type_, Enum):
        return [type(member.value) for member in type_]
    return [type(None) if type_ is None else type_]


def _scalar(kind: Any) -> type | None:
    """Which of the types that JSON has as one value a type is."""
    return next((scalar for scalar in _SCALARS if isinstance(kind, type) and issubclass(kind, scalar)), None)


def _elements(kind: Any) -> list[Any] | None:
    """What is in the lists of a type, and in the lists in them; `None` where it has none."""
    class_ = get_origin(kind) or kind
    is_array = isinstance(class_, type) and issubclass(class_, _ARRAYS) and _scalar(class_) is None
    if not is_array or is_named_tuple(class_):  # a named tuple becomes an object
        return None
    found: list[Any] = []
    for each in get_args(kind) or (Any,):
        for element in [] if each is ... else _kinds(each):
            inner = _elements(element)
            found += [element] if inner is None else inner
    return found
