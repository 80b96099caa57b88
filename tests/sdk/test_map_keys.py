"""Keys of maps that equal others, or not even themselves."""

import math
import operator
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import attrs
import pytest
from tests.sdk.subjects import new_subject, reloaded, stored

from amadou import MapSpec, MapState
from amadou.errors import EncodeError


@attrs.frozen
class Point:
    x: float


@attrs.frozen
class Anything:
    x: Any


class Named(NamedTuple):
    x: float


class Rate(Enum):
    NONE = math.nan
    FULL = 1.0


NAN = math.nan
NAN_KEYS: list[tuple[Any, Any]] = [
    (float, NAN),
    (float, -NAN),
    (float | None, NAN),
    (float | str, NAN),
    (Decimal, Decimal("NaN")),
    (Decimal, Decimal("-sNaN123")),
    (tuple[int, float], (1, NAN)),
    (tuple[str, Decimal], ("a", Decimal("NaN"))),
    (tuple[tuple[float, ...], ...], ((), (0.0, NAN))),
    (frozenset[float], frozenset([1.0, NAN])),
    (Point, Point(NAN)),
    (Named, Named(NAN)),
    (Any, NAN),
    (Any, Decimal("NaN")),
    (Any, (1, ("a", NAN))),
    (Any, (frozenset([NAN]),)),
    (tuple[Any, int], (NAN, 1)),
    (Rate, Rate.NONE),
    (Any, Rate.NONE),
    (Any, (1, Rate.NONE)),
]
IN_OBJECTS: list[tuple[Any, Any]] = [
    (Any, Point(NAN)),
    (Any, Named(NAN)),
    (tuple[Any, int], (Point(NAN), 1)),
    (Anything, Anything(NAN)),
]
TOUCHES: dict[str, Callable[[Any, Any], Any]] = {
    "put": lambda entries, key: operator.setitem(entries, key, 1),
    "read": lambda entries, key: entries[key],
    "get": lambda entries, key: entries.get(key),
    "in": lambda entries, key: key in entries,
    "pop": lambda entries, key: entries.pop(key),
    "pop with default": lambda entries, key: entries.pop(key, 0),
    "del": lambda entries, key: operator.delitem(entries, key),
    "setdefault": lambda entries, key: entries.setdefault(key, 1),
    "update": lambda entries, key: entries.update([(key, 1)]),
}


def map_of(key_type: Any, **settings: Any) -> MapSpec[Any, int]:
    spec = MapSpec(key_type, int, name="counts", **settings)
    spec.check()
    return spec


@pytest.mark.parametrize("ttl", [None, timedelta(days=1)], ids=["", "ttl"])
@pytest.mark.parametrize(("key_type", "key"), [*NAN_KEYS, *IN_OBJECTS], ids=str)
def test_a_key_of_a_map_with_nan_is_refused_because_it_is_not_equal_to_itself(
    key_type: Any, key: Any, ttl: timedelta | None
) -> None:
    subject = new_subject()
    entries = map_of(key_type, ttl=ttl).state_for(subject)
    for touch in TOUCHES.values():
        with pytest.raises(EncodeError, match=r"^counts: cannot store .*NaN cannot be a key, because it is not equal"):
            touch(entries, key)
    assert len(entries) == 0
    assert stored(subject) == {}


ONE: list[Any] = [1, True, 1.0]


@pytest.mark.parametrize(
    ("key_type", "keys", "found"),
    [
        (Any, ONE, [0, 1, 2]),
        (Any, [(1, "a"), (True, "a"), (1.0, "a")], [0, 1, 2]),
        (float, ONE, [2, 2, 2]),
        (tuple[float, str], [(1, "a"), (True, "a"), (1.0, "a")], [2, 2, 2]),
        (float, [0.0, -0.0, 0], [2, 2, 2]),
        (tuple[float, int], [(0.0, 1), (-0.0, 1)], [1, 1]),
        (Any, [0.0, -0.0], [1, 1]),
        (Any, [(0.0,), (-0.0,)], [1, 1]),
        (Point, [Point(0.0), Point(-0.0)], [1, 1]),
        (Decimal, [Decimal("1"), Decimal("1.00"), Decimal("100"), Decimal("1E2")], [1, 1, 3, 3]),
        (Any, [Decimal("0"), Decimal("-0"), Decimal("0.00")], [2, 2, 2]),
    ],
    ids=str,
)
def test_keys_of_a_map_are_one_key_if_they_are_equal_values_of_its_type(
    key_type: Any, keys: list[Any], found: list[int]
) -> None:
    spec, subject = map_of(key_type), new_subject()
    for number, key in enumerate(keys):
        spec.state_for(subject)[key] = number
    for state in (spec.state_for(subject), spec.state_for(reloaded(subject))):
        assert [state[key] for key in keys] == found
        assert sorted(state.values()) == sorted(set(found))


def test_float_keys_are_stored_as_plain_floats() -> None:
    spec, subject = map_of(float), new_subject()
    spec.state_for(subject).update({0.5: 1, 2: 2, -0.0: 3, math.inf: 4})
    assert stored(subject) == {"counts": {0.5: 1, 2.0: 2, 0.0: 3, math.inf: 4}}
    assert [repr(key) for key in stored(subject)["counts"]] == ["0.5", "2.0", "0.0", "inf"]


def test_float_keys_that_were_stored_before_are_found() -> None:
    earlier = {0.5: 1, -0.0: 2, 3: 3, -math.inf: 4}
    subject = new_subject(encoded_values={"counts": earlier})
    entries = map_of(float).state_for(subject)
    assert dict(entries) == earlier
    assert [entries[key] for key in (0.5, 0.0, 3.0, -math.inf)] == [1, 2, 3, 4]
    entries[0.0] = 5
    assert (entries.pop(3), len(entries)) == (3, 3)
    assert stored(subject) == {"counts": {0.5: 1, 0.0: 5, -math.inf: 4}}


READS: list[Callable[[MapState[float, int]], list[Any]]] = [
    lambda entries: list(map(str, entries)),
    lambda entries: [*map(str, dict(entries))],
    lambda entries: [str(key) for key, _ in entries.items()],
    lambda entries: ["nan" for value in entries.values() if value == 1] + ["0.5"],
]


@pytest.mark.parametrize(
    "read",
    READS,
    ids=["keys", "dict", "items", "values"],
)
def test_a_map_in_which_nan_was_stored_before_can_be_read_and_emptied(
    read: Callable[[MapState[float, int]], list[Any]],
) -> None:
    subject = new_subject(encoded_values={"counts": {NAN: 1, 0.5: 2}})
    entries = map_of(float).state_for(subject)
    assert read(entries) == ["nan", "0.5"]
    assert entries.popitem() == (0.5, 2)
    assert entries.popitem()[1] == 1
    assert stored(subject) == {}
