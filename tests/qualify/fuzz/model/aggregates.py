"""Aggregates over a list of event values, in the order in which they were added."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from tests.qualify.fuzz.scripts import Component


def numbers(values: Sequence[dict[str, Any]]) -> list[int]:
    return [value["v"] for value in values]


def ids(values: Sequence[dict[str, Any]]) -> list[int]:
    return [value["id"] for value in values]


def _mean(values: Sequence[dict[str, Any]]) -> float | None:
    return float(Fraction(sum(numbers(values)), len(values))) if values else None


AGGREGATES: dict[str | None, Callable[[Sequence[dict[str, Any]]], Any]] = {
    None: len,
    "count": len,
    "sum": lambda values: sum(numbers(values)),
    "max": lambda values: max(numbers(values), default=None),
    "min": lambda values: min(numbers(values), default=None),
    "mean": _mean,
    "ids": ids,
    "first": lambda values: ids(values)[0],
    "last": lambda values: ids(values)[-1],
    "backwards": lambda values: sorted(ids(values), reverse=True),
    "several": lambda values: {"n": len(values), "sum": sum(numbers(values)), "max": max(numbers(values))},
    "ordered": lambda values: {"n": len(values), "ids": ids(values)},
}


def result_of(component: Component, values: Sequence[dict[str, Any]]) -> Any:
    return AGGREGATES[component.settings.get("value")](values)
