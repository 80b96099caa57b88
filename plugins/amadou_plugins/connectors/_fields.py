"""The fields of a port's type, which become columns."""

import dataclasses
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

import attrs


def fields_of(type_: Any) -> dict[str, Any] | None:
    """The types of the fields of an attrs class, a dataclass or a named tuple, by name; `None` for other types."""
    class_ = get_origin(type_) or type_
    if not isinstance(class_, type):
        return None
    if attrs.has(class_):
        names = [field.name for field in attrs.fields(class_)]
    elif dataclasses.is_dataclass(class_):
        names = [field.name for field in dataclasses.fields(class_)]
    elif issubclass(class_, tuple) and hasattr(class_, "_fields"):
        names = list(class_._fields)
    else:
        return None
    hints = get_type_hints(class_)
    given = dict(zip(getattr(class_, "__parameters__", ()), get_args(type_), strict=False))
    return {name: _filled(hints.get(name, Any), given) for name in names}


def _filled(hint: Any, given: dict[Any, Any]) -> Any:
    """A type with the arguments of a generic class in the place of its type variables."""
    if isinstance(hint, TypeVar):
        return given.get(hint, Any)
    open_ = getattr(hint, "__parameters__", ())
    if get_origin(hint) is None or not open_:
        return hint
    return hint[tuple(given.get(variable, Any) for variable in open_)]
