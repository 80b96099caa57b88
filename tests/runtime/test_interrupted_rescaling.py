"""A checkpoint on an object store is rescaled by calls that are killed or fail between any two changes of objects."""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from tests.runtime.object_store import Fault, ObjectStore

from amadou.errors import AmadouError, CheckpointError, SavepointError
from amadou.remote_files import RemoteDirectory
from amadou_runtime.spark.checkpoint import CheckpointMetadata, keep
from amadou_runtime.spark.files import Files, checkpoint_files
from amadou_runtime.spark.savepoints import rescaling
from amadou_runtime.spark.savepoints.rescaling import rescale
from amadou_runtime.spark.streams import planned_offsets

CHECKPOINT = "gs://bucket/state"
KEYS = range(6)
BEFORE, AFTER = 3, 2
"""Numbers of key groups, each of which has a file for its keys."""


def write_state(files: Files, groups: int, keys: list[int]) -> None:
    for group in range(groups):
        files.write(f"state/0/{group}/{groups}.delta", json.dumps([key for key in keys if key % groups == group]))
    files.write("commits/0", 'v1\n{"nextBatchWatermarkMs":0}')
    files.write("offsets/0", 'v2\n{}\nin:{"offset": 7}')
    files.write("clock/0", str(groups))


def state_of(store: ObjectStore) -> tuple[int, list[int]]:
    """Return the number of key groups and the keys of a complete checkpoint."""
    files = checkpoint_files(store.spark, CHECKPOINT)
    groups = json.loads(files.read("amadou.json") or "")["key_groups"]
    assert sorted(files.names("state/0")) == [str(group) for group in range(groups)]
    keys: list[int] = []
    for group in range(groups):
        assert files.names(f"state/0/{group}") == [f"{groups}.delta"]
        keys += json.loads(files.read(f"state/0/{group}/{groups}.delta") or "")
    assert files.read("clock/0") == str(groups)
    assert files.exists("commits/0")
    assert planned_offsets(files, 0) == {"in": '{"offset": 7}'}
    return groups, sorted(keys)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """A checkpoint. Savepoints have its keys, and checkpoints are made from them without Spark."""
    made = ObjectStore({})
    files = checkpoint_files(made.spark, CHECKPOINT)
    write_state(files, BEFORE, list(KEYS))
    keep(files, CheckpointMetadata("job", "0a", BEFORE, BEFORE, "groups", {}, ["in"]))

    def write_savepoint(spark: Any, checkpoint: str, directory: str) -> None:
        keys = state_of(spark.sparkContext._jvm.org.apache.hadoop.fs.Path(checkpoint).getFileSystem(None))[1]
        try:
            RemoteDirectory(directory, spark.sparkContext).write("savepoint.json", json.dumps(keys).encode())
        except OSError as error:
            raise SavepointError(directory, str(error)) from error

    def open_savepoint(spark: Any, directory: str) -> Any:
        text = RemoteDirectory(directory, spark.sparkContext).read("savepoint.json")
        if text is None:
            raise SavepointError(directory, "it is missing")
        return SimpleNamespace(stages=json.loads(text), verify=lambda: None)

    def write_checkpoint(_: Any, files: Files, keys: Any, after: CheckpointMetadata, *__: Any) -> None:
        write_state(files, after.key_groups, keys)

    for stub in (write_savepoint, open_savepoint, write_checkpoint):
        monkeypatch.setattr(rescaling, stub.__name__, stub)
    monkeypatch.setattr(rescaling, "own_session", lambda *_: None)
    return made


def call(store: ObjectStore, change: int | None = None, fault: Fault = "error") -> bool:
    """Rescale the checkpoint. Return `True` if a change failed.

    :param change: number of the change of an object that fails
    """
    store.fail_at(change, fault)
    with suppress(KeyboardInterrupt, AmadouError):
        rescale(store.spark, CHECKPOINT, key_groups=AFTER, partitions=1, savepoint="gs://bucket/savepoint")
    has_failed = store.has_failed
    store.fail_at(None)
    if f"{CHECKPOINT}/rescale.json".removeprefix("gs://") not in store.objects:
        assert state_of(store)[1] == list(KEYS)
    return has_failed


def interrupted_calls(store: ObjectStore) -> Iterator[None]:
    """Rescale the checkpoint with each change of an object failing in turn. Yield for each different result."""
    begun, seen = store.objects, set()
    for fault in get_args(Fault):
        for change in count():
            store.objects = dict(begun)
            if not call(store, change, fault):
                break
            store.objects.pop("bucket/state/run.json", None)
            left = frozenset(store.objects.items())
            if left not in seen:
                seen.add(left)
                yield


def test_no_state_is_lost_wherever_two_calls_are_interrupted(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise CheckpointError(CHECKPOINT, "refused")

    for _ in interrupted_calls(store):
        for _ in interrupted_calls(store):
            left = dict(store.objects)
            assert not call(store)
            assert state_of(store)[0] == AFTER
            store.objects = left
            with monkeypatch.context() as patch:
                patch.setattr(rescaling, "write_checkpoint", refuse)
                call(store)
            assert state_of(store)[0] in (BEFORE, AFTER)
            assert not any("before-rescale" in name or name.endswith("rescale.json") for name in store.objects)
