"""`copied` copies what can be changed in place, and returns a value without such parts itself."""

import dataclasses
import math
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amadou import KeyedEvent
from amadou.components import copied

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)
T = TypeVar("T")


class Color(Enum):
    RED = "red"
    MIXED = ["red", "blue"]


class Access(Flag):
    READ = 1
    WRITE = 2


@attrs.frozen
class Point:
    x: float
    tags: Any = ()


@attrs.frozen
class Labelled(Point):
    label: str = ""


@attrs.frozen(slots=False)
class WithDict:
    content: Any


@dataclasses.dataclass(frozen=True)
class Order:
    price: Decimal
    of: Any = None


@dataclasses.dataclass(frozen=True)
class Box(Generic[T]):
    content: T
    size: int = dataclasses.field(init=False, default=1)
    owner: "Unknown | None" = None  # type: ignore[name-defined]  # noqa: F821


class Pair(NamedTuple):
    left: Any
    right: Any = None


@attrs.define
class Profile:
    visits: int = 0
    names: tuple[str, ...] = ()


@dataclasses.dataclass
class Visitor:
    name: str
    pages: list[str] = dataclasses.field(default_factory=list)


class Plain:
    def __init__(self, content: Any = None) -> None:
        self.content = content


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(max_size=3), parts, max_size=4),
    max_leaves=20,
)


def parts_of(value: Any) -> Iterator[Any]:
    """Yield each dict and list in a value."""
    if isinstance(value, dict | list):
        yield value
        for part in value.values() if isinstance(value, dict) else value:
            yield from parts_of(part)


@given(values)
def test_a_copy_of_json_is_equal_and_shares_no_dict_or_list(value: Any) -> None:
    copy = copied(value)
    assert copy == value
    assert repr(copy) == repr(value)  # the types and the order of keys, too
    assert {*map(id, parts_of(copy))}.isdisjoint(map(id, parts_of(value)))


IMMUTABLE = [
    *(None, True, 1, 2**70, -0.0, math.nan, "text", b"bytes", Decimal("1.0"), NOON, NOON.date(), timedelta(1)),
    *(Color.RED, Color.MIXED, Access.READ | Access.WRITE),
    *((), (1, "a"), ((1, (NOON, None)), Color.RED)),
    *(Point(1), Point(1, ("a", Point(2))), Labelled(1, label="a"), WithDict(Point(1))),
    *(Order(Decimal(1)), Order(Decimal(1), Point(1)), Box("a"), Box(Box(1))),
    *(Pair(1), Pair(Pair(1, 2), Order(Decimal(1))), KeyedEvent("a", NOON, Point(1))),
]


@pytest.mark.parametrize("value", IMMUTABLE, ids=repr)
def test_a_value_that_cannot_be_changed_in_place_is_returned_itself(value: Any) -> None:
    assert copied(value) is value
    assert copied([value])[0] is value
    assert copied({"a": value})["a"] is value


@pytest.mark.parametrize(
    ("value", "part_of"),
    [
        (Point(1, ["a"]), lambda value: value.tags),
        (Point(1, ((), {"a": 1})), lambda value: value.tags[1]),
        (Labelled(1, [], label="a"), lambda value: value.tags),
        (WithDict([1]), lambda value: value.content),
        (Order(Decimal(1), {}), lambda value: value.of),
        (Order(Decimal(1), Point(1, [])), lambda value: value.of.tags),
        (Box([1]), lambda value: value.content),
        (Box(Box({1})), lambda value: value.content.content),
        (Pair(1, [2]), lambda value: value.right),
        (Pair(Pair(1, bytearray(b"a"))), lambda value: value.left.right),
        (KeyedEvent("a", NOON, {"price": 1}), lambda value: value.value),
        ((1, (2, {3})), lambda value: value[1][1]),
        ((Profile(1),), lambda value: value[0]),
    ],
    ids=lambda each: "" if callable(each) else repr(each),
)
def test_a_frozen_value_with_a_part_that_can_be_changed_is_copied(value: Any, part_of: Callable[[Any], object]) -> None:
    copy = copied(value)
    assert (copy, type(copy)) == (value, type(value))
    assert part_of(copy) is not part_of(value)


@pytest.mark.parametrize(
    "value",
    [
        Profile(1),
        Visitor("ann", ["home"]),
        {1, 2},
        frozenset({"a"}),
        deque([[1]]),
        bytearray(b"a"),
        OrderedDict(b=[1], a=[]),
        defaultdict(list, a=[1]),
        [Profile(1), {"a": Visitor("ann")}],
        {("a", 1): {1: [2]}},
    ],
    ids=repr,
)
def test_a_value_that_can_be_changed_in_place_is_copied_as_its_type(value: Any) -> None:
    copy = copied(value)
    assert (copy, repr(copy)) == (value, repr(value))
    assert copy is not value or isinstance(value, frozenset)


def test_changing_a_copy_does_not_change_the_value() -> None:
    value = {"visitor": Visitor("ann", ["home"]), "pairs": [Pair(1, [2])], "all": OrderedDict(a=[1]), "set": {1}}
    copy = copied(value)
    copy["visitor"].name = "bob"
    copy["visitor"].pages.append("shop")
    copy["pairs"][0].right.append(3)
    copy["all"]["a"].clear()
    copy["set"].add(2)
    assert value == {
        "visitor": Visitor("ann", ["home"]),
        "pairs": [Pair(1, [2])],
        "all": OrderedDict(a=[1]),
        "set": {1},
    }


def test_an_object_without_fields_is_copied_with_its_attributes() -> None:
    value = Plain([1])
    copy = copied(value)
    assert (type(copy), copy.content) == (Plain, [1])
    assert copy is not value
    assert copy.content is not value.content


def test_values_of_other_immutable_types_stay_equal() -> None:
    for value in (UUID(int=1), Fraction(1, 3), date(2025, 1, 1), 1j, range(3), len, Color, ...):
        assert copied(value) == value


def test_keys_of_a_dict_are_not_copied() -> None:
    key = Point(1)
    ((copy, _),) = copied({key: []}).items()
    assert copy is key


@pytest.mark.parametrize("wrap", [lambda part: part, lambda part: [part], Point, Plain, lambda part: {"a": (part,)}])
def test_a_value_with_a_part_that_cannot_be_copied_is_an_error(wrap: Any) -> None:
    for part in (threading.Lock(), (number for number in [1])):
        with pytest.raises(TypeError, match="cannot pickle"):
            copied(wrap(part))
