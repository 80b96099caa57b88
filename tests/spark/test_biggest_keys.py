"""The process that finds the biggest keys of a checkpoint."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.clusters import command_of, descendants
from tests.waits import wait_for

from amadou import AmadouError
from amadou_runtime.spark.savepoints import biggest_keys
from amadou_runtime.spark.savepoints.biggest_keys import find_biggest_keys

SLOW = """
import time
from pathlib import Path

Path.read_text = lambda *_, **__: time.sleep(600)
"""


@pytest.fixture
def slowly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint that the process does not read before ten minutes have passed."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "sitecustomize.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path / "modules")
    return tmp_path


def readers(checkpoint: Path, process: int) -> list[int]:
    """The processes started by a process that have a checkpoint's path in their command."""
    return [pid for pid in descendants(process) if str(checkpoint) in command_of(pid)]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists processes as Linux does")
def test_the_process_has_a_low_priority_and_ends_with_the_run(slowly: Path) -> None:
    program = f"from {biggest_keys.__name__} import find_biggest_keys; find_biggest_keys({str(slowly)!r}, 10)"
    modules = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **modules})
    try:
        wait_for(lambda: readers(slowly, run.pid))
        (child,) = readers(slowly, run.pid)
        wait_for(lambda: os.getpriority(os.PRIO_PROCESS, child) == 19)
        assert command_of(child)
    finally:
        run.kill()
        run.wait()
    wait_for(lambda: not command_of(child))


def test_the_process_ends_when_its_time_is_up(slowly: Path) -> None:
    with pytest.raises(AmadouError, match="its state cannot be read in 2 seconds"):
        find_biggest_keys(str(slowly), 10, time_limit=2)
    assert readers(slowly, os.getpid()) == []


def test_errors_of_the_process_are_errors_of_amadou(tmp_path: Path) -> None:
    (tmp_path / "amadou.json").write_text("{")
    with pytest.raises(AmadouError, match=r"^the biggest keys cannot be found: .*amadou.json"):
        find_biggest_keys(str(tmp_path), 10)


def test_spark_is_not_started_for_a_checkpoint_that_is_not_local() -> None:
    with pytest.raises(AmadouError, match=r"it is not local.* Run: amadou state keys hdfs://host/state --biggest 10"):
        find_biggest_keys("hdfs://host/state", 10)
