"""Jobs that write to tables, in a Spark of their own with the jars of a table format.

    python -m tests.plugins.tables delta DIRECTORY

writes what the tests look at to DIRECTORY/found. AMADOU_DELTA_JARS and AMADOU_ICEBERG_JARS name the jars.
"""

import json
import os
import pickle
import sys
from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from attrs import frozen

from amadou import Handler, Job, KeyedEvent, SinkSpec, Subject
from amadou.errors import SinkError
from amadou.plugins import Sink, SinkBatch
from amadou_plugins.connectors import DeltaSink, IcebergSink, JsonLinesSource
from amadou_runtime import run
from amadou_runtime.spark.clock import RunClock
from amadou_runtime.spark.session import session

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


class Kind(Enum):
    EVEN = "even"
    ODD = "odd"


@frozen
class Inner:
    name: str
    lengths: list[timedelta]


@frozen
class Value:
    number: int
    day: date
    at: datetime
    half: float
    text: str | None
    odd: bool
    price: Decimal
    raw: bytes
    kind: Kind
    tags: list[str]
    counts: dict[str, int]
    inner: Inner
    many: list[Inner]
    length: timedelta


def value_of(number: int) -> Value:
    inner = Inner(f"ä{number}", [timedelta(microseconds=number)])
    return Value(
        number,
        date(2025, 1, 1 + number % 2),
        START + timedelta(microseconds=number),
        number / 2,
        None if number % 3 else f"t{number}",
        bool(number % 2),
        Decimal(number) / 10,
        bytes([number]),
        Kind.ODD if number % 2 else Kind.EVEN,
        [f"a{number}", "b"],
        {"n": number},
        inner,
        [inner],
        timedelta(seconds=number),
    )


def row_of(number: int) -> dict[str, Any]:
    """Return the row that a table has for `value_of(number)`."""
    inner = {"name": f"ä{number}", "lengths": [number]}
    return {
        "number": number,
        "day": date(2025, 1, 1 + number % 2),
        "at": START + timedelta(microseconds=number),
        "half": number / 2,
        "text": None if number % 3 else f"t{number}",
        "odd": bool(number % 2),
        "price": str(Decimal(number) / 10),
        "raw": bytes([number]),
        "kind": "odd" if number % 2 else "even",
        "tags": [f"a{number}", "b"],
        "counts": {"n": number},
        "inner": inner,
        "many": [inner],
        "length": number * 1_000_000,
    }


class Values(Handler):
    """Writes each number to `values`, and each of every other batch, with 100 added, to `others`."""

    values = SinkSpec(Value)
    others = SinkSpec(Value)

    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent(f"k{record}", START + timedelta(seconds=record), record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.values.collect(subject, value_of(event.value))
        if event.value // 10 % 2 == 0:
            self.others.collect(subject, value_of(event.value + 100))


def job_for(directory: Path, sink: Sink) -> Job:
    source = JsonLinesSource(str(directory / "in"), max_files_per_batch=1)
    return Job("values", Values(), {"numbers": source}, {"values": sink, "others": sink})


def bring(directory: Path, *files: int) -> None:
    """Bring files with four numbers each: the first is ten times the file's."""
    (directory / "in").mkdir(exist_ok=True)
    for each in files:
        (directory / "new").write_text("".join(f"{json.dumps(each * 10 + number)}\n" for number in range(4)))
        os.utime(directory / "new", (1_000_000 + each, 1_000_000 + each))
        (directory / "new").rename(directory / "in" / f"{each:03}.jsonl")


def runs(directory: Path, sink: Sink) -> None:
    """Run a job of four batches, with crashes between the commit to the sinks and the end of a batch."""
    job, checkpoint = job_for(directory, sink), str(directory / "checkpoint")

    def crash(*_: Any) -> None:
        raise SinkError("crash")

    def once() -> None:
        run(job, checkpoint=checkpoint, trigger="available-now")

    bring(directory, 0, 1)
    once()
    bring(directory, 2)
    for _ in range(2):
        with patch.object(RunClock, "end", crash):
            assert error_of(once) == "crash"
    bring(directory, 3)
    once()


def commit(sink: Sink, number: int, value: Any) -> None:
    """Commit a batch of one value."""
    batch = SinkBatch("run", "job", "values", number, sink.codec(type(value)))
    writer = sink.open(batch, "0")
    writer.write([batch.codec.encode(value)])
    sink.commit(batch, [writer.finish()])


def error_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except SinkError as error:
        return str(error)
    return ""


def checked(sink: Sink, **types: Any) -> str:
    """Return the error of a sink's check of a type with these fields."""
    return error_of(lambda: sink.check("values", frozen(type("Wanted", (), {"__annotations__": types}))))


def rows_of(frame: Any) -> list[dict[str, Any]]:
    rows = [row for batch in frame._collect_as_arrow() for row in batch.to_pylist()]  # Spark 3.5 has no toArrow
    for row in rows:
        if "counts" in row:
            row["counts"] = dict(row["counts"])
    return sorted(rows, key=lambda row: row["number"])


@frozen
class Small:
    number: int


@frozen
class Larger:
    number: int
    extra: str


def delta(spark: Any, directory: Path) -> dict[str, Any]:
    table = str(directory / "table")
    runs(directory, DeltaSink(table, partition_by="day"))
    read = spark.read.format("delta")
    found = {
        "rows": rows_of(read.load(table)),
        "commits": spark.sql(f"DESCRIBE HISTORY delta.`{table}`").count(),
        "partitions": sorted(path.name for path in Path(table).glob("day=*")),
        "missing column": checked(DeltaSink(table), number=int, extra=list[int]),
        "other type": checked(DeltaSink(table), number=str, at=datetime),
        "partition_by": checked(DeltaSink(f"{table}-2", partition_by="none"), number=int),
        "no catalog": checked(DeltaSink("nowhere.db.sums"), number=int),
        "no schema": checked(DeltaSink("nodb.sums"), number=int),
        "not allowed": checked(DeltaSink("/proc/none/sums"), number=int),
    }
    spark.sql("CREATE TABLE other_format (id BIGINT) USING parquet")
    found["other format"] = checked(DeltaSink("other_format"), id=int)

    merging = DeltaSink("merged", merge_schema=True)
    for number, value in enumerate([Small(0), Larger(1, "x"), Small(2)]):
        assert not error_of(partial(merging.check, "values", type(value)))
        commit(merging, number, value)
        commit(merging, number, value)
    found["merged"] = rows_of(spark.table("merged"))
    found["merged type"] = checked(merging, number=str)
    return found


def iceberg(spark: Any, directory: Path) -> dict[str, Any]:
    spark.sql("CREATE NAMESPACE lake.db")
    table = "lake.db.table"
    runs(directory, IcebergSink(table, partition_by="days(at),odd"))
    found = {
        "rows": rows_of(spark.table(table)),
        "commits": spark.table(f"{table}.snapshots").count(),
        "partitions": sorted(str(row.partition.odd) for row in spark.table(f"{table}.partitions").collect()),
        "missing column": checked(IcebergSink(table), number=int, extra=list[int]),
        "other type": checked(IcebergSink(table), number=str, at=datetime),
        "partition_by": checked(IcebergSink(f"{table}2", partition_by="none"), number=int),
        "no catalog": checked(IcebergSink("nowhere.db.sums"), number=int),
    }
    spark.sql("CREATE TABLE other_format (id BIGINT) USING parquet")
    found["other format"] = checked(IcebergSink("other_format"), id=int)

    more = IcebergSink("lake.db.more")
    spark.sql("CREATE TABLE lake.db.more (extra STRING, number BIGINT NOT NULL) USING iceberg")
    assert not error_of(partial(more.check, "values", Small))
    for number in range(3):
        commit(more, number, Small(number))
    more.check("values", Small)  # as a run does that another process has made go further
    commit(more, 2, Small(2))
    found["more"] = rows_of(spark.table("lake.db.more"))
    first = spark.sql("SELECT snapshot_id FROM lake.db.more.history ORDER BY made_current_at").first().snapshot_id
    spark.sql(f"CALL lake.system.rollback_to_snapshot('db.more', {first})")
    more.check("values", Small)
    commit(more, 2, Small(2))
    found["rolled back"] = rows_of(spark.table("lake.db.more"))
    return found


def main(name: str, directory: Path) -> None:
    conf = {
        "spark.ui.enabled": "false",
        "spark.jars": os.environ[f"AMADOU_{name.upper()}_JARS"],
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.catalog.lake.warehouse": str(directory / "lake"),
        **CONF[name],
    }
    spark = session("tables", master="local[2,1]", conf=conf)
    with open(directory / "found", "wb") as file:
        pickle.dump(FORMATS[name](spark, directory), file)
    spark.stop()


CONF = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}
FORMATS = {"delta": delta, "iceberg": iceberg}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
