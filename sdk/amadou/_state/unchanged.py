"""Compares values with their encoded form without encoding them again, which takes several times as long."""

import types
from collections.abc import Callable
from enum import Enum
from functools import cached_property, lru_cache
from operator import is_
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from amadou._connectors.codec import LEAVES, codec_for, is_bare
from amadou._state.encoding import is_uuid, pack
from amadou.fields import field_types, has_fields, is_typed_dict, items_of

Comparison: TypeAlias = Callable[[Any, Any], bool]
"""Function that returns `True` if a value certainly still has an encoded form. It may raise any error."""


@lru_cache(maxsize=1024)
def comparison_for(type_: Any) -> Comparison:
    """Return the comparison for the values of a type that `codec_for` supports."""
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ is None or type_ in LEAVES or origin is Literal or is_uuid(type_):
        return is_  # the encoded form is the value itself
    if is_bare(type_):
        return _has_packed
    if origin is Annotated:
        return comparison_for(arguments[0])
    if origin in (Union, types.UnionType):
        return _of_union(arguments)
    if origin is dict and arguments:
        return _of_dict(*arguments)
    if origin is tuple and Ellipsis not in arguments:
        return _of_fixed_tuple([*map(comparison_for, arguments)])
    if origin in (list, tuple):
        return _of_sequence(origin, comparison_for(arguments[0]))
    if origin in (set, frozenset):
        return _of_set(origin) if comparison_for(arguments[0]) is is_ else is_unknown
    if is_typed_dict(type_):
        return _of_typed_dict(type_)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return _of_enum(type_)
    return _OfFields(type_) if has_fields(type_) else is_unknown


def is_unknown(value: Any, encoded: Any) -> bool:
    """The comparison for values of which nothing is known."""
    return False


def _has_packed(value: Any, encoded: Any) -> bool:
    return bool(pack(value) == encoded)


def _of_union(members: tuple[Any, ...]) -> Comparison:
    others = [member for member in members if member is not type(None)]
    if any(is_bare(member) for member in others):
        return _has_packed
    if all(comparison_for(member) is is_ for member in others):
        return is_
    if len(others) > 1:  # its encoded values can have tags
        return is_unknown
    of_other = comparison_for(others[0])
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


def _of_dict(key_type: Any, value_type: Any) -> Comparison:
    if comparison_for(key_type) is not is_:
        return is_unknown
    of_value = comparison_for(value_type)
    return lambda value, encoded: (
        type(value) is dict
        and len(value) == len(encoded)
        and (not encoded or (all(map(is_, value, encoded)) and all(map(of_value, value.values(), encoded.values()))))
    )


def _of_typed_dict(type_: Any) -> Comparison:
    items = items_of(type_)
    return lambda value, encoded: (
        type(value) is dict
        and len(value) == len(encoded)
        and all(comparison_for(items[name][0])(part, encoded[name]) for name, part in value.items())
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
    """The comparison for objects of an attrs class, a dataclass or a named tuple.

    :param type_: the class, with or without type arguments
    """

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._class = get_origin(type_) or type_

    def __call__(self, value: Any, encoded: Any) -> bool:
        if type(value) is not self._class:
            return False
        for name, is_same in self._fields:  # noqa: SIM110 # `all` with a generator takes twice as long
            if not is_same(getattr(value, name), encoded[name]):
                return False
        return True

    @cached_property  # not earlier, because a class may contain itself
    def _fields(self) -> list[tuple[str, Comparison]]:
        return [(name, comparison_for(kind)) for name, kind in (field_types(self._type) or {}).items()]
