"""Encodes values as JSON."""

import base64
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from types import UnionType
from typing import Any, get_origin

import orjson

from amadou.errors import EncodeError
from amadou.fields import fields_of, has_fields, is_named_tuple, is_typed_dict
from amadou.plugins import SinkBatch

# orjson leaves out dataclass fields whose names begin with an underscore, so `_to_json` converts dataclasses.
_OPTIONS = orjson.OPT_UTC_Z | orjson.OPT_PASSTHROUGH_DATACLASS


class JsonCodec:
    """Encodes the values of a port as JSON.

    Instances of attrs classes, dataclasses and named tuples become objects. Timestamps become ISO strings, with a ``Z``
    for UTC. A `timedelta` becomes a number of seconds. `Decimal` and `UUID` become strings, `bytes` become base64, and
    sets become sorted lists. Enums become their values, and non-finite floats become ``null``.

    :param type_: the port's type
    """

    def __init__(self, type_: Any) -> None:
        self.type = type_
        self._class = class_of(type_)
        names = self._class._fields if is_named_tuple(self._class) else ()
        self._fields = _object_of(self._class) if names else None
        self._begin = b"{%b:" % orjson.dumps(names[0]) if names else b""

    def encode(self, value: Any) -> bytes:
        """Encode a value as JSON.

        :raises EncodeError: the value is not of the port's type, or cannot be written as JSON
        """
        if not isinstance(value, self._class):
            raise EncodeError(value, self.type)
        try:
            fields = _objects.get(type(value))  # saves orjson a callback
            return _dumps(value if fields is None else fields(value))
        except TypeError as error:
            why = f"it cannot be written as JSON: {error.__cause__ or error}"
            if "ecursion limit" in why:
                why = "it is nested too deeply: at most 254 levels of lists and objects can be written"
            raise EncodeError(value, self.type, why) from error

    def encode_rows(self, rows: list[tuple[Any, ...]]) -> list[bytes]:
        """Return the JSON of values of the codec's type.

        :param rows: the constructor arguments of the values, one tuple per value
        :raises EncodeError: a value cannot be written as JSON
        """
        if self._fields is not None:
            with suppress(TypeError):
                # One call for all rows takes half as long as one call per row. orjson writes no line feeds. If nested
                # objects also contain the replaced text, there are too many parts, and rows are encoded one by one.
                text = orjson.dumps(list(map(self._fields, rows)), _to_json, _OPTIONS)
                encoded_values = text[1:-1].replace(b"}," + self._begin, b"}\n" + self._begin).split(b"\n")
                if len(encoded_values) == len(rows):
                    return encoded_values
        return [self.encode(self.type(*row)) for row in rows]

    def decode(self, encoded: Any) -> Any:
        """Return the parsed JSON value, such as a dict or a list."""
        return orjson.loads(encoded)


def _dumps(value: Any) -> bytes:
    try:
        return orjson.dumps(value, _to_json, _OPTIONS)
    except TypeError:  # possibly because of keys that are not strings; always allowing such keys takes a third longer
        return orjson.dumps(value, _to_json, _OPTIONS | orjson.OPT_NON_STR_KEYS)


def json_lines(batch: SinkBatch, encoded_values: Sequence[Any]) -> Sequence[bytes]:
    """Return a batch's encoded values as JSON, even if the port has a custom codec."""
    return (
        encoded_values if isinstance(batch.codec, JsonCodec) else [_ANY.encode(encoded) for encoded in encoded_values]
    )


def class_of(type_: Any) -> Any:
    """Return the class, or the tuple of classes, with which `isinstance` checks the values of a type."""
    checked = get_origin(type_) or type_
    if checked is float:
        return float, int
    if is_typed_dict(checked):
        return dict
    return checked if isinstance(checked, type) and checked not in (Any, UnionType) else object


def _to_json(value: Any) -> Any:
    kind = type(value)
    fields = _objects.get(kind)
    if fields is None:
        fields = _objects[kind] = _object_of(kind) or _LEAVES.get(kind) or _refuse
    return fields(value)


def _object_of(kind: type) -> Callable[[Any], Any] | None:
    # The returned function is called for each collected value, and takes half as long as a loop over getattr.
    if is_named_tuple(kind):
        return _made(f"{field.name!r}: value[{position}]" for position, field in enumerate(fields_of(kind)))
    if has_fields(kind):
        return _made(f"{field.name!r}: value.{field.name}" for field in fields_of(kind))
    return next((_LEAVES[base] for base in kind.__mro__ if base in _LEAVES), None)


def _made(items: Iterable[str]) -> Callable[[Any], Any]:
    return eval(f"lambda value: {{{', '.join(items)}}}")  # type: ignore[no-any-return]


def _sorted_list(values: Any) -> list[Any]:
    # The order of a set differs between processes, but a reprocessed batch must produce the same lines.
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=repr)


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


_LEAVES: dict[type, Callable[[Any], Any]] = {
    Decimal: str,
    timedelta: timedelta.total_seconds,
    bytes: lambda value: base64.b64encode(value).decode(),
    set: _sorted_list,
    frozenset: _sorted_list,
}
_objects: dict[type, Callable[[Any], Any]] = {}
_ANY = JsonCodec(object)
