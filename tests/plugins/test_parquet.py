import os
import pickle
import re
import sys
import tempfile
from collections import namedtuple
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from io import BytesIO
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypeVar
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from amadou import DeadLetter, Handler, Job, KeyedEvent, LateEvent, MemorySource, Param, SinkSpec, Subject
from amadou.errors import EncodeError, NaiveTimestampError, SinkError, SourceError
from amadou.plugins import Codec, SinkBatch
from amadou_plugins.connectors import MemorySink, ParquetSink, ParquetSource
from amadou_runtime import TestRun, run
from amadou_runtime.jobs.named_connectors import with_connectors

START = datetime(2025, 1, 1, tzinfo=timezone.utc)
ROOT = Path(__file__).parents[2]
T = TypeVar("T")


def write(path: Path, table: Any, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(table), path, **options)
    return path


def rows(path: Any, **options: Any) -> list[Any]:
    source = ParquetSource(path, **options)
    source.check()
    return list(source.records())


# The source.


def test_each_row_is_a_dict_by_column(tmp_path: Path) -> None:
    path = write(tmp_path / "views.parquet", {"channel": ["a", None], "views": [1, 2], "tags": [["x"], []]})
    assert rows(path) == [{"channel": "a", "views": 1, "tags": ["x"]}, {"channel": None, "views": 2, "tags": []}]


def test_a_source_can_read_some_of_the_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "views.parquet", {"a": [1], "b": [2], "c": [3]})
    (row,) = rows(path, columns=["c", "a"])
    assert list(row.items()) == [("c", 3), ("a", 1)]
    with pytest.raises(SourceError, match=r"views\.parquet has no column 'd': use one of a, b, c"):
        rows(path, columns=["a", "d"])


BERLIN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("array", "value"),
    [
        (pa.array([START], pa.timestamp("us", "UTC")), START),
        (pa.array([START], pa.timestamp("ns", "Europe/Berlin")), START),
        (pa.array([START], pa.timestamp("ms", "UTC")), START),
        (pa.array([1_000], pa.timestamp("ns")), datetime(1970, 1, 1, microsecond=1)),
        (pa.array([1_999], pa.duration("ns")), timedelta(microseconds=1)),
        (pa.array([time(1, 2, 3, 4)], pa.time64("us")), time(1, 2, 3, 4)),
        (pa.array([[START]], pa.list_(pa.timestamp("ns", "UTC"))), [START]),
        (pa.array([{"at": START}], pa.struct([("at", pa.timestamp("ns", "UTC"))])), {"at": START}),
        (pa.array([{"a": START}], pa.map_(pa.string(), pa.timestamp("ns", "UTC"))), {"a": START}),
        (pa.array(["a"]).dictionary_encode(), "a"),
        (pa.array([Decimal("1.10")], pa.decimal128(5, 2)), Decimal("1.10")),
        (pa.array([date(2025, 1, 1)]), date(2025, 1, 1)),
        (pa.array([b"\xff"]), b"\xff"),
    ],
)
def test_columns_are_read_as_values_of_python(tmp_path: Path, array: Any, value: Any) -> None:
    (row,) = rows(write(tmp_path / "a.parquet", {"a": array}))
    assert row == {"a": value}
    assert type(row["a"]) is type(value)
    assert getattr(row["a"], "tzinfo", None) is getattr(value, "tzinfo", None)


def test_nulls_are_none(tmp_path: Path) -> None:
    times = pa.array([None, START], pa.timestamp("ns", "UTC"))
    assert rows(write(tmp_path / "a.parquet", {"a": times})) == [{"a": None}, {"a": START}]


def test_timestamps_of_old_spark_are_read_in_microseconds(tmp_path: Path) -> None:
    far = datetime(3000, 1, 1)
    path = write(tmp_path / "a.parquet", {"a": [far]}, use_deprecated_int96_timestamps=True)
    assert rows(path) == [{"a": far}]


def test_files_are_read_in_the_order_of_their_paths(tmp_path: Path) -> None:
    for name in ("b", "a", "_c", "below/d"):
        write(tmp_path / f"{name}.parquet", {"file": [name]})
    assert rows(tmp_path) == rows(str(tmp_path / "*.parquet")) == [{"file": "a"}, {"file": "b"}]
    assert not ParquetSource(tmp_path).bounded
    assert ParquetSource(tmp_path / "a.parquet").bounded


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"a,b\n1,2\n" * 10)
    with pytest.raises(SourceError, match=r"ParquetSource: .*a\.parquet cannot be read: .*magic bytes"):
        rows(tmp_path)
    cell = {"path": f"file:{tmp_path}/missing.parquet"}
    with pytest.raises(SourceError, match=r"missing\.parquet cannot be read: .*No such file"):
        list(ParquetSource(tmp_path).to_records(pa.array([cell])))
    twice = write(tmp_path / "b.parquet", pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"]))
    with pytest.raises(SourceError, match=r"b\.parquet: two columns have the name 'x'"):
        rows(twice)
    late = write(tmp_path / "c.parquet", {"a": pa.array([2**62], pa.timestamp("us", "UTC"))})
    with pytest.raises(SourceError, match=r"c\.parquet cannot be read: .*out of range"):
        rows(late)
    with pytest.raises(SourceError, match=r"ParquetSource\('.*missing'\): there is no file"):
        rows(tmp_path / "missing")


def test_files_that_spark_has_read_have_the_same_rows_as_local_ones() -> None:
    file = BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), file)
    cells = pa.array([{"path": "s3://views/a.parquet", "content": file.getvalue()}])
    assert list(ParquetSource("s3://views/").to_records(cells)) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("columns", ["", [], ["a", "a"], "a,a"])
def test_columns_that_are_not_names_are_an_error(columns: Any) -> None:
    with pytest.raises(SourceError, match="columns"):
        ParquetSource("views", columns=columns)


def test_the_command_line_gives_columns() -> None:
    job = Job("echo", Echo(), {"in": ParquetSource("in")}, {"seen": MemorySink()})
    source = with_connectors(job, {"in": "parquet:views/?columns=b,a"}, {}).sources["in"]
    assert source == ParquetSource("views/", columns=["b", "a"])


def test_parameters_take_the_place_of_settings() -> None:
    source = ParquetSource(Param("VIEWS"), columns=["a"], max_files_per_batch=Param("FILES", type=int))
    job = Job("echo", Echo(), {"in": source}, {"seen": MemorySink()})
    filled = job.with_params({"VIEWS": "views/", "FILES": "2"}).sources["in"]
    assert filled == ParquetSource("views/", columns=("a",), max_files_per_batch=2)
    assert pickle.loads(pickle.dumps(filled)) == filled


# The sink.


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


class Odd(Enum):
    ONE = 1
    TWO = "2"


class Point(NamedTuple):
    x: float
    y: float | None


@dataclass
class Box(Generic[T]):
    inside: T
    _hidden: int = 0


@frozen
class Many(Generic[T]):
    all: dict[str, list[T]]


Bare = namedtuple("Bare", "left right")


@frozen
class Holder:
    value: Any


@frozen
class Tree:
    name: str
    parts: "list[Tree]"


@frozen
class Empty:
    pass


def written(
    sink: ParquetSink, values: Any, type_: Any, *, codec: Any = None, parts: int = 1, number: int = 7
) -> list[Path]:
    """The files of a batch, whose first part has all values."""
    batch = SinkBatch("run1", "views", "sums", number, codec or sink.codec(type_))
    sink.check("sums", type_)
    finished = []
    for part in range(parts):
        writer = sink.open(batch, f"{part:05}")
        writer.write([batch.codec.encode(value) for value in values] if part == 0 else [])
        finished.append(writer.finish())
    sink.commit(batch, [part for part in finished if part is not None])
    return sorted(Path(str(sink.path)).iterdir())


STRUCT = pa.struct([("x", pa.float64()), ("y", pa.float64())])


@pytest.mark.parametrize(
    ("type_", "value", "arrow", "read"),
    [
        (str, "é", pa.string(), "é"),
        (int, -(2**63), pa.int64(), -(2**63)),
        (float, 1, pa.float64(), 1.0),
        (bool, True, pa.bool_(), True),
        (bytes, b"\xff", pa.binary(), b"\xff"),
        (datetime, START.astimezone(BERLIN), pa.timestamp("us", "UTC"), START),
        (date, date(2025, 1, 1), pa.date32(), date(2025, 1, 1)),
        (timedelta, timedelta(microseconds=1), pa.duration("us"), timedelta(microseconds=1)),
        (Decimal, Decimal("1E+400"), pa.string(), "1E+400"),
        (UUID, UUID(int=1), pa.string(), "00000000-0000-0000-0000-000000000001"),
        (Colour, Colour.RED, pa.string(), "red"),
        (Size, Size.SMALL, pa.int64(), 1),
        (Odd, Odd.TWO, pa.string(), "TWO"),
        (Literal["a", "b"], "a", pa.string(), "a"),
        (Literal["a", 1], 1, pa.string(), "1"),
        (int | None, None, pa.int64(), None),
        (list[int | None], [1, None], pa.list_(pa.int64()), [1, None]),
        (tuple[str, ...], ("a", "b"), pa.list_(pa.string()), ["a", "b"]),
        (set[str], {"b", "a"}, pa.list_(pa.string()), ["a", "b"]),
        (frozenset[int | None], frozenset([1, None]), pa.list_(pa.int64()), [1, None]),
        (tuple[int, str], (1, "a"), pa.struct([("_1", pa.int64()), ("_2", pa.string())]), {"_1": 1, "_2": "a"}),
        (dict[Colour, list[int]], {Colour.RED: [1]}, pa.map_(pa.string(), pa.list_(pa.int64())), {"red": [1]}),
        (dict[datetime, int], {START: 1}, pa.map_(pa.timestamp("us", "UTC"), pa.int64()), {START: 1}),
        (Point | None, Point(1.0, None), STRUCT, {"x": 1.0, "y": None}),
        (list[Point], [Point(1.0, 2.0)], pa.list_(STRUCT), [{"x": 1.0, "y": 2.0}]),
        (Box[Point], Box(Point(1.0, 2.0)), None, {"inside": {"x": 1.0, "y": 2.0}, "_hidden": 0}),
        (Box, Box({"a": 1}), None, {"inside": '{"a":1}', "_hidden": 0}),
        (Many[int], Many({"a": [1]}), None, {"all": {"a": [1]}}),
        (Bare, Bare(1, "a"), None, {"left": "1", "right": '"a"'}),
        (Holder, Holder(None), None, {"value": None}),
        (Any, {"a": [1, b"x"]}, pa.string(), '{"a":[1,"eA=="]}'),
        (int | str, "1", pa.string(), '"1"'),
        (dict, {}, pa.string(), "{}"),
        (list, [None], pa.string(), "[null]"),
    ],
)
def test_values_inside_a_class_have_their_own_types(
    tmp_path: Path, type_: Any, value: Any, arrow: Any, read: Any
) -> None:
    (file,) = written(ParquetSink(tmp_path), [Box(value, 2)], Box[type_])
    assert rows(file) == [{"inside": read, "_hidden": 2}]
    if arrow is not None:
        kind = pq.read_schema(file).field("inside").type
        assert kind == arrow


def test_a_class_has_a_column_for_each_field(tmp_path: Path) -> None:
    (file,) = written(ParquetSink(tmp_path), [Point(1, None), Point(2.5, 3.5)], Point)
    assert file.name == "sums-run1-000000007-00000.parquet"
    assert pq.read_schema(file).remove_metadata() == pa.schema([("x", pa.float64()), ("y", pa.float64())])
    assert rows(file) == [{"x": 1.0, "y": None}, {"x": 2.5, "y": 3.5}]


def test_other_types_have_one_column(tmp_path: Path) -> None:
    for number, (type_, value, read) in enumerate(
        [(int, 1, 1), (dict[str, int], {"a": 1}, {"a": 1}), (Point | None, None, None), (Any, {"a": 1}, '{"a":1}')]
    ):
        (file,) = written(ParquetSink(tmp_path / str(number)), [value], type_)
        assert rows(file) == [{"value": read}]


def test_a_port_with_a_codec_of_its_own_has_one_column_with_json(tmp_path: Path) -> None:
    class Reversed(Codec[str]):
        def encode(self, value: str) -> Any:
            return value[::-1]

        def decode(self, encoded: Any) -> str:
            return str(encoded)[::-1]

    (file,) = written(ParquetSink(tmp_path), ["abc"], str, codec=Reversed())
    assert rows(file) == [{"value": '"cba"'}]


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        (Point, (1.0, 2.0), "cannot store"),
        (Point, Point("1", 2.0), "cannot store '1'"),  # type: ignore[arg-type]
        (int, None, "cannot store None"),
        (int, 2**63, "does not fit in 64 bits"),
        (timedelta, timedelta.max, "its length in microseconds does not fit in 64 bits"),
        (str, "\ud800", "surrogates not allowed"),
        (list[int], (1,), "cannot store"),
        (dict[str, int], {1: 1}, "cannot store 1"),
        (tuple[int, int], (1,), "cannot store"),
        (Colour, "red", "cannot store"),
        (Odd, "2", "cannot store"),
        (Any, object(), "object is not JSON serializable"),
    ],
)
def test_a_value_that_cannot_be_written_is_an_error_when_it_is_collected(type_: Any, value: Any, why: str) -> None:
    with pytest.raises(EncodeError, match=why):
        ParquetSink("out").codec(type_).encode(value)


def test_a_timestamp_without_a_zone_is_an_error_when_it_is_collected() -> None:
    with pytest.raises(NaiveTimestampError):
        ParquetSink("out").codec(Box[datetime]).encode(Box(datetime(2025, 1, 1)))


@pytest.mark.parametrize(
    ("type_", "why"),
    [
        (Tree, r"the field parts\[\]: Tree contains itself.* declare the field as Any"),
        (Empty, "the type Empty has no fields.* add a field"),
        (Box[dict[str, Empty]], r"the field inside\{\}: Empty has no fields"),
        (
            Box[dict[tuple[int, int], str]],
            r"the field inside: .* has keys of a type that Arrow maps do not support: .* a list of pairs",
        ),
        (dict[int | None, str], "the field value: .* has keys of a type that Arrow maps do not support"),
    ],
)
def test_a_type_that_has_no_columns_is_an_error_before_the_run(tmp_path: Path, type_: Any, why: str) -> None:
    with pytest.raises(SinkError, match=f"ParquetSink cannot write the values of port 'sums': {why}"):
        ParquetSink(tmp_path).check("sums", type_)


def test_a_missing_pyarrow_is_an_error_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SourceError, match=r"ParquetSource needs pyarrow: run pip install 'amadou\[spark\]'"):
        ParquetSource(tmp_path).check()
    with pytest.raises(SinkError, match=r"ParquetSink needs pyarrow: run pip install 'amadou\[spark\]'"):
        ParquetSink(tmp_path).check("sums", int)


def test_dead_letters_and_late_events_can_be_written(tmp_path: Path) -> None:
    source = MemorySource([{"a": 1}, "late", object()])
    sinks = {
        "seen": MemorySink(),
        "dead_letters": ParquetSink(tmp_path / "failed"),
        "late_events": ParquetSink(tmp_path / "late"),
    }
    run(Job("echo", Echo(), {"in": source}, sinks, on_error="dead_letter", late_events="divert"), engine="embedded")
    first, second = rows(tmp_path / "failed")
    assert list(first) == list(DeadLetter.__annotations__)
    assert (first["record"], first["timestamp"], first["timers"], first["state"]) == ('"late"', None, [], {})
    assert second["record"].startswith('"<object object')
    ParquetSink(tmp_path / "late").check("late_events", LateEvent)
    event = LateEvent("echo", "in", ("a", 1), START, {"b": 2}, START)
    (file,) = written(ParquetSink(tmp_path / "events"), [event], LateEvent)
    assert (rows(file)[0]["key"], rows(file)[0]["value"], rows(file)[0]["timestamp"]) == ('["a",1]', '{"b":2}', START)


def test_many_small_writes_make_few_row_groups(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    batch = SinkBatch("run1", "views", "sums", 0, sink.codec(int))
    writer = sink.open(batch, "00000")
    for first in range(0, 150_000, 1_000):
        writer.write([batch.codec.encode(number) for number in range(first, first + 1_000)])
    sink.commit(batch, [writer.finish()])
    (file,) = tmp_path.iterdir()
    assert pq.ParquetFile(file).num_row_groups == 2
    assert pq.read_table(file)["value"].to_pylist() == list(range(150_000))


def test_a_part_without_values_makes_no_file(tmp_path: Path) -> None:
    assert len(written(ParquetSink(tmp_path / "1"), [1], int, parts=2)) == 1
    assert written(ParquetSink(tmp_path / "2"), [], int) == []


def test_an_aborted_part_leaves_nothing(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path)
    writer = sink.open(SinkBatch("run1", "views", "sums", 7, sink.codec(int)), "00000")
    writer.write([[1]])
    assert len(os.listdir(tmp_path)) == 1
    writer.abort()
    del writer
    assert os.listdir(tmp_path) == []


def test_a_reprocessed_batch_leaves_the_files_of_one_commit(tmp_path: Path) -> None:
    expected = {file.name: file.read_bytes() for file in written(ParquetSink(tmp_path / "once"), [1, 2], int)}
    sink = ParquetSink(tmp_path / "out")
    batch = SinkBatch("run1", "views", "sums", 7, sink.codec(int))
    killed = sink.open(batch, "00002")
    killed.write([[9]])
    sink.commit(batch, [killed.finish()])
    killed = sink.open(batch, "00003")
    killed.write([[9]])
    assert {file.name: file.read_bytes() for file in written(sink, [1, 2], int)} == expected
    killed.abort()


def test_errors_name_the_sink(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="is not a directory: give ParquetSink a different path"):
        ParquetSink(tmp_path / "file").check("sums", int)


FIELDS = {
    "text": st.text(st.characters(codec="utf-8")),
    "number": st.integers(-(2**63), 2**63 - 1),
    "share": st.floats(allow_nan=False),
    "at": st.datetimes(timezones=st.just(timezone.utc)),
    "length": st.timedeltas(timedelta(days=-100_000_000), timedelta(days=100_000_000)),
    "raw": st.binary(),
}


@frozen
class Everything:
    text: str
    number: int
    share: float
    at: datetime
    length: timedelta
    raw: bytes
    more: "dict[str, list[Point | None]]"


@settings(max_examples=40)
@given(
    st.lists(
        st.builds(
            Everything,
            **FIELDS,
            more=st.dictionaries(FIELDS["text"], st.lists(st.none() | st.builds(Point, FIELDS["share"], st.none()))),
        )
    )
)
def test_the_source_reads_the_values_that_the_sink_has_written(values: list[Everything]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        written(ParquetSink(directory), values, Everything)
        read = rows(directory)
    assert [[row[name] for name in FIELDS] for row in read] == [
        [getattr(value, name) for name in FIELDS] for value in values
    ]
    points = [{key: [p and Point(**p) for p in part] for key, part in row["more"].items()} for row in read]
    assert points == [value.more for value in values]


class Echo(Handler):
    seen = SinkSpec(Any)

    def key_event(self, record: Any) -> KeyedEvent:
        return KeyedEvent("a", START, record["a"])

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        self.seen.collect(subject, event.value)


def test_the_example_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    section = (ROOT / "docs" / "connectors.md").read_text().partition("## Files\n")[2]
    (example, *_) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "connectors.md", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == "2\n"


def test_a_test_run_takes_rows_as_dicts() -> None:
    job = Job("echo", Echo(), {"in": ParquetSource("in")}, {"seen": MemorySink()})
    assert TestRun(job).add_record({"a": 1}).run().records("seen") == [1]
