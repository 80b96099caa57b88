"""Aggregates and their settings as texts that are the same in each process: checkpoints identify a job by them.

A function is shown by its name alone, plain data by its value, anything else by its class.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

import attrs

from amadou.fields import fields_of, has_fields

_PLAIN: Final = (bool, int, float, complex, str, bytes, Decimal, datetime, date, time, timedelta, UUID)
_LIMIT: Final = 300
"""Length from which a text is cut and ends in a digest of the whole: each key group stores one."""
_DIGITS: Final = 16


def shown_aggregate(aggregate: Any) -> str:
    """Return an aggregate of any class, with its settings, as a text."""
    text = f"{type(aggregate).__name__}({', '.join(settings(aggregate))})"
    if len(text) <= _LIMIT:
        return text
    return f"{text[:_LIMIT]}… (sha256 {sha256(text.encode(errors='surrogatepass')).hexdigest()[:_DIGITS]})"


def shown(setting: Any) -> str:
    """Return a setting as a text without memory addresses, set order, or anything that a function captures."""
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
            return plain.__repr__(setting)
    if isinstance(setting, Mapping):
        return f"{{{', '.join(sorted(f'{shown(key)}: {shown(value)}' for key, value in setting.items()))}}}"
    if isinstance(setting, AbstractSet):
        return f"set({', '.join(sorted(map(shown, setting)))})"
    if isinstance(setting, tuple):
        return f"({', '.join(map(shown, setting))}{',' if len(setting) == 1 else ''})"
    if isinstance(setting, list | deque):
        return f"[{', '.join(map(shown, setting))}]"
    return "None" if setting is None else str(kind.__name__)


def settings(aggregate: Any) -> list[str]:
    """Return the settings of an aggregate as its constructor takes them; attrs classes and dataclasses without their
    defaults.
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
    """Yield the name, the default, true if it is keyword-only, and the value of each setting."""
    kind = type(aggregate)
    if has_fields(kind):
        for field in fields_of(kind):
            if field.alias is not None:
                yield field.alias, field.default, field.kw_only, getattr(aggregate, field.name)
    else:
        for name, value in sorted(_attributes(aggregate).items()):
            yield name, attrs.NOTHING, True, value


def _attributes(aggregate: Any) -> dict[str, Any]:
    """Return the attributes of an object, in its `__dict__` or in slots, without its cached properties."""
    kind = type(aggregate)
    found = dict(getattr(aggregate, "__dict__", {}))
    for base in kind.__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(aggregate, name):
                found[name] = getattr(aggregate, name)
    return {name: value for name, value in found.items() if not isinstance(getattr(kind, name, None), cached_property)}
