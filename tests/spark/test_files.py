"""Files in a checkpoint can be read and written in every file system, and Spark can read what was written."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.services import mounted
from tests.spark.counter import NOON, Counter

from amadou import Job, KeyedEvent, MemorySink
from amadou.errors import CheckpointError
from amadou.remote_files import RemoteDirectory
from amadou_plugins.connectors import LinesSource
from amadou_runtime import start
from amadou_runtime.runs.files import Files, LocalFiles, RemoteFiles, checkpoint_files
from amadou_runtime.spark.savepoints.rescaling import rescale

pytestmark = pytest.mark.spark

OpenFiles = Callable[[Any, Path], Files]


KINDS: dict[str, OpenFiles] = {
    "local": lambda spark, directory: LocalFiles(str(directory), directory),
    "Hadoop": lambda spark, directory: RemoteFiles(RemoteDirectory(str(directory), spark.sparkContext)),
    "other": lambda spark, directory: RemoteFiles(mounted("other", directory.as_uri()).opened(spark)),
}


@pytest.fixture(params=KINDS)
def files(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Files:
    return KINDS[request.param](spark, tmp_path / "checkpoint")


def test_a_checkpoint_without_files_is_empty(files: Files) -> None:
    assert files.read("clock/1") is None
    assert not files.exists("clock")
    assert files.names("clock") == []
    files.remove("clock/1")


def test_the_text_that_was_written_last_is_read(files: Files) -> None:
    files.write("clock/1", "first\nline")
    files.write("clock/1", "größer")
    files.write("amadou.json", "{}")
    assert files.read("clock/1") == "größer"
    assert files.read("amadou.json") == "{}"
    assert files.exists("clock")
    files.write("clock/.1.0a", "left by a killed process")
    assert files.names("clock") == ["1"]
    files.remove("clock/1")
    assert files.read("clock/1") is None


def test_a_file_system_that_fails_is_named(files: Files, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").write_text("a file where a directory should be")
    with pytest.raises(CheckpointError, match="it cannot be written: check the file system") as raised:
        files.write("clock/1", "text")
    assert str(raised.value).count("\n") == 0


def test_a_file_that_is_not_text_is_an_error(files: Files, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "amadou.json").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="it cannot be read: check the file system"):
        files.read("amadou.json")


def test_spark_can_read_a_file_that_replaces_one_of_its_own(spark: Any, tmp_path: Path) -> None:
    by_hadoop, directly = (kind(spark, tmp_path) for kind in (KINDS["Hadoop"], KINDS["local"]))
    by_hadoop.write("offsets/1", "as Spark wrote it")
    assert (tmp_path / "offsets" / ".1.crc").exists()
    directly.write("offsets/1", "as amadou wrote it")
    assert by_hadoop.read("offsets/1") == "as amadou wrote it"


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_local_checkpoints_are_accessed_directly(prefix: str, spark: Any, tmp_path: Path) -> None:
    files = checkpoint_files(spark, f"{prefix}{tmp_path}/a b")
    files.write("amadou.json", "{}")
    assert (tmp_path / "a b" / "amadou.json").read_text() == "{}"
    assert isinstance(files, LocalFiles)


def test_an_unknown_file_system_is_named(spark: Any) -> None:
    with pytest.raises(
        CheckpointError, match=r'nowhere://a/b: it cannot be read: .*No FileSystem for scheme "nowhere"'
    ):
        checkpoint_files(spark, "nowhere://a/b")


@pytest.mark.parametrize(
    ("checkpoint", "advice"),
    [
        ("s3://bucket/checkpoint", "write s3a:// rather than s3://"),
        ("S3A://bucket/checkpoint", "write the scheme in lower case"),
        ("hdfs:///checkpoint", "write the host, as in hdfs://HOST:8020/path, or set HADOOP_CONF_DIR"),
    ],
)
def test_a_mistake_in_a_uri_is_named(spark: Any, checkpoint: str, advice: str) -> None:
    with pytest.raises(CheckpointError, match=advice):
        checkpoint_files(spark, checkpoint)


def line_event(line: bytes) -> KeyedEvent:
    return KeyedEvent(line.decode(), NOON)


@pytest.mark.needs_spark(4)
@pytest.mark.parametrize(
    ("scheme", "state"),
    [
        pytest.param("viewfs", "groups", marks=pytest.mark.qualify),
        pytest.param("viewfs", "log", marks=pytest.mark.qualify),
        pytest.param("other", "log", marks=pytest.mark.qualify),
    ],
)
def test_a_run_resumes_from_a_checkpoint_in_another_file_system(
    scheme: str, state: Any, spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "lines").mkdir()
    place = f"{mounted(scheme, tmp_path.as_uri()).opened(spark).path}/checkpoint"

    def results(name: str, lines: str) -> list[Any]:
        (tmp_path / "lines" / name).write_text(lines)
        sink = MemorySink()
        source = LinesSource(str(tmp_path / "lines"), key_event=line_event)
        job = Job("counter", Counter(), {"lines": source}, {"counts": sink}, state=state)
        start(job, spark, checkpoint=place, trigger="available-now").await_termination()
        return sorted(sink.records)

    assert isinstance(checkpoint_files(spark, place), RemoteFiles)
    assert results("1", "a\nb\na\n") == [("a", 1), ("a", 2), ("b", 1)]
    metadata, replaced = (tmp_path / "checkpoint" / name for name in ("amadou.json", ".amadou.json.amadou-replaced"))
    metadata.rename(replaced)  # as left by a run that was killed while it replaced the file
    rescale(spark, place, partitions=3)
    metadata.rename(replaced)
    assert results("2", "a\n") == [("a", 3)]
    assert not replaced.exists()


class Killed(BaseException):
    pass


@attrs.define
class KilledLater:
    """A file system whose process is killed after a number of changes."""

    system: Any
    changes: int

    def __getattr__(self, name: str) -> Any:
        if name in ("create", "delete", "rename"):
            if not self.changes:
                raise Killed
            self.changes -= 1
        return getattr(self.system, name)


@pytest.fixture(params=["viewfs", "other"])
def place(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> RemoteDirectory:
    return mounted(request.param, tmp_path.as_uri()).opened(spark)


def kill(place: RemoteDirectory, changes: int, do: Callable[[], None]) -> None:
    system = place._system
    place._system = KilledLater(system, changes)
    with suppress(Killed):
        do()
    place._system = system


@pytest.mark.parametrize("changes", range(5))
def test_a_file_is_complete_whenever_processes_that_replace_it_are_killed(changes: int, place: RemoteDirectory) -> None:
    """Two processes are killed one after the other: the first after some changes, the second after any number."""
    for again in range(5):
        name = f"file-{again}"
        place.write(name, b"0")
        before = b"0"
        for content, later in ((b"1", changes), (b"2", again)):
            kill(place, later, partial(place.write, name, content))
            found = place.read(name)
            assert found in (before, content)
            assert place.exists(name)
            assert place.names().count(name) == 1
            before = found
        place.write(name, b"3")
        assert (place.read(name), place.exists(f".{name}.amadou-replaced")) == (b"3", False)


def test_a_removed_file_stays_removed_whenever_processes_are_killed(place: RemoteDirectory) -> None:
    for changes in range(5):
        name = f"file-{changes}"
        place.write(name, b"0")
        kill(place, changes, partial(place.write, name, b"1"))
        before = place.read(name)
        kill(place, 1, partial(place.remove, name))
        assert place.read(name) in (before, None)
        place.remove(name)
        assert (place.read(name), place.exists(name)) == (None, False)
        assert name not in place.names()
