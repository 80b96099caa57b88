"""`amadou savepoint` and starts from savepoints: of running jobs, with mistakes, and killed in the middle."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.spark.moving import job_of, record_of

from amadou import Job
from amadou.errors import CheckpointError, RunError, SavepointError
from amadou_runtime import _run, run, start
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.spark import lease
from amadou_runtime.spark.files import LocalFiles
from amadou_runtime.spark.savepoints import loading, writing
from amadou_runtime.spark.savepoints.service import REQUESTS, SavepointService, Schedule

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
AMADOU = [sys.executable, "-c", "from amadou_runtime.command.cli import app; app()"]


class Place:
    """A job with its directories."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.input = directory / "in"
        self.input.mkdir()
        self._files = 0

    def job(self, **settings: Any) -> Job:
        return job_of("everything", {"a": f"{self.input}/"}, str(self.directory / "out"), key_groups=4, **settings)

    def add(self, *keys: str, second: int = 0) -> None:
        self._files += 1
        lines = "".join(f"{json.dumps(record_of(key, second, 1))}\n" for key in keys)
        new = self.directory / "new"
        new.write_text(lines)
        new.rename(self.input / f"{self._files}.jsonl")

    def outputs(self) -> list[Any]:
        texts = [path.read_text() for path in self.directory.glob("out/*.jsonl")]
        return sorted((json.loads(line) for text in texts for line in text.splitlines()), key=str)

    def path(self, name: str) -> str:
        return str(self.directory / name)

    def run(self, checkpoint: str, **more: Any) -> None:
        run(self.job(), checkpoint=self.path(checkpoint), trigger="available-now", **more)


@pytest.fixture
def place(tmp_path: Path, spark: Any) -> Place:
    return Place(tmp_path)


@pytest.fixture
def savepoint(place: Place) -> Savepoint:
    """A savepoint of the job after two events."""
    place.add("x", "y")
    place.run("first", to_savepoint=place.path("savepoint"))
    return Savepoint(place.path("savepoint"))


def totals(place: Place) -> list[Any]:
    return [[key, total] for kind, key, total, *_ in place.outputs() if kind == "event"]


def test_a_start_is_repeated_with_the_same_options(place: Place, savepoint: Savepoint) -> None:
    place.add("x", second=1)
    place.run("second", from_savepoint=place.path("savepoint"))
    place.add("x", second=2)
    place.run("second", from_savepoint=place.path("savepoint"))  # resumes from the checkpoint
    place.run("second", to_savepoint=place.path("other"))
    with pytest.raises(CheckpointError, match=r"it exists already\. Start from a savepoint with a new checkpoint"):
        place.run("second", from_savepoint=place.path("other"))
    shutil.rmtree(place.path("savepoint"))  # as --savepoint-keep removes it
    place.add("x", second=3)
    place.run("second", from_savepoint=place.path("savepoint"))
    assert totals(place) == [["x", 1], ["x", 2], ["x", 3], ["x", 4], ["y", 1]]


def test_a_start_needs_a_new_checkpoint(place: Place, savepoint: Savepoint, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"it exists already\. Start from a savepoint with a new checkpoint"):
        place.run("first", from_savepoint=place.path("savepoint"))
    other = tmp_path / "other" / "state"
    other.mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"the directory is not empty\. Use a new directory"):
        place.run("other", from_savepoint=place.path("savepoint"))
    assert other.exists()
    place.run("first")
    assert totals(place) == [["x", 1], ["y", 1]]


def test_a_start_from_another_jobs_savepoint_writes_nothing(place: Place, savepoint: Savepoint) -> None:
    with pytest.raises(SavepointError, match="it belongs to the job 'moving everything', not to 'other'"):
        run(evolve(place.job(), name="other"), checkpoint=place.path("new"), from_savepoint=place.path("savepoint"))
    assert sorted(path.name for path in Path(place.path("new")).glob("*")) == []


@pytest.mark.parametrize("after", ["_offsets", "_write_state", "written_clock", "keep"])
def test_an_interrupted_start_is_repeated(
    after: str, place: Place, savepoint: Savepoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(loading, after)

    def interrupted(*given: Any, **more: Any) -> Any:
        if after != "keep":
            original(*given, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(loading, after, interrupted)
        with pytest.raises(KeyboardInterrupt):
            place.run("second", from_savepoint=place.path("savepoint"))
    with pytest.raises(CheckpointError, match="its start from a savepoint was interrupted"):
        place.run("second")
    place.add("x", second=1)
    other = evolve(place.job(), key_groups=7)
    run(other, checkpoint=place.path("second"), from_savepoint=place.path("savepoint"), trigger="available-now")
    assert totals(place) == [["x", 1], ["x", 2], ["y", 1]]
    savepoint.verify()


@pytest.mark.parametrize("found", ["loading.json", "state/0/*/1.changelog", "amadou.json"])
def test_a_killed_start_is_repeated(found: str, place: Place, savepoint: Savepoint, tmp_path: Path) -> None:
    place.add("x", second=1)
    (tmp_path / "everything.py").write_text(
        "from tests.spark.moving import job_of\n"
        f"job = job_of('everything', {{'a': '{place.input}/'}}, '{tmp_path / 'out'}', key_groups=4)\n"
    )
    options = ["--from", "savepoint", "--checkpoint", "second", "--once"]
    kill_when(lambda: list(tmp_path.glob(f"second/{found}")), ["run", "everything.py", *options], tmp_path)
    place.run("second", from_savepoint=place.path("savepoint"))
    assert totals(place) == [["x", 1], ["x", 2], ["y", 1]]
    savepoint.verify()


def kill_when(condition: Any, arguments: list[str], directory: Path) -> None:
    """Run a command in a directory, and kill it and all that it started as soon as a condition holds."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*AMADOU, *arguments], cwd=directory, env=environment, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        end = time.monotonic() + 60
        while not condition():
            assert process.stderr is not None
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < end
            time.sleep(0.002)
        os.killpg(process.pid, signal.SIGKILL)


def test_a_damaged_savepoint_is_not_loaded(place: Place, savepoint: Savepoint) -> None:
    (info, *_) = savepoint.manifest.state_files
    path = savepoint.directory / "state" / info.name
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(RunError, match=r"\.blocks is damaged or incomplete \(the checksum of the block at 0"):
        place.run("second", from_savepoint=place.path("savepoint"))


def test_a_failed_savepoint_leaves_the_checkpoint_and_nothing_else(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    place.add("x")
    with monkeypatch.context() as patch:
        patch.setattr(writing, "complete", failing)
        with pytest.raises(SavepointError, match="it cannot be written: check the path and the disk"):
            place.run("first", to_savepoint=place.path("savepoint"))
    assert not list(place.directory.glob("savepoint*"))
    place.add("x", second=1)
    place.run("first", to_savepoint=place.path("savepoint"))
    assert totals(place) == [["x", 1], ["x", 2]]


def test_a_savepoint_before_the_first_batch_is_empty(place: Place) -> None:
    place.run("first", to_savepoint=place.path("savepoint"))
    savepoint = Savepoint(place.path("savepoint"))
    savepoint.verify()
    assert (savepoint.manifest.batch, savepoint.manifest.keys) == (None, 0)
    place.add("x")
    place.run("second", from_savepoint=place.path("savepoint"))
    assert totals(place) == [["x", 1]]


def until(condition: Any, *, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def is_committed(checkpoint: Path) -> bool:
    """Spark commits a batch a moment after its results are counted. A savepoint contains committed batches."""
    planned, committed = ({path.name for path in (checkpoint / name).iterdir()} for name in ("offsets", "commits"))
    return planned <= committed


def test_a_running_job_takes_savepoints_and_goes_on(place: Place, spark: Any) -> None:
    place.add("x")
    running = start(place.job(), spark, checkpoint=place.path("first"), trigger="0 seconds")
    try:
        until(lambda: len(totals(place)) == 1)
        until(lambda: running.summary.batches)
        until(lambda: is_committed(place.directory / "first"))
        running.savepoint(place.path("one"))
        place.add("x", second=1)
        until(lambda: len(totals(place)) == 2)
        until(lambda: running.summary.counts.events == 2)
        until(lambda: is_committed(place.directory / "first"))
        running.savepoint(place.path("two"))
    finally:
        running.stop()
    for name, number in (("one", 1), ("two", 2)):
        (found,) = Savepoint(place.path(name)).find("x")
        assert len(found.tables["last"].packed["x"]) == number + 1  # a list with a byte for each event
        place.run(f"from-{name}", from_savepoint=place.path(name))
    assert totals(place) == [["x", 1], ["x", 2], ["x", 2]]


def amadou(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*AMADOU, *arguments], capture_output=True, text=True, timeout=300, check=False, **more)


def test_the_command_asks_the_run_that_uses_the_checkpoint(place: Place, spark: Any) -> None:
    place.add("x")
    running = start(place.job(), spark, checkpoint=place.path("first"), trigger="0 seconds")
    try:
        until(lambda: running.summary.batches)
        done = amadou("savepoint", "first", "savepoint", "--verify", cwd=place.directory)
        again = amadou("savepoint", "first", "savepoint", cwd=place.directory)
        (Path(place.path("file"))).write_text("")
        failed = amadou("savepoint", "first", "file/savepoint", cwd=place.directory)
    finally:
        running.stop()
    assert (done.returncode, done.stderr.count("its run takes the savepoint")) == (0, 1), done.stderr
    assert "savepoint: verified. Job moving everything, batch " in done.stdout
    assert re.search(r"total +ValueSpec int +1 ", done.stdout)
    assert (again.returncode, again.stderr) == (1, "savepoint savepoint: the path is not empty: use a new directory\n")
    assert failed.returncode == 1
    assert "the run could not take the savepoint: it cannot be written: check the path and the disk" in failed.stderr
    assert list((Path(place.path("first")) / REQUESTS).iterdir()) == []
    Savepoint(place.path("savepoint")).verify()


def test_a_run_takes_savepoints_at_intervals_and_keeps_some(place: Place, spark: Any, tmp_path: Path) -> None:
    place.add("x")
    place.run("first")
    files = LocalFiles(place.path("first"), Path(place.path("first")))
    service = SavepointService(spark, files, "my job", Schedule(str(tmp_path / "kept"), timedelta(0), 2))
    others = {"my-job-29990101T000000Z", "my-job-20250101T000000Z.copy", "other-my-job-20250101T000000Z"}
    for name in ("my-job-20250101T000000Z", "my-job-20250101T000000Z.partial-0a1b2c3d", *others):
        (tmp_path / "kept" / name / "state").mkdir(parents=True)
    names: list[str] = []
    for _ in range(3):
        service.look()
        service.wait()
        found = {path.name for path in (tmp_path / "kept").iterdir()}
        assert found >= others
        names = sorted(found - others)
        time.sleep(1)
    assert len(names) == 2
    assert all(re.fullmatch(r"my-job-\d{8}T\d{6}Z", name) for name in names)
    by_signal = SavepointService(spark, files, "my job", Schedule(str(tmp_path / "asked")))
    by_signal.look()
    assert not (tmp_path / "asked").exists()
    by_signal.ask()
    by_signal.wait()  # as at the end of a run
    assert len(list((tmp_path / "asked").iterdir())) == 1


@pytest.mark.parametrize("checkpoint", ["/data/state", "file:/data/state", "file:///data/state"])
def test_savepoints_at_intervals_are_in_the_checkpoint(checkpoint: str, spark: Any) -> None:
    files = LocalFiles(checkpoint, Path("/data/state"))
    schedule = _run._schedule(checkpoint, "1 hour", None, None)
    assert SavepointService(spark, files, "my job", schedule).ask() == "/data/state/savepoints"


def test_a_signal_makes_a_run_take_a_savepoint(tmp_path: Path) -> None:
    example = ROOT / "examples" / "tumbling_window"
    options = ["-p", f"VIEWS={example}/views/", "-p", f"SUMS={tmp_path}/sums", "--trigger", "1 second"]
    command = [*AMADOU, "run", f"{example}/views.py", "--checkpoint", "state", "--savepoint-dir", "asked", *options]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process:
        until(lambda: list(tmp_path.glob("state/commits/[0-9]")) or process.poll() is not None)
        process.send_signal(signal.SIGUSR1)
        until(lambda: list(tmp_path.glob("asked/*/savepoint.json")) or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        shown = process.stderr.read().decode()
        assert process.wait() == 0, shown
    (path,) = (tmp_path / "asked").iterdir()
    Savepoint(path).verify()


def test_a_signal_to_a_run_without_a_checkpoint_is_answered(
    place: Place, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    place.add("x")
    running, requests = start(place.job(), spark, trigger="0 seconds"), _run._Requests()
    requests.savepoint.set()
    requests.stop.set()
    _run._follow(running, requests, None)
    assert "no savepoint was written after SIGUSR1: the run has no checkpoint (--checkpoint)" in caplog.text


def test_a_batch_waits_if_spark_would_remove_the_state_of_a_savepoint(place: Place, spark: Any) -> None:
    files = LocalFiles(place.path("first"), Path(place.path("first")))
    service = SavepointService(spark, files, "job", None)
    service._batch = 10
    service.before_batch(107)
    waiting = threading.Thread(target=service.before_batch, args=(108,))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    with service._finished:
        service._batch = None
        service._finished.notify_all()
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_checkpoint_is_used_by_one_run_at_a_time(place: Place, spark: Any) -> None:
    place.add("x")
    running = start(place.job(), spark, checkpoint=place.path("first"), trigger="0 seconds")
    try:
        with pytest.raises(CheckpointError, match=r"used by a run \(the process \d+, since .*stop that run first"):
            place.run("first")
        until(lambda: running.summary.batches)
    finally:
        running.stop()
    place.run("first")
    assert not (Path(place.path("first")) / "run.json").exists()


def test_a_run_ends_if_another_run_has_taken_its_checkpoint(
    spark: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "DEFAULT_TIMING", lease.LeaseTiming(renewed_every=timedelta(0)))
    place.add("x")
    running = start(place.job(), spark, checkpoint=place.path("first"), trigger="0 seconds")
    until(lambda: running.summary.batches)
    path = Path(place.path("first")) / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "lease": "another"}))
    with pytest.raises(CheckpointError, match="another run has taken it"):
        running.await_termination(60)
    assert running.status == "failed"
    assert json.loads(path.read_text())["lease"] == "another"


def test_a_killed_command_leaves_the_checkpoint_whole(place: Place, tmp_path: Path) -> None:
    for number in range(3):
        place.add(*(f"k{key}" for key in range(2000)), second=number)
    place.run("first")
    before = snapshot(tmp_path / "first")
    kill_when(lambda: list(tmp_path.glob("savepoint.partial-*/state/*")), ["savepoint", "first", "savepoint"], tmp_path)
    assert not (tmp_path / "savepoint").exists()
    assert snapshot(tmp_path / "first") == before
    place.add("k0", second=5)
    place.run("first", to_savepoint=place.path("savepoint"))
    assert [each for each in totals(place) if each[0] == "k0"] == [["k0", number] for number in range(1, 5)]


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
