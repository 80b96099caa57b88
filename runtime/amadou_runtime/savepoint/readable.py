"""Stored state in readable form: as JSON, and as Python would show it. The job's classes are not needed: the structures
of types are stored with the state (see `jobs.state_schema`).

In JSON, a value is written as its type suggests: a datetime as ISO text, bytes as base64, a timedelta as seconds, an
object as its fields. Where the type is not known, as with `Any`, an object with a tag, such as ``{"$datetime": …}``,
tells the type.
"""

import base64
import math
from collections.abc import Callable, Mapping
from collections.abc import Sequence as _Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final

import attrs

from amadou.datatypes import (
    Choice,
    DataType,
    Enumeration,
    FieldType,
    Fixed,
    Map,
    Opaque,
    Packed,
    Record,
    Scalar,
    Sequence,
    Union,
    datatype_in,
    shown_type,
)
from amadou.engine import Envelope, StoredObject, pack, unpack_stored
from amadou.errors import StateDecodeError
from amadou.event_time import from_micros
from amadou.text import shortened
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.jobs.state_schema import Structure
from amadou_runtime.savepoint.tagged import (
    FROM_JSON,
    TO_JSON,
    NotReadableError,
    decoded,
    from_tagged,
    is_plain_key,
    micros_of,
    time_text,
    to_tagged,
)

_SHOWN: Final = 200
_MEMBER, _CONTENT = "_type", "_value"
"""Keys with which a union stores the name of the member and its value."""
_ENCODED_AS: Final[Mapping[str, tuple[type, ...]]] = {
    **{name: (type_,) for name, (type_, _) in TO_JSON.items()},
    "float": (float, int),
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "None": (type(None),),
}
"""For each scalar: the types of its encoded values."""
_NONE: Final = {"$None": None}
"""The value `None` in a row: the value `null` removes state."""
_UNKNOWN: Final = Opaque("unknown")
_NOTHING: Final = Scalar("None")
_TIME: Final = Scalar("datetime")
_PLAIN_KEYS: Final = (*map(Scalar, ("str", "int", "float", "bool", "bytes")), _TIME, _UNKNOWN, Opaque("codec"))
"""The types of a map's keys that are not packed."""


def type_to_json(type_: DataType, encoded: Any) -> Any:
    """Return an encoded value as JSON."""
    return _converted(type_, encoded, _leaf_to_json, to_tagged)


def type_from_json(type_: DataType, value: Any) -> Any:
    """Return the encoded form of a JSON value.

    :raises NotReadableError: the JSON value does not fit the type
    """
    encoded = _converted(type_, value, _leaf_from_json, from_tagged)
    if not _fits(type_, encoded):
        raise NotReadableError(f"{shortened(repr(value), _SHOWN)} is not of the type {shown_type(type_)}")
    return encoded


def check_map_key(type_: DataType, encoded: Any) -> None:
    """Check that an encoded key of a map is equal to itself.

    :raises NotReadableError: it is or contains NaN
    """

    def check(value: Any) -> None:
        if _has_nan(value):
            raise NotReadableError("NaN cannot be a key of a map, because it is not equal to itself")

    def check_leaf(type_: Scalar | Packed, value: Any) -> None:
        check(unpack_stored(value) if isinstance(type_, Packed) and isinstance(value, bytes) else value)

    _converted(type_, encoded, check_leaf, check)


def _fits(type_: DataType, encoded: Any) -> bool:
    """Return `True` if an encoded value is of a type, as far as its structure tells."""
    match type_:
        case Scalar(name):
            return type(encoded) in _ENCODED_AS[name]
        case Packed():
            return type(encoded) is bytes
        case Sequence(_, item):
            return type(encoded) is list and all(map(partial(_fits, item), encoded))
        case Fixed(items):
            return type(encoded) is list and len(encoded) == len(items) and all(map(_fits, items, encoded))
        case Map(_, value):
            return type(encoded) is dict and all(map(partial(_fits, value), encoded.values()))
        case Record(_, fields):
            return type(encoded) is dict and all(_has_field(encoded, name, field) for name, field in fields.items())
        case Enumeration(_, values, "flags"):
            return type(encoded) is int or _is_one_of(values, encoded)
        case Enumeration(_, values, accepts):
            return bool(accepts) or _is_one_of(values, encoded)
        case Choice(values):
            return _is_one_of(values, encoded)
        case Union(members):
            return _fits_one(members, encoded)
    return True


def _fits_one(members: Any, encoded: Any) -> bool:
    """Return `True` if an encoded value is that of a union with these members."""
    member = _tagged_member(members, encoded)
    if member is not None and member != _UNKNOWN:
        return _fits(member, encoded[_CONTENT])
    return any(_fits(kind, encoded) for _, kind in members)


def _has_field(encoded: dict[Any, Any], name: str, field: FieldType) -> bool:
    return _fits(field.type, encoded[name]) if name in encoded else not field.is_required


def _is_one_of(values: Any, encoded: Any) -> bool:
    return (_type_name(encoded), repr(encoded)) in values


def _tagged_member(members: Any, encoded: Any) -> DataType | None:
    """Return the union member that the tag of an encoded value names; `None` for a value without a tag."""
    if isinstance(encoded, dict) and encoded.keys() == {_MEMBER, _CONTENT}:
        return dict(members).get(encoded[_MEMBER], _UNKNOWN)  # type: ignore[no-any-return]
    return None


def _only_member(members: Any) -> DataType | None:
    """Return the type of an `Optional`; `None` for another union."""
    others = [kind for _, kind in members if kind != _NOTHING]
    return others[0] if len(others) == 1 else None


def _field_type(fields: Mapping[str, FieldType], name: str) -> DataType:
    return fields[name].type if name in fields else _UNKNOWN


def _converted(
    type_: DataType, value: Any, leaf: Callable[[Scalar | Packed, Any], Any], other: Callable[[Any], Any]
) -> Any:
    """Return a value with its parts converted: by `leaf` those of a scalar or packed type that JSON lacks, by `other`
    the rest.
    """

    def part(of: DataType, item: Any) -> Any:
        return _converted(of, item, leaf, other)

    if isinstance(type_, Record | Map) and isinstance(value, dict) and not all(map(is_plain_key, value)):
        return other(value)  # it would look like a tag, or has keys that JSON lacks
    match type_:
        case Packed() | Scalar("bytes" | "datetime" | "date" | "timedelta" | "Decimal" | "UUID" | "float"):
            return leaf(type_, value)
        case Sequence(_, item) if isinstance(value, list):
            return [part(item, each) for each in value]
        case Fixed(items) if isinstance(value, list) and len(value) == len(items):
            return [part(of, item) for of, item in zip(items, value, strict=True)]
        case Record(_, fields) if isinstance(value, dict):
            return {name: part(_field_type(fields, name), item) for name, item in value.items()}
        case Map(Scalar("str"), of) if isinstance(value, dict):
            return {key: part(of, item) for key, item in value.items()}
        case Union(members):
            only, tagged = _only_member(members), _tagged_member(members, value)
            if only is not None and value is not None:
                return part(only, value)
            if tagged is not None:
                return {_MEMBER: value[_MEMBER], _CONTENT: part(tagged, value[_CONTENT])}
    return other(value)


def shown_as(type_: DataType, encoded: Any) -> Any:
    """Return an encoded value as an object whose `repr` is that of the value."""
    match type_:
        case Packed() if isinstance(encoded, bytes):
            return unpack_stored(encoded)
        case Sequence("list", item) if isinstance(encoded, list):
            return [shown_as(item, each) for each in encoded]
        case Sequence(container, item) if isinstance(encoded, list):
            return _Shown(_brackets(container, [repr(shown_as(item, each)) for each in encoded]))
        case Fixed(items) if isinstance(encoded, list) and len(encoded) == len(items):
            return _Shown(_brackets("tuple", list(map(repr, map(shown_as, items, encoded)))))
        case Record(name, fields) if isinstance(encoded, dict):
            parts = (f"{of}={shown_as(_field_type(fields, of), item)!r}" for of, item in encoded.items())
            return _Shown(f"{name.rpartition('.')[2]}({', '.join(parts)})")
        case Enumeration(name):
            return _Shown(f"{name}({encoded!r})")
        case Union(members):
            only, tagged = _only_member(members), _tagged_member(members, encoded)
            if only is not None and encoded is not None:
                return shown_as(only, encoded)
            if tagged is not None:
                return shown_as(tagged, encoded[_CONTENT])
    return encoded


def _type_name(value: Any) -> str:
    return "None" if value is None else type(value).__name__


@attrs.frozen(repr=False)
class _Shown:
    text: str

    def __repr__(self) -> str:
        return self.text


def _brackets(kind: str, parts: list[str]) -> str:
    inside = ", ".join(parts)
    if kind == "tuple":
        return f"({inside}{',' if len(parts) == 1 else ''})"
    if kind == "set":
        return f"{{{inside}}}" if parts else "set()"
    return f"frozenset({{{inside}}})" if parts else "frozenset()"


def _leaf_to_json(type_: Scalar | Packed, value: Any) -> Any:
    if isinstance(type_, Packed):
        return to_tagged(unpack_stored(value) if isinstance(value, bytes) else value)
    kind, convert = TO_JSON[type_.name]
    return convert(value) if isinstance(value, kind) else to_tagged(value)


def _leaf_from_json(type_: Scalar | Packed, value: Any) -> Any:
    if isinstance(type_, Packed):
        return pack(from_tagged(value))
    if isinstance(value, dict) or value is None:
        return from_tagged(value)
    try:
        return FROM_JSON[type_.name](value)
    except (ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise NotReadableError(f"{value!r} is not a {type_.name} ({error})") from error


class StateFormat:
    """Converts the state of a spec.

    :param structures: all structures that the spec has had, the last one last; empty if they are not known. State has
        the last structure of its version
    """

    def __init__(self, structures: _Sequence[Structure]) -> None:
        self._of = {structure["version"]: _VersionFormat(structure) for structure in structures}
        self._last = _VersionFormat(structures[-1] if structures else None)

    def _format(self, version: Any) -> "_VersionFormat":
        return self._of.get(version, self._last)

    def to_json(self, packed: bytes) -> dict[str, Any]:
        """Return packed state as JSON: its ``value``; and ``version`` and ``written``, the times of the last writes, if
        the spec has them.
        """
        try:
            stored = stored_state(packed)
            return self._format(stored.version).to_json(stored)
        except UNREADABLE:
            return {"value": {"$msgpack": base64.b64encode(packed).decode()}}

    def from_json(self, row: Mapping[str, Any]) -> bytes:
        """Return the packed state of a row from `to_json`. A map may also be an object with its keys.

        :raises NotReadableError: the row does not fit the spec
        """
        value, version = row["value"], row.get("version", 0)
        if isinstance(value, dict) and value.keys() == {"$msgpack"}:
            return _checked(decoded(value["$msgpack"]))
        if type(version) is not int:
            raise NotReadableError(f"the version {version!r} is not an integer")
        return self._format(version).from_json(None if value == _NONE else value, version, row.get("written"))

    def shown(self, packed: bytes) -> str:
        """Return packed state as Python would show it, without the times of the last writes."""
        try:
            stored = stored_state(packed)
            return self._format(stored.version).shown(stored)
        except UNREADABLE:
            return repr(packed)


def _checked(packed: bytes) -> bytes:
    """Return packed state, after it has been unpacked once.

    :raises NotReadableError: the bytes are not packed state
    """
    try:
        unpack_stored(packed)
    except UNREADABLE as error:
        why = error.why if isinstance(error, StateDecodeError) else str(error)
        raise NotReadableError(f"$msgpack is not packed state: {shortened(why, _SHOWN)}") from error
    return packed


def stored_state(packed: bytes) -> Envelope:
    """Return unpacked state, with its version, and whether it has the times of the last writes."""
    stored = unpack_stored(packed)
    return stored if type(stored) is Envelope else Envelope(0, False, stored)


class _VersionFormat:
    """Converts the state of a spec with a structure.

    :param structure: the structure; `None` if it is not known
    """

    def __init__(self, structure: Structure | None) -> None:
        parts = {} if structure is None else structure.get("parts", {})
        self._kind = "" if structure is None else structure["kind"]
        self._types = {name: datatype_in(part) for name, part in parts.items()}

    def _type(self, part: str) -> DataType:
        return self._types.get(part, _UNKNOWN)

    def to_json(self, stored: Envelope) -> dict[str, Any]:
        version, has_ttl, encoded = stored
        row: dict[str, Any] = {"version": version} if version else {}
        if has_ttl:
            encoded, times = self._without_times(encoded)
            row["written"] = times
        value = self._value_to_json(encoded)
        return {"value": _NONE if value is None else value, **row}

    def _without_times(self, encoded: Any) -> tuple[Any, Any]:
        """Return encoded state without the times of the last writes, and these times as text."""
        if self._kind == "MapSpec":
            entries, times = {}, {}
            for key, (at, value) in encoded.items():
                entries[key], times[key] = value, time_text(at)
            return entries, [[self._key_to_json(key), at] for key, at in times.items()]
        if self._kind == "ListSpec":
            return [item for _, item in encoded], [time_text(at) for at, _ in encoded]
        return encoded[1], time_text(encoded[0])

    def _value_to_json(self, encoded: Any) -> Any:
        if self._kind == "MapSpec" and isinstance(encoded, dict):
            value = self._type("value")
            return [[self._key_to_json(key), type_to_json(value, item)] for key, item in encoded.items()]
        if self._kind == "ListSpec" and isinstance(encoded, list):
            return [type_to_json(self._type("item"), item) for item in encoded]
        return type_to_json(self._type("value"), encoded)

    def _key_to_json(self, key: Any) -> Any:
        type_ = self._type("key")
        if type_ == _TIME:
            return from_micros(key).isoformat()
        return type_to_json(type_, unpack_stored(key) if self._is_packed_key else key)

    @property
    def _is_packed_key(self) -> bool:
        return self._type("key") not in _PLAIN_KEYS

    def from_json(self, value: Any, version: int, written: Any) -> bytes:
        encoded = self._value_from_json(value)
        if written is not None:
            encoded = self._with_times(encoded, written)
        return pack(Envelope(version, written is not None, encoded) if version or written is not None else encoded)

    def _with_times(self, encoded: Any, written: Any) -> Any:
        if self._kind == "MapSpec":
            times = {self._key_from_json(key): micros_of(at) for key, at in _pairs(written)}
            if times.keys() != encoded.keys():
                raise NotReadableError("written does not have the same keys as value")
            return {key: [times[key], item] for key, item in encoded.items()}
        if self._kind == "ListSpec":
            if not isinstance(written, list) or len(written) != len(encoded):
                raise NotReadableError("written does not have a time for each item of value")
            return [[micros_of(at), item] for at, item in zip(written, encoded, strict=True)]
        return [micros_of(written), encoded]

    def _value_from_json(self, value: Any) -> Any:
        if self._kind == "MapSpec":
            type_ = self._type("value")
            return {self._key_from_json(key): type_from_json(type_, item) for key, item in _pairs(value)}
        if self._kind == "ListSpec":
            if not isinstance(value, list):
                raise NotReadableError(f"the state is a list, but the value is {value!r}")
            return [type_from_json(self._type("item"), item) for item in value]
        return type_from_json(self._type("value"), value)

    def _key_from_json(self, key: Any) -> Any:
        type_ = self._type("key")
        if type_ == _TIME:
            return micros_of(key)
        if type_ == Scalar("int") and isinstance(key, str):
            return int(key)
        encoded = type_from_json(type_, key)
        check_map_key(type_, encoded)
        return pack(encoded) if self._is_packed_key else encoded

    def shown(self, stored: Envelope) -> str:
        encoded = self._without_times(stored.encoded)[0] if stored.has_ttl else stored.encoded
        return repr(self._shown(encoded))

    def _shown(self, encoded: Any) -> Any:
        if self._kind == "MapSpec" and isinstance(encoded, dict):
            value = self._type("value")
            return {_Shown(repr(self._shown_key(key))): shown_as(value, item) for key, item in encoded.items()}
        if self._kind == "ListSpec" and isinstance(encoded, list):
            return [shown_as(self._type("item"), item) for item in encoded]
        return shown_as(self._type("value"), encoded)

    def _shown_key(self, key: Any) -> Any:
        type_ = self._type("key")
        if type_ == _TIME:
            return from_micros(key)
        return shown_as(type_, unpack_stored(key) if self._is_packed_key else key)


def _has_nan(key: Any) -> bool:
    """Return `True` if the encoded key of a map is or contains NaN."""
    if isinstance(key, float | Decimal):
        return math.isnan(key)
    if isinstance(key, tuple | list | set | frozenset):
        return any(map(_has_nan, key))
    if isinstance(key, dict):
        return any(map(_has_nan, key.values()))
    return isinstance(key, StoredObject) and _has_nan(key.encoded)


def _pairs(value: Any) -> Any:
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        return value
    raise NotReadableError(f"the state is a map, but the value is {value!r}")
