"""The form of structures that come with state: what `StateSpec.structure` returns, and nothing else."""

from datetime import timedelta
from enum import Enum
from typing import Any, Literal, NamedTuple, TypedDict

import attrs
import pytest

from amadou import MapSpec, ReferenceSpec, ValueSpec
from amadou_plugins.aggregates import Count, Mean
from amadou_plugins.windows import SessionWindow, TumblingWindow
from amadou_runtime.jobs.state_schema import check_structures


class Colour(Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Options(TypedDict, total=False):
    colour: Colour


@attrs.frozen
class Tree:
    left: "Tree | None"
    points: dict[str, list[Point]]
    kind: Literal["a", 1, None]
    pair: tuple[int, str]
    options: Options
    anything: Any = None


SPECS: list[Any] = [
    ValueSpec(Tree),
    ValueSpec(int, version=2, migrate=lambda value, _: value),
    MapSpec(str | int, Tree),
    ReferenceSpec(str, Tree, source="trees"),
    TumblingWindow(timedelta(minutes=1), {"count": Count(), "means": {"x": Mean()}}),
    SessionWindow(timedelta(minutes=1), Count(), allowed_lateness=timedelta(hours=1)),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_structures_of_specs_have_the_right_form(spec: Any) -> None:
    check_structures([spec.structure()])
    check_structures([{**spec.structure(), "more": 1}, spec.structure()])


def described(description: Any, classes: Any) -> dict[str, Any]:
    return {"kind": "ValueSpec", "version": 0, "shown": "", "parts": {"value": {"is": description, "classes": classes}}}


@pytest.mark.parametrize(
    "structure",
    [
        {"version": 0},
        {"kind": "ValueSpec"},
        {"kind": 1, "version": 0},
        {"kind": "ValueSpec", "version": -1},
        {"kind": "ReferenceSpec", "version": 0},
        {"kind": "ValueSpec", "version": 1.0},
        {"kind": "RunningSpec", "version": 0, "aggregate": {"a": 1}},
        {"kind": "TumblingWindow", "version": 0, "settings": {"size": 1}},
        {"kind": "ValueSpec", "version": 0, "parts": {"value": {"is": "int"}}},
        described(7, {}),
        described({}, {}),
        described({"heap": "int"}, {}),
        described({"list": "int", "set": "int"}, {}),
        described({"list": 1}, {}),
        described({"dict": ["str"]}, {}),
        described({"fixed": "int"}, {}),
        described({"union": ["int", "str"]}, {}),
        described({"union": [[1, "str"]]}, {}),
        described({"literal": [["int", 1]]}, {}),
        described({"enum": "Colour"}, {}),
        described({"enum": "Colour", "values": 1, "open": False}, {}),
        described({"class": "Point"}, {}),
        described("int", {"Point": {"x": ["int", 1]}}),
        described("int", {"Point": {"x": "int"}}),
        described("int", {"Point": {"x": [{"class": "Line"}, True]}}),
    ],
)
def test_other_structures_are_refused(structure: Any) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
        check_structures([structure])


def test_a_spec_has_a_structure() -> None:
    with pytest.raises(ValueError, match="no structure"):
        check_structures([])
