"""The structure of types, as plain data for the checkpoint. A run uses this data to check that new code can read stored
state.
"""

import types
from enum import Enum, Flag
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from amadou._components.construction import is_needed
from amadou._connectors.codec import CONTAINERS, SEQUENCES, is_bare
from amadou._state.structured import LEAVES, union_tag
from amadou.fields import field_types, fields_of, is_typed_dict, items_of


def structure_of(type_: Any) -> dict[str, Any]:
    """Return the structure of a type: ``{"is": description, "classes": {name: fields}}``.

    A description is the name of a scalar or of a container without item types; ``"Any"``; ``{"list": description}``,
    and so on for containers; ``{"fixed": [description, …]}`` for a tuple of fixed length; ``{"dict": [description,
    description]}``; ``{"union": [[tag, description], …]}``; ``{"literal": [[type, text], …]}``; ``{"enum": name,
    "values": [[type, text], …], "open": true if the enum accepts other values, "flags" if it accepts combinations}``;
    or ``{"class": name}``. The fields of a class are ``{name: [description, true if the field is required]}``.
    """
    describing = _Describing()
    return {"is": describing.of(type_), "classes": describing.classes}


class _Describing:
    """Describes a type and the classes that it contains, each class only once."""

    def __init__(self) -> None:
        self.classes: dict[str, dict[str, Any]] = {}
        self._names: dict[Any, str] = {}

    def of(self, type_: Any) -> Any:
        if type_ is None or type_ in LEAVES:
            return "None" if type_ in (None, type(None)) else type_.__name__
        if is_bare(type_):
            return type_.__name__ if type_ in CONTAINERS else "Any"
        origin, arguments = get_origin(type_), get_args(type_)
        if origin is Annotated:
            return self.of(arguments[0])
        if origin is Literal:
            return {"literal": [_text(value) for value in arguments]}
        if origin in (Union, types.UnionType):
            if any(is_bare(member) and member not in CONTAINERS for member in arguments):
                return "Any"
            return {"union": [[union_tag(member), self.of(member)] for member in arguments]}
        if origin is tuple and Ellipsis not in arguments:
            return {"fixed": [self.of(part) for part in arguments]}
        if origin in SEQUENCES:
            return {origin.__name__: self.of((*arguments, Any)[0])}
        if origin is dict:
            return {"dict": [self.of(part) for part in arguments]}
        if isinstance(type_, type) and issubclass(type_, Enum):
            by_value = all(type(member.value) in LEAVES for member in type_)
            values = [_text(member.value if by_value else member.name) for member in type_]
            is_open = by_value and "_missing_" in {name for of in type_.__mro__[:-1] for name in _own(of)}
            are_flags = by_value and not is_open and issubclass(type_, Flag)
            return {"enum": type_.__qualname__, "values": values, "open": "flags" if are_flags else is_open}
        return {"class": self._class(type_)}

    def _class(self, type_: Any) -> str:
        if type_ not in self._names:
            name = base = type_.__qualname__ if isinstance(type_, type) else str(type_)
            while name in self.classes:
                name = f"{base} {len(self.classes)}"
            self._names[type_] = name
            fields: dict[str, Any] = {}
            self.classes[name] = fields
            if is_typed_dict(type_):
                fields |= {key: [self.of(kind), is_required] for key, (kind, is_required) in items_of(type_).items()}
                return name
            class_, kinds = get_origin(type_) or type_, field_types(type_) or {}
            for field in fields_of(class_):
                fields[field.name] = [self.of(kinds[field.name]), is_needed(class_, field)]
        return self._names[type_]


def _own(class_: type) -> Any:
    """Return the attributes that a class itself defines; empty for the classes of Python's `enum` module."""
    return () if class_.__module__ == "enum" else vars(class_)


def _text(value: Any) -> list[str]:
    return [type(value).__name__ if value is not None else "None", repr(value)]
