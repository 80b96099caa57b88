"""Reading all keys of a checkpoint, on both stores: without Spark if that is possible."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.spark.stores import MAINLY_LOG
from tests.spark.texts import BEGIN, HOUR, add_texts, texts_job

from amadou import Secret
from amadou.errors import CheckpointError
from amadou_runtime import start
from amadou_runtime.savepoint.block import Block
from amadou_runtime.savepoint.stored_keys import KeySize, key_sizes, key_state
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState
from amadou_runtime.spark.savepoints.run_state import RunState
from amadou_runtime.spark.savepoints.state_files import RangeFiles, UnknownFilesError

pytestmark = [pytest.mark.spark, pytest.mark.needs_spark(4)]

AMADOU = [sys.executable, "-c", "from amadou_runtime.command.cli import app; app()"]
LONG = "long" * 1000
CHANGELOGS = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"


@pytest.fixture(scope="module")
def checkpoint_on(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Callable[[str], str]:
    """Makes a checkpoint on a store, once for all tests."""
    return cache(lambda store: made_checkpoint(store, tmp_path_factory.mktemp(store), spark))


@pytest.fixture(params=MAINLY_LOG)
def checkpoint(request: pytest.FixtureRequest, checkpoint_on: Callable[[str], str]) -> str:
    return checkpoint_on(request.param)


on_one_store = pytest.mark.parametrize("checkpoint", ["log"], indirect=True)


def made_checkpoint(store: Any, directory: Path, spark: Any) -> str:
    """Make a checkpoint of which keys and timers have been removed, before and after the last snapshot."""
    job = evolve(texts_job(directory / "in"), state=store, key_groups=4)
    runs: list[list[list[Any]]] = [  # files of events, by run
        [
            [(f"{kind}-{key}", 0, key % 50 + 1) for kind in ("long", "short") for key in range(150)],
            [(f"long-{key}", 0, 0) for key in range(30)],
            [(("pair", key), 9, 100 + key) for key in range(4)],
        ],
        [
            [(f"long-{key}", 10, 0) for key in range(20, 50)],
            [("big", 20, 5000), (17, 20, 4000), ("<script>", 20, 3000), (LONG, 20, 2000), ("a swordfish", 20, 1000)],
            [("big", 21, 6000)],
        ],
    ]
    for number, files in enumerate(runs):
        for events in files:
            add_texts(directory / "in", *events)
        conf = {CHANGELOGS: str(number > 0).lower()}  # else a snapshot is written
        start(job, spark, checkpoint=str(directory / "state"), trigger="available-now", conf=conf).await_termination()
    return str(directory / "state")


def no_spark() -> Any:
    raise AssertionError("the files could not be read without Spark")


def only_spark(patch: pytest.MonkeyPatch, known: int = 0) -> None:
    """Let Spark read all key ranges but the first few."""
    left = [None] * known
    original = RangeFiles.rows

    def rows(files: RangeFiles, batch: int) -> dict[int, bytes]:
        if not left:
            raise UnknownFilesError("unknown")
        left.pop()
        return original(files, batch)

    patch.setattr(RangeFiles, "rows", rows)


def keys_of(state: CheckpointState) -> dict[Any, KeySize]:
    """The keys with figures. No key occurs twice."""
    found = list(key_sizes(state.blocks()))
    by_key = {each.key: each for each in found}
    assert len(found) == len(by_key)
    return by_key


def contents(state: CheckpointState) -> dict[Any, Any]:
    blocks: dict[Any, list[Block]] = {}
    for block in state.blocks():
        for key in block.all_keys():
            blocks.setdefault(key, []).append(block)
    return {key: key_state(key, of, state.structures, None).to_json() for key, of in blocks.items()}


def test_all_keys_are_read_without_spark_as_spark_reads_them(
    checkpoint: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = CheckpointState(checkpoint, no_spark)
    keys, found = keys_of(state), contents(state)
    assert keys.keys() == {
        *(f"long-{key}" for key in range(50, 150)),
        *(("pair", key) for key in range(4)),
        *("big", 17, "<script>", LONG, "a swordfish"),
    }
    assert (keys["big"].timers, keys["long-70"].timers) == (1, 0)
    assert 6000 < keys["big"].bytes < 6100
    assert keys["big"].next is not None
    only_spark(monkeypatch)
    with_spark = CheckpointState(checkpoint, lambda: spark)
    assert keys_of(with_spark) == keys
    assert contents(with_spark) == found


@pytest.mark.parametrize("known", [1, pytest.param(3, marks=pytest.mark.qualify)])
def test_spark_reads_the_key_ranges_that_only_spark_can_read(
    known: int, checkpoint: str, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = keys_of(CheckpointState(checkpoint, no_spark))
    only_spark(monkeypatch, known)
    assert keys_of(CheckpointState(checkpoint, lambda: spark)) == expected


@on_one_store
def test_listing_the_keys_of_a_local_checkpoint_does_not_start_spark(checkpoint: str) -> None:
    command = [*AMADOU, "state", "keys", checkpoint, "--biggest", "3", "--json"]
    environment = {**os.environ, "JAVA_HOME": "/nowhere"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["key"] for line in done.stdout.splitlines()] == ["big", 17, "<script>"]


@on_one_store
def test_plugins_find_the_biggest_keys_in_another_process(
    checkpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Secret("swordfish")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "json.py").write_text("raise ImportError('modules in the working directory are not for this process')")
    state = CheckpointState(checkpoint, no_spark)
    sizes = keys_of(state)
    found = RunState(None, checkpoint, texts_job(tmp_path / "in")).biggest(5)
    assert (found["batch"], [each["key"] for each in found["keys"]]) == (
        state.batch,
        ["'big'", "17", "'<script>'", f"{LONG!r:.1000}…", "'a ***'"],
    )
    assert found["keys"][0] == {
        "key": "'big'",
        "bytes": sizes["big"].bytes,
        "timers": 1,
        "next": (BEGIN + 22 * HOUR).isoformat(),
    }
    assert json.loads(json.dumps(found)) == found


def test_state_that_the_run_removes_meanwhile_is_not_read(
    checkpoint: str, tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(checkpoint, copy)
    expected = keys_of(CheckpointState(str(copy), no_spark))
    first, second = (CheckpointState(str(copy), no_spark) for _ in range(2))
    with_spark = CheckpointState(str(copy), lambda: spark)
    begun, ended = first.blocks(), second.blocks()
    read = [next(begun)]
    next(ended)
    for name in ("commits", "offsets"):
        (copy / name / str(first.batch)).unlink()
    assert {each.key: each for each in key_sizes([*read, *begun])} == expected  # the state is still there
    shutil.rmtree(copy / "state")
    message = rf"the run has removed the state of batch {first.batch} before it was read completely\. Try again"
    with pytest.raises(CheckpointError, match=message):
        list(ended)
    only_spark(monkeypatch)
    with pytest.raises(CheckpointError, match=message):
        list(with_spark.blocks())
