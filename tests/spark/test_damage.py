"""A checkpoint that is damaged ends a run with a clear error: nothing begins anew in silence."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.spark.counter import Counter

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
            from amadou_runtime.spark.log.stage import LogState

            put = LogState.put

            def put_damaged(state: LogState, number: int, segment: bytes, /) -> None:
                LogState.put = put  # type: ignore[method-assign]
                put(state, number, segment[:-1] + bytes([segment[-1] ^ 1]))
                for directory in os.environ["SPARK_LOCAL_DIRS"].split(","):
                    shutil.rmtree(Path(directory) / "amadou-views")

            LogState.put = put_damaged  # type: ignore[method-assign, assignment]


class Play:
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


@pytest.fixture(params=["groups", "log"])
def play(spark: Any, request: Any) -> Play:
    return Play(spark, request.param)


def test_a_state_file_cut_short_is_told_each_time(play: Play, tmp_path: Path) -> None:
    play(tmp_path / "checkpoint", "a", "b")
    files = [path for path in (tmp_path / "checkpoint" / "state").rglob("*") if path.suffix in (".changelog", ".zip")]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    named = r"1\.zip" if play.store == "log" and spark_version() < (4, 1) else "changelog"
    for _ in range(2):
        with pytest.raises(RunError, match=rf"(?s)batch 2 of 'counter' failed in Spark: .*state.*caused by: .*{named}"):
            play(tmp_path / "checkpoint", "a", "b", "c")


def test_state_that_is_gone_is_told(play: Play, tmp_path: Path) -> None:
    play(tmp_path / "checkpoint", "a", "b")
    shutil.rmtree(tmp_path / "checkpoint" / "state")
    message = "state directory is empty or missing"
    if spark_version() < (4, 1):
        gone = r"state/0/\d/1\.changelog does not exist"
        message = "FAILED_TO_READ_OPERATOR_METADATA" if play.store == "log" else gone
    with pytest.raises(RunError, match=message):
        play(tmp_path / "checkpoint", "a", "b", "c")


def test_a_checkpoint_that_vanishes_in_a_batch_is_told(play: Play, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(AmadouError, match=r"does not exist|cannot be|No such file|Mkdirs failed"):
        play(checkpoint, "a", "vandal", handler=Vandal(checkpoint))


def test_a_damaged_segment_is_named(spark: Any, tmp_path: Path) -> None:
    play = Play(spark, "log")
    play(tmp_path, "a", "forged", handler=Forger())
    for _ in range(2):
        with pytest.raises(RunError, match=r"state of key range \d+ is damaged: the checksum of segment 1 is wrong"):
            play(tmp_path, "a", "forged", "forged")


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_told_each_time_and_the_run_goes_on_when_there_is_room(play: Play, small_disk: Path) -> None:
    checkpoint, filler = small_disk / "checkpoint", small_disk / "filler"
    assert play(checkpoint, "a") == [("a", 1)]
    fill(filler)
    for _ in range(2):
        with pytest.raises(AmadouError, match="No space left on device"):
            play(checkpoint, "a", "a")
    filler.unlink()
    assert play(checkpoint, "a", "a") == [("a", 2)]
