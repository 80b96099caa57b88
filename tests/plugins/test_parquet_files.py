"""How the rows of a `ParquetSink` are spread over files and directories."""

import os
import pickle
import re
import resource
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from attrs import frozen

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, Subject
from amadou.errors import EncodeError, SinkError
from amadou.plugins import SinkBatch
from amadou_plugins.connectors import LinesSource, ParquetSink, ParquetSource
from amadou_runtime import run
from amadou_runtime.jobs.named_connectors import with_connectors


class Colour(str, Enum):
    RED = "red"


@frozen
class View:
    day: date
    channel: str | None
    views: int


class Counting(Handler):
    views = SinkSpec(View)

    def key_event(self, record: bytes) -> KeyedEvent[str]:
        return KeyedEvent("all", datetime(2025, 1, 1, tzinfo=timezone.utc), record.decode())

    def on_event(self, subject: Subject, event: KeyedEvent[str]) -> None:
        self.views.collect(subject, view(channel=event.value))


def view(day: int = 1, channel: str | None = "a", views: int = 0) -> View:
    return View(date(2025, 1, day), channel, views)


def batch(sink: ParquetSink, number: int = 0, type_: Any = View) -> SinkBatch:
    return SinkBatch("run", "job", "views", number, sink.codec(type_))


def written(sink: ParquetSink, into: SinkBatch, part: str, values: Sequence[Any]) -> Any:
    writer = sink.open(into, part)
    writer.write([into.codec.encode(value) for value in values])
    return writer.finish()


def commit(sink: ParquetSink, into: SinkBatch, *parts: Sequence[Any]) -> None:
    finished = [written(sink, into, f"{number:05}", values) for number, values in enumerate(parts)]
    sink.commit(into, [message for message in finished if message is not None])


def found(directory: Path) -> dict[str, list[int]]:
    """The views in each file, by its place without what names batch and part."""
    rows = {
        path: pq.read_table(path, partitioning=None)["views"].to_pylist()
        for path in sorted(directory.rglob("*.parquet"))
    }
    return {str(path.relative_to(directory)): views for path, views in rows.items()}


def by_directory(directory: Path) -> dict[str, list[int]]:
    spread: dict[str, list[int]] = {}
    for name, views in found(directory).items():
        spread.setdefault(str(Path(name).parent), []).extend(views)
    return spread


def hidden(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.name.startswith(".")]


def test_files_lie_in_directories_named_by_fields(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, partition_by=["day", "channel"])
    sink.check("views", View)

    commit(sink, batch(sink), [view(1, "a", 1), view(2, "a", 2)], [view(1, "a", 3), view(1, None, 4)])

    assert by_directory(tmp_path) == {
        "day=2025-01-01/channel=a": [1, 3],
        "day=2025-01-01/channel=__HIVE_DEFAULT_PARTITION__": [4],
        "day=2025-01-02/channel=a": [2],
    }
    assert hidden(tmp_path) == []
    table = ds.dataset(tmp_path, partitioning="hive").to_table().to_pylist()
    assert {"day": "2025-01-02", "channel": "a", "views": 2} in table
    assert len(table) == 4


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("a/b=c%", "a%2Fb%3Dc%25"),
        ("é .", "é ."),
        (7, "7"),
        (True, "true"),
        (Colour.RED, "red"),
    ],
)
def test_values_become_names_of_directories_as_in_spark(tmp_path: Path, value: Any, name: str) -> None:
    class Row(NamedTuple):
        by: type(value)  # type: ignore[valid-type]
        views: int

    sink = ParquetSink(tmp_path, partition_by="by")
    commit(sink, batch(sink, type_=Row), [Row(value, 1)])
    assert by_directory(tmp_path) == {f"by={name}": [1]}


@pytest.mark.parametrize("channel", ["", "__HIVE_DEFAULT_PARTITION__"])
def test_a_text_that_would_be_read_as_null_is_an_error(tmp_path: Path, channel: str) -> None:
    by_channel, by_day = (batch(ParquetSink(tmp_path, partition_by=by)).codec for by in ("channel", "day"))
    why = f"as View: channel is {channel!r}: with partition_by, this value would be read back as null; use"
    with pytest.raises(EncodeError, match=re.escape(why)):
        by_channel.encode(view(channel=channel))
    assert by_day.encode(view(channel=channel))[1] == channel
    assert by_channel.encode(view(channel=None))[1] is None


def test_a_value_without_a_directory_becomes_a_dead_letter_and_the_others_are_written(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a\n\n__HIVE_DEFAULT_PARTITION__\nb\n None\n")
    sinks = {
        "views": ParquetSink(tmp_path / "out", partition_by="channel"),
        "dead_letters": ParquetSink(tmp_path / "failed", partition_by="tag"),
    }
    source = {"in": LinesSource(tmp_path / "in")}
    run(Job("views", Counting(), source, sinks, on_error="dead_letter"), engine="embedded")
    channels = ds.dataset(tmp_path / "out", partitioning="hive").to_table()["channel"].to_pylist()
    assert sorted(channels) == [" None", "a", "b"]
    failed = ds.dataset(tmp_path / "failed").to_table().to_pylist()
    assert [letter["callback"] for letter in failed] == ["on_event", "on_event"]
    assert all("EncodeError: views: cannot store View(" in letter["error"] for letter in failed)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["nothing"], r"partition_by refers to 'nothing', but there is no such field: use one of at, day, size"),
        (
            ["at"],
            r"partition_by refers to 'at', but values of type timestamp\[us, tz=UTC\] cannot be directory names: use a",
        ),
        (["size"], "partition_by refers to 'size', but values of type double cannot be directory names"),
    ],
)
def test_fields_that_cannot_name_directories_are_an_error_before_the_run(tmp_path: Path, names: Any, why: str) -> None:
    class Row(NamedTuple):
        at: datetime
        day: date
        size: float

    with pytest.raises(SinkError, match=f"ParquetSink cannot write the values of port 'views': {why}"):
        ParquetSink(tmp_path, partition_by=names).check("views", Row)


def test_files_need_a_column(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="lists all fields, so files would have no columns"):
        ParquetSink(tmp_path, partition_by=["day", "channel", "views"]).check("views", View)


@pytest.mark.parametrize("names", [[], 3, "", ["day", "day"]])
def test_partition_fields_that_are_not_names_are_an_error(tmp_path: Path, names: Any) -> None:
    with pytest.raises(SinkError, match="partition_by"):
        ParquetSink(tmp_path, partition_by=names)


def test_rows_per_file_is_a_number() -> None:
    with pytest.raises(SinkError, match="rows_per_file must be a positive integer, not 0"):
        ParquetSink("out", rows_per_file=0)


@pytest.fixture
def may_open_110_files() -> Iterator[None]:
    """Limits the number of open files of this process to 110 more than now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 110, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_many_directories_need_few_open_files(tmp_path: Path, may_open_110_files: None) -> None:
    sink = ParquetSink(tmp_path, partition_by="channel")
    into = batch(sink)
    writer = sink.open(into, "00000")
    for number in range(125):
        writer.write([into.codec.encode(view(channel=f"{number % 120}", views=number))])
    sink.commit(into, [writer.finish()])
    again = {number: [number, number + 120] for number in range(5)}
    assert by_directory(tmp_path) == {f"channel={number}": again.get(number, [number]) for number in range(120)}


def test_an_aborted_part_leaves_nothing(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, partition_by="channel")
    writer = sink.open(batch(sink), "00000")
    writer.write([batch(sink).codec.encode(view(channel=channel)) for channel in "ab"])
    writer.finish()
    writer.abort()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_parts_are_joined_into_files_of_so_many_rows(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, rows_per_file=4)

    commit(sink, batch(sink), *([view(views=part * 3 + n) for n in range(3)] for part in range(3)))
    commit(sink, batch(sink, 1), [view(views=9)], [])

    assert [*found(tmp_path).values()] == [[0, 1, 2, 3], [4, 5, 6, 7], [8], [9]]
    assert hidden(tmp_path) == []
    assert [row["views"] for row in ParquetSource(tmp_path).records()] == [*range(10)]


def test_parts_are_joined_in_each_directory(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, partition_by="channel", rows_per_file=2)
    commit(sink, batch(sink), *([view(channel=channel, views=n) for channel in "ab"] for n in range(3)))
    assert [(str(Path(name).parent), views) for name, views in found(tmp_path).items()] == [
        ("channel=a", [0, 1]),
        ("channel=a", [2]),
        ("channel=b", [0, 1]),
        ("channel=b", [2]),
    ]


EVERY = pytest.mark.parametrize(
    "settings",
    [{"partition_by": "channel"}, {"rows_per_file": 2}, {"partition_by": "channel", "rows_per_file": 2}],
    ids=str,
)


@EVERY
def test_a_reprocessed_batch_leaves_the_files_of_one_commit(tmp_path: Path, settings: Any) -> None:
    """Also one that is cut into other parts, or goes to other directories, in this run or the next."""
    sink = ParquetSink(tmp_path, **settings)
    commit(sink, batch(sink, 3), [view(channel="other", views=5)])
    commit(sink, batch(sink, 4), [view(channel="a", views=n) for n in range(5)], [view(channel="b", views=9)])

    for _ in range(2):
        commit(sink, batch(sink, 4), [view(channel="a", views=1)], [view(channel="c", views=2)])
        assert sorted(number for views in found(tmp_path).values() for number in views) == [1, 2, 5]
        assert hidden(tmp_path) == []
        sink.check("views", View)  # as at the begin of a run


@EVERY
def test_a_commit_that_is_called_again_changes_nothing(tmp_path: Path, settings: Any) -> None:
    sink = ParquetSink(tmp_path, **settings)
    into = batch(sink)
    parts = [written(sink, into, f"0000{part}", [view(views=part)]) for part in range(3)]
    sink.commit(into, parts)
    before = found(tmp_path)
    sink.commit(into, parts)
    assert found(tmp_path) == before
    assert sorted(number for views in before.values() for number in views) == [0, 1, 2]


@EVERY
@pytest.mark.parametrize("renames", [0, 1])
def test_a_batch_that_was_killed_in_the_middle_of_its_commit_is_written_once(
    tmp_path: Path, settings: Any, renames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from amadou_plugins.connectors.files import part_files

    sink = ParquetSink(tmp_path, **settings)
    values = [[view(channel="ab"[n % 2], views=n) for n in range(6)], [view(channel="a", views=6)]]
    left, replace = [renames], part_files.os.replace

    def killed(*paths: Any) -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        replace(*paths)

    with monkeypatch.context() as patch:
        patch.setattr(part_files.os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            commit(sink, batch(sink), *values)
    commit(sink, batch(sink), *values)

    assert sorted(number for views in found(tmp_path).values() for number in views) == [*range(7)]
    assert hidden(tmp_path) == []


def test_a_pickled_sink_has_its_settings(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, partition_by=["day"], rows_per_file=3)
    assert pickle.loads(pickle.dumps(sink)) == sink


class Views(Handler):
    views = SinkSpec(View)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        return KeyedEvent(record.decode(), datetime(2025, 1, 1, tzinfo=timezone.utc), int(record))

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        self.views.collect(subject, View(event.timestamp.date() + timedelta(days=event.value % 2), "a", event.value))


@pytest.mark.spark
def test_spark_writes_and_reads_partitioned_files(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.txt").write_text("".join(f"{number * 20 + n}\n" for n in range(20)))
    source = LinesSource(tmp_path / "in", max_files_per_batch=1)
    partitioned = Job("views", Views(), {"in": source}, {"views": ParquetSink("somewhere")})
    text = f"parquet:{tmp_path / 'out'}?partition_by=day&rows_per_file=1000"

    run(
        with_connectors(partitioned, {}, {"views": [text]}),
        checkpoint=str(tmp_path / "checkpoint"),
        trigger="available-now",
    )

    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted((str(row.day), row.channel, row.views) for row in rows) == sorted(
        (f"2025-01-0{1 + n % 2}", "a", n) for n in range(40)
    )
    assert len(found(tmp_path / "out")) == 4  # one for each day and batch


def test_parameters_take_the_place_of_settings(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path, partition_by=Param("BY"), rows_per_file=Param("ROWS", type=int))
    filled = Job("views", Views(), {"in": LinesSource("in")}, {"views": sink}).with_params({"BY": "day", "ROWS": "7"})
    assert filled.sinks["views"] == attrs.evolve(sink, partition_by=["day"], rows_per_file=7)
