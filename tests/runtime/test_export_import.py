"""`amadou state export`, then `import --into` with the same rows: the new savepoint has the same state."""

import enum
import json
import math
import os
import resource
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.commands import amadou, output
from tests.conformance.handlers import SECOND, CreatesWindow, EventHandler, at, event, job
from tests.stored.cases import CASES
from tests.stored.fixture import FORMATS, Fixture, rows_in
from tests.stored.jobs.format_1 import KEYS, values_job

from amadou import KeyedEvent, ListSpec, MapSpec, SinkSpec, Subject, ValueSpec
from amadou.engine import unpack
from amadou_plugins.aggregates import Max, Sum
from amadou_plugins.windows import CountWindow, SessionWindow, TumblingWindow, Window
from amadou_runtime import TestResult, TestRun
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.manifest import MANIFEST
from amadou_runtime.savepoint.readable import NotReadableError, StateFormat

STORED = Path(__file__).parents[1] / "stored"
in_both_formats = pytest.mark.parametrize("suffix", ["jsonl", "parquet"])


class Color(enum.Enum):
    RED = "red"
    LATE = datetime(2025, 1, 1, tzinfo=timezone.utc)
    BRIEF = timedelta(microseconds=1)


class Marks(enum.Flag):
    NEW = 1
    OLD = 4


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Pair(NamedTuple):
    left: timedelta
    right: Any = None


class Typed(TypedDict):
    at: datetime


@attrs.frozen
class Item:
    name: str
    price: Decimal | None = None
    tags: frozenset[str] = frozenset()
    by_time: dict[datetime, bytes] = attrs.field(factory=dict)
    color: Color | int = 0
    anything: Any = None
    others: "list[Item]" = attrs.field(factory=list)


class Stores(EventHandler):
    """Has state of a type: a value, a map and a list. Collects the value."""

    seen = SinkSpec(object)

    def __init__(self, type_: Any, key_type: Any = str, default: Any = None, **settings: Any) -> None:
        self.one: Any = ValueSpec(type_, default, name="one", **settings)
        self.by_key: Any = MapSpec(key_type, type_, name="by_key", **settings)
        self.items: Any = ListSpec(type_, name="items", **settings)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.seen.collect(subject, self.one.state_for(subject).value)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.seen.collect(subject, [timestamp, subject.timer_tag])


NAMES = ("one", "by_key", "items")


def exported(savepoint: Path, suffix: str = "jsonl") -> Path:
    """Export all state of a savepoint."""
    file = savepoint.with_name(f"{savepoint.name}.{suffix}")
    output("state", "export", str(savepoint), str(file))
    return file


def imported(savepoint: Path, file: Path) -> Path:
    """Import rows into a savepoint. Return the new savepoint."""
    new = savepoint.with_name(f"{savepoint.name}-{file.suffix[1:]}")
    output("state", "import", str(file), str(new), "--into", str(savepoint))
    return new


def rows_of(savepoint: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in exported(savepoint).read_bytes().splitlines()]


def state_in(savepoint: Path) -> dict[str, dict[Any, Any]]:
    """Return what a savepoint stores: packed state and times by spec and key, and timers by key."""
    found: dict[str, dict[Any, Any]] = {}
    for block in JobSavepoint(savepoint).stages[""].blocks():
        for name, table in block.tables.items():
            for key, packed in table.packed.items():
                found.setdefault(name, {})[key] = packed, table.expires.get(key), table.next_timers.get(key)
        for key, *timer in zip(*block.timers, strict=True):
            found.setdefault("timers", {}).setdefault(key, []).append(timer)
    return found


def same_again(savepoint: Path, suffix: str) -> Path:
    """Import what is exported from a savepoint into it. Check that the new savepoint, which is returned, has the same
    rows and the same state.
    """
    file = exported(savepoint)
    new = imported(savepoint, file if suffix == "jsonl" else exported(savepoint, suffix))
    assert exported(new).read_bytes() == file.read_bytes()
    assert state_in(new) == state_in(savepoint)
    return new


def saved(run: TestRun, directory: Path) -> Path:
    run.run()
    run.savepoint(directory / "saved")
    return directory / "saved"


@in_both_formats
@pytest.mark.parametrize(
    ("type_", "value", "settings"),
    [
        (Any, Item("a", Decimal("1.50"), anything=Item("b")), {}),
        (Any, [Pair(timedelta(1), Color.RED), {1: (Color.LATE,)}], {}),
        (int | None, None, {"default": 5}),
        (int | None, None, {"default": 5, "ttl": timedelta(days=1)}),
        (int | None, None, {"default": 5, "version": 1, "migrate": int}),
        (Any, None, {"default": 5}),
        (Marks, Marks.NEW | Marks.OLD, {}),
        (Marks, Marks(0), {}),
        (Rights, Rights.READ | Rights.WRITE, {}),
        (Rights, Rights(8), {}),
        (dict[str, Rights | None], {"a": Rights.READ | Rights.WRITE, "b": None}, {}),
        (Any, [Marks.NEW | Marks.OLD, Rights(3)], {}),
        (timedelta, timedelta(days=400_000, microseconds=1), {}),
        (timedelta, timedelta.max, {}),
        (timedelta, timedelta.min, {}),
    ],
    ids=str,
)
def test_a_job_reads_the_same_value_after_its_state_is_exported_and_imported(
    type_: Any, value: Any, settings: dict[str, Any], suffix: str, tmp_path: Path
) -> None:
    of_type = job(Stores(type_, **settings))
    run = TestRun(of_type).set_state("one", "k", value, written=at(0) if "ttl" in settings else None)
    new = same_again(saved(run, tmp_path), suffix)
    result = TestRun(of_type, savepoint=new).add_record(event(1)).run()
    assert result.records("seen") == [value]


@in_both_formats
def test_a_window_that_was_created_at_run_time_closes_after_its_state_is_exported_and_imported(
    suffix: str, tmp_path: Path
) -> None:
    creating = job(CreatesWindow())
    new = same_again(saved(TestRun(creating).add_records([event(1), event(2, key="other")]), tmp_path), suffix)
    result = TestRun(creating, savepoint=new).add_record(event(3)).run(flush=True)
    assert sorted(seen for seen in result.records("seen") if seen[0] == "closed") == [
        ("closed", "k", 0.0, seen_at(result), 2),
        ("closed", "other", 0.0, seen_at(result), 1),
    ]


def seen_at(result: TestResult) -> float:
    assert result.watermark is not None
    return (result.watermark - at(0)) / SECOND


def test_rows_of_thousands_of_key_groups_need_few_open_files(tmp_path: Path) -> None:
    counting = job(Stores(int))
    TestRun(counting).savepoint(tmp_path / "saved")
    manifest = JobSavepoint(tmp_path / "saved").manifest
    (tmp_path / "saved" / MANIFEST).write_text(attrs.evolve(manifest, key_groups=4_096).to_json())
    rows = [{"key": number, "spec": "one", "value": number} for number in range(3_000)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 150, limits[1]))
    try:
        new = imported(tmp_path / "saved", tmp_path / "rows.jsonl")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert {key: unpack(packed) for key, (packed, *_) in state_in(new)["one"].items()} == {n: n for n in range(3_000)}
    JobSavepoint(new).verify()
    positions = [block.first for block in JobSavepoint(new).stages[""].blocks()]
    assert positions == sorted(positions)


UTC = st.just(timezone.utc)
FIRST, LAST = (time.replace(tzinfo=timezone.utc) for time in (datetime.min, datetime.max))
TIMES = st.one_of(st.datetimes(timezones=UTC), st.sampled_from([FIRST, LAST, at(0).astimezone(timezone(9 * SECOND))]))
SPANS = st.one_of(
    st.timedeltas(),
    st.sampled_from([timedelta.max, timedelta.min, timedelta(microseconds=1), timedelta(-123456789, microseconds=7)]),
)
TEXTS = st.one_of(st.text(max_size=3), st.sampled_from(["null", "1", "$map", "_type", "\u2028", "\0", "2025-01-01"]))
INTS = st.one_of(st.integers(-3, 3), st.sampled_from([2**63, -(2**70)]))
BYTES = st.binary(max_size=3)
DECIMALS = st.one_of(st.decimals(), st.sampled_from([Decimal("1.00"), Decimal("-0"), Decimal("1E+400")]))
FLOATS = st.one_of(st.floats(allow_nan=False), st.sampled_from([math.nan, math.inf, -0.0, 1.0, 5e-324]))
WITHOUT_NAN: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    int: INTS,
    bool: st.booleans(),
    bytes: BYTES,
    datetime: TIMES,
    timedelta: SPANS,
    UUID: st.uuids(),
    Color: st.sampled_from(Color),
    Marks: st.sampled_from([0, 1, 4, 5]).map(Marks),
    Rights: st.integers(0, 9).map(Rights),
    float: st.floats(allow_nan=False),
    Decimal: st.decimals(allow_nan=False),
    str | None: st.none() | TEXTS,
}
# Results are compared by `repr`, which has no fixed order for several values of a set.
HASHABLE = st.recursive(
    st.one_of(*WITHOUT_NAN.values()), lambda inside: st.tuples(inside) | st.frozensets(inside, max_size=1), max_leaves=3
)
LEAVES = st.one_of(st.none(), DECIMALS, FLOATS, *WITHOUT_NAN.values())
ITEMS = st.builds(
    Item,
    TEXTS,
    st.none() | DECIMALS,
    st.frozensets(TEXTS, max_size=1),
    st.dictionaries(TIMES, BYTES, max_size=2),
    st.sampled_from(Color) | INTS,
    LEAVES,
    st.lists(st.builds(Item, TEXTS, others=st.lists(st.builds(Item, TEXTS), max_size=1)), max_size=2),
)
ANYTHING = st.recursive(
    st.one_of(LEAVES, ITEMS, st.builds(Pair, SPANS, LEAVES)),
    lambda inside: st.one_of(
        st.lists(inside, max_size=2),
        st.tuples(inside, inside),
        st.dictionaries(TEXTS, inside, max_size=2),
        st.dictionaries(HASHABLE, inside, max_size=2),
        st.sets(HASHABLE, max_size=1),
    ),
    max_leaves=4,
)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    **WITHOUT_NAN,
    float: FLOATS,
    Decimal: DECIMALS,
    Any: ANYTHING,
    Item: ITEMS,
    Pair: st.builds(Pair, SPANS, ANYTHING),
    Typed: st.fixed_dictionaries({"at": TIMES}),
    list: st.lists(ANYTHING, max_size=2),
    dict: st.dictionaries(HASHABLE, ANYTHING, max_size=2),
    int | str | datetime: INTS | TEXTS | TIMES,
    Item | timedelta | None: st.one_of(ITEMS, SPANS, st.none()),
    list[Decimal | None]: st.lists(DECIMALS | st.none(), max_size=2),
    tuple[timedelta, ...]: st.lists(SPANS, max_size=2).map(tuple),
    tuple[Any, bytes]: st.tuples(ANYTHING, BYTES),
    dict[str, Item]: st.dictionaries(TEXTS, ITEMS, max_size=2),
    dict[datetime, list[float]]: st.dictionaries(TIMES, st.lists(FLOATS, max_size=2), max_size=2),
    frozenset[UUID]: st.frozensets(st.uuids(), max_size=1),
}
KEY_TYPES: dict[Any, st.SearchStrategy[Any]] = {
    **WITHOUT_NAN,
    Any: HASHABLE,
    tuple[int, Any]: st.tuples(INTS, HASHABLE),
    frozenset[str]: st.frozensets(TEXTS, max_size=1),
    Pair: st.builds(Pair, SPANS, TEXTS),
    int | timedelta: INTS | SPANS,
}
SUBJECTS = st.lists(st.one_of(TEXTS, INTS, BYTES, st.tuples(TEXTS, INTS)), min_size=1, max_size=2, unique_by=repr)
SETTINGS: list[dict[str, Any]] = [
    {},
    {"ttl": timedelta(days=1)},
    {"version": 2, "migrate": str},
    {"version": 2, "migrate": str, "ttl": timedelta(days=1)},
]


@in_both_formats
@pytest.mark.parametrize("more", SETTINGS, ids=["", "ttl", "version", "ttl and version"])
@settings(max_examples=15)
@given(data=st.data())
def test_any_state_is_the_same_after_it_is_exported_and_imported(
    data: st.DataObject, more: dict[str, Any], suffix: str
) -> None:
    type_, key_type = data.draw(st.sampled_from([*VALUES])), data.draw(st.sampled_from([*KEY_TYPES]))
    values = VALUES[type_]
    entries = st.dictionaries(KEY_TYPES[key_type], values, max_size=2)
    stored = job(Stores(type_, key_type, **more))
    written = data.draw(st.datetimes(datetime(1950, 1, 1), timezones=UTC)) if "ttl" in more else None
    run = TestRun(stored)
    for key in data.draw(SUBJECTS):
        for name, value in zip(NAMES, (values, entries, st.lists(values, max_size=2)), strict=True):
            run.set_state(name, key, data.draw(value), written=written)
        for time, tag in data.draw(st.lists(st.tuples(TIMES, TEXTS), max_size=2)):
            run.set_timer(key, time, tag)
    with TemporaryDirectory() as directory, run:
        before = saved(run, Path(directory))
        after = same_again(before, suffix)
        assert shown(TestRun(stored, savepoint=after)) == shown(TestRun(stored, savepoint=before))


def shown(run: TestRun) -> list[str]:
    with run:
        result = run.run()
    keys = result.keys()
    return sorted(repr([key, *(result.state(name, key) for name in NAMES), result.timers(key)]) for key in keys)


class HasWindows(CreatesWindow):
    """Adds events to windows of all kinds, two of which are created at run time, and sets timers."""

    sums = TumblingWindow(10 * SECOND, Sum())
    both = SessionWindow(5 * SECOND, {"sum": Sum(), "max": Max()})
    counts = CountWindow(3)
    brief = TumblingWindow(7 * SECOND, ttl=timedelta(hours=1))

    def window(self, name: str = "created") -> Any:
        return TumblingWindow((4 if name == "created" else 9) * SECOND, Sum(), name=name, on_close=self.closed)

    def on_recover_window(self, name: str, subject: Subject) -> Any:
        return self.window(name)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        for window in (self.sums, self.both, self.counts, self.brief, self.window(), self.window("rule 2")):
            window.add(subject, event)
        subject.set_timer(event.timestamp + 9 * SECOND, str(event.value % 2))

    @sums.on_close
    def sums_closed(self, subject: Subject, window: Window, value: Any) -> None:
        self.closed(subject, window, value)

    both.on_close(sums_closed)
    counts.on_close(sums_closed)
    brief.on_close(sums_closed)


EVENTS = st.lists(
    st.builds(event, st.integers(0, 40), st.integers(-9, 9), st.sampled_from(["a", "b", 1])), min_size=1, max_size=8
)


@in_both_formats
@settings(max_examples=10)
@given(before=EVENTS, after=EVENTS)
def test_timers_and_windows_are_the_same_after_they_are_exported_and_imported(
    before: list[KeyedEvent[int]], after: list[KeyedEvent[int]], suffix: str
) -> None:
    windowed = job(HasWindows(), watermark_delay=5 * SECOND)
    with TemporaryDirectory() as directory, TestRun(windowed) as run:
        first = saved(run.add_records(before), Path(directory))
        continued = []
        for savepoint in (first, same_again(first, suffix)):
            with TestRun(windowed, savepoint=savepoint) as again:
                result = again.add_records(after).run(flush=True)
                continued.append([result.records("seen"), result.dropped])
    assert continued[0] == continued[1]


@pytest.mark.parametrize(("store", "suffix"), [("groups", "jsonl"), ("log-by-key", "parquet")])
@pytest.mark.parametrize("directory", FORMATS, ids=lambda path: path.name)
def test_stored_state_of_every_kind_continues_after_it_is_exported_and_imported(
    directory: Path, store: str, suffix: str, tmp_path: Path
) -> None:
    fixture = Fixture(directory, CASES["kinds"])
    place = fixture.unpack(tmp_path)
    new = same_again(place.savepoint(store), suffix)
    place.savepoint(store).rename(place.savepoint(store).with_name("earlier"))
    new.rename(place.savepoint(store))
    assert place.rows(store, savepoint=True) == rows_in(fixture.rows)
    assert place.continued(store) == rows_in(fixture.outputs)


@in_both_formats
@pytest.mark.parametrize("stored", sorted(STORED.glob("savepoints-*")), ids=lambda path: path.name)
def test_a_stored_savepoint_continues_after_its_state_is_exported_and_imported(
    stored: Path, suffix: str, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    output("state", "export", str(stored / "all"), str(tmp_path / f"rows.{suffix}"))
    output("state", "import", str(tmp_path / f"rows.{suffix}"), str(new), "--into", str(stored / "all"))
    assert exported(new).read_text() == (stored / "rows.jsonl").read_text()
    assert state_in(new) == state_in(stored / "all")
    results = []
    for savepoint in (stored / "all", new):
        with TestRun(values_job, savepoint=savepoint) as run:
            result = run.add_record(("a", 45, 0), "needed").add_watermark(at(90 * 60)).run(flush=True)
            results.append([result.records("out"), [str(result.state("item", key)) for key in KEYS]])
    assert results[0] == results[1]


@in_both_formats
@pytest.mark.parametrize("more", SETTINGS[:3], ids=["", "ttl", "version"])
def test_null_removes_state_and_a_tag_stands_for_none(more: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    stored = job(Stores(int | None, default=5, **more))
    run = TestRun(stored)
    for key, value in (("k", None), ("removed", None), ("changed", 7)):
        run.set_state("one", key, value, written=at(0) if "ttl" in more else None)
    savepoint = saved(run, tmp_path)
    rows = {row["key"]: row for row in rows_of(savepoint)}
    assert {key: row["value"] for key, row in rows.items()} == {
        "k": {"$None": None},
        "removed": {"$None": None},
        "changed": 7,
    }
    changed = [rows["removed"] | {"value": None}, rows["changed"] | {"value": {"$None": None}}]
    savepoint.with_name("changed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in changed))
    new = imported(savepoint, savepoint.with_name("changed.jsonl"))
    assert {row["key"]: row["value"] for row in rows_of(new)} == {"k": {"$None": None}, "changed": {"$None": None}}
    result = TestRun(stored, savepoint=new).add_records([event(1, key=key) for key in rows]).run()
    assert result.records("seen") == [5 if key == "removed" else None for key in rows]


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (dict[str, int | None], {"$None": None}),
        (dict[str, str], {"$msgpack": "wAA="}),
        (dict[str, str], {"$msgpack": "text"}),
        (dict[str, datetime] | None, {"_type": at(0), "_value": at(0)}),
        (dict[str, str] | None, {"_type": "a", "_value": "b"}),
        (dict[str, Any], {"$bytes": "YQ=="}),
        (dict, {"$None": None}),
        (Any, {"$None": None}),
        (Any, {"$msgpack": "text"}),
        (Any, [{"$object": ["a:b", {}]}, {"$map": []}, {"$set": 1}]),
    ],
    ids=str,
)
def test_a_dict_whose_keys_are_those_of_the_notation_of_rows_is_exported_and_imported(
    type_: Any, value: Any, tmp_path: Path
) -> None:
    stored = job(Stores(type_))
    new = same_again(saved(TestRun(stored).set_state("one", "k", value), tmp_path), "jsonl")
    assert TestRun(stored, savepoint=new).add_record(event(1)).run().records("seen") == [value]


def of_earlier(encoded: Any, version: int) -> Any:
    return MIGRATED[type(encoded)]


MIGRATED: dict[Any, Any] = {
    int: timedelta(minutes=5),
    float: Decimal(5),
    str: datetime(2025, 1, 1, tzinfo=timezone.utc),
}
MIGRATED |= {bytes: b"", datetime: "noon", dict: Item("a")}


@pytest.mark.parametrize(
    ("earlier", "value", "type_"),
    [
        (int, 5, timedelta),
        (float, 5.5, Decimal),
        (str, "2025-01-01T00:00:00+00:00", datetime),
        (int, 5, Any),
        (dict[datetime, int], {at(0): 1}, Item),
        (datetime, at(0), str),
        (bytes, b"a", bytes),
    ],
    ids=str,
)
def test_state_that_has_not_been_migrated_yet_is_exported_and_imported(
    earlier: Any, value: Any, type_: Any, tmp_path: Path
) -> None:
    run = TestRun(job(Stores(earlier)))
    run.set_state("one", "k", value).set_state("by_key", "k", {"a": value}).set_state("items", "k", [value]).run()
    run.savepoint(tmp_path / "earlier")
    migrating = job(Stores(type_, version=1, migrate=of_earlier))
    run = TestRun(migrating, savepoint=tmp_path / "earlier").add_record(event(1, key="another"))
    new = same_again(saved(run, tmp_path), "jsonl")
    assert shown(TestRun(migrating, savepoint=new)) == shown(TestRun(migrating, savepoint=tmp_path / "earlier"))


@pytest.mark.parametrize(
    ("span", "seconds"),
    [
        (timedelta(days=1), 86400),
        (timedelta(microseconds=1), 1e-06),
        (timedelta(days=400_000, microseconds=1), "34560000000.000001"),
        (timedelta.min, -86399999913600),
        (timedelta.max, "86399999999999.999999"),
    ],
    ids=str,
)
def test_an_exported_timedelta_is_a_readable_number_of_seconds(span: timedelta, seconds: Any, tmp_path: Path) -> None:
    run = TestRun(job(Stores(timedelta))).set_state("items", "k", [span, timedelta(0)])
    (row,) = rows_of(saved(run, tmp_path))
    assert row["value"] == [seconds, 0]


def test_an_import_of_a_timedelta_that_is_out_of_range_is_an_error(tmp_path: Path) -> None:
    savepoint = saved(TestRun(job(Stores(timedelta))).set_state("one", "k", timedelta(1)), tmp_path)
    for value in (1e20, "86400000000000", "NaN", "inf", "day", "", True, [1], 10**400):
        file = tmp_path / "changed.jsonl"
        file.write_text(json.dumps({"key": "k", "spec": "one", "value": value}))
        done = amadou("state", "import", str(file), str(tmp_path / "new"), "--into", str(savepoint))
        assert (done.exit_code, isinstance(done.exception, SystemExit)) == (1, True), value
        assert "row 1 cannot be imported" in " ".join(done.output.split()), value


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (list[int], [1, "x"]),
        (dict[str, int], {"a": None}),
        (tuple[int, str], [1]),
        (Item, {"name": 5}),
        (Item | None, 3),
        (str | int, 1.5),
        (bytes, {"$datetime": "2025-01-01T00:00:00+00:00"}),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused(type_: Any, value: Any) -> None:
    structure = ValueSpec(type_, name="value").structure()
    with pytest.raises(NotReadableError, match="is not of the type"):
        StateFormat([structure]).from_json({"value": value})


@pytest.mark.parametrize("type_", [str, int, float, bool, bytes, datetime, date, timedelta, Decimal, UUID], ids=str)
@pytest.mark.parametrize("value", [None, False, 1, -1.5, "", "x", [], [1], {}, {"a": 1}], ids=str)
def test_a_json_value_is_one_of_the_type_or_is_refused(type_: Any, value: Any) -> None:
    format_ = StateFormat([ValueSpec(type_, name="value").structure()])
    try:
        assert format_.from_json({"value": value})
    except NotReadableError:
        return
