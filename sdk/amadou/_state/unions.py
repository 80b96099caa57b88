"""How values of unions and literals are encoded, as hooks for cattrs."""

from collections.abc import Callable
from typing import Any, Final, Literal, get_args, get_origin
from uuid import UUID

from cattrs import BaseConverter

from amadou._connectors.codec import CONTAINERS, AnyCodec, encode_leaf
from amadou._connectors.codec import LEAVES as _PLAIN_LEAVES
from amadou.datatypes import is_bare, union_tag
from amadou.errors import EncodeError, StateDecodeError
from amadou.fields import is_typed_dict

LEAVES: Final = (*_PLAIN_LEAVES, UUID)


def class_of(type_: Any) -> Any:
    """Return the class of the values of a type."""
    return dict if is_typed_dict(type_) else get_origin(type_) or type_


def is_literal(type_: Any) -> bool:
    return get_origin(type_) is Literal


def unstructure_literal(type_: Any) -> Callable[[Any], Any]:
    known = {(type(value), value) for value in get_args(type_)}

    def unstructure(value: Any) -> Any:
        if (type(value), value) not in known:
            raise EncodeError(value, type_)
        return value

    return unstructure


def structure_literal(type_: Any) -> Callable[[Any, Any], Any]:
    known = {(type(value), value) for value in get_args(type_)}

    def structure(encoded: Any, _: Any) -> Any:
        if type(encoded) in (list, dict) or (type(encoded), encoded) not in known:
            raise StateDecodeError(encoded, type_)
        return encoded

    return structure


class _Members:
    """The members of a union: leaves and literals, which are stored unchanged, and others, which may need a tag."""

    def __init__(self, type_: Any) -> None:
        members = get_args(type_)
        self.leaves = tuple(member for member in members if member in LEAVES)
        self.literals = tuple(member for member in members if is_literal(member))
        self.others = tuple(member for member in members if member not in self.leaves + self.literals)
        self.any = any(is_bare(member) and member not in CONTAINERS for member in members)
        # An Optional does not need tags. In other unions, an encoded enum or list may look like an encoded leaf.
        self.tagged = len(self.others) > 1 or bool(self.literals) or any(kind is not type(None) for kind in self.leaves)


def unstructure_union(type_: Any, converter: BaseConverter) -> Callable[[Any], Any]:
    members = _Members(type_)
    if members.any:
        return AnyCodec(Any).encode
    hooks = {class_of(member): (converter.get_unstructure_hook(member), union_tag(member)) for member in members.others}
    literals = {(type(value), value) for literal in members.literals for value in get_args(literal)}

    def unstructure(value: Any) -> Any:
        for kind in type(value).__mro__:
            if kind in hooks:
                hook, tag = hooks[kind]
                return {"_type": tag, "_value": hook(value)} if members.tagged else hook(value)
            if kind in members.leaves:
                return encode_leaf(value, kind)
        if float in members.leaves and isinstance(value, int):
            return encode_leaf(value, float)
        if literals and (type(value), value) in literals:
            return value
        raise EncodeError(value, type_)

    return unstructure


def structure_union(type_: Any, converter: BaseConverter) -> Callable[[Any, Any], Any]:
    members = _Members(type_)
    if members.any:
        any_codec = AnyCodec(Any)
        return lambda encoded, _: any_codec.decode(encoded)
    tagged: dict[Any, Any] = {union_tag(member): member for member in members.others}
    literals = {(type(value), value) for literal in members.literals for value in get_args(literal)}

    def structure(encoded: Any, _: Any) -> Any:
        if type(encoded) in members.leaves:
            return encoded
        if type(encoded) is int and float in members.leaves:  # stored when the type was still int
            return float(encoded)
        if type(encoded) is dict:
            member = tagged.get(encoded.get("_type"))
            if member is not None:
                return converter.structure(encoded["_value"], member)
        elif literals and type(encoded) is not list and (type(encoded), encoded) in literals:
            return encoded
        # An Optional, or a value stored before the union was widened: use the first member that can read the value.
        for member in members.others:
            try:
                return converter.structure(encoded, member)
            except (StateDecodeError, TypeError, ValueError, KeyError, AttributeError):
                if not members.tagged:
                    raise
        raise StateDecodeError(encoded, type_)

    return structure
