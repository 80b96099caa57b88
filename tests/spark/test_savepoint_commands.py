"""`amadou savepoint` and starts from savepoints: of running jobs, with mistakes, and killed in the middle."""

import hashlib
import json
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.commands import amadou
from tests.spark.commands import command, kill_when
from tests.spark.moving import Place, SavedPlace
from tests.waits import wait_for

from amadou.errors import CheckpointError, RunError, SavepointError
from amadou_runtime import _run, run, start
from amadou_runtime.runs import lease
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.manifest import MANIFEST, FileInfo
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.spark.savepoints import loading, writing
from amadou_runtime.spark.savepoints.service import REQUESTS, SavepointService, Schedule

pytestmark = pytest.mark.spark

STEPS = ("_offsets", "_write_state", "written_clock", "keep")
"""Functions of a start from a savepoint, after which (the last one: before which) a test interrupts it."""


@pytest.fixture
def place(tmp_path: Path, spark: Any) -> Place:
    return Place(tmp_path / "place")


@pytest.fixture(scope="module")
def _with_savepoint(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> SavedPlace:
    made = SavedPlace(tmp_path_factory.mktemp("with-savepoint") / "place")
    made.add("x", "y")
    made.run("first", to_savepoint=made.path("savepoint"))
    made.save()
    return made


@pytest.fixture
def saved(_with_savepoint: SavedPlace) -> Iterator[Place]:
    """A job that has processed two events. It has the checkpoint `first` and the savepoint `savepoint`."""
    yield _with_savepoint
    _with_savepoint.restore()


@pytest.mark.needs_spark(4)
def test_a_start_is_repeated_with_the_same_options(saved: Place) -> None:
    saved.add("x", second=1)
    saved.run("second", from_savepoint=saved.path("savepoint"))
    shutil.rmtree(saved.path("savepoint"))  # as --savepoint-keep removes it
    saved.add("x", second=2)
    saved.run("second", from_savepoint=saved.path("savepoint"), to_savepoint=saved.path("other"))  # resumes
    with pytest.raises(CheckpointError, match=r"it exists already\. Start from a savepoint with a new checkpoint"):
        saved.run("second", from_savepoint=saved.path("other"))
    assert saved.totals() == [["x", 1], ["x", 2], ["x", 3], ["y", 1]]


@pytest.mark.needs_spark(4)
def test_a_start_needs_a_new_checkpoint(saved: Place) -> None:
    with pytest.raises(CheckpointError, match=r"it exists already\. Start from a savepoint with a new checkpoint"):
        saved.run("first", from_savepoint=saved.path("savepoint"))
    other = saved.directory / "other" / "state"
    other.mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"the directory is not empty\. Use a new directory"):
        saved.run("other", from_savepoint=saved.path("savepoint"))
    assert other.exists()
    saved.run("first")
    assert saved.totals() == [["x", 1], ["y", 1]]


@pytest.mark.needs_spark(4)
def test_a_start_from_another_jobs_savepoint_writes_nothing(saved: Place) -> None:
    with pytest.raises(SavepointError, match="it belongs to the job 'moving everything', not to 'other'"):
        run(evolve(saved.job(), name="other"), checkpoint=saved.path("new"), from_savepoint=saved.path("savepoint"))
    assert sorted(path.name for path in Path(saved.path("new")).glob("*")) == []


@pytest.mark.parametrize(
    "steps",
    [STEPS[1:2], pytest.param(STEPS, marks=pytest.mark.qualify)],
    ids=["one step", "each step in turn"],
)
@pytest.mark.needs_spark(4)
def test_an_interrupted_start_is_repeated(steps: Sequence[str], saved: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in steps:
        original = getattr(loading, step)

        def interrupted(*arguments: Any, of: str = step, then: Any = original, **more: Any) -> Any:
            if of != "keep":
                then(*arguments, **more)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(loading, step, interrupted)
            with pytest.raises(KeyboardInterrupt):
                saved.run("second", from_savepoint=saved.path("savepoint"))
        with pytest.raises(CheckpointError, match="its start from a savepoint was interrupted"):
            saved.run("second")
    saved.add("x", second=1)
    other = evolve(saved.job(), key_groups=7)
    run(other, checkpoint=saved.path("second"), from_savepoint=saved.path("savepoint"), trigger="available-now")
    assert saved.totals() == [["x", 1], ["x", 2], ["y", 1]]
    Savepoint(saved.path("savepoint")).verify()


@pytest.mark.qualify  # the test of an interrupted start needs no program
@pytest.mark.parametrize("written", ["loading.json", "state/0/*/1.changelog", "amadou.json"])
@pytest.mark.needs_spark(4)
def test_a_start_that_was_killed_when_it_had_written_a_file_is_repeated(written: str, saved: Place) -> None:
    saved.add("x", second=1)
    (saved.directory / "everything.py").write_text(
        "from tests.spark.moving import job_of\n"
        f"job = job_of('everything', {{'a': '{saved.input}/'}}, '{saved.path('out')}', key_groups=4)\n"
    )
    options = ["--from", "savepoint", "--checkpoint", "second", "--once"]
    second = Path(saved.path("second"))
    kill_when(lambda: list(second.glob(written)), "run", "everything.py", *options, directory=saved.directory)
    saved.run("second", from_savepoint=saved.path("savepoint"))
    assert saved.totals() == [["x", 1], ["x", 2], ["y", 1]]
    Savepoint(saved.path("savepoint")).verify()


@pytest.mark.needs_spark(4)
def test_a_damaged_savepoint_is_not_loaded(saved: Place) -> None:
    savepoint = Savepoint(saved.path("savepoint"))
    (info, *_) = savepoint.manifest.state_files
    path = savepoint.directory / "state" / info.name
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    with pytest.raises(RunError, match=r"\.blocks is damaged or incomplete \(the checksum of the block at 0"):
        saved.run("second", from_savepoint=saved.path("savepoint"))


@pytest.mark.needs_spark(4)
def test_a_savepoint_cannot_replace_other_files_of_the_new_checkpoint(saved: Place) -> None:
    savepoint = Path(saved.path("savepoint"))
    manifest = JobSavepoint(savepoint).manifest
    for name in ("amadou.json", "offsets/5", "commits/0"):
        (savepoint / name).parent.mkdir(exist_ok=True)
        (savepoint / name).write_bytes(b"{}")
        info = FileInfo(name, 2, hashlib.sha256(b"{}").hexdigest())
        (savepoint / MANIFEST).write_text(evolve(manifest, files=[*manifest.files, info]).to_json())
        with pytest.raises(SavepointError, match=rf"'{name}' is not a file of a source"):
            saved.run("second", from_savepoint=str(savepoint))
        assert not Path(saved.path("second"), name).exists()


@pytest.mark.needs_spark(4)
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
    assert place.totals() == [["x", 1], ["x", 2]]


@pytest.mark.needs_spark(4)
def test_a_savepoint_before_the_first_batch_is_empty(place: Place) -> None:
    place.run("first", to_savepoint=place.path("savepoint"))
    savepoint = Savepoint(place.path("savepoint"))
    savepoint.verify()
    assert (savepoint.manifest.batch, savepoint.manifest.keys) == (None, 0)
    place.add("x")
    place.run("second", from_savepoint=place.path("savepoint"))
    assert place.totals() == [["x", 1]]


def is_committed(checkpoint: Path) -> bool:
    """Spark commits a batch a moment after its results are counted. A savepoint contains committed batches."""
    planned, committed = ({path.name for path in (checkpoint / name).iterdir()} for name in ("offsets", "commits"))
    return planned <= committed


@pytest.mark.needs_spark(4)
def test_a_running_job_takes_savepoints_and_goes_on(place: Place, spark: Any) -> None:
    place.add("x")
    running = start(place.job(), spark, checkpoint=place.path("first"), trigger="0 seconds")
    try:
        wait_for(lambda: len(place.totals()) == 1)
        wait_for(lambda: running.summary.batches > 0)
        wait_for(lambda: is_committed(place.directory / "first"))
        running.savepoint(place.path("one"))
        place.add("x", second=1)
        wait_for(lambda: len(place.totals()) == 2)
        wait_for(lambda: running.summary.counts.events == 2)
        wait_for(lambda: is_committed(place.directory / "first"))
        running.savepoint(place.path("two"))
    finally:
        running.stop()
    for name, number in (("one", 1), ("two", 2)):
        (found,) = Savepoint(place.path(name)).find("x")
        assert len(found.tables["last"].packed["x"]) == number + 1  # a list with a byte for each event
    place.add("x", second=2)
    place.run("second", from_savepoint=place.path("two"))
    assert place.totals() == [["x", 1], ["x", 2], ["x", 3]]


@pytest.mark.needs_spark(4)
def test_the_command_asks_the_run_that_uses_the_checkpoint(place: Place, spark: Any) -> None:
    place.add("x")
    running = start(place.job(), spark, checkpoint=place.path("first"), trigger="0 seconds")
    try:
        wait_for(lambda: running.summary.batches > 0)
        done = command("savepoint", "first", "savepoint", "--verify", directory=place.directory)
        again = amadou("savepoint", place.path("first"), place.path("savepoint"))
        Path(place.path("file")).write_text("")
        failed = amadou("savepoint", place.path("first"), place.path("file/savepoint"))
    finally:
        running.stop()
    assert (done.returncode, done.stderr.count("its run takes the savepoint")) == (0, 1), done.stderr
    assert "savepoint: verified. Job moving everything, batch " in done.stdout
    assert re.search(r"total +ValueSpec int +1 ", done.stdout)
    is_not_empty = f"savepoint {place.path('savepoint')}: the path is not empty: use a new directory\n"
    assert (again.exit_code, again.stderr) == (1, is_not_empty)
    assert failed.exit_code == 1
    assert "the run could not take the savepoint: it cannot be written: check the path and the disk" in failed.stderr
    assert list((Path(place.path("first")) / REQUESTS).iterdir()) == []
    Savepoint(place.path("savepoint")).verify()


@pytest.mark.needs_spark(4)
def test_a_run_takes_savepoints_at_intervals_and_removes_older_ones(
    saved: Place, spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "amadou")
    files = LocalFiles(saved.path("first"), Path(saved.path("first")))
    service = SavepointService(spark, files, "my job", Schedule(str(tmp_path / "taken"), timedelta(0), 2))
    others = {"my-job-29990101T000000Z", "my-job-20250101T000000Z.copy", "other-my-job-20250101T000000Z"}
    for name in ("my-job-20250101T000000Z", "my-job-20250101T000000Z.partial-0a1b2c3d", *others):
        (tmp_path / "taken" / name / "state").mkdir(parents=True)
    names: list[str] = []
    for _ in range(2):
        begun = int(time.time())
        wait_for(lambda second=begun: int(time.time()) > second)  # the names contain the second
        service.look()
        service.wait()
        found = {path.name for path in (tmp_path / "taken").iterdir()}
        assert found >= others
        names = sorted(found - others)
    assert len(names) == 2
    assert "my-job-20250101T000000Z" not in names
    assert all(re.fullmatch(r"my-job-\d{8}T\d{6}Z", name) for name in names)
    by_signal = SavepointService(spark, files, "my job", Schedule(str(tmp_path / "asked")))
    by_signal.look()
    assert not (tmp_path / "asked").exists()
    by_signal.ask()
    by_signal.wait()  # as at the end of a run
    (asked,) = (tmp_path / "asked").iterdir()
    for path in (*(tmp_path / "taken" / name for name in names), asked):
        assert f"job my job: wrote the savepoint {path} (batch {Savepoint(path).batch})" in caplog.text


@pytest.mark.parametrize("checkpoint", ["/data/state", "file:/data/state", "file:///data/state"])
def test_savepoints_at_intervals_are_in_the_checkpoint(checkpoint: str, spark: Any) -> None:
    files = LocalFiles(checkpoint, Path("/data/state"))
    schedule = _run._schedule(checkpoint, "1 hour", None, None)
    assert SavepointService(spark, files, "my job", schedule).ask() == "/data/state/savepoints"


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
        wait_for(lambda: running.summary.batches > 0)
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
    wait_for(lambda: running.summary.batches > 0)
    path = Path(place.path("first")) / "run.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "lease": "another"}))
    with pytest.raises(CheckpointError, match="another run has taken it"):
        running.await_termination(60)
    assert running.status == "failed"
    assert json.loads(path.read_text())["lease"] == "another"


@pytest.mark.qualify  # the test of a failed savepoint needs no program
@pytest.mark.needs_spark(4)
def test_a_killed_command_leaves_the_checkpoint_whole(place: Place) -> None:
    for number in range(3):
        place.add(*(f"k{key}" for key in range(2000)), second=number)
    place.run("first")
    checkpoint = Path(place.path("first"))
    before = contents(checkpoint)
    kill_when(
        lambda: list(place.directory.glob("savepoint.partial-*/state/*")),
        *("savepoint", "first", "savepoint"),
        directory=place.directory,
    )
    assert not Path(place.path("savepoint")).exists()
    assert contents(checkpoint) == before
    place.add("k0", second=5)
    place.run("first", to_savepoint=place.path("savepoint"))
    assert place.totals("k0") == [["k0", number] for number in range(1, 5)]


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
