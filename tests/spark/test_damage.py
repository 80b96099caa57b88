"""A checkpoint that is damaged ends a run with a clear error: nothing begins anew in silence."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.spark.test_checkpoint import Counter

from amadou import Job, KeyedEvent, MemorySink, MemorySource, Subject
from amadou.errors import AmadouError, RunError
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


def play(spark: Any, checkpoint: Path, *records: str, handler: Any = None) -> list[Any]:
    sink = MemorySink()
    job = Job("counter", handler or Counter(), {"keys": MemorySource(records)}, {"counts": sink})
    try:
        start(job, spark, checkpoint=str(checkpoint)).await_termination()
    except AmadouError:
        assert sink.records == [], "a run that fails must not have begun anew"
        raise
    return sink.records


def test_a_state_file_cut_short_is_told_each_time(spark: Any, tmp_path: Path) -> None:
    play(spark, tmp_path / "checkpoint", "a", "b")
    files = [path for path in (tmp_path / "checkpoint" / "state").rglob("*") if path.suffix in (".changelog", ".zip")]
    assert files
    for file in files:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    for _ in range(2):
        with pytest.raises(
            RunError, match=r"(?s)batch 2 of 'counter' failed in Spark: .*state.*caused by: .*changelog"
        ):
            play(spark, tmp_path / "checkpoint", "a", "b", "c")


def test_state_that_is_gone_is_told(spark: Any, tmp_path: Path) -> None:
    play(spark, tmp_path / "checkpoint", "a", "b")
    shutil.rmtree(tmp_path / "checkpoint" / "state")
    with pytest.raises(RunError, match="state directory is empty or missing"):
        play(spark, tmp_path / "checkpoint", "a", "b", "c")


def test_a_checkpoint_that_vanishes_in_a_batch_is_told(spark: Any, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(AmadouError, match=r"does not exist|cannot be|No such file"):
        play(spark, checkpoint, "a", "vandal", handler=Vandal(checkpoint))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a megabyte."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)]
    told = subprocess.run(mount, capture_output=True, text=True, check=False)
    if told.returncode:
        pytest.skip(f"only root may mount a small disk: {told.stderr.strip()}")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk_is_told_each_time_and_the_run_goes_on_when_there_is_room(spark: Any, small_disk: Path) -> None:
    checkpoint, filler = small_disk / "checkpoint", small_disk / "filler"
    assert play(spark, checkpoint, "a") == [("a", 1)]
    fill(filler)
    for _ in range(2):
        with pytest.raises(AmadouError, match="No space left on device"):
            play(spark, checkpoint, "a", "a")
    filler.unlink()
    assert play(spark, checkpoint, "a", "a") == [("a", 2)]
