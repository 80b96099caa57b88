"""Strings by which checkpoints identify aggregates and their settings. The strings are the same in every process.

A function is shown by its name only, plain data by its value, an aggregate by its class name and settings, and any
other object by its class name.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from hashlib import sha256
from types import NoneType
from typing import Any, Final
from uuid import UUID

import attrs

from amadou.fields import fields_of, has_fields

_PLAIN: Final[Any] = (bool, int, float, complex, str, bytes, Decimal, datetime, date, time, timedelta, UUID, NoneType)
_LIMIT: Final = 300
"""Maximum length of an aggregate's string without the digest. The length is limited because every key group stores a
copy of the string. A longer string is truncated to this length, and a digest of the entire string is appended."""
_DIGITS: Final = 16


def shown_aggregate(aggregate: Any) -> str:
    """Return an aggregate of any class, with its settings, as a string."""
    text = f"{type(aggregate).__name__}({', '.join(settings(aggregate))})"
    if len(text) <= _LIMIT:
        return text
    return f"{text[:_LIMIT]}… (sha256 {sha256(text.encode(errors='surrogatepass')).hexdigest()[:_DIGITS]})"


def shown(setting: Any) -> str:
    """Return a setting as a string that does not depend on memory addresses, set order or values in closures."""
    kind: Any = type(setting)
    if all(callable(getattr(kind, method, None)) for method in ("create", "add", "result")):
        return shown_aggregate(setting)
    if isinstance(setting, partial):
        return shown(setting.func)
    if callable(setting):
        name = getattr(setting, "__name__", None)
        return name if isinstance(name, str) else str(kind.__name__)
    if isinstance(setting, Enum):
        return f"{kind.__name__}.{setting.name}"
    for plain in _PLAIN:
        if isinstance(setting, plain):
            return str(plain.__repr__(setting))
    if isinstance(setting, Mapping):
        return f"{{{', '.join(sorted(f'{shown(key)}: {shown(value)}' for key, value in setting.items()))}}}"
    if isinstance(setting, AbstractSet):
        return f"set({', '.join(sorted(map(shown, setting)))})"
    if isinstance(setting, tuple):
        return f"({', '.join(map(shown, setting))}{',' if len(setting) == 1 else ''})"
    if isinstance(setting, list | deque):
        return f"[{', '.join(map(shown, setting))}]"
    return str(kind.__name__)


def settings(aggregate: Any) -> list[str]:
    """Return an aggregate's settings in the form of constructor arguments. For attrs classes and dataclasses, settings
    with default values are omitted.
    """
    found: list[str] = []
    is_named = False
    for name, default, by_keyword, setting in _fields(aggregate):
        text = shown(setting)
        if text == shown(default):
            is_named = True
        else:
            found.append(f"{name}={text}" if is_named or by_keyword else text)
    return found


def _fields(aggregate: Any) -> Iterator[tuple[str, Any, bool, Any]]:
    """Yield each setting as a tuple `(name, default, is_keyword_only, value)`."""
    kind = type(aggregate)
    if has_fields(kind):
        for field in fields_of(kind):
            if field.alias is not None:
                yield field.alias, field.default, field.kw_only, getattr(aggregate, field.name)
    else:
        for name, value in sorted(_attributes(aggregate).items()):
            yield name, attrs.NOTHING, True, value


def _attributes(aggregate: Any) -> dict[str, Any]:
    """Return an object's attributes, from its `__dict__` and its slots, without cached properties."""
    kind = type(aggregate)
    found = dict(getattr(aggregate, "__dict__", {}))
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(aggregate, name):
                found[name] = getattr(aggregate, name)
    return {name: value for name, value in found.items() if not isinstance(getattr(kind, name, None), cached_property)}
