"""How a run that was started as a process ends: its exit status, after signals and after failures."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark.clusters import command_of, descendants, process, submitting, wait_for

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("waiting.py")
PATIENCE = 300
OWN = ["--master", "local[2]", "--conf", "spark.ui.enabled=false"]


@pytest.fixture
def spark_submit() -> list[str]:
    home = Path(pytest.importorskip("pyspark").__file__).parent
    return [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]


def test_a_run_ends_after_the_batch_if_all_its_processes_receive_sigterm(tmp_path: Path) -> None:
    with in_a_batch(tmp_path, sys.executable, str(JOB), *OWN) as started:
        os.killpg(started.pid, signal.SIGTERM)
        let_go(tmp_path, started)
        assert started.wait(PATIENCE) == 0, log(tmp_path)
    assert texts(tmp_path) == ["wait"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_spark_submit_ends_after_the_batch(number: signal.Signals, spark_submit: list[str], tmp_path: Path) -> None:
    with in_a_batch(tmp_path, *spark_submit, str(JOB), **submitting(Path(spark_submit[0]).parents[1])) as started:
        # Ctrl-C goes to all processes, and the program that started spark-submit knows only its Java process.
        (os.killpg if number == signal.SIGINT else os.kill)(started.pid, number)
        let_go(tmp_path, started)
        assert started.wait(PATIENCE) == 0, log(tmp_path)
    assert texts(tmp_path) == ["wait"]


def test_a_second_sigterm_ends_a_run_in_the_batch(spark_submit: list[str], tmp_path: Path) -> None:
    with in_a_batch(tmp_path, *spark_submit, str(JOB), **submitting(Path(spark_submit[0]).parents[1])) as started:
        started.terminate()
        time.sleep(2)
        assert started.poll() is None, log(tmp_path)
        started.terminate()
        assert started.wait(PATIENCE) == 128 + signal.SIGTERM, log(tmp_path)
    assert texts(tmp_path) == []


def test_a_batch_that_fails_after_sigterm_is_a_failure(tmp_path: Path) -> None:
    with in_a_batch(tmp_path, sys.executable, str(JOB), *OWN, last="fail") as started:
        started.terminate()
        let_go(tmp_path, started)
        assert started.wait(PATIENCE) == 1, log(tmp_path)
    assert "ValueError: asked to fail" in log(tmp_path)


def test_a_run_whose_java_was_killed_fails_with_one_line(tmp_path: Path) -> None:
    with in_a_batch(tmp_path, sys.executable, str(JOB), *OWN) as started:
        (java,) = (pid for pid in descendants(started.pid) if "SparkSubmit" in command_of(pid))
        os.kill(java, signal.SIGKILL)
        assert started.wait(PATIENCE) == 1, log(tmp_path)
    assert log(tmp_path).endswith(
        "'waiting' failed in Spark: Spark's Java process has ended. It was killed, or ran out of memory: "
        "see the system log\n"
    )


def test_a_run_whose_java_was_killed_logs_json_lines_only(tmp_path: Path) -> None:
    with in_a_batch(tmp_path, sys.executable, str(JOB), *OWN, "--log-format", "json") as started:
        (java,) = (pid for pid in descendants(started.pid) if "SparkSubmit" in command_of(pid))
        os.kill(java, signal.SIGKILL)
        assert started.wait(PATIENCE) == 1, log(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert any("Spark's Java process has ended" in line["message"] for line in lines)
    assert any(" in a request to Accumulator" in line["message"] for line in lines)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ([], 0, "waiting: 0 events in 0 batches"),
        (["--savepoint", "end"], 1, "end: it was not written: the run was stopped while Spark started\n"),
    ],
    ids=["without savepoint", "with savepoint"],
)
def test_sigterm_while_spark_starts_ends_a_run_without_a_batch(
    options: list[str], status: int, message: str, tmp_path: Path
) -> None:
    with begun(tmp_path, sys.executable, str(JOB), *OWN, *options) as started:
        wait_for(lambda: any("SparkSubmit" in command_of(pid) for pid in descendants(started.pid)))
        started.send_signal(signal.SIGUSR1)  # asks for a savepoint later
        started.terminate()
        assert started.wait(PATIENCE) == status, log(tmp_path)
    assert message in log(tmp_path)
    assert not (tmp_path / "here").exists()


@contextmanager
def begun(place: Path, *command: str, last: str = "", **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a process, with a record at which it waits.

    :param last: one more record
    """
    (place / "records").mkdir()
    (place / "records" / "0").write_text(f"wait\n{last}\n" if last else "wait\n")
    options = ["--checkpoint", str(place / "checkpoint"), "-p", f"PLACE={place}"]
    for name in ("RECORDS", "TEXTS"):
        options += ["-p", f"{name}={place / name.lower()}"]
    with process(place / "log", *command, *options, **environment) as started:
        yield started


@contextmanager
def in_a_batch(place: Path, *command: str, last: str = "", **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a process, in the middle of a batch."""
    with begun(place, *command, last=last, **environment) as started:
        wait_for((place / "here").exists, lambda: log(place))
        yield started


def let_go(place: Path, started: subprocess.Popen[bytes]) -> None:
    """Let the batch go on, a while after a signal."""
    time.sleep(2)
    assert started.poll() is None, log(place)
    (place / "go").touch()


def texts(place: Path) -> list[str]:
    return [json.loads(line) for path in place.glob("texts/*.jsonl") for line in path.read_text().splitlines()]


def log(place: Path) -> str:
    return (place / "log").read_text()[-4000:]
