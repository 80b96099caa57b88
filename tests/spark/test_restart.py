"""A run that is killed and started again ends as if it had not been."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("slow_views.py")
EXAMPLE = Path(__file__).parents[2] / "examples" / "tumbling_window"
PATIENCE = 300


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six files of views, one for each batch; the third holds the event at which the job waits."""
    directory = tmp_path_factory.mktemp("views")
    drawn = random.Random(7)
    begin = datetime(2025, 1, 1, tzinfo=timezone.utc)
    for number in range(6):
        lines = [
            {
                "channel_id": f"channel-{drawn.randrange(20)}",
                "timestamp": (begin + timedelta(seconds=second)).isoformat(),
            }
            for second in range(number * 120, number * 120 + 120)
        ]
        if number == 2:
            lines.insert(60, {"channel_id": "stop", "timestamp": (begin + timedelta(seconds=300)).isoformat()})
        path = directory / f"{number}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
    return directory


@pytest.fixture(scope="module")
def undisturbed(views: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run that nothing interrupted."""
    directory = tmp_path_factory.mktemp("undisturbed")
    (directory / "here").write_text("never wait")
    with run(views, directory, directory / "here") as process:
        assert process.wait(PATIENCE) == 0
    return directory


def test_a_run_killed_in_the_middle_of_a_batch_ends_with_the_same_output_files(
    views: Path, undisturbed: Path, tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    with run(views, killed, tmp_path / "here") as process:
        wait_for(tmp_path / "here", process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(PATIENCE)
    before = lines_of(killed)
    with run(views, killed, tmp_path / "here") as process:
        assert process.wait(PATIENCE) == 0

    expected = lines_of(undisturbed)
    assert len(expected) > 100
    assert 0 < len(before) < len(expected), "the kill came neither before the first batch nor after the last"
    assert lines_of(killed) == expected
    assert contents(killed) == contents(undisturbed)


def test_the_first_ctrl_c_ends_a_run_after_the_batch_in_hand(views: Path, undisturbed: Path, tmp_path: Path) -> None:
    (tmp_path / "here").write_text("never wait")
    with run(views, tmp_path / "run", tmp_path / "here", once=False) as process:
        wait_for_lines(tmp_path / "run", 20, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    with run(views, tmp_path / "run", tmp_path / "here") as process:
        assert process.wait(PATIENCE) == 0
    assert lines_of(tmp_path / "run") == lines_of(undisturbed)


@contextmanager
def run(views: Path, directory: Path, here: Path, *, once: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a program, in a process group of its own that does not outlive the test."""
    directory.mkdir(exist_ok=True)
    command = [sys.executable, str(JOB), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--checkpoint", str(directory / "checkpoint"), *(["--once"] if once else [])]
    for name, value in (("VIEWS", views), ("SUMS", directory / "sums"), ("HERE", here)):
        command += ["-p", f"{name}={value}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(EXAMPLE)}
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            command, env=environment, cwd=directory, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, "the run ended early"
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.05)


def wait_for_lines(directory: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + PATIENCE
    while len(lines_of(directory)) < count:
        assert process.poll() is None, "the run ended early"
        assert time.monotonic() < until, "no output came"
        time.sleep(0.05)


def lines_of(directory: Path) -> list[str]:
    """Every line of output, sorted: a duplicate would stand twice."""
    return sorted(line for path in (directory / "sums").glob("*.jsonl") for line in path.read_text().splitlines())


def contents(directory: Path) -> dict[str, str]:
    """The output files by batch and part; a run's name is its own."""
    return {path.name.split("-", 2)[2]: path.read_text() for path in (directory / "sums").glob("*.jsonl")}
