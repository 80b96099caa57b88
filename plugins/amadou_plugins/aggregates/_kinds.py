"""Kinds of values: some aggregates accept only values of a single kind."""

from collections.abc import Iterable
from typing import Any


def different(kind: Any, other: Any) -> tuple[str, str] | None:
    """Return the two kinds that prevent two accumulators from being merged; `None` if the accumulators can be merged.

    :param kind: `Aggregate.kind` of the first accumulator
    :param other: `Aggregate.kind` of the second accumulator
    """
    if isinstance(kind, dict) and isinstance(other, dict):
        found = (different(kind[name], other[name]) for name in kind.keys() & other.keys())
        return next((each for each in found if each is not None), None)
    return None if kind is None or other is None or kind == other else (kind, other)


def are_alike(kinds: Iterable[Any]) -> bool:
    """Return `True` if accumulators of these kinds can be merged."""
    whole: Any = None
    for kind in kinds:
        if kind != whole:
            if different(kind, whole) is not None:
                return False
            whole = joined((whole, kind))
    return True


def joined(kinds: Iterable[Any]) -> Any:
    """Return the kind of the accumulator that results from merging accumulators of these kinds."""
    whole: Any = None
    for kind in kinds:
        if isinstance(kind, dict) and isinstance(whole, dict):
            whole = {name: joined((whole.get(name), kind.get(name))) for name in whole.keys() | kind.keys()}
        elif kind is not None:
            whole = kind
    return whole
