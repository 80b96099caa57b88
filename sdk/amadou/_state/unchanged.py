"""Compares values with their encoded form without encoding them again, which takes several times as long."""

from collections.abc import Callable
from enum import Enum
from functools import cached_property, lru_cache
from operator import is_
from typing import Any, TypeAlias, get_origin

from amadou._connectors.codec import codec_for
from amadou._state.encoding import pack
from amadou.datatypes import (
    Choice,
    DataType,
    Enumeration,
    Fixed,
    Map,
    Packed,
    Record,
    Scalar,
    Sequence,
    Union,
    datatype,
)
from amadou.fields import is_typed_dict

Comparison: TypeAlias = Callable[[Any, Any], bool]
"""Function that returns `True` if a value certainly still has an encoded form. It may raise any error."""


@lru_cache(maxsize=1024)
def comparison_for(type_: Any) -> Comparison:
    """Return the comparison for the values of a type that `codec_for` supports."""
    return _comparison(datatype(type_))


def _comparison(type_: DataType) -> Comparison:
    match type_:
        case Scalar() | Choice():
            return is_  # the encoded form is the value itself
        case Packed():
            return _has_packed
        case Union(members):
            return _of_union([member for _, member in members])
        case Map(key, value):
            return _of_dict(key, value)
        case Fixed(items):
            return _of_fixed_tuple([*map(_comparison, items)])
        case Sequence("list", item):
            return _of_sequence(list, _comparison(item))
        case Sequence("tuple", item):
            return _of_sequence(tuple, _comparison(item))
        case Sequence(container, item):
            of = set if container == "set" else frozenset
            return _of_set(of) if _comparison(item) is is_ else is_unknown
        case Enumeration(python=class_):
            return _of_enum(class_)
        case Record(python=annotation):
            return _of_typed_dict(type_) if is_typed_dict(annotation) else _OfFields(type_)
    return is_unknown


def is_unknown(value: Any, encoded: Any) -> bool:
    """The comparison for values of which nothing is known."""
    return False


def _has_packed(value: Any, encoded: Any) -> bool:
    return bool(pack(value) == encoded)


def _of_union(members: list[DataType]) -> Comparison:
    others = [member for member in members if member != Scalar("None")]
    if any(isinstance(member, Packed) for member in others):
        return _has_packed
    if all(_comparison(member) is is_ for member in others):
        return is_
    if len(others) > 1:  # its encoded values can have tags
        return is_unknown
    of_other = _comparison(others[0])
    return lambda value, encoded: value is encoded or (value is not None and of_other(value, encoded))


def _of_sequence(class_: Any, of_part: Comparison) -> Comparison:
    return lambda value, encoded: (
        type(value) is class_
        and len(value) == len(encoded)
        and (not encoded or all(map(of_part, value, encoded)))  # most time is taken by the calls
    )


def _of_fixed_tuple(of_parts: list[Comparison]) -> Comparison:
    return lambda value, encoded: (
        type(value) is tuple and len(value) == len(encoded) and all(map(_compared, of_parts, value, encoded))
    )


def _of_set(class_: Any) -> Comparison:
    return lambda value, encoded: type(value) is class_ and {*map(id, value)} == {*map(id, encoded)}


def _of_dict(key: DataType, value: DataType) -> Comparison:
    if _comparison(key) is not is_:
        return is_unknown
    of_value = _comparison(value)
    return lambda value, encoded: (
        type(value) is dict
        and len(value) == len(encoded)
        and (not encoded or (all(map(is_, value, encoded)) and all(map(of_value, value.values(), encoded.values()))))
    )


def _of_typed_dict(type_: Record) -> Comparison:
    compare = _OfFields(type_)
    return lambda value, encoded: (
        type(value) is dict
        and len(value) == len(encoded)
        and all(compare.of_field[name](part, encoded[name]) for name, part in value.items())
    )


def _of_enum(class_: type[Enum]) -> Comparison:
    encode = codec_for(class_).encode
    forms = {id(member): encode(member) for member in class_}

    def compare(value: Any, encoded: Any) -> bool:
        form = forms[id(value)]
        return type(form) is type(encoded) and bool(form == encoded)

    return compare


def _compared(compare: Comparison, value: Any, encoded: Any) -> bool:
    return compare(value, encoded)


class _OfFields:
    """The comparison for objects of an attrs class, a dataclass or a named tuple."""

    def __init__(self, type_: Record) -> None:
        self._type = type_
        self._class = get_origin(type_.python) or type_.python

    def __call__(self, value: Any, encoded: Any) -> bool:
        if type(value) is not self._class:
            return False
        for name, is_same in self.of_field.items():  # noqa: SIM110 # `all` with a generator takes twice as long
            if not is_same(getattr(value, name), encoded[name]):
                return False
        return True

    @cached_property  # not earlier, because a class may contain itself
    def of_field(self) -> dict[str, Comparison]:
        return {name: _comparison(field.type) for name, field in self._type.fields.items()}
