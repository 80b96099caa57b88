"""The fields of attrs classes, dataclasses and named tuples."""

import dataclasses
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

import attrs
from cattrs.cols import is_namedtuple


class Field(NamedTuple):
    """A field of a class.

    :param made: whether the class makes it itself (`init=False`)
    :param needed: whether no object can be made without it
    """

    name: str
    type: Any
    made: bool
    needed: bool


def has_fields(type_: Any) -> bool:
    """Whether a type is an attrs class or a dataclass, with or without arguments."""
    class_ = get_origin(type_) or type_
    return isinstance(class_, type) and (attrs.has(class_) or hasattr(class_, "__dataclass_fields__"))


def fields_of(type_: Any) -> list[Field]:
    """The fields of a class, with its arguments in the place of type variables.

    :raises NameError: an annotation names what is not there
    """
    class_ = get_origin(type_) or type_
    hints = get_type_hints(class_)
    given = dict(zip(getattr(class_, "__parameters__", ()), get_args(type_), strict=False))

    def field(name: str, is_made: bool, has_default: bool) -> Field:
        kind = _with_arguments(hints.get(name, Any), given)
        return Field(name, kind, is_made, needed=not (is_made or has_default))

    if attrs.has(class_):
        return [field(of.name, not of.init, of.default is not attrs.NOTHING) for of in attrs.fields(class_)]
    if is_namedtuple(class_):
        defaults: dict[str, Any] = class_._field_defaults
        return [field(name, False, name in defaults) for name in class_._fields]
    missing = dataclasses.MISSING
    return [
        field(of.name, not of.init, (of.default, of.default_factory) != (missing, missing))
        for of in class_.__dataclass_fields__.values()
    ]


def resolved_annotations(class_: type) -> dict[str, Any]:
    """The types of a class's fields by name. What is quoted is looked up, and replaced for all that ask the class.

    :raises NameError: there is no such type
    """
    hints = get_type_hints(class_, include_extras=True)
    if attrs.has(class_):
        attrs.resolve_types(class_)
    for field in getattr(class_, "__dataclass_fields__", {}).values():
        field.type = hints.get(field.name, field.type)
    return hints


def made_fields(type_: Any) -> dict[str, Any]:
    """The types of the fields that a class makes itself, by name."""
    return {field.name: field.type for field in fields_of(type_) if field.made}


def _with_arguments(type_: Any, given: dict[Any, Any]) -> Any:
    if type_ in given:
        return given[type_]
    parameters = getattr(type_, "__parameters__", ())
    return type_[tuple(given.get(name, name) for name in parameters)] if parameters and get_args(type_) else type_
