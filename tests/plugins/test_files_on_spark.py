"""Sources and sinks of files in whole runs on Spark."""

import gzip
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amadou import Handler, Job, KeyedEvent, MemorySink, SinkSpec, Subject
from amadou.errors import SinkError
from amadou.plugins import SinkBatch
from amadou_plugins.connectors import (
    CsvSink,
    CsvSource,
    JsonLinesSink,
    JsonLinesSource,
    MalformedRow,
    ParquetSink,
    ParquetSource,
)
from amadou_plugins.connectors.files.found_files import FoundFiles
from amadou_runtime import run

pytestmark = pytest.mark.spark
START = datetime(2025, 1, 1, tzinfo=timezone.utc)


class Numbered(NamedTuple):
    source: str
    at: datetime
    number: int


class Numbering(Handler):
    """Passes on what each source brings, in its order."""

    plain = SinkSpec(Numbered)
    rows = SinkSpec(Numbered)
    columns = SinkSpec(Numbered)

    def key_event(self, record: Any) -> KeyedEvent:
        number = int(record["number"])
        return KeyedEvent(record["source"], START + timedelta(seconds=number), number)

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        value = Numbered(str(subject.key), event.timestamp, event.value)
        for port in (self.plain, self.rows, self.columns):
            port.collect(subject, value)


def job(directory: Path, **sinks: Any) -> Job:
    sources = {
        "csv": CsvSource(directory / "csv"),
        "json": JsonLinesSource(directory / "json"),
        "parquet": ParquetSource(str(directory / "parquet" / "*.parquet"), columns=["number", "source"]),
        "one": CsvSource(directory / "one [1].txt", columns=["source", "number"], delimiter=";"),
    }
    return Job("numbering", Numbering(), sources, sinks, on_error="dead_letter")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name in ("csv", "json", "parquet"):
        (tmp_path / name).mkdir()
    (tmp_path / "csv" / "a b.csv").write_text("source,number\ncsv,7\ncsv,2,?\ncsv,3\n")
    (tmp_path / "csv" / "a!b.csv.gz").write_bytes(gzip.compress(b'number,source\n"4",csv\n5\n6,csv\n'))
    (tmp_path / "csv" / "_c.csv").write_text("no")
    (tmp_path / "json" / "a.jsonl").write_text('{"source": "json", "number": 1}\n\n{"source": \n')
    (tmp_path / "json" / "b.jsonl").write_text('{"source": "json", "number": 2}\n')
    for number in (2, 1):
        rows = {"source": ["parquet"] * 3, "number": [number * 10 + more for more in range(3)], "more": [None] * 3}
        pq.write_table(pa.table(rows), tmp_path / "parquet" / f"{number}.parquet")
    (tmp_path / "one [1].txt").write_text("one;1\none;2\n")
    return tmp_path


def brought(engine: Any, directory: Path) -> tuple[dict[str, list[int]], list[Any]]:
    """The numbers that each source brought, and the records that could not be keyed."""
    seen, others, failed = MemorySink(), MemorySink(), MemorySink()
    run(
        job(directory, plain=seen, rows=others, columns=others, dead_letters=failed),
        engine=engine,
        trigger="available-now",
    )
    numbers: dict[str, list[int]] = {}
    for value in seen.records:
        numbers.setdefault(value.source, []).append(value.number)
    return numbers, [letter.record for letter in failed.records]


def test_spark_reads_files_in_the_same_order_as_the_embedded_engine(directory: Path, spark: Any) -> None:
    embedded, broken = brought("embedded", directory)
    assert embedded == {"csv": [7, 3, 4, 6], "json": [1, 2], "parquet": [10, 11, 12, 20, 21, 22], "one": [1, 2]}
    assert len(broken) == 3
    numbers, failed = brought("spark", directory)
    assert numbers == embedded
    assert sorted(map(repr, failed)) == sorted(map(repr, broken))


class Failing(MemorySink):
    """Fails at its first commit, after the sinks before it."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = False

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        if not self.failed:
            self.failed = True
            raise SinkError("killed")
        super().commit(batch, parts)


@pytest.mark.qualify  # test_several_sinks.py reprocesses a batch on Spark, too, and the sinks' own tests have the rest
def test_a_reprocessed_batch_leaves_the_files_of_one_commit(directory: Path, spark: Any) -> None:
    out = directory / "out"
    sinks = {"plain": JsonLinesSink(out), "rows": CsvSink(out), "columns": ParquetSink(out)}
    numbering = job(directory, **sinks, dead_letters=Failing())
    checkpoint = str(directory / "checkpoint")
    with pytest.raises(SinkError, match="killed"):
        run(numbering, checkpoint=checkpoint, trigger="available-now")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    for path in out.glob("rows-*"):
        path.write_text("left by an earlier attempt")
        path.with_stem(f"{path.stem}9").touch()
    run(numbering, checkpoint=checkpoint, trigger="available-now")
    after = {path.name: path.read_bytes() for path in out.iterdir()}
    assert after == before

    written = {
        "rows": [(row["source"], row["at"], int(row["number"])) for row in CsvSource(str(out / "*.csv")).records()],
        "plain": [
            (value["source"], value["at"], value["number"])
            for value in map(JsonLinesSource.decode, JsonLinesSource(str(out / "*.jsonl")).records())
        ],
        "columns": [
            (row["source"], row["at"].isoformat().replace("+00:00", "Z"), row["number"])
            for row in ParquetSource(str(out / "*.parquet")).records()
        ],
    }
    assert written["rows"] == written["plain"] == written["columns"]
    assert len(written["rows"]) == len(set(written["rows"])) == 14


def test_spark_reads_whole_files_for_sources_of_other_file_systems(
    directory: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = list(CsvSource(directory / "csv").records())
    source = CsvSource(f"file:{directory}/csv/")
    monkeypatch.setattr(FoundFiles, "is_remote", True)  # there is no other file system here
    frame = source.read_stream(spark, spark.readStream, "in", str(directory))
    rows: list[Any] = []
    stream = frame.writeStream.foreachBatch(lambda frame, _: rows.extend(frame.collect()))
    stream = stream.option("checkpointLocation", str(directory / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    for path in (directory / "csv").iterdir():
        path.unlink()
    cells = pa.array([row.record.asDict() for row in sorted(rows, key=lambda row: row.partition)])
    found = list(source.to_records(cells))
    assert [row for row in found if type(row) is dict] == [row for row in local if type(row) is dict]
    assert [row.line for row in found if type(row) is MalformedRow] == [3, 3]
