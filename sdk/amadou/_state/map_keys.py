"""The encoded keys of maps."""

from collections.abc import Callable
from datetime import datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from enum import Enum
from functools import partial
from typing import Any

from amadou._connectors.codec import Codec, codec_for
from amadou._state.encoding import TOO_DEEP, pack, unpack
from amadou.errors import EncodeError, UnsupportedTypeError
from amadou.event_time import from_micros, to_micros
from amadou.fields import fields_of

Convert = Callable[[Any], Any]


def key_functions(key_type: Any, codec: Codec[Any] | None, *, is_scalar: bool) -> tuple[Convert, Convert]:
    """Return the functions that encode and decode the keys of a map.

    An encoded key is hashable, and keys that differ in Python have different encoded forms. Scalars are not encoded.
    Datetimes become microseconds, since hashing a datetime is slow. Other keys are packed.

    :param codec: the codec for the keys, for types that `codec_for` does not support
    :param is_scalar: `True` if keys are stored unchanged
    """
    if codec is None and key_type is datetime:
        return _datetime_key, from_micros
    keys = codec or _codec_of_keys(key_type)
    if is_scalar:
        return keys.encode, keys.decode
    if codec is None and key_type is float:
        return partial(_float_key, keys.encode), keys.decode
    return partial(_packed_key, keys.encode, key_type), lambda encoded: keys.decode(unpack(encoded))


def _codec_of_keys(key_type: Any) -> Codec[Any]:
    try:
        return codec_for(key_type)
    except UnsupportedTypeError as error:
        raise UnsupportedTypeError(error.type, error.why, error.setting and "key_codec") from error


_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_LARGE = Decimal("1E+30")
"""Integral decimals of at least this size keep their trailing zeros in the exponent."""
_NO_NAN = "NaN cannot be a key, because it is not equal to itself"


def _packed_key(encode: Callable[[Any], Any], type_: Any, key: Any) -> bytes:
    try:
        return pack(_one_form(encode(_one_form(key))))
    except RecursionError as error:
        raise EncodeError(key, type_, TOO_DEEP) from error


def _float_key(encode: Callable[[Any], float], key: Any) -> float:
    return key or 0.0 if type(key) is float and key == key else _one_form(encode(key))


def _one_form(key: Any) -> Any:
    """Return the canonical form of a key or an encoded key so that equal keys have equal packed bytes."""
    kind = type(key)
    if kind is str or kind is int or kind is bytes:
        return key
    if kind is float:
        if key != key:
            raise EncodeError(key, float, _NO_NAN)
        return key or 0.0
    if kind is Decimal:
        return _one_decimal(key)
    if kind in (tuple, list, frozenset):
        return kind(map(_one_form, key))
    if kind is dict:
        return {name: _one_form(part) for name, part in key.items()}
    if isinstance(key, Enum):
        _one_form(codec_for(kind).encode(key))  # finds NaN
    for field in fields_of(kind):
        _one_form(getattr(key, field.name, None))  # finds NaN
    return key


def _one_decimal(key: Decimal) -> Decimal:
    if key.is_nan():
        raise EncodeError(key, Decimal, _NO_NAN)
    if key.is_infinite():
        return key
    number = key.normalize(_EXACT) if key else Decimal(0)
    return Decimal(int(number)) if number == number.to_integral_value() and number.copy_abs() < _LARGE else number


# Not shared with the cache for timers, since handlers alternate between writing to a minute's entry and setting a timer
# for the minute's end. Compared by identity, since `truncate` returns the same object for consecutive equal results.
_last_key: tuple[Any, int] = (None, 0)


def _datetime_key(key: Any) -> int:
    global _last_key
    last, micros = _last_key
    if key is last and key is not None:
        return micros
    if not isinstance(key, datetime):
        raise EncodeError(key, datetime)
    micros = to_micros(key)
    _last_key = (key, micros)
    return micros
