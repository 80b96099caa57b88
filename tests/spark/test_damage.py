"""A checkpoint that is damaged ends a run with a clear error: nothing begins anew in silence."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.spark.counter import Counter
from tests.spark.stores import MAINLY_LOG, STORES

from amadou import Job, KeyedEvent, MemorySink, MemorySource, Subject
from amadou.errors import AmadouError, RunError
from amadou.spark_versions import spark_version
from amadou_runtime import start

pytestmark = pytest.mark.spark


class Vandal(Counter):
    """Removes the checkpoint at the key `vandal`."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        super().on_event(subject, event)
        if subject.key == "vandal":
            shutil.rmtree(self.checkpoint)


class Forger(Counter):
    """Damages what is stored next at the key `forged`, and removes the views, which have what was to be stored."""

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        super().on_event(subject, event)
        if subject.key == "forged":
            from amadou_runtime.spark.log_stage import LogState

            put = LogState.put

            def put_damaged(state: LogState, number: int, segment: bytes, /) -> None:
                LogState.put = put  # type: ignore[method-assign]
                put(state, number, segment[:-1] + bytes([segment[-1] ^ 1]))
                for directory in os.environ["SPARK_LOCAL_DIRS"].split(","):
                    shutil.rmtree(Path(directory) / "amadou-views")

            LogState.put = put_damaged  # type: ignore[method-assign, assignment]


class Counting:
    """Runs a counter on a checkpoint."""

    def __init__(self, spark: Any, store: Any) -> None:
        self._spark = spark
        self.store = store

    def __call__(self, checkpoint: Path, *records: str, handler: Any = None) -> list[Any]:
        sink = MemorySink()
        source = MemorySource(records)
        job = Job("counter", handler or Counter(), {"keys": source}, {"counts": sink}, state=self.store)
        try:
            start(job, self._spark, checkpoint=str(checkpoint)).await_termination()
        except AmadouError:
            assert sink.records == [], "a run that fails must not have begun anew"
            raise
        return sink.records


@pytest.fixture(params=STORES)
def count(spark: Any, request: pytest.FixtureRequest) -> Counting:
    return Counting(spark, request.param)


mainly_on_log = pytest.mark.parametrize("count", MAINLY_LOG, indirect=True)


@pytest.fixture(scope="module")
def checkpoint_on(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Makes a checkpoint with two keys, `a` and `b`, on a store, once for all tests."""

    @cache
    def checkpoint_on(store: str) -> Path:
        checkpoint = tmp_path_factory.mktemp(store) / "checkpoint"
        Counting(spark, store)(checkpoint, "a", "b")
        return checkpoint

    return checkpoint_on


@pytest.fixture
def checkpoint(count: Counting, checkpoint_on: Callable[[str], Path], tmp_path: Path) -> Path:
    """A checkpoint with two keys, `a` and `b`."""
    return shutil.copytree(checkpoint_on(count.store), tmp_path / "checkpoint")


@mainly_on_log
def test_each_run_names_a_state_file_that_was_cut_short(count: Counting, checkpoint: Path) -> None:
    files = [path for path in (checkpoint / "state").rglob("*") if path.suffix in (".changelog", ".zip")]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    named = r"1\.zip" if count.store == "log" and spark_version() < (4, 1) else "changelog"
    for _ in range(2):
        with pytest.raises(RunError, match=rf"(?s)batch 2 of 'counter' failed in Spark: .*state.*caused by: .*{named}"):
            count(checkpoint, "a", "b", "c")


def test_missing_state_is_an_error(count: Counting, checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "state")
    message = "state directory is empty or missing"
    if spark_version() < (4, 1):
        missing = r"state/0/\d/1\.changelog does not exist"
        message = "FAILED_TO_READ_OPERATOR_METADATA" if count.store == "log" else missing
    with pytest.raises(RunError, match=message):
        count(checkpoint, "a", "b", "c")


@mainly_on_log
def test_a_checkpoint_that_is_removed_in_a_batch_is_an_error(count: Counting, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(AmadouError, match=r"does not exist|cannot be|No such file|Mkdirs failed"):
        count(checkpoint, "a", "vandal", handler=Vandal(checkpoint))


@pytest.mark.qualify
@pytest.mark.needs_spark(4)
def test_a_damaged_segment_is_named(spark: Any, tmp_path: Path) -> None:
    count = Counting(spark, "log")
    count(tmp_path, "a", "forged", handler=Forger())
    for _ in range(2):
        with pytest.raises(RunError, match=r"state of key range \d+ is damaged: the checksum of segment 1 is wrong"):
            count(tmp_path, "a", "forged", "forged")


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.qualify
@mainly_on_log
def test_a_full_disk_is_an_error_and_the_job_continues_when_there_is_room(count: Counting, small_disk: Path) -> None:
    checkpoint, filler = small_disk / "checkpoint", small_disk / "filler"
    assert count(checkpoint, "a") == [("a", 1)]
    fill(filler)
    with pytest.raises(AmadouError, match="No space left on device"):
        count(checkpoint, "a", "a")
    filler.unlink()
    assert count(checkpoint, "a", "a") == [("a", 2)]
