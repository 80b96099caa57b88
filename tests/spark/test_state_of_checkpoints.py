"""The state of a checkpoint as commands show it, on both stores, also while a run uses it."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.commands import amadou, output
from tests.spark.moving import Place
from tests.spark.stores import MAINLY_LOG
from tests.waits import wait_for

from amadou import Job, Key
from amadou.errors import CheckpointError
from amadou_runtime import run, start
from amadou_runtime.runs.files import LocalFiles
from amadou_runtime.savepoint.block import Block
from amadou_runtime.savepoint.savepoint import Savepoint
from amadou_runtime.savepoint.stored_keys import KeyState, key_sizes, key_state
from amadou_runtime.spark.checkpoint import read_metadata
from amadou_runtime.spark.clock import commits
from amadou_runtime.spark.savepoints.checkpoint_state import CheckpointState
from amadou_runtime.spark.savepoints.state_files import RangeFiles, partitions_with_state
from amadou_runtime.spark.savepoints.stored_state import READING_CONF, changed_rows, stored_rows
from amadou_runtime.spark.savepoints.writing import write_savepoint
from amadou_runtime.spark.session import own_session
from amadou_runtime.spark.spread import range_numbers

pytestmark = [pytest.mark.spark, pytest.mark.needs_spark(4)]

STORES = ("groups", "log")
ROCKSDB = "spark.sql.streaming.stateStore.rocksdb"


@pytest.fixture(scope="module")
def place_on(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> Callable[[str], Place]:
    """Makes a place with a checkpoint on a store, once for all tests."""
    return cache(lambda store: made_place(store, tmp_path_factory.mktemp(store)))


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, place_on: Callable[[str], Place]) -> Place:
    return place_on(request.param)


on_one_store = pytest.mark.parametrize("place", ["log"], indirect=True)


def made_place(store: Any, directory: Path) -> Place:
    """Run a job with thousands of keys in few key groups, so that the store *log* has an entry for each key."""
    made = Place(directory)
    for number in range(5):
        made.add(*(f"k{key}" for key in range(3000 if number == 0 else 40)), second=number)
    job = made.job_with_a_batch_for_each_file(state=store, key_groups=2)
    run(job, checkpoint=made.path("state"), trigger="available-now")
    return made


def shown(key: Key, blocks: list[Block], structures: Any) -> dict[str, Any]:
    return key_state(key, blocks, structures, None).to_json()


def test_keys_are_found_as_in_a_savepoint(place: Place, spark: Any) -> None:
    state = CheckpointState(place.path("state"), lambda: spark)
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
    state = CheckpointState(place.path("state"), lambda: spark)

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


def run_with(conf: dict[str, str], job: Job, checkpoint: str, spark: Any) -> None:
    """Run a job with settings that other jobs on the session do not get."""
    start(job, spark, checkpoint=checkpoint, trigger="available-now", conf=conf).await_termination()


class SparkStartedError(Exception):
    """The files could not be read without Spark."""


def no_spark() -> Any:
    raise SparkStartedError


def test_keys_and_histories_are_read_without_spark(place: Place) -> None:
    state = CheckpointState(place.path("state"), no_spark)
    assert shown("k0", state.find("k0"), state.structures)["state"]["total"] == {"value": 5}
    last = [shown("k0", blocks, state.structures)["state"] for _, blocks in state.history("k0")][-1]
    assert last["total"] == {"value": 5}


@pytest.mark.parametrize("every_batch", [False, pytest.param(True, marks=pytest.mark.qualify)])
@pytest.mark.parametrize("store", MAINLY_LOG)
def test_ranges_are_read_as_spark_reads_them(store: str, every_batch: bool, tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path)
    job, checkpoint = place.job_with_a_batch_for_each_file(state=store, key_groups=2), place.path("state")
    for batches in ([0, 1], [2], [3, 4, 5]):
        for number in batches:
            # k0 has events in the first four batches, the other keys in every second one: rows come, change and end
            place.add(
                *(["k0"] if number < 4 else []), *(f"k{number % 2}-{key}" for key in range(50)), second=number * 7200
            )
        conf = {f"{ROCKSDB}.changelogCheckpointing.enabled": str(batches != [2]).lower()}  # else only snapshots
        run_with(conf, job, checkpoint, spark)
    last = max(commits(LocalFiles(checkpoint, Path(checkpoint))))
    snapshot = max(int(path.stem) for path in Path(checkpoint).glob("state/0/0/*.zip")) - 1
    assert 0 < snapshot < last - 2
    metadata = read_metadata(LocalFiles(checkpoint, Path(checkpoint)))
    own = own_session(spark, metadata.key_groups, checkpoint, READING_CONF)
    partitions = partitions_with_state(Path(checkpoint), last)
    numbers = range_numbers(metadata.key_ranges)
    files = {number: RangeFiles(Path(checkpoint), store, number, partitions) for number in numbers}

    def rows(frame: Any) -> Any:
        return [(*row[:-1], None if row[-1] is None else bytes(row[-1])) for row in frame.collect()]

    for batch in range(last + 1) if every_batch else (snapshot - 1, snapshot, last):
        found = [(number, *row) for number, of in files.items() for row in of.rows(batch).items()]
        assert found
        assert sorted(found) == sorted(
            row for row in rows(stored_rows(own, checkpoint, metadata, batch)) if row[-1] is not None
        )
    changed = [
        (batch, number, *row)
        for batch in range(snapshot + 1, last + 1)
        for number, of in files.items()
        for row in of.changes(batch).items()
    ]
    key = itemgetter(0, 1, 2)
    spark_changed = rows(changed_rows(own, checkpoint, metadata, snapshot + 1, last))
    assert sorted(changed, key=key) == sorted(spark_changed, key=key)


@pytest.mark.parametrize(
    ("store", "setting", "value"),
    [
        ("groups", "stateStore.compression.codec", "zstd"),
        pytest.param("log", "stateStore.compression.codec", "zstd", marks=pytest.mark.qualify),
        pytest.param("log", "stateStore.encodingFormat", "avro", marks=pytest.mark.qualify),
        ("groups", "stateStore.rowChecksum.enabled", "true"),
    ],
)
def test_files_in_an_unknown_form_are_read_with_spark(
    store: str, setting: str, value: str, tmp_path: Path, spark: Any
) -> None:
    place = Place(tmp_path)
    place.add("k0", "k1")
    conf = {f"spark.sql.streaming.{setting}": value}
    run_with(conf, evolve(place.job(), state=store), place.path("state"), spark)
    if f"spark.sql.streaming.{setting}" not in Path(place.path("state"), "offsets", "0").read_text():
        pytest.skip("this version of Spark has no such setting")
    asked: list[Any] = []

    def get_spark() -> Any:
        asked.append("Spark")
        return spark

    state = CheckpointState(place.path("state"), get_spark)
    assert shown("k0", state.find("k0"), state.structures)["state"]["total"] == {"value": 1}
    assert asked


@pytest.mark.qualify
@pytest.mark.parametrize("store", MAINLY_LOG)
def test_damaged_files_are_not_read(store: Any, tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path)
    place.add(*(f"k{key}" for key in range(300)))
    job = evolve(place.job(), state=store, key_groups=2)
    conf = {f"{ROCKSDB}.changelogCheckpointing.enabled": "false"}  # only snapshots
    run_with(conf, job, place.path("state"), spark)
    place.add("k0", second=1)
    run_with({}, job, place.path("state"), spark)
    state = CheckpointState(place.path("state"), no_spark)
    before = {key: shown(key, state.find(key), state.structures) for key in ("k0", "k1", "k2")}
    names = ("*.changelog", "*.zip", "SSTs/*.sst", ".*.changelog.crc")
    files = [file for name in names for file in Path(place.path("state")).glob(f"state/0/0/{name}")]
    assert {file.suffix for file in files} == {".changelog", ".zip", ".sst", ".crc"}
    for file in files:
        content = file.read_bytes()
        for damaged in damage(content):
            file.write_bytes(damaged)
            for key, found in before.items():
                with suppress(SparkStartedError):
                    assert shown(key, state.find(key), state.structures) == found, (file, key)
        file.write_bytes(content)
    assert shown("k0", state.find("k0"), state.structures) == before["k0"]


def damage(content: bytes) -> Iterator[bytes]:
    """A file that is cut short, or with a byte that is different."""
    for at in range(0, len(content), max(1, len(content) // 5)):
        yield content[:at]
        yield content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


def test_a_missing_partition_is_noticed(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path)
    place.add(*(f"k{key}" for key in range(20)))
    run_with({"spark.sql.shuffle.partitions": "4"}, place.job(), place.path("state"), spark)
    state = CheckpointState(place.path("state"), no_spark)
    for partition in Path(place.path("state")).glob("state/0/[0-3]"):
        aside = partition.rename(partition.with_name("aside"))
        for key in range(20):
            with suppress(SparkStartedError):
                assert state.find(f"k{key}")
        aside.rename(partition)
    assert all(state.find(f"k{key}") for key in range(20))


def test_the_commands_read_checkpoints(place: Place) -> None:
    state = place.path("state")
    assert json.loads(output("state", "show", state, "k0", "--json"))["state"]["total"] == {"value": 5}
    history = output("state", "history", state, "k1").splitlines()
    assert history[:2] == ["'k1'", "batch 0 (the oldest that is retained)"]
    assert [line.strip() for line in history if "~ total" in line] == [
        "~ total 1 → 2",
        "~ total 2 → 3",
        "~ total 3 → 4",
        "~ total 4 → 5",
    ]
    done = amadou("state", "show", place.path("nothing"), "k0")
    assert done.exit_code == 1
    assert "does not contain a run's checkpoint" in done.stderr


def test_a_checkpoint_without_batches_has_no_keys(tmp_path: Path, spark: Any) -> None:
    place = Place(tmp_path)
    place.run("state")
    state = CheckpointState(place.path("state"), lambda: spark)
    assert (list(state.blocks()), state.find("a"), list(state.history("a"))) == ([], [], [])
    with pytest.raises(CheckpointError, match="does not contain a run's checkpoint"):
        CheckpointState(place.path("missing"), lambda: spark)
    assert KeyState("a", {}, [], {}, []).is_empty


@on_one_store
def test_the_state_of_a_running_job_is_shown(place: Place, spark: Any) -> None:
    """The last test of this place, since it changes the state."""
    state = CheckpointState(place.path("state"), lambda: spark)
    job = evolve(place.job(), key_groups=2)
    running = start(job, spark, checkpoint=place.path("state"), trigger="0 seconds")
    try:
        place.add("k0", second=6)
        wait_for(lambda: running.summary.counts.events == 1)
        wait_for(lambda: CheckpointState(place.path("state"), lambda: spark).batch != state.batch)
        found = CheckpointState(place.path("state"), lambda: spark).find("k0")
        assert shown("k0", found, state.structures)["state"]["total"] == {"value": 6}
    finally:
        running.stop()
