"""Re-creates objects of attrs classes and dataclasses from the values of their fields."""

from collections.abc import Callable, Mapping
from typing import Any, Final, get_origin, get_type_hints

import attrs

from amadou.fields import Field, field_types, fields_of


def resolved_annotations(class_: type) -> dict[str, Any]:
    """Return the types of a class's fields by name. In the fields themselves, replace string types with these types.

    :raises NameError: an annotation uses an undefined name
    """
    hints = get_type_hints(class_, include_extras=True)
    if attrs.has(class_):
        attrs.resolve_types(class_)
    for field in getattr(class_, "__dataclass_fields__", {}).values():
        field.type = hints.get(field.name, field.type)
    return hints


def made_fields(type_: Any) -> dict[str, Any]:
    """Return the types of the fields that a class sets itself (`init=False`), by name."""
    types = field_types(type_) or {}
    return {field.name: types[field.name] for field in fields_of(type_) if field.alias is None}


def is_needed(class_: type, field: Field) -> bool:
    """Return `True` for a field without a default, unless it is an `init=False` field that a post-init hook may set."""
    return field.default is attrs.NOTHING and not (field.alias is None and _acts(class_))


def is_plain(type_: Any) -> bool:
    """Return `True` for an attrs class or a dataclass without a post-init hook, converters, validators or `init=False`
    fields. Objects of such a class can be re-created by calling the class.
    """
    class_ = get_origin(type_) or type_
    return not (_acts(class_) or _checks(class_) or made_fields(type_))


def maker_of(class_: type) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that creates an object of an attrs class or a dataclass from the stored values of its fields,
    by name. An attrs class's converters and validators do not run for these values, because they ran when the original
    object was created. For exception classes, and for classes with a pre-init hook or a custom `__init__`, the function
    calls the class, so converters and validators can run.
    """
    if _checks(class_) and not _UNKNOWN_TO_FIELDS & set(dir(class_)) and not issubclass(class_, BaseException):
        return lambda parts: _filled(class_, parts)
    inits = {of.name: of.alias for of in fields_of(class_) if of.alias is not None}
    return lambda parts: class_(**{inits[name]: part for name, part in parts.items() if name in inits})


_UNKNOWN_TO_FIELDS: Final = {"__attrs_pre_init__", "__attrs_init__"}
"""Attributes that mark a class with a pre-init hook or a custom `__init__`. Setting the fields is not enough to
create an object of such a class."""
_CACHED_HASH: Final = "_attrs_cached_hash"


def _acts(class_: type) -> bool:
    """Return `True` for a class with a post-init hook, which runs after an object's fields have been set."""
    return any(hasattr(class_, name) for name in ("__post_init__", "__attrs_post_init__"))


def _checks(class_: type) -> bool:
    return attrs.has(class_) and any(of.converter or of.validator for of in attrs.fields(class_))


def _filled(class_: type, parts: Mapping[str, Any]) -> Any:
    """Create an object as the `__init__` of an attrs class does, but without validators, and without converters for
    stored values.
    """
    value = class_.__new__(class_)  # type: ignore[call-overload]
    for of in attrs.fields(class_):
        if of.name in parts:
            part = parts[of.name]
        elif of.default is attrs.NOTHING:
            continue
        else:
            part = _default(of, value)
        object.__setattr__(value, of.name, part)
    code = class_.__init__.__code__  # type: ignore[misc]
    if _CACHED_HASH in (*code.co_names, *code.co_consts):
        object.__setattr__(value, _CACHED_HASH, None)
    if hasattr(value, "__attrs_post_init__"):
        value.__attrs_post_init__()
    return value


def _default(of: "attrs.Attribute[Any]", value: Any) -> Any:
    default: Any = of.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = default.factory(value) if default.takes_self else default.factory()
    converter: Any = of.converter
    if isinstance(converter, attrs.Converter):
        return converter.__call__(default, value, of)  # type: ignore[operator]
    return default if converter is None else converter(default)
