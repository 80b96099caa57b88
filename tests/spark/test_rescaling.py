"""Checkpoints that are rescaled in place: after kills, interrupted, and with mistakes."""

import json
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.commands import output
from tests.spark.commands import kill_when
from tests.spark.moving import Place, SavedPlace, job_of, record_of
from tests.waits import wait_for

from amadou.errors import AmadouError, CheckpointError, RunError
from amadou_runtime import run, start
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.spark.clock import RunClock
from amadou_runtime.spark.savepoints import rescaling
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState
from amadou_runtime.spark.savepoints.rescaling import rescale

pytestmark = [pytest.mark.spark, pytest.mark.needs_spark(4)]

STEPS = ("_carry_out", "write_checkpoint", "_plan_again", "keep")
"""Functions that rescale a checkpoint, after which (the first one: before which) a test interrupts it."""


@pytest.fixture(scope="module")
def _with_state(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> SavedPlace:
    made = SavedPlace(tmp_path_factory.mktemp("rescaling") / "place")
    made.add(*(f"k{number}" for number in range(20)))
    made.run("state")
    made.save()
    return made


@pytest.fixture
def place(_with_state: SavedPlace) -> Iterator[Place]:
    """A job that has processed an event of each of 20 keys. It has the checkpoint `state`."""
    yield _with_state
    _with_state.restore()


@pytest.mark.qualify  # the test of a batch that was not completed goes on as well
def test_the_job_goes_on_and_the_savepoint_stays(place: Place, spark: Any) -> None:
    left = Path(place.path("state")) / "before-rescale" / "state"
    left.mkdir(parents=True)
    done = rescale(spark, place.path("state"), partitions=3, store="log")
    assert (done.before.state, done.after.state, done.after.key_groups) == ("groups", "log", 4)
    assert done.after.run == done.before.run
    assert not left.parent.exists()
    place.add("k1", second=1)
    place.run("state")
    assert place.totals("k1") == [["k1", 1], ["k1", 2]]
    names = sorted(path.name for path in place.directory.glob("out/*"))
    assert len(names) == len(set(names))
    assert len({name.split("-")[1] for name in names}) == 1  # the id of the checkpoint
    Savepoint(done.savepoint).verify()


@pytest.mark.parametrize("committed", [pytest.param(True, marks=pytest.mark.qualify), False])
def test_a_batch_that_was_not_completed_is_processed_once(
    committed: bool, place: Place, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.add(*(f"k{number}" for number in range(10)), second=1)
    original = RunClock.end if committed else RunClock.begin

    def dying(*_: Any) -> None:
        raise RunError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(RunClock, "end" if committed else "begin", dying)
        with pytest.raises(RunError, match="killed"):
            place.run("state")
    assert original is getattr(RunClock, "end" if committed else "begin")
    visible = len(place.totals())
    assert visible == (30 if committed else 20)
    place.add("k0", second=2)
    rescale(spark, place.path("state"), partitions=1 if committed else 3)
    place.run("state")
    assert place.totals() == sorted(
        [[f"k{number}", total] for number in range(20) for total in (1, 2) if total == 1 or number < 10] + [["k0", 3]],
        key=str,
    )


@pytest.mark.parametrize(
    "steps",
    [("write_checkpoint",), pytest.param(STEPS, marks=pytest.mark.qualify)],
    ids=["write_checkpoint", "each step in turn"],
)
def test_an_interrupted_call_is_continued(
    steps: Sequence[str], place: Place, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, step in enumerate(steps):
        original = getattr(rescaling, step)

        def interrupted(*arguments: Any, of: str = step, then: Any = original) -> None:
            if of != "_carry_out":
                then(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(rescaling, step, interrupted)
            with pytest.raises(KeyboardInterrupt):
                rescale(spark, place.path("state"), **({} if number else {"partitions": 3, "store": "log"}))
        with pytest.raises(CheckpointError, match=r"rescaling it was interrupted\. Run amadou rescale .*state again"):
            place.run("state")
    done = rescale(spark, place.path("state"))
    assert (done.partitions, done.after.state) == (3, "log")
    place.add("k1", second=1)
    place.run("state")
    assert place.totals("k1") == [["k1", 1], ["k1", 2]]


@pytest.mark.qualify  # tests/runtime/test_interrupted_rescaling.py interrupts the same call at each change of a file
@pytest.mark.parametrize(
    ("written", "is_marked"),
    [
        (["savepoints/*.partial-*"], False),
        (["rescale.json"], True),
        (["before-rescale/clock", "state/0/*/1.changelog"], True),
    ],
    ids=["savepoint", "mark", "state"],
)
def test_a_command_that_was_killed_when_it_had_written_a_file_is_repeated(
    written: list[str], is_marked: bool, place: Place
) -> None:
    checkpoint = Path(place.path("state"))
    kill_when(
        lambda: all(list(checkpoint.glob(each)) for each in written),
        *("rescale", "state", "--partitions", "3"),
        directory=place.directory,
    )
    assert (checkpoint / "rescale.json").exists() == is_marked
    place.add("k1", second=1)
    if is_marked:
        with pytest.raises(CheckpointError, match=r"rescaling it was interrupted"):
            place.run("state")
        assert "3 partitions" in output("rescale", str(checkpoint))
    place.run("state")
    assert place.totals("k1") == [["k1", 1], ["k1", 2]]
    assert len(place.totals()) == 21


def test_a_failed_call_leaves_the_checkpoint_as_it_was(
    place: Place, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise CheckpointError("dir", "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(rescaling, "write_checkpoint", failing)
        with pytest.raises(CheckpointError, match="the disk is full"):
            rescale(spark, place.path("state"), partitions=3)
    assert not (Path(place.path("state")) / "rescale.json").exists()
    assert list((Path(place.path("state")) / "savepoints").iterdir()) == []
    place.add("k1", second=1)
    place.run("state")
    assert place.totals("k1") == [["k1", 1], ["k1", 2]]


@pytest.mark.qualify
def test_windows_that_are_stored_for_key_groups_need_the_job(tmp_path: Path, spark: Any) -> None:
    (tmp_path / "in").mkdir()
    lines = (json.dumps(record_of(f"k{number}", number % 3, 1)) for number in range(40))
    (tmp_path / "in" / "1.jsonl").write_text("\n".join(lines))
    inputs, out = {"a": f"{tmp_path}/in/"}, str(tmp_path / "out")
    run(job_of("windows", inputs, out, key_groups=2), checkpoint=str(tmp_path / "state"), trigger="available-now")
    with pytest.raises(AmadouError, match="the job no longer declares 'window', whose state is stored for whole key"):
        rescale(spark, str(tmp_path / "state"), key_groups=5)
    rescale(spark, str(tmp_path / "state"), partitions=1)
    new = job_of("windows", inputs, out, key_groups=5)
    rescale(spark, str(tmp_path / "state"), key_groups=5, job=new)
    (tmp_path / "in" / "2.jsonl").write_text(json.dumps(record_of("k1", 60, 1)))
    run(new, checkpoint=str(tmp_path / "state"), trigger="available-now")
    found = [line for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()]
    assert len(found) == 40


def test_a_checkpoint_in_use_or_without_batches_is_not_rescaled(place: Place, spark: Any) -> None:
    running = start(place.job(), spark, checkpoint=place.path("state"), trigger="0 seconds")
    try:
        with pytest.raises(CheckpointError, match="it is used by a run"):
            rescale(spark, place.path("state"))
        wait_for(lambda: running.query.isActive)
    finally:
        running.stop()
    with pytest.raises(CheckpointError, match="this directory does not contain a run's checkpoint"):
        rescale(spark, place.path("missing"))
    assert not Path(place.path("missing")).exists()
    start(place.job(), spark, checkpoint=place.path("new"), trigger="1 hour").stop()


def test_the_commands_say_what_they_did_and_the_job_has_to_fit(place: Place) -> None:
    def batches_before() -> int:
        text = Path(place.path("state"), "amadou.json").read_text()
        return int(json.loads(text)["batches_before"])

    converted = output("convert", place.path("state"), "--to", "log")
    assert "store log\nBefore: 4 key groups in 4 key ranges, store groups\n" in converted
    assert "To return: amadou run JOB --from" in converted
    once = batches_before()
    place.add("k1", second=1)
    place.run("state")
    state = Path(place.path("state"))
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    number = CheckpointState(str(state), lambda: None).batch
    rescaled = output("rescale", place.path("state"), "--key-groups", "9", "--partitions", "1")
    assert "9 key groups in 2 key ranges, 1 partition," in rescaled
    assert batches_before() > once > 0
    savepoint = Savepoint(max((state / "savepoints").iterdir(), key=lambda path: path.stat().st_mtime))
    savepoint.verify()
    after = CheckpointState(str(state), lambda: None)
    assert savepoint.manifest.batch == after.batch == number
    (place.directory / "job.py").write_text(
        f"from tests.spark.moving import job_of\njob = job_of('everything', {{'a': {place.path('in/')!r}}}, 'out')\n"
    )
    described = output("describe", place.path("job.py"), "--checkpoint", str(state))
    assert f"Stored state after batch {number}\n" in "\n".join(map(str.rstrip, described.splitlines())) + "\n"
    assert [batch for batch, _ in after.history("k1")] == [number]
    with pytest.raises(CheckpointError, match=r"key_groups is 4, but was 9 .* or run amadou rescale .* --key-groups 4"):
        place.run("state")
    with pytest.raises(CheckpointError, match=r"or run amadou convert .*state --to groups"):
        run(
            evolve(place.job(), key_groups=9, state="groups"),
            checkpoint=place.path("state"),
            trigger="available-now",
        )
