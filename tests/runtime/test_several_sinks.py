"""Ports with several sinks."""

import csv
import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.runtime.test_describe import Views as DescribedViews
from tests.runtime.test_describe import described

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, Param, SinkSpec, Subject
from amadou.errors import SinkError
from amadou.plugins import Sink, SinkBatch
from amadou_plugins.aggregates import Count
from amadou_plugins.connectors import (
    CsvSink,
    FunctionSink,
    JsonLinesSink,
    LinesSource,
    ParquetSink,
    ParquetSource,
)
from amadou_plugins.windows import TumblingWindow, WindowResult, windowed
from amadou_runtime import TestRun, run

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


class Seen(NamedTuple):
    key: str
    number: int


class Numbers(Handler):
    seen = SinkSpec(Seen)

    def key_event(self, record: Any) -> KeyedEvent[int]:
        return KeyedEvent("k", START, int(record))

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.seen.collect(subject, Seen("k", event.value))


def job(*sinks: Sink, source: Any = None) -> Job:
    return Job("numbers", Numbers(), {"in": source or MemorySource([1, 2])}, {"seen": list(sinks)})


def records(directory: Path) -> list[Any]:
    files = [path for path in directory.iterdir() if path.suffix == ".jsonl"]
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def lines(directory: Path) -> list[int]:
    return [record["number"] for record in records(directory)]


def test_each_sink_of_a_port_writes_all_values(tmp_path: Path) -> None:
    memory = MemorySink()
    sinks = JsonLinesSink(tmp_path / "json"), CsvSink(tmp_path / "csv"), ParquetSink(tmp_path / "parquet"), memory

    run(job(*sinks), engine="embedded")

    assert lines(tmp_path / "json") == [1, 2]
    [file] = (tmp_path / "csv").iterdir()
    assert [*csv.reader(file.read_text().splitlines())] == [["key", "number"], ["k", "1"], ["k", "2"]]
    assert [*ParquetSource(tmp_path / "parquet").records()] == [{"key": "k", "number": 1}, {"key": "k", "number": 2}]
    assert memory.records == [Seen("k", 1), Seen("k", 2)]


def test_sinks_with_different_files_can_share_a_directory(tmp_path: Path) -> None:
    run(job(JsonLinesSink(tmp_path), CsvSink(tmp_path)), engine="embedded")

    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".jsonl"]
    assert lines(tmp_path) == [1, 2]


def test_results_of_windows_are_written_to_each_sink_of_a_port(tmp_path: Path) -> None:
    handler = windowed(window=TumblingWindow(timedelta(minutes=1), value=Count()), key="k", timestamp="at")
    memory = MemorySink()
    sinks = {"results": [JsonLinesSink(tmp_path / "one"), JsonLinesSink(tmp_path / "two"), memory]}

    run(
        Job("windows", handler, {"in": MemorySource([{"k": "a", "at": START}] * 2)}, sinks),
        engine="embedded",
        flush=True,
    )

    [one], [two], [result] = records(tmp_path / "one"), records(tmp_path / "two"), memory.records
    assert one == two
    assert (one["value"], result.value, type(result)) == (2, 2, WindowResult)


def test_a_test_run_writes_only_to_memory_sinks(tmp_path: Path) -> None:
    memory = MemorySink()

    result = TestRun(job(JsonLinesSink(tmp_path / "out"), memory)).add_record("3").run()

    assert result.records("seen") == memory.records == [Seen("k", 3)]
    assert not (tmp_path / "out").exists()


def test_parameters_of_each_sink_of_a_port_are_filled(tmp_path: Path) -> None:
    own = job(JsonLinesSink(Param("ONE")), JsonLinesSink(Param("TWO")))
    assert [param.name for param in own.params] == ["ONE", "TWO"]

    run(own, engine="embedded", params={"ONE": str(tmp_path / "one"), "TWO": str(tmp_path / "two")})

    assert lines(tmp_path / "one") == lines(tmp_path / "two") == [1, 2]


def test_a_run_does_not_start_if_one_sink_of_a_port_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SinkError, match="file is not a directory"):
        run(job(MemorySink(), JsonLinesSink(tmp_path / "file")), engine="embedded")


def test_named_sinks_replace_the_sink_of_a_port(tmp_path: Path) -> None:
    from amadou_runtime.jobs.named_connectors import with_connectors

    texts = [f"json-lines:{tmp_path / 'json'}", f"csv:{tmp_path / 'csv'}"]

    named = with_connectors(job(MemorySink()), {}, {"seen": texts})

    assert named.sinks["seen"] == (JsonLinesSink(tmp_path / "json"), CsvSink(tmp_path / "csv"))


def test_describe_shows_each_sink_of_a_port_in_a_line() -> None:
    sinks = {"sums": [JsonLinesSink("sums/"), FunctionSink(print)], "alarms": JsonLinesSink("alarms/")}
    shown = described(Job("views", DescribedViews(), {"in": MemorySource()}, sinks))
    [first] = [line for line in shown.splitlines() if "JsonLinesSink('sums/')" in line]
    [second] = [line for line in shown.splitlines() if "FunctionSink" in line]
    assert "sums" in first.split()
    assert "exactly-once" in first
    assert second.split()[0].startswith("FunctionSink")
    assert "at-least-once" in second


@pytest.mark.rule(34)
@pytest.mark.spark
def test_a_crash_between_the_commits_of_two_sinks_loses_and_duplicates_nothing(spark: Any, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"{number}\n")
    source = LinesSource(tmp_path / "*.txt", max_files_per_batch=1)
    crashes = [1]

    class Crashing(JsonLinesSink):
        def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
            if crashes == [batch.number]:
                crashes.clear()
                raise SinkError("it crashed")
            super().commit(batch, parts)

    def again() -> None:
        sinks = JsonLinesSink(tmp_path / "first"), Crashing(tmp_path / "second"), CsvSink(tmp_path / "third")
        run(job(*sinks, source=source), checkpoint=str(tmp_path / "checkpoint"), trigger="available-now")

    with pytest.raises(SinkError, match="it crashed"):
        again()
    assert (sorted(lines(tmp_path / "first")), sorted(lines(tmp_path / "second"))) == ([0, 1], [0])
    again()

    assert sorted(lines(tmp_path / "first")) == sorted(lines(tmp_path / "second")) == [0, 1, 2]
    assert len([*(tmp_path / "third").iterdir()]) == 3
