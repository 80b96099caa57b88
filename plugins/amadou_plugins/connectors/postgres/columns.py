"""Matches the columns of a PostgreSQL table with the types of a port's fields."""

from collections.abc import Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import UnionType
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin
from uuid import UUID

import attrs

from amadou.fields import field_types, is_named_tuple, is_typed_dict, items_of

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
"""The column types that can store each Python type; the preferred column type comes first. Text and JSON columns can
store any type. A Python class is listed before its base class.
"""
_NO_TEXT = "NBA"
"""The PostgreSQL type categories that do not accept strings: numbers, booleans and arrays. Other types, such as dates,
enums and network addresses, may accept a string.
"""
_ARRAYS = (Sequence, Set)


@attrs.frozen
class Column:
    """A column of a table.

    :param type: SQL type
    :param base: SQL type without length and precision; for a domain, its base type
    :param category: PostgreSQL's `typcategory`
    :param element: `typcategory` of an array's elements
    :param is_required: `True` if every insert must set the column
    :param is_generated: `True` if no insert can set the column
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
        """SQL type for reading the column's values from JSON."""
        return {"bytea": "text", "timestamp without time zone": "timestamp with time zone"}.get(self.base, self.type)

    @property
    def expression(self) -> str:
        """SQL expression that converts a value from JSON into the column's value; ``{}`` stands for the JSON value."""
        return "decode({}, 'base64')" if self.base == "bytea" else "{}"

    def takes(self, type_: Any) -> bool:
        """Return `True` if the column can store values of a Python type. The check ignores lengths and precisions."""
        return _takes(self.base, self.category, self.element, type_)


def columns_of(connection: Any, table: str) -> dict[str, Column]:
    """Return the columns of a table by name; an empty `dict` if the table does not exist.

    :param table: quoted name of the table
    """
    return {row[0]: Column(*row) for row in connection.execute(_COLUMNS, (table,))}


def fields_for(type_: Any) -> Mapping[str, Any] | None:
    """Return the types of the fields of a port's type, by field name; `None` if the port's type has no fields."""
    if is_typed_dict(type_):
        return {name: kind if is_required else kind | None for name, (kind, is_required) in items_of(type_).items()}
    return field_types(type_)


def definition(type_: Any) -> str:
    """Return the preferred SQL type for values of a Python type, with ``NOT NULL`` unless values can be `None`."""
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
    # elements of arrays are not decoded from base64, so `bytes` would be stored as base64
    of = (base.removesuffix("[]"), element or "", None)
    return category == "A" and all(_takes(*of, each) and (each is not bytes or of[1] == "S") for each in elements)


def _kinds(type_: Any) -> list[Any]:
    """Return the types that a value can have, with unions, literals, enums and aliases resolved."""
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
    """Return the scalar type that a type equals or inherits from; `None` for any other type."""
    return next((scalar for scalar in _SCALARS if isinstance(kind, type) and issubclass(kind, scalar)), None)


def _elements(kind: Any) -> list[Any] | None:
    """Return the innermost element types of a sequence or set type; `None` for any other type."""
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
