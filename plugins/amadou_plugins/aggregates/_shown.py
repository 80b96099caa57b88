"""Aggregates and their settings as texts that are the same in each process: a checkpoint knows a job by them."""

import dataclasses
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import attrs

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def shown(value: Any) -> str:
    """A setting, or an aggregate: no address in memory, no order of a set."""
    name = getattr(value, "__qualname__", None)
    if isinstance(name, str):
        return name
    kind: Any = type(value)
    if kind is partial:
        named = [f"{name}={shown(part)}" for name, part in value.keywords.items()]
        return f"partial({', '.join([shown(value.func), *map(shown, value.args), *named])})"
    if kind in (set, frozenset):
        return f"{kind.__name__}({', '.join(sorted(map(shown, value)))})"
    if kind is list:
        return f"[{', '.join(map(shown, value))}]"
    if kind is tuple:
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    if kind is dict:
        return f"{{{', '.join(f'{shown(key)}: {shown(part)}' for key, part in value.items())}}}"
    if attrs.has(kind) or dataclasses.is_dataclass(value):
        return f"{kind.__name__}({', '.join(settings(value))})"
    return kind.__qualname__ if kind.__repr__ is object.__repr__ else _ADDRESS.sub("", repr(value))


def settings(value: Any) -> list[str]:
    """The settings of an attrs class or a dataclass that are not the default, as its maker takes them."""
    told: list[str] = []
    named = False
    for name, default, by_keyword, setting in _fields(value):
        if setting == default:
            named = True
        else:
            told.append(f"{name}={shown(setting)}" if named or by_keyword else shown(setting))
    return told


def _fields(value: Any) -> Iterator[tuple[str, Any, bool, Any]]:
    """Name, default, whether it is given by name alone, and value of each setting."""
    kind = type(value)
    if attrs.has(kind):
        for field in attrs.fields(kind):
            if field.init:
                yield field.alias, field.default, bool(field.kw_only), getattr(value, field.name)
        return
    for of in dataclasses.fields(kind):
        if of.init:
            yield of.name, of.default, bool(of.kw_only), getattr(value, of.name)
