"""Savepoints without Spark: their files, runs on the embedded engine, test runs, and errors."""

import json
import random
import shutil
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.handlers import event, job
from tests.savepoints import rewritten

from amadou import Handler, Job, KeyedEvent, MemorySource, SinkSpec, Subject, ValueSpec
from amadou.engine import pack
from amadou.errors import CheckpointError, SavepointError, SourceError
from amadou_plugins.aggregates import Count
from amadou_plugins.connectors import GeneratorSource, JsonLinesSink, LinesSource
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime import TestRun, run
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import group_interval, key_group, key_position
from amadou_runtime.savepoint.manifest import MANIFEST
from amadou_runtime.savepoint.savepoint import Savepoint, check_new, write_groups

KEYS: list[Any] = [*(f"k{number}" for number in range(3000)), *range(50), b"bytes", ("a", 1)]


class Counter(Handler):
    """Counts events, and sets a timer a minute later."""

    counts = ValueSpec(int, default=0)
    out = SinkSpec(list)

    def key_event(self, record: KeyedEvent[Any]) -> KeyedEvent[Any]:
        return record

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        counts = self.counts.state_for(subject)
        counts.value += 1
        subject.set_timer(event.timestamp + timedelta(minutes=1), "a" if event.value else "")
        self.out.collect(subject, [subject.key, counts.value])

    def on_timer_expired(self, subject: Subject, timestamp: Any) -> None:
        self.out.collect(subject, [subject.key, subject.timer_tag])


@pytest.fixture(scope="module")
def large_savepoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A savepoint with thousands of keys. Tests get a copy."""
    directory = tmp_path_factory.mktemp("large") / "savepoint"
    with TestRun(job(Counter())) as test_run:
        for number, key in enumerate(KEYS):
            test_run.add_record(event(number % 30, number % 3 == 0, key))
        test_run.add_watermark().run()
        test_run.savepoint(directory)
    return directory


@pytest.fixture
def savepoint(large_savepoint: Path, tmp_path: Path) -> Savepoint:
    """A savepoint with thousands of keys."""
    shutil.copytree(large_savepoint, tmp_path / "savepoint")
    return Savepoint(tmp_path / "savepoint")


def contents(groups: list[tuple[int, KeyGroup]]) -> dict[Any, Any]:
    """Return the state and the timers of each key."""
    by_key: dict[Any, Any] = {}
    for _, group in groups:
        for key in KeyGroup.keys(group):
            packed = group.tables["counts"].packed.get(key)
            assert key not in by_key
            by_key[key] = packed, group.timers.of(key)
    return by_key


def test_the_manifest_describes_the_contents_of_a_savepoint(savepoint: Savepoint) -> None:
    manifest = savepoint.manifest
    assert (manifest.job, manifest.engine, manifest.batch) == ("conformance", "test run", 1)
    assert (manifest.keys, manifest.timers, manifest.held) == (len(KEYS), len(KEYS), {})
    assert manifest.watermark == "2025-01-01T00:00:29+00:00"
    counts = manifest.specs["counts"]
    assert (counts.type, counts.version, counts.keys) == ("ValueSpec int", 0, len(KEYS))
    fields = json.loads((savepoint.directory / MANIFEST).read_text())
    assert list(fields)[:6] == ["format", "id", "created", "amadou", "engine", "spark"]


def test_each_key_is_in_the_interval_of_its_key_group_for_any_number_of_groups() -> None:
    for groups in (1, 3, 256, 32_768):
        intervals = [group_interval(number, groups) for number in range(groups)]
        assert intervals[0][0] == 0
        assert intervals[-1][1] == 2**32 - 1
        assert all(last + 1 == first for (_, last), (first, _) in pairwise(intervals))
        for key in KEYS[:200]:
            first, last = intervals[key_group(key, groups)]
            assert first <= key_position(key) <= last


@pytest.mark.parametrize("groups", [1, 7, 64])
@pytest.mark.parametrize("then", [1, 5, 300])
def test_a_savepoint_can_be_read_with_another_number_of_key_groups(
    savepoint: Savepoint, groups: int, then: int, tmp_path: Path
) -> None:
    before = list(savepoint.groups(groups, range(groups), {}, {}))
    other = rewritten(savepoint, before, groups, tmp_path / "other")
    other.verify()
    after = list(other.groups(then, range(then), {}, {}))
    assert [number for number, _ in after] == sorted({key_group(key, then) for key in KEYS})
    for number, group in after:
        assert all(key_group(key, then) == number for key in KeyGroup.keys(group))
    assert contents(after) == contents(before)
    assert set(contents(after)) == set(KEYS)


def test_some_key_groups_of_a_savepoint_can_be_read_alone(savepoint: Savepoint) -> None:
    all_ = contents(list(savepoint.groups(9, range(9), {}, {})))
    parts = [contents(list(savepoint.groups(9, numbers, {}, {}))) for numbers in (range(2), range(2, 7), range(7, 9))]
    assert {key: stored for part in parts for key, stored in part.items()} == all_
    assert list(savepoint.groups(9, range(0), {}, {})) == []


def test_a_key_is_found_without_reading_other_blocks(savepoint: Savepoint, monkeypatch: pytest.MonkeyPatch) -> None:
    from amadou_runtime.savepoint import state_file

    unpacked = []
    original = state_file.Block.unpack
    monkeypatch.setattr(state_file.Block, "unpack", lambda *arguments: unpacked.append(1) or original(*arguments))
    for key in (*KEYS[:20], *KEYS[-3:]):
        unpacked.clear()
        (group,) = savepoint.find(key)
        assert group.tables["counts"].packed == {key: pack(1)}
        assert group.timers[0] == [key]
        assert len(unpacked) == 1
    assert savepoint.find("unknown") == []
    assert len(list(savepoint.blocks())) > 1


def damaged(savepoint: Savepoint, name: str, change: Callable[[bytes], bytes]) -> None:
    path = savepoint.directory / name
    path.write_bytes(change(path.read_bytes()))


def flipped(at: float) -> Callable[[bytes], bytes]:
    def flip(data: bytes) -> bytes:
        place = int(len(data) * at)
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return flip


def state_file_of(savepoint: Savepoint) -> str:
    return f"state/{savepoint.manifest.state_files[0].name}"


@pytest.mark.parametrize("at", [0.0, 0.3, 0.7, 0.95, 0.999])
def test_verifying_a_savepoint_finds_a_changed_byte(savepoint: Savepoint, at: float) -> None:
    savepoint.verify()
    name = state_file_of(savepoint)
    damaged(savepoint, name, flipped(at))
    with pytest.raises(SavepointError, match="its hash differs from the one in the manifest"):
        Savepoint(savepoint.directory).verify()


@pytest.mark.parametrize("at", [0.0, 0.4])
def test_reading_a_savepoint_finds_a_changed_byte(savepoint: Savepoint, at: float) -> None:
    damaged(savepoint, state_file_of(savepoint), flipped(at))
    with pytest.raises(SavepointError, match="the checksum of the block at"):
        list(savepoint.blocks())


def test_opening_a_savepoint_finds_files_that_are_missing_or_cut_short(savepoint: Savepoint) -> None:
    name = state_file_of(savepoint)
    damaged(savepoint, name, lambda data: data[:-1])
    with pytest.raises(SavepointError, match=rf"the file {name} has [\d,]+ bytes instead of [\d,]+\. .* copy it again"):
        Savepoint(savepoint.directory)
    (savepoint.directory / name).unlink()
    with pytest.raises(SavepointError, match=f"the file {name} is missing"):
        Savepoint(savepoint.directory)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: text[: len(text) // 2], "savepoint.json is damaged or incomplete"),
        (lambda text: b"", "savepoint.json is damaged or incomplete"),
        (lambda text: text.replace(b'"batch": 1', b'"batch": 2'), "its checksum is wrong"),
        (lambda text: text.replace(b'"format": 1', b'"format": 3'), "newer format 3; .* the formats 1 and 2"),
        (lambda text: b"[]", "savepoint.json is damaged or incomplete"),
    ],
)
def test_the_error_for_a_damaged_manifest_names_the_problem(
    savepoint: Savepoint, change: Callable[[bytes], bytes], problem: str
) -> None:
    damaged(savepoint, MANIFEST, change)
    with pytest.raises(SavepointError, match=problem):
        Savepoint(savepoint.directory)


def test_the_error_for_a_directory_that_is_not_a_savepoint_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SavepointError, match="there is no such directory: correct the path"):
        Savepoint(tmp_path / "missing")
    with pytest.raises(SavepointError, match=r"there is no savepoint\.json in this directory"):
        Savepoint(tmp_path)
    (tmp_path / "amadou.json").write_text("{}")
    with pytest.raises(SavepointError, match="this directory is a checkpoint: write a savepoint of it with"):
        Savepoint(tmp_path)


@pytest.mark.parametrize("uri", ["hdfs://host/savepoints/one", "s3a://bucket/one"])
def test_savepoints_outside_spark_need_a_local_path(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SavepointError, match=r"only Spark can access it\. Copy the savepoint to a local directory"):
        Savepoint(uri)
    with TestRun(job(Counter())) as test_run, pytest.raises(SavepointError, match="only Spark can access it"):
        test_run.savepoint(uri)
    assert list(tmp_path.iterdir()) == []


def test_savepoints_can_have_the_uri_of_a_local_directory(tmp_path: Path) -> None:
    with TestRun(job(Counter())) as test_run:
        test_run.add_record(event(1)).run()
        test_run.savepoint(f"file://{tmp_path}/one")
    assert Savepoint(f"file:{tmp_path}/one").manifest == Savepoint(tmp_path / "one").manifest
    with pytest.raises(SavepointError, match="the path is not empty: use a new directory"):
        check_new(f"file://{tmp_path}")


def test_a_savepoint_is_not_written_into_a_directory_with_files(savepoint: Savepoint, tmp_path: Path) -> None:
    before = sorted(savepoint.directory.rglob("*"))
    with TestRun(job(Counter())) as test_run, pytest.raises(SavepointError, match="the path is not empty: use a new"):
        test_run.savepoint(savepoint.directory)
    assert sorted(savepoint.directory.rglob("*")) == before
    savepoint.verify()
    (tmp_path / "empty").mkdir()
    with TestRun(job(Counter())) as test_run:
        test_run.savepoint(tmp_path / "empty")
    Savepoint(tmp_path / "empty").verify()


def test_a_savepoint_that_cannot_be_written_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with TestRun(job(Counter())) as test_run:
        test_run.add_record(event(1)).run()
        monkeypatch.setattr("amadou_runtime.savepoint.state_file.StateFileWriter.write", full)
        with pytest.raises(SavepointError, match=r"it cannot be written: check the path and the disk \(No space left"):
            test_run.savepoint(tmp_path / "savepoint")
    assert list(tmp_path.iterdir()) == []


def test_a_savepoint_without_the_files_of_its_workers_is_an_error_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elsewhere(directory: Path, *more: Any) -> Any:
        written = write_groups(directory, *more)
        shutil.rmtree(directory / "state")
        return written

    monkeypatch.setattr("amadou_runtime.savepoint.savepoint.write_groups", elsewhere)
    message = r"a file that a worker wrote, state/\S+, is not there: use a directory that all machines share, or a URI"
    with TestRun(job(Counter())) as test_run:
        test_run.add_record(event(1)).run()
        with pytest.raises(SavepointError, match=message):
            test_run.savepoint(tmp_path / "savepoint")
    assert list(tmp_path.iterdir()) == []


class Renamed(Counter):
    counts = ValueSpec(str, default="")  # type: ignore[assignment]


def test_a_job_starts_only_from_its_own_savepoints(savepoint: Savepoint) -> None:
    other = Job("other", Counter(), {"events": MemorySource()}, {"out": JsonLinesSink("out")})
    with pytest.raises(SavepointError, match="it belongs to the job 'conformance', not to 'other'"):
        TestRun(other, savepoint=savepoint.directory)
    with pytest.raises(SavepointError, match="counts was ValueSpec int and is now ValueSpec str"):
        TestRun(job(Renamed()), savepoint=savepoint.directory)
    reader = Job("conformance", Reads(), {"events": MemorySource()}, {"out": JsonLinesSink("out")})
    with pytest.raises(SavepointError, match="it was written by a test run, which does not read sources"):
        run(reader, engine="embedded", from_savepoint=str(savepoint.directory))
    with pytest.raises(ValueError, match="snapshot and savepoint are mutually exclusive"):
        TestRun(job(Counter()), savepoint=savepoint.directory, snapshot=b"")


def test_a_test_run_continues_from_a_savepoint(savepoint: Savepoint, tmp_path: Path) -> None:
    elsewhere = shutil.move(savepoint.directory, tmp_path / "moved")
    with TestRun(job(Counter()), savepoint=elsewhere) as test_run:
        test_run.add_record(event(100, key="k7")).add_watermark()
        records = test_run.run().records("out")
    assert records[0] == ["k7", 2]
    assert len(records) == 1 + len(KEYS)  # the event, and the timers


def lines(directory: Path, number: int, *records: Any) -> None:
    directory.mkdir(exist_ok=True)
    (directory / f"{number}.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))


class Reads(Counter):
    def key_event(self, record: Any) -> KeyedEvent[Any]:  # type: ignore[override]
        key, second = json.loads(record)
        return event(second, key=key)  # type: ignore[no-any-return]


def lines_job(directory: Path, **sources: Any) -> Job:
    inputs = sources or {"in": LinesSource(f"{directory}/in/")}
    return Job("lines", Reads(), inputs, {"out": JsonLinesSink(str(directory / "out"))})


def outputs(directory: Path) -> list[Any]:
    """Return the outputs of the last run, and delete them."""
    records = [json.loads(line) for path in sorted(directory.glob("out/*")) for line in path.read_text().splitlines()]
    shutil.rmtree(directory / "out", ignore_errors=True)
    return records


def in_order(records: list[Any]) -> list[Any]:
    return sorted(records, key=str)


def test_a_run_on_the_embedded_engine_continues_where_the_last_one_ended(tmp_path: Path) -> None:
    lines(tmp_path / "in", 0, ["a", 1], ["b", 2])
    run(lines_job(tmp_path), engine="embedded", to_savepoint=str(tmp_path / "one"))
    assert outputs(tmp_path) == [["a", 1], ["b", 1]]
    manifest = Savepoint(tmp_path / "one").manifest
    assert manifest.sources["in"]["position"] == [str(tmp_path / "in" / "0.jsonl")]
    assert manifest.sources["in"]["newest"] == {"": "2025-01-01T00:00:02+00:00"}
    lines(tmp_path / "in", 1, ["a", 63], ["c", 64])
    run(
        lines_job(tmp_path),
        engine="embedded",
        from_savepoint=str(tmp_path / "one"),
        to_savepoint=str(tmp_path / "two"),
    )
    assert in_order(outputs(tmp_path)) == in_order([["a", ""], ["a", 2], ["b", ""], ["c", 1]])
    run(lines_job(tmp_path), engine="embedded", from_savepoint=str(tmp_path / "one"))  # roll back
    assert in_order(outputs(tmp_path)) == in_order([["a", ""], ["a", 2], ["b", ""], ["c", 1]])
    run(lines_job(tmp_path), engine="embedded", from_savepoint=str(tmp_path / "two"), flush=True)
    assert in_order(outputs(tmp_path)) == [["a", ""], ["c", ""]]


def made(number: int, _: random.Random) -> str:
    return json.dumps(["a", number])


class Blind(LinesSource):
    """A source that does not know its position."""

    def read_from(self, position: Any) -> Any:
        return super(LinesSource.__mro__[1], self).read_from(position)


def test_sources_continue_at_their_positions(tmp_path: Path) -> None:
    memory = MemorySource(['["m", 1]'])
    sources = {"made": GeneratorSource(made, count=3), "memory": memory}
    run(lines_job(tmp_path, **sources), engine="embedded", to_savepoint=str(tmp_path / "one"))
    assert in_order(outputs(tmp_path)) == [["a", 1], ["a", 2], ["a", 3], ["m", 1]]
    memory.add('["m", 2]')
    sources["made"] = GeneratorSource(made, count=4)
    run(lines_job(tmp_path, **sources), engine="embedded", from_savepoint=str(tmp_path / "one"))
    assert in_order(outputs(tmp_path)) == [["a", 4], ["m", 2]]


def test_the_error_for_a_source_without_a_position_names_the_source(tmp_path: Path) -> None:
    lines(tmp_path / "in", 0, ["a", 1])
    blind = lines_job(tmp_path, **{"in": Blind(f"{tmp_path}/in/")})
    run(blind, engine="embedded", to_savepoint=str(tmp_path / "one"))
    with pytest.raises(SavepointError, match="does not contain how far the source 'in' has been read"):
        run(blind, engine="embedded", from_savepoint=str(tmp_path / "one"))
    run(lines_job(tmp_path), engine="embedded", to_savepoint=str(tmp_path / "two"))
    with pytest.raises(SourceError, match=r"define Blind\.read_from"):
        run(blind, engine="embedded", from_savepoint=str(tmp_path / "two"))


def test_a_source_that_an_earlier_run_no_longer_had_cannot_return(tmp_path: Path) -> None:
    lines(tmp_path / "in", 0, ["a", 1])
    both = {"in": LinesSource(f"{tmp_path}/in/"), "other": MemorySource(['["m", 1]'])}
    run(lines_job(tmp_path, **both), engine="embedded", to_savepoint=str(tmp_path / "one"))
    paths = str(tmp_path / "one"), str(tmp_path / "two")
    run(lines_job(tmp_path), engine="embedded", from_savepoint=paths[0], to_savepoint=paths[1])
    with pytest.raises(CheckpointError, match="sources that earlier runs read but the last run lacked: 'other'"):
        run(lines_job(tmp_path, **both), engine="embedded", from_savepoint=paths[1])


def test_a_savepoint_leaves_out_state_in_memory_and_counts_its_keys(tmp_path: Path) -> None:
    window = TumblingWindow(size=timedelta(minutes=1), value=Count(), storage="memory")
    handler = windowed(key="key", timestamp="timestamp", window=window, port="out")
    in_memory = Job("windows", handler, {"in": MemorySource()}, {"out": JsonLinesSink(str(tmp_path / "out"))})
    with TestRun(in_memory) as test_run:
        test_run.add_record({"key": "a", "timestamp": "2025-01-01T00:00:00Z"}).run()
        test_run.savepoint(tmp_path / "savepoint")
    manifest = Savepoint(tmp_path / "savepoint").manifest
    assert (manifest.keys, dict(manifest.left_out)) == (0, {"window": 1})


def test_state_that_is_stored_for_whole_key_groups_needs_its_window_to_be_divided(tmp_path: Path) -> None:
    handler = windowed(
        key="key", timestamp="timestamp", window=TumblingWindow(size=timedelta(minutes=1), value=Count()), port="out"
    )
    test_job = Job("windows", handler, {"in": MemorySource()}, {"out": JsonLinesSink(str(tmp_path / "out"))})
    window = test_job.specs["window"]
    with TestRun(test_job) as test_run:
        for number in range(40):
            test_run.add_record({"key": f"k{number}", "timestamp": "2025-01-01T00:00:00Z"})
        test_run.run()
        test_run.savepoint(tmp_path / "by-key")
    ((_, group),) = Savepoint(tmp_path / "by-key").groups_for(test_job, 1, range(1))
    assert group.as_columns(window) is not None  # type: ignore[arg-type]
    group.columnar.clear()
    columns = rewritten(Savepoint(tmp_path / "by-key"), [(0, group)], 1, tmp_path / "columns")
    (block,) = columns.blocks()
    assert set(block.group_states) == {"window"}
    assert (columns.manifest.keys, columns.manifest.specs["window"].keys) == (40, 40)

    ((_, same),) = columns.groups(1, range(1), {}, {})
    assert set(same.group_states) == {"window"}
    with pytest.raises(SavepointError, match="the job no longer declares 'window', whose state is stored for whole"):
        list(columns.groups(2, range(2), {}, {}))
    for number, by_key in ((2, False), (1, True)):
        groups = dict(columns.groups_for(test_job, number, range(number), by_key=by_key))
        assert not any(group.group_states for group in groups.values())
        assert sum(len(group.tables["window"].packed) for group in groups.values()) == 40
        assert all(len(group.tables["window"].next_timers) for group in groups.values())
    with TestRun(test_job, savepoint=columns.directory) as test_run:
        test_run.add_record({"key": "late", "timestamp": "2025-01-01T00:01:30Z"}).add_watermark()
        assert len(test_run.run().records("out")) == 40
