from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Final, Generic, Protocol, TypeVar

from amadou._encoding import pack, unpack
from amadou.errors import (
    EncodeError,
    NaiveTimestampError,
    StateDecodeError,
    TimestampRangeError,
    UnsupportedTypeError,
)

T = TypeVar("T")


class Codec(Protocol[T]):
    """Encodes values of one type as values that msgpack carries, and decodes them.

    The result of `encode` must share no mutable object with the value, and `decode` must make a new value: this keeps
    state free of aliasing (`semantics.md` 14).
    """

    def encode(self, value: T) -> Any:
        """Return the encoded form of a value: `None`, `bool`, `int`, `float`, `str`, `bytes`, aware datetimes in UTC,
        `date`, `timedelta`, `Decimal`, `UUID`, and lists and dicts of those.

        :raises EncodeError: the value does not fit the type
        """

    def decode(self, encoded: Any) -> T:
        """Return the value of an encoded form.

        :raises StateDecodeError: the encoded form does not fit the type
        """


SCALARS: Final = (str, int, float, bool, bytes)
LEAVES: Final = (*SCALARS, type(None), datetime, date, timedelta, Decimal)
"""Types whose values are their own encoded form; `_structured` adds `UUID`, since it is slow to import."""
SEQUENCES: Final = (list, set, frozenset, tuple)
CONTAINERS: Final = (*SEQUENCES, dict)


def codec_for(type_: Any) -> Codec[Any]:
    """Return the codec of a type.

    Scalars (`str`, `int`, `float`, `bool`, `bytes`) are checked and not converted; neither are `datetime` (decoded in
    UTC), `date`, `timedelta`, `Decimal` and `UUID`. Enums, typed containers, `Optional`, unions, `Literal`, attrs
    classes, dataclasses and named tuples go through cattrs. `Any`, bare containers and type variables carry whatever
    msgpack does, attrs classes and dataclasses included.

    :raises UnsupportedTypeError: the type is not one of these; its message has the reason
    """
    try:
        return _codec_for(type_)
    except TypeError:  # not hashable, so not a type
        raise UnsupportedTypeError(type_, "it is not a type") from None


@cache
def _codec_for(type_: Any) -> Codec[Any]:
    if is_bare(type_):
        return AnyCodec(type_)
    if type_ is None or type_ in LEAVES:
        return _LeafCodec(type(None) if type_ is None else type_)
    from amadou._structured import structured_codec  # cattrs and uuid take as long to import as all the rest

    return structured_codec(type_)


def is_bare(type_: Any) -> bool:
    """Return `True` for a type that does not declare the types inside it."""
    return type_ in CONTAINERS or type_ is Any or type_ is object or isinstance(type_, TypeVar)


class _LeafCodec(Generic[T]):
    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self.is_checked = type_ is datetime or type_ is str

    def encode(self, value: T) -> Any:
        if type(value) is self.type and not self.is_checked:
            return value
        return leaf_to_wire(value, self.type)

    def decode(self, encoded: Any) -> T:
        if type(encoded) is self.type:
            return encoded
        return leaf_from_wire(encoded, self.type)  # type: ignore[no-any-return]


class AnyCodec:
    """Packs values whose class is not declared; the bytes contain the classes."""

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self._class: type = type_ if type_ in CONTAINERS else object

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, self._class):
            raise EncodeError(value, self.type)
        return pack(value)

    def decode(self, encoded: Any) -> Any:
        if type(encoded) is not bytes:
            raise StateDecodeError(encoded, self.type)
        value = unpack(encoded)
        if not isinstance(value, self._class):
            raise StateDecodeError(value, self.type)
        return value


def leaf_to_wire(value: Any, type_: Any) -> Any:
    """Return a checked value of one of the `LEAVES`, as exactly that type."""
    if isinstance(value, type_) and not (type_ is date and isinstance(value, datetime)):
        if type_ is datetime:
            if value.utcoffset() is None:
                raise NaiveTimestampError(value)
            # a datetime that needs no conversion skips it, which is cheaper
            return value if value.tzinfo is UTC and type(value) is datetime else _exact_datetime(value)
        if type_ is str and not value.isascii():
            check_text(value)
        return value if type(value) is type_ else _exact_leaf(value, type_)
    if type_ is float and isinstance(value, int):
        try:
            return float(value)
        except OverflowError as error:
            raise EncodeError(value, type_, str(error)) from error
    raise EncodeError(value, type_)


def check_text(value: str) -> None:
    """Raise an `EncodeError` for a text that UTF-8 cannot carry, since it contains half of a surrogate pair."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(value, str, str(error)) from error


def leaf_from_wire(encoded: Any, type_: Any) -> Any:
    """Return the value of one of the `LEAVES` from its encoded form."""
    if type(encoded) is type_:
        return encoded
    if type_ is float and type(encoded) is int:
        return float(encoded)
    raise StateDecodeError(encoded, type_)


def _exact_datetime(value: datetime) -> datetime:
    try:
        return datetime.fromisoformat(value.astimezone(UTC).isoformat())
    except OverflowError:
        raise TimestampRangeError(value) from None


def _exact_leaf(value: Any, type_: Any) -> Any:
    """Return a value of a subclass (`StrEnum`, `numpy.float64`, …) as its base type."""
    if type_ is date:
        return date(value.year, value.month, value.day)
    if type_ is timedelta:
        return timedelta(value.days, value.seconds, value.microseconds)
    if type_ is str:
        return str.__str__(value)
    if type_.__name__ == "UUID":
        return type_(int=value.int)
    return type_(value)
