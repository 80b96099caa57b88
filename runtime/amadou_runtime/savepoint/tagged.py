"""Values of any supported type as JSON. Where JSON lacks a type, an object with a tag tells the type, such as
``{"$datetime": …}``.
"""

import base64
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from amadou.engine import StoredObject, pack
from amadou.errors import AmadouError
from amadou.event_time import MICROSECOND, from_micros, to_micros

_LONG: Final = 1_000
"""Number of bits above which an integer is written as text: Python limits the digits of decimal numbers."""
_CONTAINERS: Final = {"tuple": tuple, "set": set, "frozenset": frozenset}


class NotReadableError(Exception):
    """A JSON value does not fit the type of the state. The message says why."""


def decoded(text: Any) -> bytes:
    """Return the bytes of a base64 text."""
    return base64.b64decode(text, validate=True)


def _seconds(value: timedelta) -> float | int | str:
    """Return a number of seconds, as text if no `float` is exact."""
    micros = value // MICROSECOND
    if micros % 1_000_000 == 0:
        return micros // 1_000_000
    seconds, exact = micros / 1_000_000, Decimal(micros).scaleb(-6)
    return seconds if Decimal(str(seconds)) == exact else str(exact)


def _duration(seconds: float | int | str) -> timedelta:
    return timedelta(microseconds=int((Decimal(str(seconds)) * 1_000_000).to_integral_value()))


def _to_float(value: float) -> Any:
    return value if math.isfinite(value) else str(value)


TO_JSON: Final[Mapping[str, tuple[type, Callable[[Any], Any]]]] = {
    "bytes": (bytes, lambda value: base64.b64encode(value).decode()),
    "datetime": (datetime, datetime.isoformat),
    "date": (date, date.isoformat),
    "timedelta": (timedelta, _seconds),
    "Decimal": (Decimal, str),
    "UUID": (UUID, str),
    "float": (float, _to_float),
}
"""For each type that JSON lacks: the type, and the function that converts a value to JSON."""
FROM_JSON: Final[Mapping[str, Callable[[Any], Any]]] = {
    "bytes": decoded,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "timedelta": _duration,
    "Decimal": Decimal,
    "UUID": UUID,
    "float": float,
}


def to_tagged(value: Any) -> Any:
    """Return a value of any supported type as JSON; values of types that JSON lacks get a tag."""
    kind = type(value)
    if kind is int and value.bit_length() > _LONG:
        return {"$int": hex(value)}
    if value is None or kind in (str, int, bool) or (kind is float and math.isfinite(value)):
        return value
    if kind is list:
        return list(map(to_tagged, value))
    if kind is dict:
        return _tagged_dict(value)
    if kind is StoredObject:
        return {"$object": [value.type, to_tagged(value.encoded)]}
    for name, container in _CONTAINERS.items():
        if kind is container:
            return {f"${name}": list(map(to_tagged, value if kind is tuple else sorted(value, key=repr)))}
    for name, (type_, convert) in TO_JSON.items():
        if isinstance(value, type_):
            return {f"${name}": convert(value)}
    raise TypeError(f"{kind.__name__} is not a type of stored values")


def _tagged_dict(value: dict[Any, Any]) -> dict[str, Any]:
    if all(map(is_plain_key, value)):
        return {key: to_tagged(item) for key, item in value.items()}
    return {"$map": [[to_tagged(key), to_tagged(item)] for key, item in value.items()]}


def from_tagged(value: Any) -> Any:
    """Return the value that `to_tagged` converted.

    :raises NotReadableError: the JSON value has an unknown tag, or the content does not fit the tag
    """
    if isinstance(value, list):
        return [from_tagged(item) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value), "")
    if len(value) != 1 or not tag.startswith("$"):
        return {key: from_tagged(item) for key, item in value.items()}
    (content,) = value.values()
    try:
        if tag == "$map":
            return {from_tagged(key): from_tagged(item) for key, item in content}
        if tag == "$object":
            type_, encoded = content
            return StoredObject.of(pack([type_, from_tagged(encoded)]))
        if tag[1:] in _CONTAINERS:
            return _CONTAINERS[tag[1:]](map(from_tagged, content))
        if tag == "$int":
            return int(content, 16)
        return FROM_JSON[tag[1:]](content)
    except (ValueError, TypeError, KeyError, ArithmeticError, AmadouError) as error:
        raise NotReadableError(f"{value!r} cannot be read ({type(error).__name__}: {error})") from error


def is_plain_key(key: Any) -> bool:
    """Return `True` if a key of a `dict` can be a key of a JSON object, and is no tag."""
    return type(key) is str and not key.startswith("$")


def time_text(micros: int) -> str:
    """Return a time in ISO format.

    :param micros: the time in microseconds since 1970
    """
    return from_micros(micros).isoformat()


def micros_of(text: Any) -> int:
    """Return a time from a row, in microseconds.

    :raises NotReadableError: this is not a time with a time zone
    """
    try:
        return to_micros(datetime.fromisoformat(text))
    except (ValueError, TypeError, AmadouError) as error:
        raise NotReadableError(f"{text!r} is not a time in ISO format with a time zone") from error
