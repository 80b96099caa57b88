"""The description of a job's state, by which another job decides whether it can read this state."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, Flag
from functools import partial
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import attrs
import pytest
from tests.conformance.handlers import Recorder, job
from tests.processes import results_in_processes

from amadou import ListSpec, MapSpec, ValueSpec
from amadou._state.encoding import pack, unpack
from amadou.errors import CodecError
from amadou.plugins import codec_for
from amadou_plugins.aggregates import Aggregate, Collect, Count, Max, Mean, Reduce, RunningSpec, Sum
from amadou_plugins.joins import AsOfJoin, LatestJoin
from amadou_plugins.windows import CountWindow, HoppingWindow, SessionWindow, SlidingWindow, TumblingWindow
from amadou_runtime.jobs.state_schema import described, misfits, with_structures

T = TypeVar("T")
HOUR = timedelta(hours=1)


@attrs.frozen
class Point:
    x: int
    y: int = 0


@attrs.frozen
class Point3:
    x: int
    y: int = 0
    z: int = 0


@dataclass
class Named:
    x: int
    name: str


@dataclass
class Wide:
    x: float
    seen: int = field(init=False, default=0)


@dataclass
class Unset:
    x: int
    later: int = field(init=False)


@dataclass
class Doubled:
    x: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.x


@attrs.frozen
class Open:
    """A class whose encoded value can be any mapping."""

    label: str = ""


class Pair(NamedTuple):
    x: int
    y: int = 1


@attrs.frozen
class Tree:
    value: int
    children: "list[Tree]" = attrs.field(factory=list)


@attrs.frozen
class Tree2:
    value: float
    children: "list[Tree2]" = attrs.field(factory=list)


@attrs.frozen
class Tree3:
    value: int
    depth: int
    children: "list[Tree3]" = attrs.field(factory=list)


@attrs.frozen
class Box(Generic[T]):
    content: T


class Color(str, Enum):
    RED = "red"
    BLUE = "blue"


class More(str, Enum):
    RED = "red"
    BLUE = "blue"
    GREEN = "green"


class Lenient(Enum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> "Lenient":
        return cls.RED


class Marks(Flag):
    NEW = 1
    OLD = 2


class Fewer(Flag):
    NEW = 1


TREE = Tree(1, [Tree(2)])
READABLE: list[tuple[Any, Any, Any]] = [
    (int, int, 5),
    (int, float, 5),
    (int, int | str, 5),
    (int, float | None, 5),
    (int, float | str, 5),
    (int | None, int | str | None, 5),
    (int | str, str | int | bytes, "a"),
    (list, Any, [1]),
    (Any, object, {"a": 1}),
    (list[int], list[float], [1]),
    (tuple[int, ...], tuple[int | str, ...], (1, 2)),
    (tuple[int, str], tuple[float, str], (1, "a")),
    (dict[str, int], dict[str, float], {"a": 1}),
    (dict[int | str, Point], dict[int | str | None, Point3], {1: Point(2)}),
    (Point, Point3, Point(1)),
    (Point3, Point, Point3(1)),
    (Point, Wide, Point(1)),
    (Point, Doubled, Point(1)),
    (Named, Point, Named(1, "a")),
    (Point, Pair, Point(1)),
    (Point, Point | None, Point(1)),
    (Point, Point | Named | None, Point(1)),
    (Point, Named | Point, Point(1)),
    (Point | None, Point3 | str | None, Point(1)),
    (Named | Point, Point | int | Named, Point(1)),
    (list[Point], list[Point3] | None, [Point(1)]),
    (Tree, Tree2, TREE),
    (Box[int], Box[float], Box(1)),
    (Color, More, Color.BLUE),
    (Color, Lenient, Color.BLUE),
    (Literal["a"], Literal["a", "b"], "a"),
    (Literal["a"], str, "a"),
    (Literal["a"] | None, str | None, "a"),
    (Literal["a", 1] | None, int | Literal["a", "b"] | None, 1),
]
UNREADABLE: list[tuple[Any, Any, Any, str]] = [
    (int, str, 5, ""),
    (int | str, int, "a", ""),
    (int | None, int, None, ""),
    (float, int, 0.5, ""),
    (datetime, str, datetime.fromisoformat("2025-01-01T00:00Z"), ""),
    (list[int], list[str], [1], ""),
    (list[int], list, [1], ""),
    (list, list[int], [1], ""),
    (tuple[int, int], tuple[int], (1, 2), ""),
    (dict[str, int], dict[str | int, int], {"a": 1}, ""),
    (dict[str, int], dict[str, str], {"a": 1}, ""),
    (Point, Named, Point(1), "Named.name is new and has no default"),
    (Point, Unset, Point(1), "Unset.later is new and has no default"),
    (Point, int, Point(1), ""),
    (Named, Box[int], Named(1, "a"), "Box[int].content is new and has no default"),
    (Box[int], Box[str], Box(1), "content was int and is now str"),
    (Box[list[int]], Box[list[str]], Box([1]), "content was list[int] and is now list[str]"),
    (Tree, Tree3, TREE, "Tree3.depth is new and has no default"),
    (Point | Named, Point | int, Named(1, "a"), ""),
    (Point, Open | Point, Point(1), ""),
    (More, Color, More.GREEN, "Color no longer allows 'green'"),
    (Marks, Fewer, Marks.NEW | Marks.OLD, "Fewer no longer allows 2"),
    (Color, Color | str, Color.RED, ""),
    (Literal["a", "b"], Literal["a"], "b", "no longer allows 'b'"),
    (list[Point], list[Named], [Point(1)], "Named.name is new"),
]


def problems(before: Any, now: Any) -> list[str]:
    """Return the reasons why a job with one spec cannot read the state of a job with another spec."""

    def of(spec: Any) -> Any:
        handler = type("Stored", (Recorder,), {"state": spec, "__module__": __name__})()
        spec.__set_name__(type(handler), "state")
        structures = described(job(handler))
        assert json.loads(json.dumps(structures)) == structures
        return structures

    return [misfit.text for misfit in misfits(with_structures({}, of(before)), of(now))]


def read(before: Any, now: Any, value: Any) -> Any:
    return codec_for(now).decode(unpack(pack(codec_for(before).encode(value))))


@pytest.mark.parametrize(("before", "now", "value"), READABLE)
def test_a_type_that_can_read_the_stored_values_is_accepted(before: Any, now: Any, value: Any) -> None:
    assert problems(ValueSpec(before), ValueSpec(now)) == []
    result = read(before, now, value)
    assert (
        type(result) is type(value)
        or result == value
        or attrs.has(type(result))
        or isinstance(result, Wide | Doubled | Pair | Enum)
    )


@pytest.mark.parametrize(("before", "now", "value", "why"), UNREADABLE)
def test_a_type_that_cannot_read_the_stored_values_is_a_problem(before: Any, now: Any, value: Any, why: str) -> None:
    (problem,) = problems(ValueSpec(before), ValueSpec(now))
    assert problem.startswith("state ")
    assert why in problem
    try:
        result = read(before, now, value)
    except CodecError:
        return
    assert type(result) is not type(value)  # otherwise, a wrong value would be read without an error


def test_the_problem_names_spec_field_and_class() -> None:
    assert problems(ValueSpec(int), ValueSpec(str)) == ["state was ValueSpec int and is now ValueSpec str"]
    assert problems(ListSpec(Point), ListSpec(Named)) == [
        "state was ListSpec Point and is now ListSpec Named: Named.name is new and has no default"
    ]
    assert problems(ValueSpec(int), MapSpec(str, int)) == ["state was ValueSpec int and is now MapSpec str → int"]


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        (str, str, True),
        (int, float, True),
        (int | str, int | str | bytes, True),
        (Point, Point, True),
        (int, int | str, False),
        (Point, Point3, False),
        (int | str, int | None, False),
        (int, datetime, False),
    ],
)
def test_the_type_of_a_maps_keys_can_change_if_stored_keys_keep_their_encoded_form(
    before: Any, now: Any, fits: bool
) -> None:
    assert (problems(MapSpec(before, int), MapSpec(now, int)) == []) is fits
    migrated = MapSpec(now, str, version=1, migrate=lambda value, version: str(value))
    assert (problems(MapSpec(before, int), migrated) == []) is fits


def test_state_of_an_older_version_can_be_migrated_and_that_of_a_newer_version_cannot_be_read() -> None:
    newer = ValueSpec(str, version=1, migrate=lambda value, version: str(value))
    assert problems(ValueSpec(int), newer) == []
    assert problems(newer, ValueSpec(str)) == ["state was ValueSpec str version 1 and is now ValueSpec str"]


class Text:
    def encode(self, value: Any) -> Any:
        return value

    def decode(self, encoded: Any) -> Any:
        return encoded


def test_state_that_a_codec_stored_needs_a_codec_to_be_read() -> None:
    assert problems(ValueSpec(int, codec=Text()), ValueSpec(str, codec=Text())) == []
    assert problems(ValueSpec(str, codec=Text()), ValueSpec(str)) != []


def test_new_code_must_read_the_state_of_all_earlier_code() -> None:
    descriptions = [
        described(job(type("Stored", (Recorder,), {"state": spec})())) for spec in (_named(Point), _named(Point3))
    ]
    known = with_structures(with_structures({}, descriptions[0]), descriptions[1])
    assert known == with_structures(known, descriptions[0])

    @attrs.frozen
    class Demanding:
        x: int
        z: int

    needs = described(job(type("Stored", (Recorder,), {"state": _named(Demanding)})()))
    (misfit,) = misfits(known, needs)
    assert "Demanding.z is new and has no default" in misfit.text


def _named(type_: Any) -> ValueSpec[Any]:
    return ValueSpec(type_, name="state")


class Reader:
    """A callable object without a `repr` of its own."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, event: Any) -> Any:
        return event.value[self.name]


def read_field(name: str, event: Any) -> Any:
    return event.value[name]


@dataclass(frozen=True)
class Kinds(Aggregate[int, int]):
    """Counts the values that are in a set."""

    kinds: frozenset[str]

    def create(self) -> int:
        return 0

    def add(self, accumulator: int, event: Any) -> int:
        return accumulator + (event.value in self.kinds)

    def merge(self, left: int, right: int) -> int:
        return left + right

    def result(self, accumulator: int) -> int:
        return accumulator


def window(**aggregates: Any) -> TumblingWindow:
    return TumblingWindow(HOUR, {"n": Count(), **aggregates}, on_close=print)


UNSTABLE: dict[str, Callable[[], Any]] = {
    "partial": lambda: Mean(partial(read_field, "ms")),
    "object": lambda: Mean(Reader("ms")),
    "set": lambda: Kinds(frozenset({"a", "b", "c", "d", "e"})),
    "initial": lambda: Reduce(max, initial={"a", "b", "c", "d", "e"}),
}


def identities() -> dict[str, Any]:
    return {name: window(it=make()).structure() for name, make in UNSTABLE.items()}


def test_the_description_of_an_aggregate_is_the_same_in_each_process() -> None:
    assert results_in_processes(__name__, "identities", "0123") == [identities()] * 4


def test_aggregates_of_a_mapping_can_be_added_and_removed_but_not_changed() -> None:
    assert problems(window(sum=Sum("a")), window(max=Max("a"))) == []
    assert problems(RunningSpec({"a": Count(), "b": Sum()}), RunningSpec({"b": Sum(), "c": Mean()})) == []
    (problem,) = problems(
        window(sum=Sum("a"), more={"n": Count()}), window(sum=Sum("b"), more={"n": Mean(), "o": Max()})
    )
    assert "the aggregate['sum'] was Sum('a') and is now Sum('b')" in problem
    assert "the aggregate['more']['n'] was Count() and is now Mean()" in problem
    assert problems(RunningSpec(Sum()), RunningSpec({"sum": Sum()})) == [
        "state was RunningSpec(Sum()) and is now RunningSpec({'sum': Sum()}): "
        "the aggregate was Sum() and is now a mapping of aggregates"
    ]


WINDOWS: list[Callable[..., Any]] = [
    lambda: TumblingWindow(HOUR, on_close=print),
    lambda: TumblingWindow(2 * HOUR, on_close=print),
    lambda: TumblingWindow(HOUR, offset=HOUR / 2, on_close=print),
    lambda: TumblingWindow(HOUR, allowed_lateness=HOUR, on_close=print),
    lambda: TumblingWindow(HOUR, Sum(), on_close=print),
    lambda: HoppingWindow(HOUR, HOUR, on_close=print),
    lambda: HoppingWindow(HOUR, HOUR / 2, on_close=print),
    lambda: SlidingWindow(HOUR, on_close=print),
    lambda: SessionWindow(HOUR, on_close=print),
    lambda: SessionWindow(HOUR, max_duration=HOUR, on_close=print),
    lambda: SessionWindow(HOUR, {"n": Count(), "all": Reduce(max)}, on_close=print),
    lambda: SessionWindow(HOUR, {"n": Count()}, on_close=print),
    lambda: CountWindow(5, on_close=print),
    lambda: CountWindow(5, hop=2, on_close=print),
    lambda: LatestJoin(left="events", right="b", ttl=HOUR, on_match=print),
    lambda: LatestJoin(left="events", right="b", ttl=HOUR, how="inner", on_match=print),
    lambda: AsOfJoin(left="events", right="b", tolerance=HOUR, on_match=print),
]


@pytest.mark.parametrize("before", range(len(WINDOWS)))
def test_a_window_or_join_reads_only_its_own_state(before: int) -> None:
    def structure(make: Callable[..., Any]) -> Any:
        return {"state": json.loads(json.dumps(make().structure()))}

    known = with_structures({}, structure(WINDOWS[before]))
    assert [at for at, make in enumerate(WINDOWS) if not misfits(known, structure(make))] == [before]


def test_settings_that_do_not_change_results_of_a_window_can_change() -> None:
    many = {"early": 5, "max_active": 3, "ttl": HOUR, "late": "divert", "storage": "memory", "on_late": print}
    assert problems(window(), TumblingWindow(HOUR, {"n": Count(), "all": Collect()}, on_close=print, **many)) == []


def user(called: str = "User", **fields: Any) -> type:
    """Make a class of users."""
    return attrs.make_class(called, {"name": attrs.field(type=str), **fields}, frozen=True)


def test_a_field_that_was_removed_cannot_be_added_back_without_a_migration() -> None:
    score = {"score": attrs.field(type=int, default=0)}
    before, without, again = (job(with_spec(ValueSpec(user(**fields)))) for fields in (score, {}, score))
    known = with_structures(with_structures({}, described(before)), described(without))
    (misfit,) = misfits(known, described(again))
    assert misfit.why == "User.score was removed, and is there again"
    assert misfit.advice.startswith("set version=1 and migrate= on state; or give the field a different name")
    migrated = job(with_spec(ValueSpec(user(**score), version=1, migrate=lambda stored, _: stored)))
    assert misfits(known, described(migrated)) == []
    other = job(with_spec(ValueSpec(user(points=attrs.field(type=int, default=0)))))
    assert misfits(known, described(other)) == []


@pytest.mark.parametrize(
    "names", [("User", "Person", "User"), ("User", "User", "Person"), ("User", "Person", "Person"), ("A", "B", "C")]
)
@pytest.mark.parametrize(
    "spec",
    [
        ValueSpec,
        lambda of: MapSpec(str, dict[str, of | None]),
        lambda of: ListSpec(attrs.make_class("Group", {"first": attrs.field(type=of)})),
    ],
    ids=["value", "in a mapping", "nested"],
)
def test_a_field_that_was_removed_cannot_be_added_back_to_a_class_with_another_name(spec: Any, names: Any) -> None:
    score = {"score": attrs.field(type=int, default=0)}
    first, second, third = (
        job(with_spec(spec(user(name, **fields)))) for name, fields in zip(names, (score, {}, score), strict=True)
    )
    known = with_structures(with_structures({}, described(first)), described(second))
    (misfit,) = misfits(known, described(third))
    assert misfit.why == f"{names[2]}.score was removed, and is there again"


def test_a_field_that_a_migration_removed_can_be_added_back_to_a_class_with_another_name() -> None:
    score = {"score": attrs.field(type=int, default=0)}
    migrated = {"version": 1, "migrate": lambda stored, _: stored}
    first = job(with_spec(ValueSpec(user(**score))))
    second, third = (job(with_spec(ValueSpec(user("Person", **fields), **migrated))) for fields in ({}, score))
    known = with_structures(with_structures({}, described(first)), described(second))
    assert misfits(known, described(third)) == []


def with_spec(spec: Any) -> Recorder:
    made: Recorder = type("Stored", (Recorder,), {"state": spec})()
    return made
