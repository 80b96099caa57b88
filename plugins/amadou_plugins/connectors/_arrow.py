"""Encodes the values of a port as rows of Arrow tables."""

from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from amadou.errors import EncodeError, SinkError
from amadou.fields import field_types
from amadou.plugins import codec_for
from amadou_plugins.connectors._json import JsonCodec

VALUE = "value"
"""Name of the single column for values of a type without fields."""


class ArrowCodec:
    """Encodes each value of a port as a row: a list of cells that Arrow accepts, in the order of the columns.

    The fields of an attrs class, dataclass or named tuple become columns. A value of any other type becomes a single
    column `value`.

    ===================================  ===================================================
    `str`, `bool`, `bytes`, `date`       ``string``, ``bool``, ``binary``, ``date32``
    `int`, `float`                       ``int64``, ``double``
    `datetime`, `timedelta`              ``timestamp[us, UTC]``, ``duration[us]``
    `Decimal`, `UUID`                    ``string``; Arrow would round decimals
    `Enum`, `Literal`                    the scalar type that all values share; if there is none, ``string`` with
                                         the name of the enum's member, or the literal's value as JSON
    `list`, `set`, `tuple` of any size   ``list``; sets are sorted
    `dict`                               ``map``
    `tuple` of fixed size                ``struct`` with the fields ``_1``, ``_2``, …
    a class with fields                  ``struct``
    `Optional`                           the inner type; all columns are nullable
    `Any`, other unions, bare `list` …   ``string`` with JSON; `None` is null
    ===================================  ===================================================

    :param type_: the port's type
    :raises SinkError: the type cannot be encoded as rows
    """

    def __init__(self, type_: Any) -> None:
        import pyarrow as pa

        self.type = type_
        fields = field_types(type_)
        if fields is None:
            columns = {VALUE: _column(type_, VALUE, ())}
            self._cells: Callable[[Any], tuple[Any, ...]] = lambda value: (value,)
            self._class: type = object
        else:
            columns = _columns(type_, fields, "", ())
            self._cells = _getter(list(fields))
            self._class = get_origin(type_) or type_
        self._encoders = [column.encode for column in columns.values()]
        self.schema = pa.schema([(name, column.type) for name, column in columns.items()])
        """The `pyarrow.Schema` of the rows."""

    def encode(self, value: Any) -> list[Any]:
        """Encode a value as a row.

        :raises EncodeError: the value is not of the port's type, or Arrow cannot represent the value
        """
        if not isinstance(value, self._class):
            raise EncodeError(value, self.type)
        try:
            return [encode(cell) for encode, cell in zip(self._encoders, self._cells(value), strict=True)]
        except EncodeError as error:
            raise EncodeError(value, self.type, error.why if error.value is value else str(error)) from error

    def decode(self, encoded: Any) -> dict[str, Any]:
        """Return a row as a dict of cells, keyed by column name."""
        return dict(zip(self.schema.names, encoded, strict=True))

    def table(self, encoded_values: Sequence[Any]) -> Any:
        """Return rows as a `pyarrow.Table`."""
        import pyarrow as pa

        columns: Iterable[Any] = zip(*encoded_values, strict=True) if encoded_values else [[] for _ in self.schema]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self.schema)


class _Column(NamedTuple):
    type: Any
    """The Arrow type."""
    encode: Callable[[Any], Any]


def _columns(type_: Any, fields: dict[str, Any], path: str, within: tuple[Any, ...]) -> dict[str, _Column]:
    if not fields:
        raise SinkError(f"{_described(type_, path)} has no fields, so there is nothing to write: add a field")
    if type_ in within:
        raise SinkError(
            f"{_described(type_, path)} contains itself, so its column would be nested infinitely: declare the field "
            "as Any, which is written as JSON"
        )
    return {name: _column(kind, f"{path}.{name}" if path else name, (*within, type_)) for name, kind in fields.items()}


def _column(type_: Any, path: str, within: tuple[Any, ...]) -> _Column:
    import pyarrow as pa

    origin, arguments = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        return _union(arguments, path, within)
    if not arguments:
        origin = None  # `typing.List` without its element type
    if origin in (list, set, frozenset) or (origin is tuple and arguments[1:] == (...,)):
        member = _column(arguments[0], f"{path}[]", within)
        return _Column(pa.list_(member.type), _list_encoder(type_, origin, member.encode))
    if origin is tuple:
        fields = {f"_{number}": kind for number, kind in enumerate(arguments, 1)}
        return _struct(type_, tuple, tuple, _columns(type_, fields, path, within))
    if origin is dict:
        return _map(type_, path, within)
    if origin is Literal or (isinstance(type_, type) and issubclass(type_, Enum)):
        return _chosen(type_)
    fields_inside = field_types(type_)
    if fields_inside is not None:
        columns = _columns(type_, fields_inside, path, within)
        return _struct(type_, origin or type_, _getter(list(fields_inside)), columns)
    return _leaf(type_) or _json()


def _leaf(type_: Any) -> _Column | None:
    import pyarrow as pa

    arrow: dict[Any, Any] = {
        str: pa.string(),
        bool: pa.bool_(),
        int: pa.int64(),
        float: pa.float64(),
        bytes: pa.binary(),
        datetime: pa.timestamp("us", tz="UTC"),
        date: pa.date32(),
        timedelta: pa.duration("us"),
        Decimal: pa.string(),
        UUID: pa.string(),
    }
    if type_ not in arrow:
        return None
    checked = codec_for(type_).encode
    if type_ in (Decimal, UUID):
        return _Column(arrow[type_], lambda value: str(checked(value)))
    return _Column(arrow[type_], _FITTING.get(type_, checked))


def _fitting_text(value: Any) -> Any:
    text = _text(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise EncodeError(value, str, str(error)) from error
    return text


def _fitting_int(value: Any) -> Any:
    number = _int(value)
    if not -(2**63) <= number < 2**63:
        raise EncodeError(value, int, "it does not fit in 64 bits")
    return number


def _fitting_timedelta(value: Any) -> Any:
    length = _timedelta(value)
    if abs(length) > _LONGEST:
        raise EncodeError(value, timedelta, "its length in microseconds does not fit in 64 bits")
    return length


_text, _int, _timedelta = (codec_for(type_).encode for type_ in (str, int, timedelta))
_LONGEST = timedelta(microseconds=2**63 - 1)
_FITTING = {str: _fitting_text, int: _fitting_int, timedelta: _fitting_timedelta}


def _json() -> _Column:
    import pyarrow as pa

    encode = JsonCodec(object).encode
    return _Column(pa.string(), lambda value: None if value is None else encode(value).decode())


def _union(types: tuple[Any, ...], path: str, within: tuple[Any, ...]) -> _Column:
    members = [member for member in types if member is not NoneType]
    if len(members) > 1:
        return _json()
    arrow, encode = _column(members[0], path, within)
    return _Column(arrow, lambda value: None if value is None else encode(value))


def _list_encoder(type_: Any, class_: Any, encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def encode_all(value: Any) -> list[Any]:
        if not isinstance(value, class_):
            raise EncodeError(value, type_)
        cells = [encode(member) for member in value]
        if class_ in (set, frozenset):
            # The order of a set differs between processes, but a reprocessed batch must produce the same cells.
            cells.sort(key=repr if any(type(cell) in (dict, list, NoneType) for cell in cells) else None)
        return cells

    return encode_all


def _map(type_: Any, path: str, within: tuple[Any, ...]) -> _Column:
    import pyarrow as pa

    key, member = get_args(type_)
    key_column = _chosen(key) if isinstance(key, type) and issubclass(key, Enum) else _leaf(key)
    if key_column is None:
        raise SinkError(
            f"{_described(type_, path)} has keys of a type that Arrow maps do not support: use str, int or another "
            "scalar type for the keys, or make the field a list of pairs"
        )
    column = _column(member, f"{path}{{}}", within)

    def encode(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise EncodeError(value, type_)
        return {key_column.encode(key): column.encode(part) for key, part in value.items()}

    return _Column(pa.map_(key_column.type, column.type), encode)


def _struct(type_: Any, class_: Any, cells: Callable[[Any], tuple[Any, ...]], columns: dict[str, _Column]) -> _Column:
    import pyarrow as pa

    encoders = [(name, column.encode) for name, column in columns.items()]

    def encode(value: Any) -> dict[str, Any]:
        if not isinstance(value, class_):
            raise EncodeError(value, type_)
        parts = cells(value)
        if len(parts) != len(encoders):
            raise EncodeError(value, type_)
        return {name: encode(part) for (name, encode), part in zip(encoders, parts, strict=True)}

    return _Column(pa.struct([(name, column.type) for name, column in columns.items()]), encode)


def _chosen(type_: Any) -> _Column:
    """Return the column for an enum or a `Literal`."""
    import pyarrow as pa

    checked = codec_for(type_).encode
    values = get_args(type_) or [member.value for member in type_]
    kinds = {type(value) for value in values}
    column = _leaf(kinds.pop()) if len(kinds) == 1 else None
    if column is not None:
        encode = column.encode
        return _Column(column.type, lambda value: encode(checked(value)))
    if get_origin(type_) is Literal:
        return _json()

    def encode_name(value: Any) -> Any:
        checked(value)
        return value.name

    return _Column(pa.string(), encode_name)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    get: Callable[[Any], Any] = attrgetter(*names)
    return get if len(names) != 1 else lambda value: (get(value),)


def _described(type_: Any, path: str) -> str:
    name = getattr(type_, "__qualname__", None) if get_origin(type_) is None else str(type_)
    return f"the field {path}: {name or type_}" if path else f"the type {name or type_}"
