"""Reads JSON documents that may come from somebody else as classes: what does not fit the classes is an error."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar, get_args, get_origin

from cattrs import Converter
from cattrs.errors import BaseValidationError, ForbiddenExtraKeysError

from amadou.engine import check_key
from amadou.errors import AmadouError
from amadou.event_time import BEGINNING_OF_TIME, END_OF_TIME

T = TypeVar("T")
_PLAIN_KEYS: Final = frozenset({str, bytes, int})
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


def check_column(values: Iterable[Any], *types: type) -> None:
    """Check the types of values, and that times, which are the only integers in columns, are within the range of times.

    :raises ValueError: a value has another type, or is out of range
    """
    found = set(map(type, values))
    if not found <= {*types}:
        raise ValueError(f"a column has values other than {', '.join(type_.__name__ for type_ in types)}")
    if int in found:
        times = [value for value in values if type(value) is int]
        if min(times) < BEGINNING_OF_TIME or max(times) > END_OF_TIME:
            raise ValueError("a column has times out of range")


def check_keys(keys: Iterable[Any]) -> None:
    """Check that values are keys.

    :raises KeyTypeError: they are not
    """
    if not set(map(type, keys)) <= _PLAIN_KEYS:
        for key in keys:
            check_key(key)


def exact(value: Any, type_: Any) -> Any:
    """Return a value of a type; a hook of cattrs.

    :raises TypeError: the value has another type
    """
    if type(value) is not type_ and not (type_ is float and type(value) is int):
        raise TypeError(f"{type_.__name__} expected, {type(value).__name__} found")
    if type_ is str:
        value.encode()  # a surrogate is no text
    return value


def _list(value: Any, type_: Any) -> list[Any]:
    (item,) = get_args(type_)
    return [_converter.structure(each, item) for each in exact(value, list)]


def _mapping(value: Any, type_: Any) -> dict[str, Any]:
    _, item = get_args(type_)
    return {exact(key, str): _converter.structure(each, item) for key, each in exact(value, dict).items()}


def _origin(type_: Any) -> Any:
    return get_origin(type_)


def _made_converter() -> Converter:
    converter = Converter(forbid_extra_keys=True, detailed_validation=False)
    for leaf in (str, int, float, bool):
        converter.register_structure_hook(leaf, exact)
    converter.register_structure_hook_func(lambda type_: _origin(type_) is list, _list)
    converter.register_structure_hook_func(lambda type_: _origin(type_) in (dict, Mapping), _mapping)
    return converter


_converter: Final = _made_converter()
