"""Stored bytes name the classes of objects in `Any` state: no module is imported because of them, and to look at state
creates no object (`security.md`).
"""

import json
import re
import sys
from dataclasses import dataclass, field
from datetime import datetime, timezone
from decimal import Decimal
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.commands import amadou, output
from tests.conformance.handlers import EventHandler, at, event, job

from amadou import Job, KeyedEvent, MapSpec, Subject, ValueSpec
from amadou._state import encoding
from amadou.engine import StateTable, StoredObject, pack, type_reference, unpack, unpack_stored
from amadou.errors import AmadouError, CallbackError, JobError, StateDecodeError
from amadou_runtime import TestRun
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.jobs.load_job import load_job
from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_job_savepoint
from amadou_runtime.savepoint.manifest import Manifest
from amadou_runtime.savepoint.readable import StateFormat
from amadou_runtime.savepoint.savepoint import complete, progress_of, write_groups
from amadou_runtime.store.packed_group import PackedGroup

SHAPES = """
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from attrs import frozen

Path(__file__).with_name("imported").touch()


class Color(Enum):
    RED = "red"


@frozen
class Point:
    x: int
    name: str = ""


class Pair(NamedTuple):
    left: Point
    color: Color


@frozen
class Holder:
    part: Any
"""
MARKET = """
from datetime import datetime, timedelta
from typing import Any

import attrs

from amadou import (
    DependsOn, Handler, Job, KeyedEvent, ListSpec, MapSpec, MemorySink, MemorySource, ReferenceSpec, SinkSpec, ValueSpec
)


class Market(Handler):
    one = ValueSpec(Any)
    inside = ValueSpec(Any)
    bare = ValueSpec(list, version=1, migrate=lambda encoded, version: encoded)
    values = MapSpec(str, Any)
    keys = MapSpec(Any, int)
    pairs = MapSpec(tuple[Any, int], int, ttl=timedelta(days=1))
    items = ListSpec(Any, ttl=timedelta(days=1))
    sets = ValueSpec(set)
    limits = ReferenceSpec(str, Any, source="limits")
    out = SinkSpec(str)

    def key_event(self, record):
        return record

    def on_event(self, subject, event):
        if event.value in self.names:
            state = getattr(self, event.value).state_for(subject)
            text = state.value if hasattr(state, "value") else dict(state) if hasattr(state, "items") else list(state)
            self.out.collect(subject, repr(text))

    names = ("one", "inside", "bare", "values", "keys", "pairs", "items", "sets")


SOURCES = {name: MemorySource() for name in ("events", "limits", "needed")}
job = Job("market", Market(), SOURCES, {"out": MemorySink()})
holding = attrs.evolve(job, dependencies=[DependsOn("events", on="needed", threshold=timedelta(minutes=1))])
"""
WITH_TYPES = """
import attrs
import market
import shapes

job = attrs.evolve(market.job, types=[shapes.Point])
"""
POINT = "Point(x=1, name='a')"
STATE = {
    "one": "Pair(left=Point(x=1, name='a'), color=<Color.RED: 'red'>)",
    "inside": "Holder(part=Point(x=1, name='a'))",
    "bare": f"[{POINT}]",
    "values": f"{{'b': {POINT}}}",
    "keys": f"{{{POINT}: 1, (1, {POINT}): 2, frozenset({{{POINT}}}): 3}}",
    "pairs": f"{{({POINT}, 1): 1}}",
    "items": f"[{POINT}, ({POINT},), {{{POINT}: 1}}]",
    "sets": f"{{{POINT}}}",
}
"""The state of the key "k" by spec, as Python shows it."""
NOT_KNOWN = "is not known: the module shapes is not imported: list the class in Job(types=[…])"


def save_market(directory: Path, values: dict[str, Any], limit: Any, held: Any = None) -> Path:
    """Write a savepoint of the job `market.py`, with state of the key "k", a limit, and the value of a held event."""
    with TestRun(load_job("market.py:job" if held is None else "market.py:holding")) as run:
        run.add_record(event(1), "needed").add_record(event(1, limit, "DE"), "limits")
        if held is not None:
            run.add_record(event(600, held), "events")
        for name, value in values.items():
            run.set_state(name, "k", value, written=at(0))
        run.run()
        run.savepoint(directory)
    return directory


def save_key(savepoint: Path, part: StoredObject) -> None:
    """Write a savepoint, `keyed`, with state of a key that has an object as a part, which amadou refuses in a job."""
    base, group = JobSavepoint(savepoint).stages[""], KeyGroup(PackedGroup(None))
    group.tables["one"] = StateTable({(part, 1): pack(pack(1))})

    def write(directory: Path) -> Manifest:
        return complete(directory, progress_of(base), *write_groups(directory, 0, [(0, group)], 1))

    write_job_savepoint(base.manifest.job, {"": write}, savepoint.with_name("keyed"))


def forget(*modules: str) -> None:
    """Remove modules as if they had never been imported."""
    for module in modules:
        sys.modules.pop(module, None)
    encoding._known_types.clear()
    Path("imported").unlink(missing_ok=True)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the job and the module `shapes`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(encoding, "_known_types", {})
    for name, text in {"shapes": SHAPES, "market": MARKET, "typed": WITH_TYPES}.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setitem(sys.modules, name, None)  # so that it is removed after the test
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


@pytest.fixture
def savepoint(place: Path) -> Path:
    """A savepoint with objects of the module `shapes`, which is no longer imported."""
    shapes = import_module("shapes")
    point = shapes.Point(1, "a")
    values = {
        "one": shapes.Pair(point, shapes.Color.RED),
        "inside": shapes.Holder(point),
        "bare": [point],
        "values": {"b": point},
        "keys": {point: 1, (1, point): 2, frozenset([point]): 3},
        "pairs": {(point, 1): 1},
        "items": [point, (point,), {point: 1}],
        "sets": {point},
    }
    saved = save_market(place / "saved", values, point)
    forget("shapes", "market")
    return saved


def is_imported() -> bool:
    return "shapes" in sys.modules or Path("imported").exists()


COMMANDS = [
    "state keys saved",
    "state show saved k",
    "state show saved k --json",
    "state show saved k --job market.py",
    "state export saved rows.jsonl",
    "state export saved rows.parquet",
    "state export saved rows.jsonl --job market.py",
    "savepoint --verify saved",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_looking_at_state_imports_no_module_that_it_names(savepoint: Path, command: str) -> None:
    output(*command.split())
    assert not is_imported()


def test_importing_rows_imports_no_module_that_they_name(savepoint: Path) -> None:
    output("state", "export", "saved", "rows.jsonl")
    for number, more in enumerate(([], ["--job", "market.py"])):
        output("state", "import", "rows.jsonl", f"new {number}", "--into", "saved", *more)
        output("state", "export", f"new {number}", "again.jsonl")
        assert Path("again.jsonl").read_text() == Path("rows.jsonl").read_text()
    assert not is_imported()


SHOWN = {**STATE, "one": "Pair(left={'x': 1, 'name': 'a'}, color='red')"}
"""The state as it is shown without the classes: the types of their fields are not known."""


@pytest.mark.parametrize("name", [name for name in STATE if name != "inside"])
def test_state_show_without_a_job_shows_objects_by_the_names_of_their_classes(savepoint: Path, name: str) -> None:
    assert f" {name} {SHOWN[name]} " in " ".join(output("state", "show", "saved", "k").split())


def test_state_show_with_a_job_that_lacks_the_classes_shows_as_much_as_without_it(savepoint: Path) -> None:
    shown = " ".join(output("state", "show", "saved", "k", "--job", "market.py").split())
    assert f"values {{'b': {POINT}}}" in shown


@pytest.fixture
def with_held_event(place: Path) -> Path:
    """A savepoint with a held event, whose value is an object of the module `shapes`, which is no longer imported."""
    saved = save_market(place / "saved", {}, None, import_module("shapes").Point(1, "a"))
    forget("shapes", "market")
    return saved


def test_state_show_shows_the_object_in_a_held_event(with_held_event: Path) -> None:
    assert f"held from events: {at(600).isoformat()} {POINT}" in " ".join(output("state", "show", "saved", "k").split())


def test_a_job_that_reads_a_held_event_of_a_class_that_is_not_imported_fails_with_a_way_out(
    with_held_event: Path,
) -> None:
    output("state", "show", "saved", "k", "--job", "market.py:holding")
    with TestRun(load_job("market.py:holding"), savepoint=with_held_event) as run:
        run.add_record(event(700), "needed").end_batch().add_record(event(700), "events")
        with pytest.raises(AmadouError, match=re.escape(NOT_KNOWN)):
            run.run()
    assert not is_imported()


@pytest.mark.parametrize("name", STATE)
def test_a_job_that_reads_an_object_of_a_class_that_is_not_imported_fails_with_a_way_out(
    savepoint: Path, name: str
) -> None:
    with TestRun(load_job("market.py"), savepoint=savepoint) as run:
        run.add_record(event(1, name), "events")
        with pytest.raises(CallbackError, match=re.escape(NOT_KNOWN)):
            run.run()
    assert not is_imported()


def test_a_rehearsal_of_a_job_without_the_classes_names_each_state_and_the_way_out(savepoint: Path) -> None:
    done = amadou("rehearse", "saved", "market.py")
    assert done.exit_code == 1
    for name in (*STATE, "limits"):
        assert f"{name}: 1 of 1 entries cannot be read" in done.output
    assert done.output.count(NOT_KNOWN) == len(STATE) + 1
    assert not is_imported()


@pytest.mark.parametrize("command", [each for each in COMMANDS if " show " not in each] + ["rehearse saved market.py"])
def test_a_savepoint_whose_keys_name_a_class_is_refused_without_an_import(savepoint: Path, command: str) -> None:
    save_key(savepoint, StoredObject.of(pack(["shapes:Point", {"x": 1}])))
    done = amadou(*command.replace("saved", "keyed").split())
    assert (done.exit_code, isinstance(done.exception, SystemExit)) == (1, True)
    assert "the key Point(x=1) has type StoredObject" in " ".join(done.output.split())
    assert not is_imported()


def read(of: Job, savepoint: Path) -> TestRun:
    """Return a test run that has read all state of the savepoint."""
    run = TestRun(of, savepoint=savepoint)
    for second, name in enumerate(STATE):
        run.add_record(event(second, name), "events")
    run.run()
    return run


def test_a_job_with_types_reads_objects_again_and_again(savepoint: Path, tmp_path: Path) -> None:
    typed = load_job("typed.py")
    assert is_imported()
    with read(typed, savepoint) as run:
        assert run.run().records("out") == [*STATE.values()]
        run.savepoint(tmp_path / "next")
    with read(typed, tmp_path / "next") as run:
        assert run.run().records("out") == [*STATE.values()]


def test_commands_with_a_job_with_types_show_its_objects(savepoint: Path) -> None:
    shown = " ".join(output("state", "show", "saved", "k", "--job", "typed.py").split())
    for name, text in STATE.items():
        assert f" {name} {text} " in shown
    output("rehearse", "saved", "typed.py")


created: list[Any] = []


@attrs.frozen
class Noticed:
    """Tells when an object is created."""

    x: Any = None

    def __attrs_post_init__(self) -> None:
        created.append(self)


NOTICED = StoredObject.of(pack([type_reference(Noticed), {"x": pack(1)}]))


@pytest.fixture
def of_imported(place: Path) -> Path:
    """Two savepoints with objects of `Noticed`: in the state of a key; and in a key, which amadou would refuse."""
    values = {"one": NOTICED, "bare": [NOTICED], "keys": {(NOTICED, 1): 1}, "items": [{NOTICED}]}
    saved = save_market(place / "saved", values, NOTICED, NOTICED)
    save_key(saved, NOTICED)
    created.clear()
    return place


@pytest.mark.parametrize(
    "command",
    [
        "state keys saved",
        "state export saved rows.jsonl",
        "savepoint --verify saved",
        "state show saved k",
        "state show saved k --json",
        "state keys keyed",
        "state export keyed rows.jsonl",
        "savepoint --verify keyed",
    ],
)
def test_looking_at_state_creates_no_object_of_a_class_that_is_imported(of_imported: Path, command: str) -> None:
    done = amadou(*command.split())
    assert created == []
    assert done.exception is None or isinstance(done.exception, SystemExit)


def extension(code: int, data: bytes) -> bytes:
    return b"\xc7" + bytes([len(data), code]) + data


@pytest.fixture
def sly(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module whose names run code, or lead to other objects than classes with fields."""
    module: Any = ModuleType("sly")
    module.__getattr__ = created.append
    module.instance, module.function, module.Noticed, module.Sly = Sly(), import_module, Noticed, Sly
    monkeypatch.setitem(sys.modules, "sly", module)
    monkeypatch.setattr(encoding, "_known_types", {})
    created.clear()
    return module  # type: ignore[no-any-return]


class OfMeta(type):
    def __getattr__(cls, name: str) -> Any:
        created.append(name)
        return Noticed


class Sly(metaclass=OfMeta):
    Inner = Noticed
    function = staticmethod(import_module)

    @property
    def made(self) -> Any:
        return created.append(self)

    def __getattr__(self, name: str) -> Any:
        return created.append(name)


@pytest.mark.parametrize(
    "name",
    [
        *("sly:Lazy", "sly:Lazy.Inner", "sly:instance.Inner", "sly:instance.Lazy", "sly:function", "sly:Sly.Lazy"),
        *("sly:Sly.function", "sly:Sly.made", "sly:Noticed.__init__", "sly:Noticed.x", "sly:Noticed."),
        *("sly:.Noticed", "sly:", "sly", "", ":", ":Noticed", "a\0b:Noticed", "sly.instance:Inner"),
        *("os:path.join", "builtins:eval", "builtins:type", "builtins:Exception", "sly:__dict__", "sly:__class__"),
    ],
)
def test_a_name_that_leads_to_something_other_than_a_class_with_fields_is_refused(sly: ModuleType, name: str) -> None:
    with pytest.raises(AmadouError):
        unpack(extension(9, pack([name, {}])))
    assert created == []
    assert unpack_stored(extension(9, pack([name, {}]))).type == name


def test_a_class_inside_a_class_is_found_in_an_imported_module(sly: ModuleType) -> None:
    for name in ("sly:Noticed", "sly:Sly.Inner"):
        assert unpack(extension(9, pack([name, {"x": pack(1)}]))).x == 1


class Ignores(EventHandler):
    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None: ...


class Plain:
    """Has no fields."""


def local_class() -> type:
    @dataclass
    class Local:
        x: int

    return Local


A_LIST = "types must be a list of classes, not "
OF_FIELDS = "types must contain attrs classes, dataclasses, named tuples or enums, not "


@pytest.mark.parametrize(
    ("types", "problem"),
    [
        (Noticed, f"{A_LIST}{Noticed!r}"),
        ("shapes:Point", f"{A_LIST}'shapes:Point'"),
        (None, f"{A_LIST}None"),
        ({"Noticed": Noticed}, A_LIST),
        (["shapes:Point"], f"{OF_FIELDS}'shapes:Point'"),
        ([Noticed, Plain], f"{OF_FIELDS}{Plain!r}"),
        ([int], f"{OF_FIELDS}<class 'int'>"),
        ([list[Noticed]], f"{OF_FIELDS}list["),
        ([NOTICED], f"{OF_FIELDS}Noticed(x="),
        (
            [local_class()],
            "types contains local_class.<locals>.Local, which is defined inside a function: define it in a",
        ),
    ],
    ids=str,
)
def test_types_of_a_job_are_checked_when_the_job_is_created(types: Any, problem: str) -> None:
    with pytest.raises(JobError) as caught:
        job(Ignores(), types=types)
    assert problem in str(caught.value)


class Color(Enum):
    RED = "red"
    AT = datetime(2025, 1, 1, tzinfo=timezone.utc)


class Pair(NamedTuple):
    left: Any
    right: Any = None


@dataclass(frozen=True)
class Data:
    at: datetime | None = None
    parts: tuple["Data", ...] = ()
    anything: Any = field(default=None, compare=False)


def test_types_of_a_job_can_be_all_classes_with_fields_and_enums() -> None:
    assert job(Ignores(), types=[Noticed, Data, Pair, Color]).types == (Noticed, Data, Pair, Color)
    assert job(Ignores()).types == ()


UTC = st.just(timezone.utc)
LEAVES = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.binary(max_size=3), st.dates()),
    *(st.datetimes(timezones=UTC), st.timedeltas(), st.decimals(), st.uuids(), st.sampled_from(Color)),
)
COMPARABLE = LEAVES.filter(lambda value: type(value) is not Decimal and value == value)
DATA = st.recursive(
    st.builds(Data, st.datetimes(timezones=UTC)), lambda inside: inside.map(lambda part: Data(parts=(part,)))
)
HASHABLE = st.recursive(
    st.one_of(COMPARABLE, DATA),
    lambda inside: st.one_of(st.tuples(inside, inside), st.frozensets(inside, max_size=2), inside.map(Pair)),
    max_leaves=4,
)
ANYTHING = st.recursive(
    st.one_of(LEAVES, HASHABLE),
    lambda inside: st.one_of(
        *(st.lists(inside, max_size=3), st.tuples(inside, inside), st.sets(HASHABLE, max_size=3)),
        *(st.dictionaries(HASHABLE, inside, max_size=3), st.builds(Pair, inside, inside)),
        inside.map(lambda value: Data(anything=value)),
    ),
    max_leaves=6,
)


@given(ANYTHING)
def test_any_value_is_packed_as_before_after_it_is_unpacked_as_it_is_stored(value: Any) -> None:
    packed = pack(value)
    stored = unpack_stored(packed)
    assert pack(stored) == packed
    assert pack(unpack(pack(stored))) == packed
    assert isinstance(repr(stored), str)


@given(st.lists(HASHABLE, max_size=5))
def test_stored_objects_are_members_of_sets_and_keys_of_maps(values: list[Any]) -> None:
    stored = [unpack_stored(pack(Pair(value))) for value in values]
    again = [unpack_stored(pack(each)) for each in stored]
    assert {each: number for number, each in enumerate(stored)} == {each: number for number, each in enumerate(again)}
    assert len(set(stored)) == len({pack(value) for value in values})
    assert all(type(each) is StoredObject for each in stored)


class Price(NamedTuple):
    of: str
    price: Decimal | None


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Price("a", Decimal("1.50")), "Price(of='a', price=Decimal('1.50'))"),
        ({(Price("a", None),): [Color.RED]}, "{(Price(of='a', price=None),): [Color('red')]}"),
        (Color.AT, f"Color({at(0)!r})"),
    ],
)
def test_a_stored_object_is_shown_by_its_class_and_its_fields(value: Any, shown: str) -> None:
    assert repr(unpack_stored(pack(value))) == shown


DAMAGED = {
    "no bytes": b"",
    "cut": pack([1, 2])[:-1],
    "more than a value": pack(1) + b"x",
    "an invalid byte": b"\xc1",
    "no text": b"\xa1\xff",
    "a list in a set": extension(2, pack([[1]])),
    "a list as a key": b"\x81" + pack([]) + b"\x01",
    "a tuple of a number": extension(1, pack(5)),
    "a date before the first": extension(4, bytes(4)),
    "a span of a text": extension(5, pack("day")),
    "no decimal": extension(6, b"x"),
    "a short UUID": extension(7, b"123"),
    "an envelope without parts": extension(10, pack([])),
    "an object that is cut": extension(9, b"\x92\xa1"),
    "an object without fields": extension(9, pack(["shapes:Point"])),
    "an object of a number": extension(9, pack([5, {}])),
    "an object that is no list": extension(9, pack({"shapes:Point": 1, "x": 2})),
    "an unknown type": extension(77, b""),
    "a span that is too long": extension(5, pack(2**80)),
    "a time that is too late": extension(-1 % 256, bytes(4) + (2**60).to_bytes(8, "big")),
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=DAMAGED)
def test_damaged_bytes_of_state_are_an_error_of_amadou(damaged: bytes) -> None:
    with pytest.raises(StateDecodeError):
        unpack_stored(damaged)


@given(ANYTHING.map(pack), st.integers(0, 10_000), st.binary(min_size=1, max_size=2))
def test_damaged_state_is_shown_and_exported_as_bytes(packed: bytes, at_: int, other: bytes) -> None:
    damaged = packed[: at_ % len(packed)] + other + packed[at_ % len(packed) + 1 :]
    for spec in (None, ValueSpec(Any, name="v"), MapSpec(Any, Any, name="m")):
        form = StateFormat([] if spec is None else [spec.structure()])
        assert isinstance(form.shown(damaged), str)
        assert json.loads(json.dumps(form.to_json(damaged))).keys() <= {"value", "written", "version"}


@pytest.mark.parametrize("module", ["amadou._event", "amadou._handler.event", "amadou"])
def test_an_event_in_state_is_read_wherever_its_class_was_defined(module: str) -> None:
    stored = KeyedEvent("k", at(0), 1)
    assert type_reference(KeyedEvent) == "amadou:KeyedEvent"
    packed = pack(stored)
    named = unpack_stored(packed)
    assert unpack(extension(9, pack([f"{module}:KeyedEvent", named.encoded]))) == stored
