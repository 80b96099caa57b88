import json
import math
import os
import pickle
import sys
from collections import namedtuple
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from attrs import define, frozen
from pyspark import SparkContext

from amadou import Param
from amadou.errors import EncodeError, SinkError
from amadou.plugins import Codec, SinkBatch, SinkWriter
from amadou_plugins.connectors import CsvSink, JsonLinesSink, LinesSink, ParquetSink


@frozen
class ViewSum:
    channel_id: str
    timestamp: datetime
    sum: int


@define
class Outer:
    inner: ViewSum | None
    _private: int = 0


@dataclass
class Score:
    player: str
    _points: int


Pair = namedtuple("Pair", "left right")


class Colour(Enum):
    RED = "red"


MINUTE = datetime(2025, 1, 1, 0, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (ViewSum("a", MINUTE, 3), '{"channel_id":"a","timestamp":"2025-01-01T00:01:00Z","sum":3}'),
        (
            Outer(ViewSum("a", MINUTE, 3), 4),
            '{"inner":{"channel_id":"a","timestamp":"2025-01-01T00:01:00Z","sum":3},"_private":4}',
        ),
        (Score("a", 1), '{"player":"a","_points":1}'),
        (Pair(1, Pair(2, 3)), '{"left":1,"right":{"left":2,"right":3}}'),
        (MINUTE.replace(microsecond=7), '"2025-01-01T00:01:00.000007Z"'),
        (MINUTE.astimezone(timezone(timedelta(hours=2))), '"2025-01-01T02:01:00+02:00"'),
        (date(2025, 1, 1), '"2025-01-01"'),
        (timedelta(minutes=1, milliseconds=500), "60.5"),
        (Decimal("1.10"), '"1.10"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (b"\xff\x00", '"/wA="'),
        ({"b", "a", "c"}, '["a","b","c"]'),
        (frozenset([3, 1]), "[1,3]"),
        (Colour.RED, '"red"'),
        ({MINUTE: 1, 2: (3, None)}, '{"2025-01-01T00:01:00Z":1,"2":[3,null]}'),
        ("line\nbreak", '"line\\nbreak"'),
        (math.nan, "null"),
    ],
)
def test_json_lines_sink_writes_values_as_json(value: Any, text: str) -> None:
    codec = JsonLinesSink("sums").codec(type(value))
    assert codec.encode(value) == text.encode()
    assert codec.decode(text.encode()) == json.loads(text)


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        (object, object(), "object is not JSON serializable"),
        (int, 2**70, "64-bit"),
        (dict, {Pair(1, 2): 3}, "[Kk]ey"),
        (Score, Score("a", object()), "object is not JSON serializable"),  # type: ignore[arg-type]
    ],
)
def test_json_lines_sink_refuses_values_that_json_cannot_represent(type_: Any, value: Any, why: str) -> None:
    with pytest.raises(EncodeError, match=f"it cannot be written as JSON: .*{why}"):
        JsonLinesSink("sums").codec(type_).encode(value)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: frozenset({inner})])
def test_json_lines_sink_refuses_values_that_are_nested_too_deeply(wrap: Any) -> None:
    value: Any = "leaf"
    for _ in range(2000):
        value = wrap(value)
    with pytest.raises(EncodeError, match="nested too deeply: at most 254 levels"):
        JsonLinesSink("sums").codec(object).encode(value)


class Reading(NamedTuple):
    key: Any
    value: Any


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [("a", 1)],
        [("a", 1), ("b\n", None), ("c", {"key": 2}), ("d", 1.5)],
        [('},{"key":', '},{"key":'), ("},{", '"},{\\"key\\":')],
        [("a", [{"key": 1}, {"key": 2}]), ("b", 1)],
        [("a", {1: 2}), ("b", Decimal("1.5"))],
    ],
)
def test_encoding_many_rows_at_once_gives_the_json_of_each_row(rows: list[tuple[Any, Any]]) -> None:
    codec = JsonLinesSink("sums").codec(Reading)
    assert codec.encode_rows(rows) == [codec.encode(Reading(*row)) for row in rows]


@pytest.mark.parametrize(("type_", "value"), [(ViewSum, {"sum": 3}), (int, "3"), (list[int], (1,)), (str, None)])
def test_json_lines_sink_refuses_a_value_of_another_type_than_the_port(type_: Any, value: Any) -> None:
    with pytest.raises(EncodeError, match="cannot store"):
        JsonLinesSink("sums").codec(type_).encode(value)


@pytest.mark.parametrize(("type_", "value"), [(float, 1), (ViewSum | None, None), (Any, "x"), (list[int], [1])])
def test_json_lines_sink_accepts_values_of_the_ports_type(type_: Any, value: Any) -> None:
    codec = JsonLinesSink("sums").codec(type_)
    assert codec.decode(codec.encode(value)) == value


@pytest.fixture
def sink(tmp_path: Path) -> JsonLinesSink:
    sink = JsonLinesSink(tmp_path / "sums")
    sink.check("sums", int)
    return sink


def batch_of(sink: JsonLinesSink, number: int, *, run: str = "run1", port: str = "sums") -> SinkBatch:
    return SinkBatch(run, "views", port, number, sink.codec(int))


def write(sink: JsonLinesSink, batch: SinkBatch, part: str, *values: int) -> Any:
    return finish(opened(sink, batch, part, *values))


def opened(sink: JsonLinesSink, batch: SinkBatch, part: str, *values: int) -> SinkWriter:
    writer = sink.open(batch, part)
    writer.write([batch.codec.encode(value) for value in values])
    return writer


def finish(writer: SinkWriter) -> Any:
    return writer.finish()


def files(sink: JsonLinesSink, *, hidden: bool = False) -> dict[str, str]:
    directory = Path(str(sink.path))
    return {
        path.name: path.read_text() for path in sorted(directory.iterdir()) if hidden or not path.name.startswith(".")
    }


def test_json_lines_sink_writes_a_file_for_each_part_of_a_batch(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 7)
    sink.commit(batch, [write(sink, batch, "00000", 1, 2), write(sink, batch, "00001", 3)])
    assert files(sink, hidden=True) == {
        "sums-run1-000000007-00000.jsonl": "1\n2\n",
        "sums-run1-000000007-00001.jsonl": "3\n",
    }


def test_files_of_json_lines_sink_are_not_visible_before_the_commit(sink: JsonLinesSink) -> None:
    write(sink, batch_of(sink, 0), "00000", 1)
    assert files(sink) == {}


def test_json_lines_sink_writes_one_file_for_several_writes_of_a_part(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 0)
    writer = opened(sink, batch, "00000", 1)
    writer.write([])
    writer.write([b"2"])
    sink.commit(batch, [writer.finish()])
    assert list(files(sink).values()) == ["1\n2\n"]


def test_json_lines_sink_writes_no_file_for_a_part_without_values(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 0)
    assert write(sink, batch, "00000") is None
    sink.commit(batch, [])
    assert files(sink, hidden=True) == {}


def test_json_lines_sink_leaves_no_file_of_an_aborted_part(sink: JsonLinesSink) -> None:
    writer = opened(sink, batch_of(sink, 0), "00000", 1)
    writer.abort()
    sink.open(batch_of(sink, 0), "00001").abort()
    assert files(sink, hidden=True) == {}
    finished = opened(sink, batch_of(sink, 0), "00000", 1)
    finished.finish()
    finished.abort()
    assert files(sink, hidden=True) == {}


def processed(sink: JsonLinesSink) -> dict[str, str]:
    """Process a batch completely. Return the files."""
    batch = batch_of(sink, 1)
    sink.commit(batch, [write(sink, batch, "00000", 1, 2), write(sink, batch, "00001", 3)])
    return files(sink, hidden=True)


def test_a_batch_that_was_killed_while_writing_is_written_once_when_reprocessed(
    sink: JsonLinesSink, tmp_path: Path
) -> None:
    expected = processed(JsonLinesSink(tmp_path / "undisturbed"))
    killed = opened(sink, batch_of(sink, 1), "00000", 1)
    assert processed(sink) == expected
    killed.abort()


def test_a_batch_that_was_killed_before_the_commit_is_written_once_when_reprocessed(
    sink: JsonLinesSink, tmp_path: Path
) -> None:
    expected = processed(JsonLinesSink(tmp_path / "undisturbed"))
    write(sink, batch_of(sink, 1), "00000", 1, 2)
    write(sink, batch_of(sink, 1), "00001", 3)
    assert processed(sink) == expected


def test_a_batch_that_was_killed_in_the_commit_is_written_once_when_reprocessed(
    sink: JsonLinesSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = processed(JsonLinesSink(tmp_path / "undisturbed"))
    batch = batch_of(sink, 1)
    parts = [write(sink, batch, "00000", 1, 2), write(sink, batch, "00001", 3)]
    replace = os.replace

    class Killed(BaseException):
        pass

    def kill_at_the_second_file(old: str, new: str) -> None:
        if new.endswith("00001.jsonl"):
            raise Killed
        replace(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", kill_at_the_second_file)
        with pytest.raises(Killed):
            sink.commit(batch, parts)
    assert len(files(sink)) == 1
    assert processed(sink) == expected


def test_a_committed_batch_is_written_once_when_reprocessed(sink: JsonLinesSink) -> None:
    assert processed(sink) == processed(sink)


def test_committing_the_same_parts_again_does_not_change_the_files(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 1)
    parts = [write(sink, batch, "00000", 1), write(sink, batch, "00001", 2)]
    sink.commit(batch, parts)
    before = files(sink, hidden=True)
    sink.commit(batch, parts)
    assert files(sink, hidden=True) == before


def test_a_batch_that_is_reprocessed_with_other_parts_replaces_its_files(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 1)
    sink.commit(batch, [write(sink, batch, "00000", 1), write(sink, batch, "00001", 2)])
    sink.commit(batch, [write(sink, batch, "00000", 1, 2)])
    assert list(files(sink, hidden=True).values()) == ["1\n2\n"]
    sink.commit(batch, [])
    assert files(sink, hidden=True) == {}


def test_two_concurrent_attempts_at_one_part_do_not_mix(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 1)
    zombie = opened(sink, batch, "00000", 1)
    attempt = opened(sink, batch, "00000", 1)
    zombie.write([b"2"])
    attempt.write([b"2"])
    sink.commit(batch, [attempt.finish()])
    assert files(sink, hidden=True) == {"sums-run1-000000001-00000.jsonl": "1\n2\n"}
    zombie.write([b"3"])
    zombie.finish()
    assert files(sink, hidden=True) == {"sums-run1-000000001-00000.jsonl": "1\n2\n"}


def test_a_commit_does_not_change_files_of_other_batches_ports_and_runs(sink: JsonLinesSink) -> None:
    others = [
        batch_of(sink, 2),
        batch_of(sink, 10),
        batch_of(sink, 1, port="sums2"),
        batch_of(sink, 1, run="run2"),
    ]
    for batch in others:
        sink.commit(batch, [write(sink, batch, "00000", 1)])
        write(sink, batch, "00000", 1)
    before = files(sink, hidden=True)
    processed(sink)
    after = files(sink, hidden=True)
    assert len(before) == 8
    assert {name: text for name, text in after.items() if name in before} == before


def test_files_of_batches_with_nine_and_ten_digits_differ(sink: JsonLinesSink) -> None:
    for number in (1_000_000_000, 100_000_000):
        batch = batch_of(sink, number)
        sink.commit(batch, [write(sink, batch, "00000", 1)])
    assert len(files(sink)) == 2


def test_a_new_run_does_not_overwrite_files_of_an_old_run(sink: JsonLinesSink) -> None:
    for run in ("run1", "run2"):
        batch = batch_of(sink, 0, run=run)
        sink.commit(batch, [write(sink, batch, "00000", 1)])
    assert len(files(sink)) == 2


def test_files_of_a_port_with_any_name_are_visible_in_the_directory(sink: JsonLinesSink) -> None:
    for port in ("a/b", "_sums", ".sums", ".."):
        batch = batch_of(sink, 0, port=port)
        sink.commit(batch, [write(sink, batch, "00000", 1)])
    assert len(files(sink)) == 4
    assert not any(name.startswith("_") for name in files(sink))


def test_json_lines_sink_writes_values_of_a_port_with_a_codec_as_json(sink: JsonLinesSink) -> None:
    class Reversed(Codec[str]):
        def encode(self, value: str) -> Any:
            return value[::-1]

        def decode(self, encoded: Any) -> str:
            return str(encoded)[::-1]

    batch = SinkBatch("run1", "views", "sums", 0, Reversed())
    writer = sink.open(batch, "00000")
    writer.write([batch.codec.encode("abc")])
    sink.commit(batch, [writer.finish()])
    assert list(files(sink).values()) == ['"cba"\n']


def test_the_check_of_json_lines_sink_makes_an_empty_directory(tmp_path: Path) -> None:
    JsonLinesSink(tmp_path / "a" / "b").check("sums", int)
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_the_check_of_json_lines_sink_refuses_a_path_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "sums").write_text("")
    for path in (tmp_path / "sums", tmp_path / "sums" / "below"):
        with pytest.raises(SinkError, match="is not a directory: give JsonLinesSink a different path"):
            JsonLinesSink(path).check("sums", int)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_the_check_of_json_lines_sink_refuses_a_path_that_cannot_be_made() -> None:
    with pytest.raises(SinkError, match="/proc/sums: check the path, its permissions and the disk "):
        JsonLinesSink("/proc/sums").check("sums", int)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can write everywhere")
def test_the_check_of_json_lines_sink_refuses_a_directory_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SinkError, match=f"no permission to write to {tmp_path}"):
            JsonLinesSink(tmp_path).check("sums", int)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("path", ["", None, 5])
def test_sinks_of_files_refuse_values_that_are_not_paths(path: Any) -> None:
    for sink in (JsonLinesSink, LinesSink, CsvSink, ParquetSink):
        with pytest.raises(SinkError, match=f"^{sink.__name__} needs a path, such as views/, not {path!r}"):
            sink(path)


def test_a_remote_path_of_a_sink_without_pyspark_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    message = r"only Spark can access this file system: run pip install 'amadou\[spark\]'"
    with pytest.raises(SinkError, match=message):
        JsonLinesSink("s3a://bucket/sums").check("sums", int)


def test_a_remote_path_of_a_sink_without_a_spark_session_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    message = "JsonLinesSink cannot write to s3a://bucket/sums: only Spark can access this file system: run"
    with pytest.raises(SinkError, match=message):
        JsonLinesSink("s3a://bucket/sums").check("sums", int)


def test_committing_to_a_directory_that_the_workers_do_not_share_is_an_error(
    sink: JsonLinesSink, tmp_path: Path
) -> None:
    elsewhere = JsonLinesSink(tmp_path / "elsewhere")
    with pytest.raises(SinkError, match="a directory that all machines share"):
        sink.commit(batch_of(sink, 0), [write(elsewhere, batch_of(sink, 0), "00000", 1)])


def test_a_pickled_json_lines_sink_has_an_absolute_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(JsonLinesSink("sums"))
    monkeypatch.chdir("/")
    assert pickle.loads(sent).path == str(tmp_path / "sums")
    parameter = JsonLinesSink(Param("SUMS"))
    assert pickle.loads(pickle.dumps(parameter)) == parameter
