"""A value that is stored and read equals the original, has its type, and shares no object with it."""

import enum
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ids import shown
from tests.sdk import postponed

from amadou import KeyedEvent
from amadou._state.encoding import MAX_NESTING, pack, unpack
from amadou.errors import CodecError, EncodeError, NaiveTimestampError, StateDecodeError, UnsupportedTypeError
from amadou.plugins import codec_for

T = TypeVar("T")
NOON = datetime(2025, 1, 1, 12, 0, 0, 1, tzinfo=timezone.utc)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Mode(str, enum.Enum):
    ON = "on"
    OFF = "off"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Right(enum.Flag):
    READ = 1
    WRITE = 2


class Corner(enum.Enum):
    LEFT = (0, 1)
    RIGHT = (1, 1)


@attrs.frozen
class Point:
    x: int
    y: float = 0.0


@attrs.define
class Shape:
    name: str
    points: list[Point] = attrs.field(factory=list)
    tags: dict[str, set[str]] = attrs.field(factory=dict)
    when: datetime | None = None
    anything: Any = None
    bare: list = attrs.field(factory=list)  # type: ignore[type-arg]


@attrs.frozen
class Labelled(Point):
    label: str = ""


@attrs.frozen
class Box(Generic[T]):
    content: T


@attrs.frozen
class Tree:
    value: int
    children: "list[Tree]" = attrs.field(factory=list)
    parent: "Tree | None" = None


@dataclass
class Account:
    owner: str
    balance: Decimal
    history: list[tuple[datetime, Decimal]] = field(default_factory=list)


@dataclass
class Basket(Generic[T]):
    first: T
    count: int = field(init=False, default=0)
    rest: list[T] = field(init=False, default_factory=list)
    later: int = field(init=False)


@attrs.frozen
class Branch:
    name: str
    length: int = attrs.field(init=False)
    twigs: "list[Branch]" = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "length", len(self.name))


def parsed(text: str) -> datetime:
    return datetime.fromisoformat(text)


def with_length(text: str, of: Any) -> str:
    return f"{text} {len(of.name)}"


def only_new(of: Any, field: Any, value: Any) -> None:
    if of.is_new:
        raise ValueError("read again")


CONVERTED = {
    "name": attrs.field(type=str),
    "at": attrs.field(type=datetime, converter=parsed),
    "_hidden": attrs.field(type=int, converter=lambda number: number * 2, kw_only=True, alias="hidden"),
    "is_new": attrs.field(type=bool, default=False, validator=only_new, on_setattr=attrs.setters.NO_OP),
    "label": attrs.field(
        type=str,
        default=attrs.Factory(lambda of: of.name.upper(), takes_self=True),
        converter=attrs.Converter(with_length, takes_self=True),  # type: ignore[call-overload]
    ),
    "later": attrs.field(type=list[int], init=False, factory=list),
}


@dataclass
class Cents:
    amount: int
    shown: str = "none"

    def __post_init__(self) -> None:
        self.amount *= 100
        self.of_no_field = self.amount


class Pair(NamedTuple):
    left: int
    right: list[str] = []


class Plain:
    pass


@attrs.frozen
class WithPlain:
    inner: list[Plain]


def through_msgpack(type_: Any, value: Any) -> Any:
    codec = codec_for(type_)
    return codec.decode(unpack(pack(codec.encode(value))))


def assert_read_as_stored(type_: Any, value: Any) -> None:
    read = through_msgpack(type_, value)
    assert read == value
    assert type(read) is type(value)
    assert repr(read) == repr(value)


POINT = Point(1, 2.5)
EXAMPLES: list[tuple[Any, Any]] = [
    (str, "ä\0\U0001f600"),
    (bytes, b"\0\xff"),
    (int, 2**200),
    (int, -(2**63) - 1),
    (float, float("inf")),
    (bool, True),
    (None, None),
    (type(None), None),
    (datetime, NOON),
    (date, date(1, 1, 1)),
    (timedelta, timedelta(days=-400, microseconds=1)),
    (Decimal, Decimal("1.00")),
    (Decimal, Decimal("-Infinity")),
    (UUID, UUID(int=5)),
    (Color, Color.RED),
    (Mode, Mode.ON),
    (Level, Level.HIGH),
    (Right, Right.READ | Right.WRITE),
    (Corner, Corner.RIGHT),
    (list, [1, "1", b"1", None, 1.0, [NOON]]),
    (dict, {1: "a", "1": (1, 2), b"1": {"deep": {UUID(int=1)}}, (1, "t"): Decimal("0.10")}),
    (tuple, (1, (2, [3]))),
    (set, {1, "a"}),
    (frozenset, frozenset({(1, 2)})),
    (Any, Shape("s", [POINT], bare=[1, (2,)])),
    (Any, [Account("a", Decimal("1.10")), Pair(1, ["r"]), Color.BLUE, Mode.ON, timedelta(1), date(2025, 1, 1)]),
    (object, {"k": {"k": [None]}}),
    (list[int], []),
    (list[Point], [POINT, Point(3)]),
    (set[str], {"a", "b"}),
    (set[Point], {POINT}),
    (frozenset[int | str], frozenset({1, "a"})),
    (set[frozenset[int]], {frozenset({1, 2}), frozenset({3})}),
    (tuple[int, str, bytes], (1, "a", b"b")),
    (tuple[float, ...], (1.0, 2.0)),
    (tuple[()], ()),
    (dict[str, list[int]], {"a": [1], "b": []}),
    (dict[int, str], {2**70: "big"}),
    (dict[datetime, int], {NOON: 1}),
    (dict[tuple[int, str], Point], {(1, "a"): POINT}),
    (dict[Color, bool], {Color.RED: False}),
    (dict[Level, int], {Level.LOW: 1}),
    (dict[Point, int], {POINT: 1}),
    (dict[frozenset[str], int], {frozenset({"a", "b"}): 1}),
    (dict[str, Any], {"a": [1, (2,)], "b": POINT}),
    (int | None, None),
    (int | None, 5),
    (int | None, 0),
    (Point | None, POINT),
    (Point | None, None),
    (Any | None, [1]),
    (Color | None, None),
    (list[int] | None, [1]),
    (int | str, "1"),
    (int | float, 1),
    (int | float, 1.0),
    (int | bool, True),
    (bytes | list, [1]),
    (bytes | list, b"1"),
    (str | Mode, Mode.ON),
    (str | Mode, "on"),
    (int | Level, Level.LOW),
    (int | Level, 1),
    (str | UUID | datetime, NOON),
    (Point | Shape | int, Shape("s", when=NOON)),
    (Point | Labelled, Labelled(1, 2.0, "l")),
    (Point | Labelled, POINT),
    (list[int] | dict[str, int], {"a": 1}),
    (list[int] | dict[str, int], [1]),
    (list[Point | int | None], [POINT, 1, None]),
    (Literal["a", 1, None], 1),
    (Literal["a"] | None, "a"),
    (Literal["a"] | None, None),
    (Literal["a"] | int, "a"),
    (Literal["a"] | list[str], ["a"]),
    (Point, POINT),
    (Shape, Shape("s", [POINT], {"t": {"u"}}, NOON, {"any": (1,)}, [1, (2,)])),
    (Labelled, Labelled(1, 2.0, "l")),
    (Box[int], Box(5)),
    (Box[Point], Box(POINT)),
    (Box[list[datetime]], Box([NOON])),
    (Box, Box((1, "a"))),
    (Tree, Tree(1, [Tree(2, [Tree(3)]), Tree(4)], Tree(5))),
    (Account, Account("a", Decimal("1.10"), [(NOON, Decimal(5))])),
    (Pair, Pair(1, ["a"])),
    (KeyedEvent[Pair], KeyedEvent(("a", 1), datetime(2025, 1, 1, tzinfo=timezone.utc), Pair(1, ["a"]))),
    (list[Pair], [Pair(1), Pair(2, ["b"])]),
    (postponed.Outer, postponed.Outer([postponed.Inner(NOON)], {"a": postponed.Inner(NOON)})),
    (postponed.Record, postponed.Record(1, postponed.Inner(NOON))),
]


@pytest.mark.parametrize(("type_", "value"), EXAMPLES, ids=[f"{n}-{type_}" for n, (type_, _) in enumerate(EXAMPLES)])
def test_a_value_is_read_with_the_exact_type_that_was_stored(type_: Any, value: Any) -> None:
    assert_read_as_stored(type_, value)


@given(st.text())
def test_any_text_is_read_as_it_was_stored(value: str) -> None:
    assert_read_as_stored(str, value)


@given(st.binary())
def test_any_bytes_are_read_as_they_were_stored(value: bytes) -> None:
    assert_read_as_stored(bytes, value)


@given(st.integers() | st.integers(-(2**300), 2**300))
def test_integers_of_any_size_are_read_as_they_were_stored(value: int) -> None:
    assert_read_as_stored(int, value)
    assert_read_as_stored(Any, [value])


@given(st.floats())
def test_any_float_is_read_as_it_was_stored(value: float) -> None:
    assert repr(through_msgpack(float, value)) == repr(value)


@given(st.decimals())
def test_any_decimal_is_read_as_it_was_stored(value: Decimal) -> None:
    assert repr(through_msgpack(Decimal, value)) == repr(value)


ZONES = st.sampled_from(
    [timezone.utc, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=11)), ZoneInfo("Europe/Berlin")]
)


@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=ZONES))
def test_datetimes_are_read_in_utc_to_the_microsecond(value: datetime) -> None:
    for type_ in (datetime, Any, datetime | None):
        read = through_msgpack(type_, value)
        assert read - value == timedelta(0)  # equality is false in the repeated hour of autumn
        assert read.tzinfo is timezone.utc


@given(st.timedeltas())
def test_any_timedelta_is_read_as_it_was_stored(value: timedelta) -> None:
    assert_read_as_stored(timedelta, value)


@given(st.dates())
def test_any_date_is_read_as_it_was_stored(value: date) -> None:
    assert_read_as_stored(date, value)


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.uuids()
    | st.datetimes(timezones=st.just(timezone.utc))
    | st.timedeltas()
)
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
NESTED = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.tuples(inner, inner)
        | st.builds(Box, inner)
        | st.sets(st.integers() | st.text(), max_size=4)
    ),
    max_leaves=12,
)


@given(NESTED)
def test_nested_values_without_a_declared_type_are_read_as_they_were_stored(value: Any) -> None:
    read = through_msgpack(Any, value)
    assert read == value
    assert type(read) is type(value)


@given(st.dictionaries(st.text(), st.lists(st.tuples(st.integers(), st.none() | st.floats(allow_nan=False)))))
def test_nested_containers_with_a_type_are_read_as_they_were_stored(
    value: dict[str, list[tuple[int, float | None]]],
) -> None:
    assert_read_as_stored(dict[str, list[tuple[int, float | None]]], value)


@given(st.sets(st.text()))
def test_equal_sets_have_the_same_encoded_form(value: set[str]) -> None:
    other = set[str]()
    for member in sorted(value, reverse=True):
        other.add(member)
    for type_ in (set[str], set, Any):
        assert pack(codec_for(type_).encode(value)) == pack(codec_for(type_).encode(other))


MUTATIONS: list[tuple[Any, Callable[[], Any], Callable[[Any], Any]]] = [
    (list[int], lambda: [1], lambda value: value.append(2)),
    (list, lambda: [[1]], lambda value: value[0].append(2)),
    (Any, lambda: {"a": [1]}, lambda value: value["a"].append(2)),
    (dict[str, list[int]], lambda: {"a": [1]}, lambda value: value["a"].append(2)),
    (set[str], lambda: {"a"}, lambda value: value.add("b")),
    (tuple[list[int], int], lambda: ([1], 1), lambda value: value[0].append(2)),
    (list[int] | None, lambda: [1], lambda value: value.append(2)),
    (list[int] | str, lambda: [1], lambda value: value.append(2)),
    (Shape, lambda: Shape("s", tags={"a": {"b"}}), lambda value: value.tags["a"].add("c")),
    (Shape, lambda: Shape("s", bare=[[1]]), lambda value: value.bare[0].append(2)),
    (Shape, lambda: Shape("s", anything={"a": [1]}), lambda value: value.anything["a"].append(2)),
    (Account, lambda: Account("a", Decimal(1)), lambda value: value.history.append((NOON, Decimal(1)))),
    (Pair, lambda: Pair(1, ["a"]), lambda value: value.right.append("b")),
    (Box[list[int]], lambda: Box([1]), lambda value: value.content.append(2)),
]


@pytest.mark.parametrize(("type_", "make", "mutate"), MUTATIONS, ids=[str(type_) for type_, *_ in MUTATIONS])
def test_changing_a_value_does_not_change_its_encoded_form(
    type_: Any, make: Callable[[], Any], mutate: Callable[[Any], Any]
) -> None:
    codec, value = codec_for(type_), make()
    encoded = codec.encode(value)
    mutate(value)
    assert codec.decode(encoded) == make()
    mutate(codec.decode(encoded))
    assert codec.decode(encoded) == make()


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (str, b"a"),
        (str, 1),
        (int, "1"),
        (int, 1.0),
        (int, None),
        (float, "1"),
        (float, 10**400),
        (bytes, "a"),
        (bool, 1),
        (datetime, date(2025, 1, 1)),
        (date, NOON),
        (timedelta, 5),
        (Decimal, 1.5),
        (UUID, "00000000-0000-0000-0000-000000000005"),
        (type(None), 0),
        (Color, "red"),
        (Mode, "on"),
        (Level, 1),
        (list, (1,)),
        (dict, [1]),
        (list[int], ["a"]),
        (list[int], (1,)),
        (list[str], "ab"),
        (set[int], [1]),
        (dict[str, int], {1: 1}),
        (dict[str, int], {"a": "b"}),
        (dict[str, int], [("a", 1)]),
        (tuple[int, str], (1,)),
        (tuple[int, str], (1, "a", 2)),
        (tuple[int, str], ("a", 1)),
        (tuple[int, ...], [1]),
        (int | str, 1.0),
        (int | None, "a"),
        (Point | None, 5),
        (Point | int, Shape("s")),
        (Literal["a"], "b"),
        (Literal[1], True),
        (Point, None),
        (Point, {"x": 1}),
        (Point, Point("a")),  # type: ignore[arg-type]
        (Point, Labelled(1)),
        (list[Point], [Labelled(1)]),
        (Shape, Shape("s", "ab")),  # type: ignore[arg-type]
        (Shape, Shape("s", anything=Plain())),
        (Account, Account("a", 1.5)),  # type: ignore[arg-type]
        (Pair, (1, ["a"])),
        (Box[int], Box("a")),
        (Tree, Tree(1, [Tree("a")])),  # type: ignore[arg-type]
        (Any, Plain()),
        (Any, [1, {"a": (Plain(),)}]),
        (Any, lambda: None),
        (Any, "\ud800"),
    ],
    ids=shown,
)
def test_the_error_for_a_value_of_another_type_names_value_and_type(type_: Any, value: Any) -> None:
    with pytest.raises(EncodeError) as caught:
        codec_for(type_).encode(value)
    assert caught.value.value is not None or value is None
    assert "cannot store" in str(caught.value)


@pytest.mark.parametrize("type_", [datetime, datetime | None, list[datetime], Any, dict[str, Any]])
def test_a_naive_datetime_is_refused_inside_any_container(type_: Any) -> None:
    naive = datetime(2025, 1, 1)
    value = {"a": naive} if type_ == dict[str, Any] else [naive] if type_ == list[datetime] else naive
    with pytest.raises(NaiveTimestampError, match="no time zone"):
        codec_for(type_).encode(value)


def test_a_subclass_of_a_scalar_is_stored_as_the_scalar() -> None:
    assert type(through_msgpack(str, Mode.ON)) is str
    assert type(through_msgpack(int, Level.LOW)) is int
    assert type(through_msgpack(float, 1)) is float
    assert through_msgpack(dict[str, int], defaultdict(int, a=1)) == {"a": 1}
    assert through_msgpack(Any, OrderedDict(a=[1])) == {"a": [1]}


@pytest.mark.parametrize(
    ("type_", "encoded"),
    [
        (int, "1"),
        (str, b"1"),
        (bool, 1),
        (datetime, 5),
        (list[str], "ab"),
        (list[int], ["a"]),
        (list[int], {"a": 1}),
        (set[int], 5),
        (tuple[int, str], [1]),
        (tuple[int, str], "ab"),
        (tuple[int, ...], "ab"),
        (dict[str, int], [1]),
        (dict[str, int], {"a": "b"}),
        (int | None, "a"),
        (Point | None, [1]),
        (Color, "green"),
        (Literal["a"], "b"),
        (Literal["a"], ["a"]),
        (Point, 5),
        (Point, {}),
        (Point, {"x": "a"}),
        (Pair, 5),
        (Account, {"owner": "a"}),
        (list, 5),
        (Any, 5),
        (list, pack((1,))),
    ],
    ids=str,
)
def test_the_error_for_stored_data_of_another_type_names_data_and_type(type_: Any, encoded: Any) -> None:
    with pytest.raises(StateDecodeError) as caught:
        codec_for(type_).decode(encoded)
    assert ", expected " in str(caught.value)
    assert str(caught.value).count("The state is unchanged") == 1


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (Plain, "attrs class"),
        (list[Plain], "it contains tests.sdk.test_codecs.Plain: use str"),
        (dict[str, list[Plain | None]], "it contains tests.sdk.test_codecs.Plain: use str"),
        (WithPlain, "it contains tests.sdk.test_codecs.Plain: use str"),
        (Box[Plain], "it contains tests.sdk.test_codecs.Plain: use str"),
        (Callable[[int], int], "functions cannot be stored"),
        (list[int] | list[str], "the union has more than one list: use different classes"),
        (Literal[Color.RED], "Literal"),
        (complex, "attrs class"),
        (5, "not a type"),
        ("int", "not a type"),
        ([int], "not a type"),
        (postponed.Dangling, "Missing"),
    ],
    ids=str,
)
def test_the_error_for_a_type_that_cannot_be_stored_states_the_reason(type_: Any, reason: str) -> None:
    with pytest.raises(UnsupportedTypeError) as caught:
        codec_for(type_)
    assert reason in str(caught.value)


def test_a_class_that_cannot_be_imported_is_not_stored_without_a_declared_type() -> None:
    @attrs.frozen
    class Local:
        x: int

    assert_read_as_stored(Local, Local(1))
    with pytest.raises(EncodeError, match="inside a function"):
        codec_for(Any).encode([Local(1)])


def test_a_value_that_cannot_be_stored_does_not_affect_the_next_value() -> None:
    for bad in ([1, 2, Plain()], [1, Shape("s", anything=Plain())], {"a": {1: Plain()}}):
        with pytest.raises(CodecError):
            codec_for(Any).encode(bad)
        assert_read_as_stored(Any, [1, Shape("s", bare=[2]), 3])


def test_the_error_for_an_unknown_msgpack_extension_names_its_type() -> None:
    with pytest.raises(StateDecodeError, match="does not support the msgpack extension type 99"):
        unpack(msgpack.packb(msgpack.ExtType(99, b"")))


@attrs.frozen
class PointLater:
    """`Point` in a later release."""

    x: int
    z: str = "new"


def test_a_class_reads_its_values_after_attributes_with_defaults_were_added_and_others_removed() -> None:
    assert codec_for(PointLater).decode(codec_for(Point).encode(POINT)) == PointLater(1)


@pytest.mark.parametrize(
    ("narrow", "wide", "value"),
    [
        (int, int | str, 1),
        (Point, Point | None, POINT),
        (Point, Point | Shape | None, POINT),
        (Point | None, Point | Shape | None, POINT),
        (Point | int, Point | Shape | int, POINT),
        (list[int], list[int] | None, [1]),
        (Color, Color | int, Color.RED),
    ],
    ids=str,
)
def test_a_union_reads_values_that_were_stored_before_it_had_more_types(narrow: Any, wide: Any, value: Any) -> None:
    assert codec_for(wide).decode(codec_for(narrow).encode(value)) == value


@attrs.frozen
class Plant:
    name: str
    children: "list[Plant]" = attrs.field(factory=list)


@dataclass
class Branches:
    by_name: "dict[str, list[Branches]]"


class Pairs(NamedTuple):
    inside: "tuple[Pairs, ...]" = ()


def nested(depth: int, wrap: Callable[[Any], Any], value: Any) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("type_", "wrap", "leaf"),
    [
        (Plant, lambda inner: Plant("a", [inner]), Plant("b")),
        (Branches, lambda inner: Branches({"a": [inner]}), Branches({})),
        (Pairs, lambda inner: Pairs((inner,)), Pairs()),
        (Any, lambda inner: (inner,), ()),
        (Any, lambda inner: frozenset({inner}), frozenset()),
        (Any, lambda inner: [(inner,)], 1),
    ],
)
def test_classes_tuples_and_sets_can_be_nested_64_deep(type_: Any, wrap: Callable[[Any], Any], leaf: Any) -> None:
    codec = codec_for(type_)
    value = nested(MAX_NESTING - 1, wrap, leaf)
    assert codec.decode(unpack(pack(codec.encode(value)))) == value
    for depth in (MAX_NESTING + 2, 2000):
        with pytest.raises(EncodeError, match="deeper than 64 tuples, sets or classes"):
            codec.encode(nested(depth, wrap, leaf))
    assert codec.decode(unpack(pack(codec.encode(value)))) == value, "the failure left nothing behind"


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}])
def test_lists_and_dicts_can_be_nested_1024_deep(wrap: Callable[[Any], Any]) -> None:
    codec = codec_for(Any)
    value = nested(300, wrap, 1)
    assert codec.decode(codec.encode(value)) == value
    for depth in (1100, 2000):
        with pytest.raises(EncodeError, match="or 1,024 lists or dicts"):
            codec.encode(nested(depth, wrap, 1))


def test_stored_data_that_is_nested_too_deeply_is_an_error() -> None:
    tuples = pack([])
    for _ in range(1000):
        tuples = msgpack.packb(msgpack.ExtType(1, b"\x91" + tuples))
    for stored in (tuples, b"\x91" * 5000 + b"\x90"):
        with pytest.raises(StateDecodeError, match="nested deeper than 64"):
            codec_for(Any).decode(stored)


@pytest.mark.parametrize("moment", [datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=2)))])
@pytest.mark.parametrize("wrap", [lambda moment: moment, lambda moment: {"at": [(moment,)]}, lambda moment: {moment}])
def test_a_time_before_the_year_1_in_utc_cannot_be_stored(moment: datetime, wrap: Callable[[Any], Any]) -> None:
    with pytest.raises(EncodeError, match="before the year 1"):
        pack(wrap(moment))
    value = wrap(datetime.min.replace(tzinfo=timezone.utc))
    assert unpack(pack(value)) == value


def test_bytes_that_look_like_a_stored_time_are_read_as_bytes() -> None:
    value = b"\xc7\x0c\xff" + b"\xff" * 12
    assert unpack(pack([value])) == [value]


@pytest.mark.parametrize("type_", [str, list[str], str | int, Plant])
def test_a_text_with_half_a_surrogate_pair_is_refused(type_: Any) -> None:
    value: Any = {list[str]: ["\ud800"], Plant: Plant("\ud800")}.get(type_, "\ud800")
    with pytest.raises(EncodeError, match="surrogates not allowed"):
        codec_for(type_).encode(value)


def test_fields_that_are_not_arguments_of_a_class_are_stored() -> None:
    basket = Basket(NOON)
    basket.count, basket.rest = 3, [NOON]
    back = through_msgpack(Basket[datetime], basket)
    assert (back.first, back.count, back.rest, hasattr(back, "later")) == (NOON, 3, [NOON], False)
    assert through_msgpack(Any, basket).rest == [NOON]

    branch = Branch("oak")
    object.__setattr__(branch, "length", 7)
    branch.twigs.append(Branch("twig"))
    assert through_msgpack(Branch, branch) == branch
    assert codec_for(Branch).decode({"name": "oak"}) == Branch("oak")  # as older code stored it


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("cache_hash", [False, True])
def test_converters_and_validators_do_not_run_when_a_value_is_read(slots: bool, frozen: bool, cache_hash: bool) -> None:
    hashing = {"cache_hash": True, "unsafe_hash": True} if cache_hash else {}
    converted: Any = attrs.make_class("Converted", CONVERTED, slots=slots, frozen=frozen, **hashing)
    value = converted("noon", NOON.isoformat(), hidden=3)
    value.later.append(4)
    object.__setattr__(value, "is_new", True)
    back = through_msgpack(converted, value)
    assert back == value
    assert (back.at, back._hidden, back.label, back.later) == (NOON, 6, "NOON 4", [4])
    if cache_hash:
        object.__setattr__(back, "later", ())
        assert hash(back) == hash(back)
    older = codec_for(converted).encode(value)
    for name in ("is_new", "label", "later"):
        del older[name]
    read = codec_for(converted).decode(older)
    assert (read.is_new, read.label, read.later) == (False, "NOON 4", [])
    del older["at"]
    with pytest.raises(StateDecodeError, match="'at' is missing"):
        codec_for(converted).decode(older)


def test_post_init_and_converters_do_not_change_fields_of_a_value_that_is_read() -> None:
    @attrs.define
    class Doubled:
        numbers: list[int]
        sums: list[int] = attrs.field(factory=list, converter=sorted)

        def __attrs_post_init__(self) -> None:
            self.numbers = self.numbers * 2
            self.sums = [sum(self.numbers), *self.sums]

    back = through_msgpack(Cents, Cents(3))
    assert (back, back.amount, back.of_no_field) == (Cents(3), 300, 30_000)
    doubled = through_msgpack(Doubled, Doubled([1, 2], [9, 8]))
    assert (doubled.numbers, doubled.sums) == ([1, 2, 1, 2], [6, 8, 9])
    assert codec_for(Cents).decode({"amount": 5}).amount == 5
    older = codec_for(Doubled).decode({"numbers": [5]})
    assert (older.numbers, older.sums) == ([5], [10])


def test_a_class_with_its_own_init_or_pre_init_is_made_by_calling_it_when_a_value_is_read() -> None:
    @attrs.define(init=False)
    class Own:
        number: int = attrs.field(converter=abs)

        def __init__(self, number: int) -> None:
            self.__attrs_init__(number + 1)  # type: ignore[attr-defined]

    @attrs.define(slots=False)
    class Begins:
        number: int = attrs.field(converter=abs)

        def __attrs_pre_init__(self) -> None:
            self.begun = True

    assert through_msgpack(Own, Own(3)) == Own(3)
    assert vars(through_msgpack(Begins, Begins(-3))) == {"begun": True, "number": 3}


def test_a_field_whose_type_cannot_be_stored_is_refused_even_if_it_is_not_an_argument() -> None:
    @dataclass
    class Locked:
        plain: Plain = field(init=False, default_factory=Plain)

    with pytest.raises(UnsupportedTypeError, match=r"it contains tests.sdk.test_codecs.Plain: use str"):
        codec_for(Locked)


class Rate(enum.Enum):
    FULL = 1.0
    NONE = float("nan")
    EXACT = Decimal("NaN")


@pytest.mark.parametrize("member", Rate)
@pytest.mark.parametrize("type_", [Rate, Any])
def test_a_member_whose_value_is_nan_is_read_again(type_: Any, member: Rate) -> None:
    codec = codec_for(type_)
    assert codec.decode(unpack(pack(codec.encode(member)))) is member
