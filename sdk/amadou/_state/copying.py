"""Copies values that callbacks may change in place."""

from copy import deepcopy
from enum import Enum
from functools import lru_cache
from typing import Any

from amadou._state.in_place import IMMUTABLE
from amadou.fields import fields_of, has_fields, is_named_tuple


def copied(value: Any) -> Any:
    """Return a copy of a value: the two share nothing that can be changed in place. A value without such parts is
    returned itself.

    :raises Exception: a part of the value cannot be copied
    """
    try:
        return _copied(value)
    except RecursionError:  # it may contain itself
        return deepcopy(value)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in IMMUTABLE:
        return value
    if kind is dict:  # dicts and lists, such as those of JSON, are copied without deepcopy, which is far slower
        return {key: part if type(part) in IMMUTABLE else _copied(part) for key, part in value.items()}
    if kind is list:
        return [part if type(part) in IMMUTABLE else _copied(part) for part in value]
    if kind is tuple:
        parts: Any = value
    else:
        names = _frozen_fields(kind)  # type: ignore[arg-type] # mypy looks for the hash of a value
        if names is None or len(getattr(value, "__dict__", ())) > len(names):
            return deepcopy(value)
        parts = [getattr(value, name, None) for name in names]
    return value if all(type(part) in IMMUTABLE or _copied(part) is part for part in parts) else deepcopy(value)


def copied_if_possible(value: Any) -> Any:
    """Return a copy of a value, or the value itself if a part of it cannot be copied, such as a generator."""
    try:
        return copied(value)
    except Exception:
        return value


@lru_cache(maxsize=1024)
def _frozen_fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a class whose objects cannot be assigned to; `None` for another class."""
    if issubclass(kind, Enum):
        return ()
    if not has_fields(kind):
        return None
    own = vars(kind)  # a subclass can have other attributes
    is_frozen = (
        ("_fields" in own and is_named_tuple(kind))
        or getattr(own.get("__dataclass_params__"), "frozen", False)
        or ("__attrs_attrs__" in own and getattr(kind.__setattr__, "__name__", "") == "_frozen_setattrs")
    )
    return tuple(field.name for field in fields_of(kind)) if is_frozen else None
