from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import cache
from typing import Any, Final, Generic, Protocol, TypeVar

from amadou._state.encoding import pack, unpack
from amadou.datatypes import is_bare
from amadou.errors import (
    EncodeError,
    NaiveTimestampError,
    StateDecodeError,
    TimestampRangeError,
    UnsupportedTypeError,
)

T = TypeVar("T")


class Codec(Protocol[T]):
    """Converts values of a type into values that amadou's msgpack encoding supports, and back.

    The result of `encode` must not share mutable objects with the value, and `decode` must create a new value. This
    ensures that state is never aliased (`semantics.md` 14).
    """

    def encode(self, value: T) -> Any:
        """Return the encoded form of a value: `None`, `bool`, `int`, `float`, `str`, `bytes`, aware datetimes in UTC,
        `date`, `timedelta`, `Decimal` or `UUID`, or lists and dicts of these types.

        :raises EncodeError: the value does not fit the type
        """

    def decode(self, encoded: Any) -> T:
        """Return the value that `encode` converted into this encoded form.

        :raises StateDecodeError: the encoded form does not fit the type
        """


SCALARS: Final = (str, int, float, bool, bytes)
LEAVES: Final = (*SCALARS, type(None), datetime, date, timedelta, Decimal)
"""Types whose values are stored unchanged. `_structured` adds `UUID`, because the `uuid` module is slow to import."""
SEQUENCES: Final = (list, set, frozenset, tuple)
CONTAINERS: Final = (*SEQUENCES, dict)


def codec_for(type_: Any) -> Codec[Any]:
    """Return the codec for a type.

    Scalars (`str`, `int`, `float`, `bool`, `bytes`), `datetime` (decoded in UTC), `date`, `timedelta`, `Decimal` and
    `UUID` are checked and stored unchanged. cattrs converts enums, typed containers, `Optional`, unions, `Literal`,
    attrs classes, dataclasses and named tuples. `Any` and type variables accept all values that amadou's msgpack
    encoding supports, including instances of attrs classes and dataclasses. Bare containers accept these values as
    items.

    :raises UnsupportedTypeError: the type is not supported; the message gives the reason
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
    from amadou._state.structured import (
        structured_codec,  # importing cattrs and uuid takes as long as all other imports
    )

    return structured_codec(type_)


class _LeafCodec(Generic[T]):
    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self.is_checked = type_ is datetime or type_ is str

    def encode(self, value: T) -> Any:
        if type(value) is self.type and not self.is_checked:
            return value
        return encode_leaf(value, self.type)

    def decode(self, encoded: Any) -> T:
        if type(encoded) is self.type:
            return encoded
        return decode_leaf(encoded, self.type)  # type: ignore[no-any-return]


class AnyCodec:
    """Packs values whose class is not declared. The packed bytes contain the class names."""

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


def encode_leaf(value: Any, type_: Any) -> Any:
    """Check that a value has a given type, which must be one of the `LEAVES` or `UUID`. Convert an instance of a
    subclass to this type, and an `int` to a `float` if the type is `float`.
    """
    if isinstance(value, type_) and not (type_ is date and isinstance(value, datetime)):
        if type_ is datetime:
            if value.utcoffset() is None:
                raise NaiveTimestampError(value)
            # skip the conversion if it is not needed, to save time
            return value if value.tzinfo is timezone.utc and type(value) is datetime else _exact_datetime(value)
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
    """Raise an `EncodeError` for a string with an unpaired surrogate, which UTF-8 cannot encode."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(value, str, str(error)) from error


def decode_leaf(encoded: Any, type_: Any) -> Any:
    """Decode a value whose type is one of the `LEAVES` or `UUID`."""
    if type(encoded) is type_:
        return encoded
    if type_ is float and type(encoded) is int:
        return float(encoded)
    raise StateDecodeError(encoded, type_)


def _exact_datetime(value: datetime) -> datetime:
    try:
        return datetime.fromisoformat(value.astimezone(timezone.utc).isoformat())
    except OverflowError:
        raise TimestampRangeError(value) from None


def _exact_leaf(value: Any, type_: Any) -> Any:
    """Convert an instance of a subclass, such as a `StrEnum` member or a `numpy.float64`, to its base type."""
    if type_ is date:
        return date(value.year, value.month, value.day)
    if type_ is timedelta:
        return timedelta(value.days, value.seconds, value.microseconds)
    if type_ is str:
        return str.__str__(value)
    if type_.__name__ == "UUID":
        return type_(int=value.int)
    return type_(value)
