"""Reads JSON documents that may come from somebody else as classes: what does not fit the classes is an error."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, get_args, get_origin

from cattrs import Converter
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError

from amadou.errors import AmadouError

T = TypeVar("T")
UNREADABLE: Final = (
    AmadouError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    MemoryError,
)
"""The errors that stored data cause that has not the expected form."""


def structured(type_: type[T], document: Any) -> T:
    """Return a JSON document as an attrs class.

    :raises ValueError: a field is missing, unknown or of another type than the class declares
    """
    try:
        return _converter.structure(document, type_)
    except (BaseValidationError, ForbiddenExtraKeysError, *UNREADABLE) as error:
        raise ValueError(f"it is no {type_.__name__} ({type(error).__name__}: {error})") from error


def _exact(value: Any, type_: Any) -> Any:
    if type(value) is not type_ and not (type_ is float and type(value) is int):
        raise TypeError(f"{type_.__name__} expected, {type(value).__name__} found")
    return value


def _list(value: Any, type_: Any) -> list[Any]:
    (item,) = get_args(type_)
    return [_converter.structure(each, item) for each in _exact(value, list)]


def _mapping(value: Any, type_: Any) -> dict[str, Any]:
    _, item = get_args(type_)
    return {key: _converter.structure(each, item) for key, each in _exact(value, dict).items()}


def _origin(type_: Any) -> Any:
    return get_origin(type_)


def _made_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=False)
    for leaf in (str, int, float, bool):
        converter.register_structure_hook(leaf, _exact)
    converter.register_structure_hook_func(lambda type_: _origin(type_) is list, _list)
    converter.register_structure_hook_func(lambda type_: _origin(type_) in (dict, Mapping), _mapping)
    return converter


_converter: Final = _made_converter()
