"""Comparisons of values with their encoded form find each change, and recognise what did not change."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import attrs
import pytest

from amadou._state.unchanged import comparison_for
from amadou.plugins import codec_for

T = TypeVar("T")


class Color(Enum):
    RED = "r"
    BLUE = "b"


class Place(Enum):
    HOME = (0, 0)
    SHOP = (1, 2)


class Point(NamedTuple):
    x: float
    tags: list[str]


class Page(TypedDict, total=False):
    name: str
    visits: list[int]


@attrs.define
class Node:
    name: str
    children: "list[Node]" = attrs.Factory(list)
    parent: "Node | None" = None


@attrs.define
class Box(Generic[T]):
    content: T


@attrs.define
class Empty: ...


@dataclass
class Visitor:
    visits: int = 0
    first: datetime = datetime(2024, 1, 1, tzinfo=timezone.utc)
    by_page: dict[str, list[int]] = field(default_factory=dict)
    color: Color = Color.RED
    place: Place = Place.HOME
    share: Decimal = Decimal("0.5")
    names: set[str] = field(default_factory=lambda: {"a", "b"})
    anything: Any = None


Change = Callable[[Any], object]

CASES: dict[str, tuple[Any, Any, list[Change]]] = {
    "list": (list[int], [1, 2], [lambda v: v.append(3), lambda v: v.clear(), lambda v: v.reverse()]),
    "empty list": (list[int], [], [lambda v: v.append(3)]),
    "nested list": (list[list[str]], [["a"], []], [lambda v: v[1].append("b"), lambda v: v.pop()]),
    "bare list": (list, [1, [2]], [lambda v: v[1].append(3), lambda v: v.__setitem__(0, True)]),
    "dict": (dict[str, int], {"a": 1}, [lambda v: v.update(a=2), lambda v: v.update(b=1), lambda v: v.clear()]),
    "dict of dicts": (dict[int, dict[str, float]], {1: {"a": 0.5}}, [lambda v: v[1].clear(), lambda v: v.pop(1)]),
    "set": (set[str], {"a", "b"}, [lambda v: v.add("c"), lambda v: v.clear()]),
    "tuple": (tuple[list[int], ...], ([1], []), [lambda v: v[1].append(2)]),
    "fixed tuple": (tuple[int, list[int]], (1, [2]), [lambda v: v[1].append(2)]),
    "named tuple": (Point, Point(0.5, ["a"]), [lambda v: v.tags.append("b")]),
    "TypedDict": (Page, Page(name="a", visits=[1]), [lambda v: v["visits"].append(2), lambda v: v.pop("name")]),
    "optional": (list[int] | None, [1], [lambda v: v.append(2)]),
    "None": (list[int] | None, None, []),
    "union of leaves": (int | str | None, "a", []),
    "literal": (Literal["a", "b"], "a", []),
    "annotated": (Annotated[list[int], "days"], [1], [lambda v: v.append(2)]),
    "UUID": (UUID, UUID(int=1), []),
    "any": (Any, {"a": [1]}, [lambda v: v["a"].append(2)]),
    "generic": (Box[list[int]], Box([1]), [lambda v: v.content.append(2), lambda v: setattr(v, "content", [2])]),
    "open generic": (Box, Box([1]), [lambda v: v.content.append(2)]),
    "class without fields": (Empty, Empty(), []),
    "class that contains itself": (
        Node,
        Node("a", [Node("b")], Node("c")),
        [lambda v: v.children[0].children.append(Node("d")), lambda v: setattr(v.parent, "name", "d")],
    ),
    "dataclass": (
        Visitor,
        Visitor(1, by_page={"a": [1]}),
        [
            lambda v: setattr(v, "visits", 2),
            lambda v: setattr(v, "visits", True),
            lambda v: setattr(v, "visits", "no number"),
            lambda v: setattr(v, "first", None),
            lambda v: v.by_page["a"].append(2),
            lambda v: setattr(v, "color", Color.BLUE),
            lambda v: setattr(v, "color", "r"),
            lambda v: setattr(v, "place", Place.SHOP),
            lambda v: setattr(v, "share", Decimal("0.50")),
            lambda v: v.names.add("c"),
            lambda v: setattr(v, "anything", []),
        ],
    ),
}


def is_unchanged(value: Any, type_: Any, encoded: Any) -> bool:
    try:
        return comparison_for(type_)(value, encoded)
    except Exception:
        return False


@pytest.mark.parametrize(("type_", "value", "changes"), CASES.values(), ids=CASES)
def test_only_values_that_did_not_change_are_recognised(type_: Any, value: Any, changes: list[Change]) -> None:
    codec = codec_for(type_)
    encoded = codec.encode(value)
    assert is_unchanged(value, type_, encoded)
    assert is_unchanged(codec.decode(encoded), type_, encoded)
    for change in changes:
        changed = codec.decode(encoded)
        change(changed)
        assert not is_unchanged(changed, type_, encoded)


@pytest.mark.parametrize("type_", [list[int] | dict[str, int], dict[Color, int], set[Color]], ids=str)
def test_values_of_other_types_are_never_recognised(type_: Any) -> None:
    value = {list[int] | dict[str, int]: [1], dict[Color, int]: {Color.RED: 1}, set[Color]: {Color.RED}}[type_]
    assert not is_unchanged(value, type_, codec_for(type_).encode(value))
