"""Converts Arrow values to Python's on each version of pyarrow that amadou supports."""

from collections.abc import Callable, Iterable
from typing import Any


def python_values(column: Any) -> list[Any]:
    """Return the values of an Arrow array; maps become dicts.

    :raises KeyError: a map has a key twice
    """
    import pyarrow as pa

    if int(pa.__version__.partition(".")[0]) >= 20:
        return column.to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
    values = column.to_pylist()
    convert = _map_converter(column.type)
    return values if convert is None else [_converted(convert, value) for value in values]


def _map_converter(type_: Any) -> Callable[[Any], Any] | None:
    """Return a function that turns the maps in a value into dicts; `None` if the type has no maps."""
    import pyarrow.types as types

    if types.is_map(type_):
        key, item = _map_converter(type_.key_type), _map_converter(type_.item_type)
        return lambda pairs: _dict_of((_converted(key, name), _converted(item, value)) for name, value in pairs)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        inner = _map_converter(type_.value_type)
        return None if inner is None else lambda values: [_converted(inner, value) for value in values]
    if types.is_struct(type_):
        fields = {field.name: _map_converter(field.type) for field in type_}
        if not any(fields.values()):
            return None
        return lambda struct: {name: _converted(fields[name], value) for name, value in struct.items()}
    return None


def _converted(convert: Callable[[Any], Any] | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def _dict_of(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, value in pairs:
        if key in found:
            raise KeyError(f"the key {key!r} is in a map twice")
        found[key] = value
    return found
