"""Encodes the values of a port as rows of Arrow tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from types import NoneType
from typing import Any, Final, NamedTuple, TypeGuard, get_args, get_origin
from uuid import UUID

from amadou.datatypes import Choice, DataType, Enumeration, FieldType, Fixed, Map, Record, Scalar, Union, datatype
from amadou.datatypes import Sequence as SequenceType
from amadou.errors import EncodeError, SinkError
from amadou.fields import is_typed_dict
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
        of = datatype(type_)
        if _has_columns(of):
            columns = _columns(of, of.fields, "", ())
            self._cells: Callable[[Any], tuple[Any, ...]] = _getter(list(of.fields))
            self._class: type = get_origin(type_) or type_
        else:
            columns = {VALUE: _column(of, VALUE, ())}
            self._cells = lambda value: (value,)
            self._class = object
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


def _has_columns(type_: DataType) -> TypeGuard[Record]:
    return isinstance(type_, Record) and not is_typed_dict(type_.python)


def _columns(
    type_: DataType, fields: Mapping[str, FieldType], path: str, within: tuple[DataType, ...]
) -> dict[str, _Column]:
    if not fields:
        raise SinkError(f"{_described(type_, path)} has no fields, so there is nothing to write: add a field")
    if any(type_ is outer for outer in within):
        raise SinkError(
            f"{_described(type_, path)} contains itself, so its column would be nested infinitely: declare the field "
            "as Any, which is written as JSON"
        )
    return {
        name: _column(field.type, f"{path}.{name}" if path else name, (*within, type_))
        for name, field in fields.items()
    }


def _column(type_: DataType, path: str, within: tuple[DataType, ...]) -> _Column:
    import pyarrow as pa

    match type_:
        case Scalar(name) if name in _LEAVES:
            return _leaf(name)
        case Union(members):
            inner = [member for _, member in members if member != Scalar("None")]
            return _optional(_column(inner[0], path, within)) if len(inner) == 1 else _json()
        case Choice() | Enumeration():
            return _chosen(type_)
        case SequenceType(_, item) if get_args(type_.python):
            member = _column(item, f"{path}[]", within)
            return _Column(pa.list_(member.type), _list_encoder(type_.python, member.encode))
        case Fixed(items) if items:
            columns = _columns(
                type_, {f"_{number}": FieldType(of, True) for number, of in enumerate(items, 1)}, path, within
            )
            return _struct(type_.python, tuple, tuple, columns)
        case Map() if get_args(type_.python):
            return _map(type_, path, within)
        case Record(_, fields) if _has_columns(type_):
            columns = _columns(type_, fields, path, within)
            return _struct(type_.python, get_origin(type_.python) or type_.python, _getter(list(fields)), columns)
    return _json()


def _leaf(name: str) -> _Column:
    """Return the column for a scalar type of `_LEAVES`."""
    import pyarrow as pa

    arrow, encode = _LEAVES[name]
    return _Column(arrow(pa), encode)


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


_text, _int, _timedelta, _decimal, _uuid = (codec_for(type_).encode for type_ in (str, int, timedelta, Decimal, UUID))
_LONGEST = timedelta(microseconds=2**63 - 1)
_LEAVES: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "str": (lambda pa: pa.string(), _fitting_text),
    "bool": (lambda pa: pa.bool_(), codec_for(bool).encode),
    "int": (lambda pa: pa.int64(), _fitting_int),
    "float": (lambda pa: pa.float64(), codec_for(float).encode),
    "bytes": (lambda pa: pa.binary(), codec_for(bytes).encode),
    "datetime": (lambda pa: pa.timestamp("us", tz="UTC"), codec_for(datetime).encode),
    "date": (lambda pa: pa.date32(), codec_for(date).encode),
    "timedelta": (lambda pa: pa.duration("us"), _fitting_timedelta),
    "Decimal": (lambda pa: pa.string(), lambda value: str(_decimal(value))),
    "UUID": (lambda pa: pa.string(), lambda value: str(_uuid(value))),
}
"""For each scalar type, a function from the module pyarrow to the Arrow type, and a function that encodes a value."""


def _json() -> _Column:
    import pyarrow as pa

    encode = JsonCodec(object).encode
    return _Column(pa.string(), lambda value: None if value is None else encode(value).decode())


def _optional(column: _Column) -> _Column:
    encode = column.encode
    return _Column(column.type, lambda value: None if value is None else encode(value))


def _list_encoder(type_: Any, encode: Callable[[Any], Any]) -> Callable[[Any], Any]:
    class_: Any = get_origin(type_)

    def encode_all(value: Any) -> list[Any]:
        if not isinstance(value, class_):
            raise EncodeError(value, type_)
        cells = [encode(member) for member in value]
        if class_ in (set, frozenset):
            # The order of a set differs between processes, but a reprocessed batch must produce the same cells.
            cells.sort(key=repr if any(type(cell) in (dict, list, NoneType) for cell in cells) else None)
        return cells

    return encode_all


def _map(type_: Map, path: str, within: tuple[DataType, ...]) -> _Column:
    import pyarrow as pa

    match type_.key:
        case Enumeration():
            key_column = _chosen(type_.key)
        case Scalar(name) if name in _LEAVES:
            key_column = _leaf(name)
        case _:
            raise SinkError(
                f"{_described(type_, path)} has keys of a type that Arrow maps do not support: use str, int or another "
                "scalar type for the keys, or make the field a list of pairs"
            )
    column = _column(type_.value, f"{path}{{}}", within)

    def encode(value: Any) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise EncodeError(value, type_.python)
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


def _chosen(type_: Choice | Enumeration) -> _Column:
    checked = codec_for(type_.python).encode
    values = get_args(type_.python) or [member.value for member in type_.python]
    kinds = {type(value).__name__ for value in values}
    if len(kinds) == 1 and not kinds.isdisjoint(_LEAVES):
        column = _leaf(kinds.pop())
        return _Column(column.type, lambda value: column.encode(checked(value)))
    if isinstance(type_, Choice):
        return _json()

    def encode_name(value: Any) -> Any:
        checked(value)
        return value.name

    return _Column(_leaf("str").type, encode_name)


def _getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    get: Callable[[Any], Any] = attrgetter(*names)
    return get if len(names) != 1 else lambda value: (get(value),)


def _described(type_: DataType, path: str) -> str:
    python = type_.python
    name = getattr(python, "__qualname__", None) if get_origin(python) is None else str(python)
    return f"the field {path}: {name or python}" if path else f"the type {name or python}"
