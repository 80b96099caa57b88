import enum
import operator
from collections.abc import Callable, MutableMapping
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.sdk.subjects import START, new_subject, reloaded, stored

from amadou import MapSpec, MapState, Subject
from amadou.errors import EncodeError, StateDecodeError, UnsupportedTypeError


class Color(str, enum.Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Point:
    x: int
    y: int


class Handler:
    counts = MapSpec(str, int)
    by_time = MapSpec(datetime, list[int])
    by_point = MapSpec(Point, str)


@pytest.fixture
def subject() -> Subject:
    return new_subject()


@pytest.fixture
def counts(subject: Subject) -> MapState[str, int]:
    return Handler.counts.state_for(subject)


def test_a_map_state_is_a_mutable_mapping(counts: MapState[str, int]) -> None:
    assert isinstance(counts, MutableMapping)
    assert (dict(counts), len(counts), bool(counts), list(counts)) == ({}, 0, False, [])


def test_entries_of_a_map_are_written_read_and_removed(counts: MapState[str, int]) -> None:
    counts["a"] = 1
    counts["b"] = counts.get("b", 5) + 1
    assert (counts["a"], counts["b"], "a" in counts, "c" in counts) == (1, 6, True, False)
    del counts["a"]
    assert counts == {"b": 6}
    assert counts.pop("b") == 6
    assert counts.pop("b", 7) == 7
    assert counts.pop("b", None) is None
    assert counts.get("b") is None
    assert counts == {}


def test_reading_or_removing_an_entry_that_does_not_exist_raises_a_key_error(counts: MapState[str, int]) -> None:
    counts["b"] = 1
    for touch in (lambda: counts["a"], lambda: counts.pop("a"), lambda: operator.delitem(counts, "a")):
        with pytest.raises(KeyError, match="'a'"):
            touch()
    counts.clear()
    with pytest.raises(KeyError):
        counts.popitem()


def test_keys_values_and_items_are_in_order_of_insertion(counts: MapState[str, int]) -> None:
    counts.update({"b": 2}, a=1)
    counts["b"] = 3
    assert list(counts.items()) == [("b", 3), ("a", 1)]
    assert list(counts.keys()) == ["b", "a"]
    assert list(counts.values()) == [3, 1]
    assert ("a", 1) in counts.items()
    assert counts.keys() & {"a"} == {"a"}


def test_setdefault_update_and_popitem_behave_as_those_of_a_dict(counts: MapState[str, int]) -> None:
    assert counts.setdefault("a", 1) == 1
    assert counts.setdefault("a", 2) == 1
    counts.update([("b", 2)])
    assert counts.popitem() == ("b", 2)
    assert counts == {"a": 1}


def test_a_map_equals_mappings_with_the_same_entries(counts: MapState[str, int]) -> None:
    other = Handler.counts.state_for(new_subject("other"))
    counts["a"] = other["a"] = 1
    assert counts == {"a": 1}
    assert counts == other
    other["b"] = 2
    assert counts != other
    assert counts != {"a": 2}


def test_changing_a_map_during_iteration_is_an_error(counts: MapState[str, int]) -> None:
    counts.update(a=1, b=2)
    keys = iter(counts)
    del counts[next(keys)]
    with pytest.raises(RuntimeError, match="changed size"):
        next(keys)


def test_entries_of_a_map_are_read_in_the_next_batch(subject: Subject) -> None:
    Handler.counts.state_for(subject).update(a=1, b=2)
    again = reloaded(subject)
    assert Handler.counts.state_for(again) == {"a": 1, "b": 2}
    assert list(Handler.counts.state_for(again)) == ["a", "b"]


@pytest.mark.parametrize(
    "change",
    [
        lambda counts: counts.__setitem__("a", 9),
        lambda counts: counts.__setitem__("new", 9),
        lambda counts: counts.__delitem__("a"),
        lambda counts: counts.setdefault("new", 9),
        lambda counts: counts.update(a=9, new=9),
        lambda counts: counts.pop("a"),
        lambda counts: counts.popitem(),
        lambda counts: counts.clear(),
    ],
)
def test_each_method_that_changes_a_map_stores_the_change(
    subject: Subject, counts: MapState[str, int], change: Any
) -> None:
    counts.update({"a": 1, "b": 2})
    again = reloaded(subject)
    change(Handler.counts.state_for(again))
    expected = {"a": 1, "b": 2}
    change(expected)
    assert stored(again).get("counts", {}) == expected


def test_an_empty_map_is_not_stored(subject: Subject, counts: MapState[str, int]) -> None:
    for remove in (counts.clear, lambda: counts.pop("a"), counts.popitem, lambda: counts.__delitem__("a")):
        counts["a"] = 1
        assert stored(subject) == {"counts": {"a": 1}}
        remove()
        assert stored(subject) == {}


def test_a_map_that_was_only_read_is_not_written_again() -> None:
    subject = new_subject(encoded_values={"counts": {"a": 1}})
    counts = Handler.counts.state_for(subject)
    assert (counts["a"], counts.get("b"), "b" in counts, counts.pop("b", 0), dict(counts)) == (
        1,
        None,
        False,
        0,
        {"a": 1},
    )
    assert not counts._changed
    counts["a"] = 2
    assert counts._changed


def test_changing_a_value_of_a_map_in_place_does_not_change_the_stored_value(subject: Subject) -> None:
    state = Handler.by_time.state_for(subject)
    value = [1]
    state[START] = value
    value.append(2)
    state[START].append(2)
    state.setdefault(START, []).append(2)
    next(iter(state.values())).append(2)
    assert state == {START: [1]}


def test_a_time_as_key_of_a_map_is_found_in_every_time_zone(subject: Subject) -> None:
    state = Handler.by_time.state_for(subject)
    state[START.astimezone(timezone(timedelta(hours=2)))] = [1]
    assert state[START] == [1]
    assert [key.tzinfo for key in state] == [timezone.utc]


KEY_TYPES: list[tuple[Any, list[Any]]] = [
    (str, ["", "1", "ä"]),
    (int, [0, -1, 2**100]),
    (float, [0.5, -1.0, float("inf")]),
    (bytes, [b"", b"1"]),
    (bool, [True, False]),
    (datetime, [START, datetime(1960, 1, 1, 0, 0, 0, 1, tzinfo=timezone.utc)]),
    (timedelta, [timedelta(0), timedelta(microseconds=1)]),
    (Color, [Color.RED, Color.BLUE]),
    (Point, [Point(1, 2), Point(2, 1)]),
    (tuple[int, str], [(1, "1"), (2, "1")]),
    (frozenset[str], [frozenset(), frozenset("abcdefgh"), frozenset("hgfedcb")]),
    (int | str, [1, "1"]),
    (str | None, [None, "None"]),
    (Any, [1, "1", b"1", (1, 2), frozenset("ab"), None]),
]


@pytest.mark.parametrize(("key_type", "keys"), KEY_TYPES, ids=[str(key_type) for key_type, _ in KEY_TYPES])
def test_keys_of_a_map_are_read_with_their_exact_types(key_type: Any, keys: list[Any]) -> None:
    spec = MapSpec(key_type, int, name="m")
    spec.check()
    subject = new_subject()
    for number, key in enumerate(keys):
        spec.state_for(subject)[key] = number
    state = spec.state_for(reloaded(subject))
    assert dict(state) == {key: number for number, key in enumerate(keys)}
    assert [type(key) for key in state] == [type(key) for key in keys]
    assert [state[key] for key in keys] == list(range(len(keys)))


class MapLikeDict(RuleBasedStateMachine):
    """Applies the same changes to a map and to a dict, and ends batches in between."""

    keys = st.integers(0, 5).map(lambda number: Point(number, 0))

    def __init__(self) -> None:
        super().__init__()
        self.subject = new_subject()
        self.model: dict[Point, str] = {}

    @property
    def state(self) -> MapState[Point, str]:
        return Handler.by_point.state_for(self.subject)

    def same(self, touch: Callable[[Any], Any]) -> None:
        assert outcome(touch, self.state) == outcome(touch, self.model)

    @rule(key=keys, value=st.text(max_size=2))
    def put(self, key: Point, value: str) -> None:
        self.same(lambda mapping: operator.setitem(mapping, key, value))

    @rule(key=keys)
    def read(self, key: Point) -> None:
        self.same(lambda mapping: (mapping.get(key), key in mapping))
        self.same(lambda mapping: mapping[key])

    @rule(key=keys)
    def delete(self, key: Point) -> None:
        self.same(lambda mapping: operator.delitem(mapping, key))

    @rule(key=keys)
    def pop(self, key: Point) -> None:
        self.same(lambda mapping: mapping.pop(key))
        self.same(lambda mapping: mapping.pop(key, "none"))

    @rule(key=keys)
    def setdefault(self, key: Point) -> None:
        self.same(lambda mapping: mapping.setdefault(key, "default"))

    @rule()
    def popitem(self) -> None:
        self.same(lambda mapping: mapping.popitem())

    @rule(entries=st.dictionaries(keys, st.text(max_size=2), max_size=3))
    def update(self, entries: dict[Point, str]) -> None:
        self.same(lambda mapping: mapping.update(entries))

    @rule()
    def clear(self) -> None:
        self.same(lambda mapping: mapping.clear())

    @rule()
    def end_batch(self) -> None:
        self.subject = reloaded(self.subject)

    @invariant()
    def they_are_equal(self) -> None:
        assert list(self.state.items()) == list(self.model.items())
        assert len(self.state) == len(self.model)
        assert bool(stored(self.subject)) == bool(self.model)


TestMapLikeDict = MapLikeDict.TestCase
TestMapLikeDict.settings = settings(max_examples=40)


def outcome(touch: Callable[[Any], Any], mapping: Any) -> Any:
    try:
        return touch(mapping)
    except KeyError:
        return KeyError


@given(st.dictionaries(st.datetimes(timezones=st.just(timezone.utc)), st.lists(st.integers())))
def test_any_map_is_read_as_it_was_stored(entries: dict[datetime, list[int]]) -> None:
    subject = new_subject()
    Handler.by_time.state_for(subject).update(entries)
    assert Handler.by_time.state_for(reloaded(subject)) == entries


def test_the_error_for_a_key_or_value_of_another_type_names_spec_and_key(counts: MapState[str, int]) -> None:
    counts["a"] = 1
    wrong: Any = counts
    with pytest.raises(EncodeError, match="counts: cannot store 'one' ") as caught:
        wrong["a"] = "one"
    assert (caught.value.spec, caught.value.key) == ("counts", "k")
    for touch in (lambda: wrong[5], lambda: wrong.get(5), lambda: wrong.pop(5), lambda: 5 in wrong):
        with pytest.raises(EncodeError, match=r"counts: cannot store 5 .* as str"):
            touch()
    with pytest.raises(EncodeError, match=r"by_time: cannot store 5 .* as datetime"):
        Handler.by_time.state_for(new_subject())[5] = []  # type: ignore[index]
    assert counts == {"a": 1}


@pytest.mark.parametrize("touch", [lambda m: m["a"], lambda m: m.get("a"), lambda m: m.pop("a"), lambda m: m.popitem()])
def test_a_stored_value_that_cannot_be_read_stays_in_the_map(touch: Callable[[Any], Any]) -> None:
    subject = new_subject(encoded_values={"counts": {"a": "one"}})
    with pytest.raises(StateDecodeError, match="state 'counts' of key 'k': found 'one', expected int"):
        touch(Handler.counts.state_for(subject))
    assert stored(subject) == {"counts": {"a": "one"}}


def test_stored_state_that_is_not_a_map_is_an_error() -> None:
    with pytest.raises(StateDecodeError, match="state 'counts' of key 'k': found 5, expected dict"):
        Handler.counts.state_for(new_subject(encoded_values={"counts": 5}))


def test_a_map_of_types_that_cannot_be_stored_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="complex"):
        MapSpec(complex, int).check()
    with pytest.raises(UnsupportedTypeError, match="complex"):
        MapSpec(int, complex).check()
    for unhashable in (list[int], dict, set[str]):
        with pytest.raises(UnsupportedTypeError, match="must be hashable"):
            MapSpec(unhashable, int).check()


def test_the_repr_of_a_map_shows_types_and_entries(counts: MapState[str, int]) -> None:
    counts["a"] = 1
    assert repr(Handler.counts) == "MapSpec(str → int)"
    assert repr(counts) == "MapState('counts', {'a': 1})"
