"""The fields of attrs classes, dataclasses and named tuples, for codecs and sinks."""

import dataclasses
from functools import lru_cache
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import attrs
from typing_extensions import NotRequired, ReadOnly, Required, is_typeddict


class Field(NamedTuple):
    """A field of a class.

    :param name: the name of the attribute
    :param alias: the name of the argument of `__init__`; `None` for a field that the class sets itself (`init=False`)
    :param default: the default, or an `attrs.Factory` that creates it; `attrs.NOTHING` if there is no default
    :param kw_only: `True` if the argument must be passed by name
    """

    name: str
    alias: str | None
    default: Any = attrs.NOTHING
    kw_only: bool = False


def has_fields(type_: Any) -> bool:
    """Return `True` for an attrs class, a dataclass or a named tuple, with or without type arguments."""
    class_ = get_origin(type_) or type_
    return isinstance(class_, type) and (
        attrs.has(class_) or dataclasses.is_dataclass(class_) or is_named_tuple(class_)
    )


def is_named_tuple(class_: Any) -> bool:
    """Return `True` for a named tuple class."""
    return isinstance(class_, type) and issubclass(class_, tuple) and hasattr(class_, "_fields")


def is_typed_dict(type_: Any) -> bool:
    """Return `True` for a `TypedDict`, with or without type arguments."""
    return is_typeddict(get_origin(type_) or type_)


def items_of(type_: Any) -> dict[str, tuple[Any, bool]]:
    """Return the items of a `TypedDict` by key: the type of the value, and `True` if the key is required.

    :raises NameError: an annotation uses an undefined name
    """
    class_ = get_origin(type_) or type_
    given = dict(zip(getattr(class_, "__parameters__", ()), get_args(type_), strict=False))
    items = {}
    for name, hint in get_type_hints(class_, include_extras=True).items():
        is_required = name in class_.__required_keys__
        while get_origin(hint) in (Annotated, Required, NotRequired, ReadOnly):
            is_required = {Required: True, NotRequired: False}.get(get_origin(hint), is_required)
            hint = get_args(hint)[0]
        items[name] = (_with_arguments(hint, given), is_required)
    return items


def fields_of(type_: Any) -> tuple[Field, ...]:
    """Return the fields of an attrs class, a dataclass or a named tuple, in the order in which the fields are declared.
    Return an empty tuple for other types.
    """
    return _fields(get_origin(type_) or type_) if has_fields(type_) else ()


def field_types(type_: Any) -> dict[str, Any] | None:
    """Return the types of the fields by name; `None` for a type that is not a class with fields.

    A type variable is replaced by its type argument, or by `Any` if it has no type argument.

    :raises NameError: an annotation uses an undefined name
    """
    if not has_fields(type_):
        return None
    class_ = get_origin(type_) or type_
    hints = get_type_hints(class_)
    given = dict(zip(getattr(class_, "__parameters__", ()), get_args(type_), strict=False))
    return {field.name: _with_arguments(hints.get(field.name, Any), given) for field in fields_of(class_)}


@lru_cache(1000)
def _fields(class_: Any) -> tuple[Field, ...]:
    if attrs.has(class_):
        return tuple(
            Field(of.name, of.alias if of.init else None, of.default, bool(of.kw_only)) for of in attrs.fields(class_)
        )
    if is_named_tuple(class_):
        return tuple(Field(name, name, class_._field_defaults.get(name, attrs.NOTHING)) for name in class_._fields)
    return tuple(
        Field(of.name, of.name if of.init else None, _default(of), bool(of.kw_only))
        for of in dataclasses.fields(class_)
    )


def _default(of: "dataclasses.Field[Any]") -> Any:
    if of.default_factory is not dataclasses.MISSING:
        return attrs.Factory(of.default_factory)
    return attrs.NOTHING if of.default is dataclasses.MISSING else of.default


def _with_arguments(hint: Any, given: dict[Any, Any]) -> Any:
    if isinstance(hint, TypeVar):
        return given.get(hint, Any)
    variables = getattr(hint, "__parameters__", ())
    if get_origin(hint) is None or not variables:
        return hint
    return hint[tuple(given.get(variable, Any) for variable in variables)]
