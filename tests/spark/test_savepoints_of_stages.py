"""Savepoints of jobs with stages on Spark: jobs that are moved, rescaled and extended, and their state."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.commands import amadou, output
from tests.staged import Place, line, memory_job, staged_job, steps, uninterrupted

from amadou import Job, MemorySource
from amadou.errors import CheckpointError, LoadError, RunError, SavepointError
from amadou_plugins.connectors import JsonLinesSink
from amadou_runtime import TestRun, run, start
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.stored_keys import key_sizes
from amadou_runtime.spark.clock import RunClock
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState
from amadou_runtime.spark.savepoints.rescaling import rescale
from amadou_runtime.spark.savepoints.run_state import RunState
from amadou_runtime.spark.savepoints.writing import write_savepoint

pytestmark = [pytest.mark.spark, pytest.mark.needs_spark(4)]


def no_spark() -> Any:
    raise AssertionError


def once(job: Job, checkpoint: Path, partitions: int = 2, **more: Any) -> None:
    conf = {"spark.sql.shuffle.partitions": str(partitions)}
    run(job, checkpoint=str(checkpoint), trigger="available-now", conf=conf, **more)


@pytest.mark.qualify  # runtime/test_savepoints_of_stages.py has this without Spark
def test_a_job_that_gains_and_loses_a_stage_has_the_outputs_of_an_uninterrupted_one(tmp_path: Path, spark: Any) -> None:
    place, script = Place(tmp_path), steps(random.Random(2), 3)
    first, second = (tmp_path / f"checkpoint-{number}" for number in range(2))
    saved = [str(tmp_path / f"savepoint-{number}") for number in range(2)]

    place.add(script[0])
    run(place.job(), engine="embedded", to_savepoint=saved[0])

    place.add(script[1])
    once(place.job(key_groups=3, counts=True), first, 1, from_savepoint=saved[0], to_savepoint=saved[1])
    JobSavepoint(saved[1]).verify()
    assert list(JobSavepoint(saved[1]).stages) == ["sums", "counts", "groups"]

    place.add(script[2])
    once(place.job(key_groups=2, retired={"counts": "drop"}), second, from_savepoint=saved[1])

    assert place.outputs() == uninterrupted(script, flush=False)


@pytest.mark.qualify
def test_a_job_that_is_moved_and_rescaled_has_the_outputs_of_an_uninterrupted_one(tmp_path: Path, spark: Any) -> None:
    place, script = Place(tmp_path), steps(random.Random(2), 5)
    first, second, third = (tmp_path / f"checkpoint-{number}" for number in range(3))
    saved = [str(tmp_path / f"savepoint-{number}") for number in range(3)]

    place.add(script[0])
    once(place.job(key_groups=8), first, to_savepoint=saved[0])
    JobSavepoint(saved[0]).verify()

    place.add(script[1])
    once(place.job(key_groups=5, counts=True), second, 3, from_savepoint=saved[0])

    rescale(spark, str(second), partitions=1, key_groups=7)
    place.add(script[2])
    once(place.job(key_groups=7, counts=True), second, 1, to_savepoint=saved[1])
    assert list(JobSavepoint(saved[1]).stages) == ["sums", "counts", "groups"]

    place.add(script[3])
    run(place.job(counts=True), engine="embedded", from_savepoint=saved[1], to_savepoint=saved[2])

    place.add(script[4])
    once(place.job(key_groups=3, retired={"counts": "drop"}), third, from_savepoint=saved[2], flush=True)

    assert place.outputs() == uninterrupted(script)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Place:
    """A job with a checkpoint, `state`."""
    made = Place(tmp_path_factory.mktemp("stages"))
    made.add(steps(random.Random(3), 1)[0])
    once(made.job(key_groups=4), made.directory / "state")
    return made


@pytest.fixture
def state(place: Place) -> str:
    return str(place.directory / "state")


def test_the_state_of_each_stage_is_found_in_a_checkpoint(place: Place, state: str, spark: Any) -> None:
    script = steps(random.Random(3), 1)
    keys = {
        "sums": {json.loads(record)[0] for source, record in script[0] if source == "in"},
        "groups": {"group 0", "group 1", "group 2"},
    }
    for stage, expected in keys.items():
        stored = CheckpointState(state, no_spark, stage)
        assert {size.key for size in key_sizes(stored.blocks())} == expected
        key = min(expected)
        listed = output("state", "keys", state, "--stage", stage, "--prefix", key)
        assert repr(key) in listed
        shown = output("state", "show", state, key, "--stage", stage)
        assert f"'{key}' in job staged.{stage}" in shown
        history = output("state", "history", state, key, "--stage", stage)
        assert "pending" in history
        reader = RunState(no_spark, state, place.job())
        assert (reader.find(key, stage) or {})["state"]
        biggest = reader.biggest(100, stage)["keys"]
        assert {each["key"] for each in biggest} == set(map(repr, expected))
    with_spark = CheckpointState(state, lambda: spark, "groups")
    with_spark._local_rows = lambda *_: None  # type: ignore[method-assign]
    assert {size.key for size in key_sizes(with_spark.blocks())} == keys["groups"]
    with pytest.raises(LoadError, match=r"several stages: name one of them with --stage \(sums, groups\)"):
        CheckpointState(state, no_spark)


def test_a_job_with_other_stages_than_its_checkpoint_is_refused(place: Place, state: str) -> None:
    with pytest.raises(CheckpointError, match=r"other stages \(sums, groups\) than the job \(sums, counts, groups\)\."):
        once(place.job(counts=True, key_groups=4), Path(state))
    with pytest.raises(CheckpointError, match=r"savepoint with amadou savepoint .*state DIR, and start .* --from DIR"):
        once(place.job(sums=False, key_groups=4), Path(state))


def test_stages_need_the_store_log(state: str) -> None:
    done = amadou("convert", state, "--to", "groups")
    assert done.exit_code == 1
    assert "it has several stages (sums, groups), which need the store log: keep it" in done.output
    assert not (Path(state) / "rescale.json").exists()


@pytest.mark.qualify
def test_a_savepoint_of_a_checkpoint_is_read_by_test_runs(place: Place, state: str, spark: Any, tmp_path: Path) -> None:
    write_savepoint(spark, state, tmp_path / "savepoint")
    with TestRun(memory_job(), savepoint=tmp_path / "savepoint", keys=["group 1"]) as test_run:
        result = test_run.run()
        assert (result.keys(stage="sums"), result.keys(stage="groups")) == ([], ["group 1"])
    with pytest.raises(SavepointError, match="the job does not have: sums"):
        once(place.job(sums=False), tmp_path / "other", from_savepoint=str(tmp_path / "savepoint"))
    assert list((tmp_path / "other").glob("*")) == []
    file = next((tmp_path / "savepoint" / "stages" / "groups" / "state").iterdir())
    file.write_bytes(file.read_bytes()[:-30] + bytes(30))
    with pytest.raises(RunError, match=r"stages/groups: .*is damaged"):
        once(place.job(key_groups=4), tmp_path / "other", from_savepoint=str(tmp_path / "savepoint"))


@pytest.mark.qualify  # test_rescaling.py has this for one stage
def test_a_batch_that_was_not_completed_is_processed_once_after_rescaling(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, script, checkpoint, end = Place(tmp_path), steps(random.Random(4), 3), tmp_path / "state", RunClock.end

    def dying(*arguments: Any) -> None:
        if place.outputs():
            raise RunError("killed")
        end(*arguments)

    place.add(script[0])
    place.add(script[1])
    with monkeypatch.context() as patch:
        patch.setattr(RunClock, "end", dying)
        with pytest.raises(RunError, match="killed"):
            once(place.job(key_groups=2), checkpoint, 1)
    place.add(script[2])
    rescale(spark, str(checkpoint), partitions=2, key_groups=3, job=place.job(key_groups=3))
    once(place.job(key_groups=3), checkpoint)
    assert place.outputs() == uninterrupted(script, flush=False)


@pytest.mark.qualify
def test_a_running_job_takes_a_savepoint_with_sources_in_memory(tmp_path: Path, spark: Any) -> None:
    sources = {
        "in": MemorySource([line("a1", 1)]),
        "extra": MemorySource([line(f"group {number}", 0.5) for number in range(8)]),
    }
    sinks = {"out": JsonLinesSink(str(tmp_path / "out"))}
    job = staged_job(sources, sinks, key_groups=4)
    running = start(job, spark, checkpoint=str(tmp_path / "state"), trigger="available-now")
    try:
        running.await_termination()
        running.savepoint(tmp_path / "savepoint")
    finally:
        running.stop()
    sources["in"].add(line("a1", 11, 5))
    moved = evolve(job, key_groups=6)
    once(moved, tmp_path / "moved", from_savepoint=str(tmp_path / "savepoint"), flush=True)
    found = [json.loads(each) for path in tmp_path.glob("out/*") for each in path.read_text().splitlines()]
    timers_of_quiet_ranges = [1] * 8
    assert sorted(value for _, _, value in found) == [*timers_of_quiet_ranges, 1, 6]
