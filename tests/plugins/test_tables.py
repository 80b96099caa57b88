"""`DeltaSink` and `IcebergSink`: without Spark, and with the real packages in a Spark of their own."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from tests.plugins.tables import Values, row_of
from tests.services import need

from amadou import Job, MemorySink, MemorySource, Param
from amadou.errors import SinkError
from amadou.plugins import Codec, Sink, SinkBatch
from amadou_plugins.connectors import DeltaSink, IcebergSink
from amadou_plugins.connectors.tables.spark_tables import running_spark
from amadou_plugins.connectors.tables.table_rows import TableCodec, TableRowsWriter, joined_rows
from amadou_runtime.jobs.named_connectors import with_connectors

CHECKOUT = Path(__file__).resolve().parents[2]
SINKS = [DeltaSink("sums/"), IcebergSink("lake.views.sums")]


@frozen
class Inside:
    lengths: list[timedelta]


@frozen
class Lengths:
    length: timedelta | None
    by_name: dict[str, timedelta]
    inside: list[Inside]


def written(codec: Any, *parts: list[Any]) -> list[dict[str, Any]]:
    finished = []
    for part in parts:
        writer = TableRowsWriter(codec)
        for value in part:
            writer.write([codec.encode(value)])
        finished.append(writer.finish())
    rows: list[dict[str, Any]] = joined_rows(finished).to_pylist()
    return rows


def test_durations_become_microseconds_at_any_depth() -> None:
    second = timedelta(seconds=1)
    value = Lengths(None, {"a": second}, [Inside([second, 2 * second])])
    assert written(TableCodec(Lengths), [value], [Lengths(second, {}, [])]) == [
        {"length": None, "by_name": [("a", 1_000_000)], "inside": [{"lengths": [1_000_000, 2_000_000]}]},
        {"length": 1_000_000, "by_name": [], "inside": []},
    ]


def test_a_part_can_have_more_rows_than_are_converted_at_a_time() -> None:
    numbers = range(100_010)
    rows = written(TableCodec(int), list(numbers[:60_000]), list(numbers[60_000:]))
    assert [row["value"] for row in rows] == list(numbers)


def test_a_part_without_values_has_no_result() -> None:
    assert TableRowsWriter(TableCodec(int)).finish() is None


@pytest.mark.parametrize("sink", SINKS, ids=repr)
def test_a_batch_without_values_needs_no_spark(sink: Sink) -> None:
    sink.commit(SinkBatch("run", "job", "sums", 0, sink.codec(int)), [])


@pytest.mark.parametrize("sink", SINKS, ids=repr)
def test_a_port_with_a_codec_is_an_error(sink: Sink) -> None:
    class Own(Codec[str]):
        pass

    with pytest.raises(SinkError, match=r"\): port 'sums' has codec=, so values have no columns: remove it"):
        sink.open(SinkBatch("run", "job", "sums", 0, Own()), "0")


@pytest.mark.parametrize("sink", SINKS, ids=repr)
def test_without_spark_the_check_says_what_to_do(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setattr(pyspark.SparkContext, "_active_spark_context", None)
    with pytest.raises(SinkError, match=r"\) needs Spark: run the job with engine='spark', or give the port a"):
        sink.check("sums", int)


@pytest.mark.parametrize("kind", [DeltaSink, IcebergSink])
@pytest.mark.parametrize("table", ["", None, 5])
def test_a_table_that_is_not_a_name_is_an_error(kind: Any, table: Any) -> None:
    with pytest.raises(SinkError, match=f"{kind.__name__} needs a table, not {table!r}"):
        kind(table)


def test_settings_can_be_parameters_and_come_from_the_command_line() -> None:
    sinks = {"values": DeltaSink(Param("TABLE"), partition_by="day"), "others": MemorySink()}
    job = Job("values", Values(), {"numbers": MemorySource([])}, sinks)
    assert job.with_params({"TABLE": "sums/"}).sinks["values"] == DeltaSink("sums/", partition_by=["day"])
    named = with_connectors(
        job,
        {},
        {
            "values": ["delta:s3a://b/sums?partition_by=day,odd&merge_schema=true"],
            "others": ["iceberg:lake.db.t?partition_by=days(at)"],
        },
    )
    assert named.sinks == {
        "values": DeltaSink("s3a://b/sums", partition_by=["day", "odd"], merge_schema=True),
        "others": IcebergSink("lake.db.t", partition_by=["days(at)"]),
    }


@pytest.mark.spark
@pytest.mark.parametrize(
    ("sink", "package"),
    [
        (
            SINKS[0],
            r"Delta Lake, which Spark does not have: add --conf spark.jars.packages=io.delta:delta-",
        ),
        (SINKS[1], r"Apache Iceberg, which Spark does not have: add --conf spark.jars.packages=org.apache.iceberg:"),
    ],
)
def test_a_missing_package_is_an_error_before_the_run(spark: Any, sink: Sink, package: str) -> None:
    assert running_spark("sink") is not None
    with pytest.raises(SinkError, match=package) as caught:
        sink.check("sums", int)
    assert len(str(caught.value).splitlines()) == 1


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Tables"]:
    with Tables(tmp_path_factory) as made:
        yield made


class Tables:
    """The programs that write tables, see `tables.py`: those of all formats run side by side."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        formats = [name for name in ("delta", "iceberg") if os.environ.get(variable_of(name))]
        self.directories = {name: folders.mktemp(name) for name in formats}
        self._programs = {name: started(name, directory) for name, directory in self.directories.items()}

    def __enter__(self) -> "Tables":
        return self

    def __exit__(self, *error: object) -> None:
        for program in self._programs.values():
            program.kill()
            program.wait()

    def after_runs(self, name: str, title: str) -> dict[str, Any]:
        """Wait for the program of a format, and return what it has found in its tables."""
        if os.environ.get(variable_of(name)) == "":
            pytest.skip(f"there is no {title} for this version of Spark")
        need(title, variable_of(name))
        directory = self.directories[name]
        assert self._programs[name].wait() == 0, (directory / "log").read_text()[-8000:]
        result: dict[str, Any] = pickle.loads((directory / "found").read_bytes())
        assert all("\n" not in text for text in result.values() if isinstance(text, str))
        return result


def variable_of(name: str) -> str:
    return f"AMADOU_{name.upper()}_JARS"


def started(name: str, directory: Path) -> subprocess.Popen[bytes]:
    paths = [str(CHECKOUT / path) for path in ("", "sdk", "runtime", "plugins")]
    with (directory / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.plugins.tables", name, directory],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": sys.executable},
            stdout=log,
            stderr=log,
        )


def all_rows() -> list[dict[str, Any]]:
    """Return the rows that the runs of `tables.py` write: those of the second port come from every other file."""
    numbers = [each * 10 + number for each in range(4) for number in range(4)]
    numbers += [number + 100 for number in numbers if number // 10 % 2 == 0]
    return [row_of(number) for number in sorted(numbers)]


@pytest.mark.spark
def test_a_delta_table_has_each_value_once_after_crashes(tables: Tables) -> None:
    result, directory = tables.after_runs("delta", "Delta Lake"), tables.directories["delta"]
    assert result["rows"] == all_rows()
    assert result["commits"] == 1 + 4 + 2  # creation, batches of the first port, and of the second
    assert result["partitions"] == ["day=2025-01-01", "day=2025-01-02"]
    table = rf"DeltaSink\('{directory}/table'\) cannot write the values of port 'values'"
    add = rf"set merge_schema=True, or run ALTER TABLE delta.`{directory}/table` ADD COLUMNS \(`extra` ARRAY<BIGINT>\)"
    assert_matches(
        result,
        {
            "missing column": f"{table}: the table has no column extra: {add}",
            "other type": f"{table}: the column number is BIGINT, but the field needs STRING: change the field's type",
            "partition_by": "partition_by refers to 'none', but there is no such field: use one of number",
            "no catalog": "the name's catalog is not known to Spark: correct the name, or set --conf spark.sql.catalog",
            "no schema": "SCHEMA_NOT_FOUND.*: create the schema, or correct the table's name",
            "not allowed": "Cannot create .*: check (that the run's user|the credentials, and that the user .*) may",
            "other format": "is not a Delta table: write to another table",
            "merged type": "the column number is BIGINT, but the field needs STRING",
        },
    )
    merged = [{"number": 0, "extra": None}, {"number": 1, "extra": "x"}, {"number": 2, "extra": None}]
    assert result["merged"] == merged


@pytest.mark.spark
def test_an_iceberg_table_has_each_value_once_after_crashes(tables: Tables) -> None:
    result = tables.after_runs("iceberg", "Apache Iceberg")
    assert result["rows"] == all_rows()
    assert result["commits"] == 4 + 2  # batches of the first port, and of the second
    assert result["partitions"] == ["False", "True"]
    table = r"IcebergSink\('lake.db.table'\) cannot write the values of port 'values'"
    add = r"run ALTER TABLE lake.db.table ADD COLUMNS \(`extra` ARRAY<BIGINT>\)"
    assert_matches(
        result,
        {
            "missing column": f"{table}: the table has no column extra: {add}",
            "other type": f"{table}: the column number is BIGINT, but the field needs STRING: change the field's type",
            "partition_by": "lake.db.table2.*Couldn't find column none in: correct partition_by",
            "no catalog": "correct the name, or add its catalog: --conf spark.sql.catalog.NAME=org.apache.iceberg",
            "other format": "the table is not an Iceberg table: write to another table",
        },
    )
    assert result["more"] == [{"extra": None, "number": number} for number in range(3)]
    assert result["rolled back"] == [{"extra": None, "number": number} for number in (0, 2)]


def assert_matches(result: dict[str, Any], errors: dict[str, str]) -> None:
    for name, pattern in errors.items():
        with pytest.raises(SinkError, match=pattern):
            raise SinkError(result[name])
