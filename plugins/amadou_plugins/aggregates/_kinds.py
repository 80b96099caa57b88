"""Kinds of values, of which an aggregate may take only one."""

from collections.abc import Iterable
from typing import Any


def different(kind: Any, other: Any) -> tuple[str, str] | None:
    """Return two kinds that cannot be merged, given the `Aggregate.kind` of two accumulators; `None` where they can."""
    if isinstance(kind, dict) and isinstance(other, dict):
        found = (different(kind[name], other[name]) for name in kind.keys() & other.keys())
        return next((each for each in found if each is not None), None)
    return None if kind is None or other is None or kind == other else (kind, other)


def are_alike(kinds: Iterable[Any]) -> bool:
    """Return true if accumulators of these kinds can be merged."""
    whole: Any = None
    for kind in kinds:
        if kind != whole:
            if different(kind, whole) is not None:
                return False
            whole = joined((whole, kind))
    return True


def joined(kinds: Iterable[Any]) -> Any:
    """Return the kind of a merge of accumulators of these kinds."""
    whole: Any = None
    for kind in kinds:
        if isinstance(kind, dict) and isinstance(whole, dict):
            whole = {name: joined((whole.get(name), kind.get(name))) for name in whole.keys() | kind.keys()}
        elif kind is not None:
            whole = kind
    return whole
