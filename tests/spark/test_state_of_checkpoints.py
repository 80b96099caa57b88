"""Looking into the state of a checkpoint, on both stores, also while a run uses it."""

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.spark.test_savepoint_commands import Place, until
from typer.testing import CliRunner

from amadou import Key
from amadou.errors import CheckpointError
from amadou_runtime import run, start
from amadou_runtime.command.cli import app
from amadou_runtime.command.stored_keys import KeyState, key_sizes, key_state
from amadou_runtime.savepoint.block import Block
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState
from amadou_runtime.spark.savepoints.writing import write_savepoint

pytestmark = pytest.mark.spark

STORES = ("groups", "log")


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path, spark: Any) -> Place:
    """A job with thousands of keys in few key groups, so that the store *log* has an entry for each key."""
    made = Place(tmp_path)
    job = evolve(made.job(), state=request.param, key_groups=2)
    for number in range(5):
        made.add(*(f"k{key}" for key in range(3000 if number == 0 else 40)), second=number)
        run(job, checkpoint=made.path("state"), trigger="available-now")
    return made


def shown(key: Key, blocks: list[Block], structures: Any) -> dict[str, Any]:
    return key_state(key, blocks, structures, None).to_json()


def test_keys_are_found_as_in_a_savepoint(place: Place, spark: Any) -> None:
    state = CheckpointState(spark, place.path("state"))
    write_savepoint(spark, place.path("state"), Path(place.path("savepoint")))
    savepoint = Savepoint(place.path("savepoint"))
    assert (state.job, state.batch) == (savepoint.job, savepoint.batch)
    assert state.clock == savepoint.clock
    for key in ("k0", "k39", "k40", "k2999"):
        found = shown(key, state.find(key), state.structures)
        assert found["state"]["total"] == {"value": 5 if key in ("k0", "k39") else 1}
        assert found == shown(key, savepoint.find(key), savepoint.structures)
    assert state.find("nobody") == []
    sizes = {each.key: each for each in key_sizes(state.blocks())}
    assert len(sizes) == 3000
    assert sizes == {each.key: each for each in key_sizes(savepoint.blocks())}


def test_a_history_shows_each_change(place: Place, spark: Any) -> None:
    state = CheckpointState(spark, place.path("state"))

    def totals(key: str) -> list[Any]:
        versions = [key_state(key, blocks, state.structures, None) for _, blocks in state.history(key)]
        found: list[Any] = []
        for version in versions:
            total = version.state["total"].row["value"] if "total" in version.state else None
            found += [total] if [total] != found[-1:] else []
        return found

    assert totals("k0") == [1, 2, 3, 4, 5]
    assert totals("k2999") == [1]
    assert totals("nobody") == [None]
    batches = [batch for batch, _ in state.history("k0")]
    assert batches == sorted(set(batches))
    assert batches[0] == 0


def test_the_state_of_a_running_job_is_shown(place: Place, spark: Any) -> None:
    state = CheckpointState(spark, place.path("state"))
    job = evolve(place.job(), key_groups=2)
    running = start(job, spark, checkpoint=place.path("state"), trigger="0 seconds")
    try:
        place.add("k0", second=6)
        until(lambda: running.summary.counts.events == 1)
        until(lambda: CheckpointState(spark, place.path("state")).batch != state.batch)
        found = CheckpointState(spark, place.path("state")).find("k0")
        assert shown("k0", found, state.structures)["state"]["total"] == {"value": 6}
    finally:
        running.stop()


def test_the_commands_read_checkpoints(place: Place) -> None:
    def output(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["state", arguments[0], place.path("state"), *arguments[1:]])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert json.loads(output("show", "k0", "--json"))["state"]["total"] == {"value": 5}
    history = output("history", "k1").splitlines()
    assert history[:2] == ["'k1'", "batch 0 (the oldest that is retained)"]
    assert [line.strip() for line in history if "~ total" in line] == [
        "~ total 1 → 2",
        "~ total 2 → 3",
        "~ total 3 → 4",
        "~ total 4 → 5",
    ]
    done = CliRunner().invoke(app, ["state", "show", place.path("nothing"), "k0"])
    assert done.exit_code == 1
    assert "does not contain a run's checkpoint" in done.stderr


def test_a_checkpoint_without_batches_has_no_keys(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path)
    place.run("state")
    state = CheckpointState(spark, place.path("state"))
    assert (list(state.blocks()), state.find("a"), list(state.history("a"))) == ([], [], [])
    with pytest.raises(CheckpointError, match="does not contain a run's checkpoint"):
        CheckpointState(spark, place.path("missing"))
    assert KeyState("a", {}, [], {}, []).is_empty
