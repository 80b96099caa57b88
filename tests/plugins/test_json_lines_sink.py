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

from amadou import Codec, Param, SinkBatch, SinkWriter
from amadou.errors import EncodeError, SinkError
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
def test_values_become_json(value: Any, text: str) -> None:
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
def test_a_value_that_cannot_be_json_is_refused(type_: Any, value: Any, why: str) -> None:
    with pytest.raises(EncodeError, match=f"it cannot be written as JSON: .*{why}"):
        JsonLinesSink("sums").codec(type_).encode(value)


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}, lambda inner: frozenset({inner})])
def test_what_is_nested_too_deeply_for_json_is_refused(wrap: Any) -> None:
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
def test_values_that_become_json_at_once_become_what_each_does(rows: list[tuple[Any, Any]]) -> None:
    codec = JsonLinesSink("sums").codec(Reading)
    assert codec.encode_rows(rows) == [codec.encode(Reading(*row)) for row in rows]


@pytest.mark.parametrize(("type_", "value"), [(ViewSum, {"sum": 3}), (int, "3"), (list[int], (1,)), (str, None)])
def test_a_value_that_is_none_of_the_ports_is_refused(type_: Any, value: Any) -> None:
    with pytest.raises(EncodeError, match="cannot store"):
        JsonLinesSink("sums").codec(type_).encode(value)


@pytest.mark.parametrize(("type_", "value"), [(float, 1), (ViewSum | None, None), (Any, "x"), (list[int], [1])])
def test_a_value_that_fits_its_port_is_taken(type_: Any, value: Any) -> None:
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


def test_a_committed_batch_is_a_file_for_each_part(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 7)
    sink.commit(batch, [write(sink, batch, "00000", 1, 2), write(sink, batch, "00001", 3)])
    assert files(sink, hidden=True) == {
        "sums-run1-000000007-00000.jsonl": "1\n2\n",
        "sums-run1-000000007-00001.jsonl": "3\n",
    }


def test_nothing_is_visible_before_the_commit(sink: JsonLinesSink) -> None:
    write(sink, batch_of(sink, 0), "00000", 1)
    assert files(sink) == {}


def test_several_writes_make_one_file(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 0)
    writer = opened(sink, batch, "00000", 1)
    writer.write([])
    writer.write([b"2"])
    sink.commit(batch, [writer.finish()])
    assert list(files(sink).values()) == ["1\n2\n"]


def test_a_part_without_values_makes_no_file(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 0)
    assert write(sink, batch, "00000") is None
    sink.commit(batch, [])
    assert files(sink, hidden=True) == {}


def test_an_aborted_part_leaves_nothing(sink: JsonLinesSink) -> None:
    writer = opened(sink, batch_of(sink, 0), "00000", 1)
    writer.abort()
    sink.open(batch_of(sink, 0), "00001").abort()
    assert files(sink, hidden=True) == {}
    finished = opened(sink, batch_of(sink, 0), "00000", 1)
    finished.finish()
    finished.abort()
    assert files(sink, hidden=True) == {}


def played(sink: JsonLinesSink) -> dict[str, str]:
    """A batch played from its beginning to its end."""
    batch = batch_of(sink, 1)
    sink.commit(batch, [write(sink, batch, "00000", 1, 2), write(sink, batch, "00001", 3)])
    return files(sink, hidden=True)


def test_a_replay_after_a_kill_while_writing_leaves_what_one_commit_leaves(sink: JsonLinesSink, tmp_path: Path) -> None:
    expected = played(JsonLinesSink(tmp_path / "undisturbed"))
    killed = opened(sink, batch_of(sink, 1), "00000", 1)
    assert played(sink) == expected
    killed.abort()


def test_a_replay_after_a_kill_between_finish_and_commit_leaves_what_one_commit_leaves(
    sink: JsonLinesSink, tmp_path: Path
) -> None:
    expected = played(JsonLinesSink(tmp_path / "undisturbed"))
    write(sink, batch_of(sink, 1), "00000", 1, 2)
    write(sink, batch_of(sink, 1), "00001", 3)
    assert played(sink) == expected


def test_a_replay_after_a_kill_in_the_middle_of_the_commit_leaves_what_one_commit_leaves(
    sink: JsonLinesSink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = played(JsonLinesSink(tmp_path / "undisturbed"))
    batch = batch_of(sink, 1)
    parts = [write(sink, batch, "00000", 1, 2), write(sink, batch, "00001", 3)]
    replace = os.replace

    class Killed(BaseException):
        pass

    def killed_at_the_second(old: str, new: str) -> None:
        if new.endswith("00001.jsonl"):
            raise Killed
        replace(old, new)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", killed_at_the_second)
        with pytest.raises(Killed):
            sink.commit(batch, parts)
    assert len(files(sink)) == 1
    assert played(sink) == expected


def test_a_replay_after_the_commit_leaves_what_one_commit_leaves(sink: JsonLinesSink) -> None:
    assert played(sink) == played(sink)


def test_a_commit_that_is_called_again_with_the_same_parts_changes_nothing(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 1)
    parts = [write(sink, batch, "00000", 1), write(sink, batch, "00001", 2)]
    sink.commit(batch, parts)
    before = files(sink, hidden=True)
    sink.commit(batch, parts)
    assert files(sink, hidden=True) == before


def test_a_replay_that_is_cut_into_other_parts_leaves_only_its_own(sink: JsonLinesSink) -> None:
    batch = batch_of(sink, 1)
    sink.commit(batch, [write(sink, batch, "00000", 1), write(sink, batch, "00001", 2)])
    sink.commit(batch, [write(sink, batch, "00000", 1, 2)])
    assert list(files(sink, hidden=True).values()) == ["1\n2\n"]
    sink.commit(batch, [])
    assert files(sink, hidden=True) == {}


def test_two_attempts_at_one_part_do_not_mix(sink: JsonLinesSink) -> None:
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


def test_other_batches_ports_and_runs_are_left_alone(sink: JsonLinesSink) -> None:
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
    played(sink)
    after = files(sink, hidden=True)
    assert len(before) == 8
    assert {name: text for name, text in after.items() if name in before} == before


def test_a_batch_number_of_ten_digits_is_another_batch(sink: JsonLinesSink) -> None:
    for number in (1_000_000_000, 100_000_000):
        batch = batch_of(sink, number)
        sink.commit(batch, [write(sink, batch, "00000", 1)])
    assert len(files(sink)) == 2


def test_a_new_run_never_overwrites_an_old_ones_files(sink: JsonLinesSink) -> None:
    for run in ("run1", "run2"):
        batch = batch_of(sink, 0, run=run)
        sink.commit(batch, [write(sink, batch, "00000", 1)])
    assert len(files(sink)) == 2


def test_a_port_with_any_name_makes_visible_files_in_the_directory(sink: JsonLinesSink) -> None:
    for port in ("a/b", "_sums", ".sums", ".."):
        batch = batch_of(sink, 0, port=port)
        sink.commit(batch, [write(sink, batch, "00000", 1)])
    assert len(files(sink)) == 4
    assert not any(name.startswith("_") for name in files(sink))


def test_values_of_a_port_with_a_codec_of_its_own_become_json_too(sink: JsonLinesSink) -> None:
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


def test_check_makes_the_directory_and_leaves_nothing_in_it(tmp_path: Path) -> None:
    JsonLinesSink(tmp_path / "a" / "b").check("sums", int)
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_path_that_is_a_file_is_told_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "sums").write_text("")
    for path in (tmp_path / "sums", tmp_path / "sums" / "below"):
        with pytest.raises(SinkError, match="is not a directory: give JsonLinesSink a different path"):
            JsonLinesSink(path).check("sums", int)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_a_path_at_which_nothing_can_be_made_is_told_before_the_run() -> None:
    with pytest.raises(SinkError, match="/proc/sums: check the path, its permissions and the disk "):
        JsonLinesSink("/proc/sums").check("sums", int)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_may_not_be_written_is_told_before_the_run(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(SinkError, match=f"no permission to write to {tmp_path}"):
            JsonLinesSink(tmp_path).check("sums", int)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("path", ["", None, 5])
def test_what_is_no_path_is_refused(path: Any) -> None:
    for sink in (JsonLinesSink, LinesSink, CsvSink, ParquetSink):
        with pytest.raises(SinkError, match=f"^{sink.__name__} needs a path, such as views/, not {path!r}"):
            sink(path)


def test_without_pyspark_a_remote_path_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    message = r"only Spark can access this file system: run pip install 'amadou\[spark\]'"
    with pytest.raises(SinkError, match=message):
        JsonLinesSink("s3a://bucket/sums").check("sums", int)


def test_without_spark_a_remote_path_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    message = "JsonLinesSink cannot write to s3a://bucket/sums: only Spark can access this file system: run"
    with pytest.raises(SinkError, match=message):
        JsonLinesSink("s3a://bucket/sums").check("sums", int)


def test_a_directory_that_the_workers_do_not_share_is_told_at_the_commit(sink: JsonLinesSink, tmp_path: Path) -> None:
    elsewhere = JsonLinesSink(tmp_path / "elsewhere")
    with pytest.raises(SinkError, match="a directory that all machines share"):
        sink.commit(batch_of(sink, 0), [write(elsewhere, batch_of(sink, 0), "00000", 1)])


def test_a_sink_travels_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(JsonLinesSink("sums"))
    monkeypatch.chdir("/")
    assert pickle.loads(sent).path == str(tmp_path / "sums")
    parameter = JsonLinesSink(Param("SUMS"))
    assert pickle.loads(pickle.dumps(parameter)) == parameter
