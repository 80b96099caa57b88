"""Savepoints from somebody else, with right checksums: nothing outside is read or written, and nothing is too large."""

import base64
import hashlib
import os
import shutil
import tracemalloc
import zlib
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.commands import amadou
from tests.conformance.handlers import EventHandler, event, job

from amadou import Handler, Job, KeyedEvent, MapSpec, ReferenceSpec, SinkSpec, Subject, ValueSpec
from amadou.errors import SavepointError, SourceError
from amadou_plugins.connectors import JsonLinesSource
from amadou_runtime import TestRun, run
from amadou_runtime.savepoint.block import Block
from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_as_stage
from amadou_runtime.savepoint.manifest import MANIFEST, FileInfo, Manifest, StagesManifest
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.savepoint.state_file import StateFileWriter


class Counting(EventHandler):
    counts = ValueSpec(int, default=0)
    seen = MapSpec(Any, int)
    rates = MapSpec(float, int)
    limits = ReferenceSpec(str, int, source="limits")
    out = SinkSpec(int)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.counts.state_for(subject).value += 1


class Noting(Handler):
    def key_event(self, record: Any) -> KeyedEvent[Any]:
        return KeyedEvent(record["key"], datetime.fromtimestamp(record["time"], timezone.utc))

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        pass


def counting() -> Job:
    return job(Counting(), "events", "limits")


@pytest.fixture
def savepoint(tmp_path: Path) -> Path:
    test = TestRun(counting()).add_record(event(1, 5, "DE"), "limits").add_record(event(1, "x"), "events")
    test.run()
    test.savepoint(tmp_path / "saved")
    (tmp_path / "outside.txt").write_text("secret")
    return tmp_path / "saved"


def crafted(directory: Path, change: Callable[[Any], Any]) -> None:
    """Change a manifest, and compute its checksum again."""
    (directory / MANIFEST).write_text(change(JobSavepoint(directory).manifest).to_json())


def with_file(name: str, content: bytes) -> Callable[[Manifest], Manifest]:
    info = FileInfo(name, len(content), hashlib.sha256(content).hexdigest())
    return lambda manifest: attrs.evolve(manifest, files=[*manifest.files, info])


def with_state_file(name: str) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        infos = [attrs.evolve(info, name=name) for info in manifest.state_files]
        return attrs.evolve(manifest, state_files=infos)

    return change


def test_an_empty_savepoint_says_so(tmp_path: Path) -> None:
    TestRun(counting()).savepoint(tmp_path / "empty")
    ran = amadou("savepoint", "--verify", str(tmp_path / "empty"))
    assert ran.exit_code == 0
    assert "empty is empty: the job has not completed a batch yet" in " ".join(ran.output.split())


OUTSIDE = [
    "../outside.txt",
    "/etc/passwd",
    "state/../../outside.txt",
    "..\\outside.txt",
    "..",
    "",
    "a\0b",
    "link",
    "in/x",
]


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_file_outside_of_a_savepoint_is_refused_by_each_command(
    savepoint: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (savepoint / "link").symlink_to(tmp_path / "outside.txt")
    (tmp_path / "x").write_text("secret")
    (savepoint / "in").symlink_to(tmp_path, target_is_directory=True)
    crafted(savepoint, with_file(name, b"secret"))
    problem = "is not a file inside the savepoint, so its manifest has been changed"
    with pytest.raises(SavepointError, match=problem):
        Savepoint(savepoint)
    with pytest.raises(SavepointError, match=problem):
        TestRun(counting(), savepoint=savepoint)
    with pytest.raises(SavepointError, match=problem):
        run(counting(), engine="embedded", from_savepoint=str(savepoint))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text("")
    for arguments in (["savepoint", "--verify", "saved"], ["state", "import", "rows.jsonl", "new", "--into", "saved"]):
        ran = amadou(*arguments)
        assert ran.exit_code == 1
        assert problem in " ".join(ran.output.split())
        assert "Traceback" not in ran.output
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["../../outside.txt", "/etc/passwd"])
def test_a_state_file_outside_of_a_savepoint_is_refused(savepoint: Path, name: str) -> None:
    crafted(savepoint, with_state_file(name))
    with pytest.raises(SavepointError, match=r"is not a file inside the savepoint|state//etc/passwd is missing"):
        Savepoint(savepoint)


@pytest.mark.parametrize("name", ["../../saved", "/etc", ".."])
def test_a_stage_outside_of_a_savepoint_is_refused(savepoint: Path, name: str, tmp_path: Path) -> None:
    manifest = Savepoint(savepoint).manifest
    shared = {each.name: getattr(manifest, each.name) for each in attrs.fields(StagesManifest) if each.name != "stages"}
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / MANIFEST).write_text(StagesManifest(**shared, stages={name: manifest.id}).to_json())
    with pytest.raises(SavepointError, match="is not a file inside the savepoint"):
        JobSavepoint(tmp_path / "job")


def bomb(size: int) -> bytes:
    compressing = zlib.compressobj()
    return b"".join(compressing.compress(bytes(1 << 20)) for _ in range(size >> 20)) + compressing.flush()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (bomb(256 << 20), "it decompresses to more than"),
        (zlib.compress(b"x" * 1000)[:-8], "its compressed data is cut"),
        (b"no zlib", "incorrect header check"),
        (zlib.compress(b"no msgpack"), ""),
    ],
)
def test_a_damaged_or_too_large_file_of_a_reference_is_an_error(savepoint: Path, content: bytes, problem: str) -> None:
    text = base64.b64encode(content)

    def change(manifest: Manifest) -> Manifest:
        info = FileInfo("references/limits", len(text), hashlib.sha256(text).hexdigest())
        return attrs.evolve(manifest, files=[info if file.name == info.name else file for file in manifest.files])

    crafted(savepoint, change)
    (savepoint / "references" / "limits").write_bytes(text)
    with pytest.raises(SavepointError, match=rf"the file references/limits is damaged \(.*{problem}"):
        TestRun(counting(), savepoint=savepoint)


@pytest.mark.parametrize("arguments", [("savepoint", "saved", "new", "--as-stage", "a"), ("state", "import")])
def test_only_what_a_manifest_lists_is_copied(
    savepoint: Path, arguments: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AMADOU_DIRECTORY_MODE", raising=False)
    if arguments[1] == "import":  # the stage b is copied
        write_as_stage(JobSavepoint("saved"), "b", "staged")
        shutil.copytree("staged/stages/b", "staged/stages/a")
        crafted(
            tmp_path / "staged",
            lambda manifest: attrs.evolve(manifest, stages=dict.fromkeys("ab", manifest.stages["b"])),
        )
        (tmp_path / "rows.jsonl").write_text("")
        arguments = ("state", "import", "rows.jsonl", "new", "--into", "staged", "--stage", "a")
        places = [tmp_path / "staged" / "stages" / "b"]
    else:
        places = [savepoint]
    for place in places:
        place.chmod(0o755)
        (place / "link").symlink_to(tmp_path / "outside.txt")
        (place / "links").symlink_to(tmp_path, target_is_directory=True)
        (place / "more").write_text("more")
        os.mkfifo(place / "fifo")
    ran = amadou(*arguments)
    assert (ran.exit_code, "Traceback" in ran.output) == (0, False), ran.output
    names = {str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*")}
    assert not {Path(name).name for name in names} & {"link", "links", "more", "fifo", "outside.txt"}
    assert any(name.endswith("references/limits") for name in names)
    directories = [path for path in (tmp_path / "new").rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in directories} == {0o700}
    JobSavepoint("new").verify()


@pytest.mark.parametrize("name", ["fifo", "in/fifo", MANIFEST])
def test_a_file_that_is_not_a_regular_one_is_refused_before_it_is_read(savepoint: Path, name: str) -> None:
    if name == MANIFEST:
        (savepoint / name).unlink()
    else:
        crafted(savepoint, with_file(name, b""))
        (savepoint / name).parent.mkdir(exist_ok=True)
    os.mkfifo(savepoint / name)
    with pytest.raises(SavepointError, match=rf"{name} is not a regular file"):
        JobSavepoint(savepoint)


def test_the_parents_of_a_new_savepoint_can_only_be_read_by_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AMADOU_DIRECTORY_MODE", raising=False)
    TestRun(counting()).savepoint(tmp_path / "a" / "b" / "c")
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {path.name for path in made} >= {"a", "b", "c", "state"}
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}


class ManyMaps(Block):
    def pack(self) -> bytes:
        return b"\xdd" + (8_000_000).to_bytes(4, "big") + b"\x80" * 8_000_000


def test_a_block_with_millions_of_empty_maps_is_refused_before_they_are_created(
    savepoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("amadou_runtime.savepoint.state_file.deflated", zlib.compress)
    with StateFileWriter(savepoint / "state" / "many.blocks") as file:
        file.write(ManyMaps(0, (1 << 32) - 1, 1))
        info = file.finish()
    assert info is not None
    assert info.bytes < 40_000
    crafted(savepoint, lambda manifest: attrs.evolve(manifest, state_files=[info]))
    tracemalloc.start()
    try:
        with pytest.raises(SavepointError, match=r"its objects would take more than 67,108,864 bytes of memory"):
            Savepoint(savepoint).verify()
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("key", ["{[]:1}", "'\\ud800'", "\ud800", "(1," * 600, "(" * 5000, "True", "1.5", "[1]"])
def test_a_text_that_is_no_key_is_not_found(savepoint: Path, key: str) -> None:
    ran = amadou("state", "show", str(savepoint), key)
    assert (ran.exit_code, "Traceback" in ran.output) == (1, False)
    assert isinstance(ran.exception, SystemExit)


ROWS = [
    (b'{"key": "x", "timers": [1]}', "row 1 cannot be imported"),
    (b'{"key": "x", "timers": [["2025-01-01T00:00:00Z"]]}', "row 1 cannot be imported"),
    (b'{"key": true, "spec": "counts", "value": 1}', "row 1 cannot be imported"),
    (b'{"key": {"$decimal": "x"}, "spec": "counts", "value": 1}', "row 1 cannot be imported"),
    (b'{"key": "x", "spec": "counts", "value": [1]}', "row 1 cannot be imported: [1] is not of the type int"),
    (b'{"key": "x", "spec": "counts", "value": true}', "row 1 cannot be imported: True is not of the type int"),
    (b'{"key": "x", "spec": "counts", "value": {"$None": null}}', "row 1 cannot be imported: None is not of the type"),
    (b'{"key": "x", "spec": "limits", "value": 1}', "no state named 'limits' (known: counts, seen, rates)"),
    (b'{"key": "\xff", "spec": "counts"}', "line 1 is not JSON"),
    (b'{"key": ' + b"[" * 100_000, "line 1 is not JSON"),
    (b"[1]", "row 1 cannot be imported"),
    (
        b'{"key": "x", "spec": "counts", "value": {"$msgpack": "AQI="}}',
        "row 1 cannot be imported: $msgpack is not packed",
    ),
    (b'{"key": "x", "spec": "counts", "value": {"$msgpack": ""}}', "row 1 cannot be imported: $msgpack is not packed"),
    (
        b'{"key": "x", "spec": "counts", "value": 1, "next_timer": "2025-01-01T00:00:00Z"}',
        "row 1 cannot be imported: it has a next_timer, but 'counts' has no timers",
    ),
    (
        b'{"key": "x", "spec": "counts", "value": 1, "expires": "2025-01-01T00:00:00Z"}',
        "row 1 cannot be imported: it has the field expires, but not written",
    ),
    (b'{"key": "x", "timers": [["2025-01-01T00:00:00Z", null]]}', "a timer is a text, not None"),
    (b'{"key": "x", "timers": [["2025-01-01T00:00:00Z", {}]]}', "a timer is a text, not {}"),
    (b'{"key": "x", "timers": [["2025-01-01T00:00:00Z", "\\ud800"]]}', "the tag '\\ud800' is not valid Unicode"),
    (
        b'{"key": "x", "spec": "seen", "value": [[{"$float": "nan"}, 1]]}',
        "row 1 cannot be imported: NaN cannot be a key",
    ),
    (
        b'{"key": "x", "spec": "seen", "value": [[{"$tuple": [1, {"$Decimal": "nan"}]}, 1]]}',
        "row 1 cannot be imported: NaN cannot be a key",
    ),
    (b'{"key": "x", "spec": "rates", "value": [["nan", 1]]}', "row 1 cannot be imported: NaN cannot be a key"),
]


@pytest.mark.parametrize(("row", "problem"), ROWS)
def test_a_row_that_cannot_be_imported_is_an_error(
    savepoint: Path, row: bytes, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows.jsonl").write_bytes(row + b"\n")
    ran = amadou("state", "import", "rows.jsonl", "new", "--into", "saved")
    assert (ran.exit_code, "Traceback" in ran.output) == (1, False)
    assert isinstance(ran.exception, SystemExit)
    assert problem in " ".join(ran.output.split())


def test_a_parquet_file_with_a_binary_key_cannot_be_imported(
    savepoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    monkeypatch.chdir(tmp_path)
    rows = [{"key": b"x", "key_is_text": True, "spec": "counts", "value": "1"}]
    pa.parquet.write_table(pa.Table.from_pylist(rows), "rows.parquet")
    ran = amadou("state", "import", "rows.parquet", "new", "--into", "saved")
    assert (ran.exit_code, "Traceback" in ran.output) == (1, False)
    assert isinstance(ran.exception, SystemExit)
    assert "row 1 cannot be imported" in " ".join(ran.output.split())


def with_clock(**changes: Any) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        return attrs.evolve(manifest, clock={**manifest.clock, "watermark": {**manifest.clock["watermark"], **changes}})

    return change


def with_text(text: str) -> Callable[[Manifest], Manifest]:
    def change(manifest: Manifest) -> Manifest:
        return attrs.evolve(manifest, specs={text: manifest.specs["counts"]})

    return change


@pytest.mark.parametrize(
    "change",
    [
        with_clock(brought={}),
        with_clock(newest={"events": {"": 1, "b": 2}}),
        with_text("\ud800"),
        lambda manifest: attrs.evolve(manifest, key_groups=10**18),
        lambda manifest: attrs.evolve(manifest, key_groups=0),
    ],
)
def test_a_manifest_whose_parts_do_not_fit_is_damaged(savepoint: Path, change: Callable[[Manifest], Manifest]) -> None:
    crafted(savepoint, change)
    with pytest.raises(SavepointError, match=r"savepoint.json is damaged or incomplete"):
        TestRun(counting(), savepoint=savepoint)


@pytest.mark.parametrize("name", ["a" * 300, "\ud800"])
def test_a_file_name_that_the_file_system_cannot_have_is_refused(savepoint: Path, name: str) -> None:
    crafted(savepoint, with_file(name, b""))
    with pytest.raises(SavepointError, match=r"cannot be the name of a file|is damaged or incomplete"):
        Savepoint(savepoint)


def test_a_position_that_a_source_cannot_read_names_the_source(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"key": "DE", "time": 1}\n')
    read = Job("read", Noting(), sources={"events": JsonLinesSource(str(tmp_path / "in"))})
    run(read, engine="embedded", to_savepoint=str(tmp_path / "saved"))
    crafted(
        tmp_path / "saved",
        lambda manifest: attrs.evolve(
            manifest, sources={"events": {**manifest.sources["events"], "position": [{"a": 1}]}}
        ),
    )
    with pytest.raises(SourceError, match=r"the source 'events' \(JsonLinesSource\) cannot continue at its position"):
        run(read, engine="embedded", from_savepoint=str(tmp_path / "saved"))


@pytest.mark.parametrize(
    "arguments",
    [("savepoint", "--verify", "saved"), ("state", "show", "saved", "DE\x1b[31m"), ("state", "keys", "saved")],
)
def test_text_of_a_savepoint_cannot_control_the_terminal(
    arguments: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = TestRun(counting()).add_record(event(1, "x", "DE\x1b[31m"), "events")
    test.run()
    test.savepoint(tmp_path / "saved")
    crafted(tmp_path / "saved", lambda manifest: attrs.evolve(manifest, job="\x1b]0;title\x07", watermark="\x9b31m"))
    monkeypatch.chdir(tmp_path)
    ran = amadou(*arguments)
    assert ran.exit_code == 0
    assert not {"\x1b", "\x07", "\x9b"} & {*ran.output}
