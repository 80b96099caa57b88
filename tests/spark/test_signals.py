"""Exit status and outputs of a program that receives signals, or whose Java process is killed, in a batch."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.spark.clusters import command_of, descendants, process, submitting
from tests.spark.waiting import job
from tests.waits import wait_for

from amadou.errors import CallbackError
from amadou_runtime import _run, start
from amadou_runtime.savepoint.savepoint import Savepoint

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("waiting.py")
PATIENCE = 300
OWN = [sys.executable, str(JOB), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
JSON = ["--log-format", "json"]
"""Options of a program that also logs that it is going to stop."""


@pytest.fixture
def submitted() -> tuple[list[str], dict[str, str]]:
    """The beginning of a command with spark-submit, and its environment."""
    home = Path(pytest.importorskip("pyspark").__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--conf", "spark.ui.enabled=false", str(JOB)]
    return command, submitting(home)


@pytest.mark.needs_spark(4)
@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.qualify)])
def test_spark_submit_takes_a_savepoint_at_sigusr1_and_ends_after_the_batch(
    number: signal.Signals, submitted: tuple[list[str], dict[str, str]], tmp_path: Path
) -> None:
    command, environment = submitted
    savepoints = tmp_path / "asked"
    with begun(tmp_path, *command, *JSON, "--savepoint-dir", str(savepoints), first="first", **environment) as started:
        wait_while_running(started, tmp_path, lambda: any(tmp_path.glob("checkpoint/commits/[0-9]*")))
        os.kill(python_of(started), signal.SIGUSR1)
        wait_while_running(started, tmp_path, lambda: any(savepoints.glob("*/savepoint.json")))
        bring(tmp_path, "wait")
        wait_while_running(started, tmp_path, (tmp_path / "here").exists)
        # Ctrl-C goes to all processes, and the program that started spark-submit knows only its Java process.
        (os.killpg if number == signal.SIGINT else os.kill)(started.pid, number)
        let_go(tmp_path, started)
        assert started.wait(PATIENCE) == 0, log(tmp_path)
    assert texts(tmp_path) == ["first", "wait"]
    (path,) = savepoints.iterdir()
    Savepoint(path).verify()


@pytest.mark.qualify
def test_sigterm_to_all_processes_of_a_program_ends_the_run_after_the_batch(tmp_path: Path) -> None:
    with in_a_batch(tmp_path, *OWN, *JSON) as started:
        os.killpg(started.pid, signal.SIGTERM)
        let_go(tmp_path, started)
        assert started.wait(PATIENCE) == 0, log(tmp_path)
    assert texts(tmp_path) == ["wait"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_has_its_default_effect(number: signal.Signals) -> None:
    stop, numbers = threading.Event(), (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(each) for each in numbers]
    with _run._signals_set(stop, *numbers):
        signal.raise_signal(number)
        assert stop.is_set()
        assert [signal.getsignal(each) for each in numbers] == [signal.default_int_handler, signal.SIG_DFL]
    assert [signal.getsignal(each) for each in numbers] == before


@pytest.mark.qualify
def test_a_second_sigterm_ends_a_run_in_the_batch(submitted: tuple[list[str], dict[str, str]], tmp_path: Path) -> None:
    command, environment = submitted
    with in_a_batch(tmp_path, *command, *JSON, **environment) as started:
        started.terminate()
        wait_while_running(started, tmp_path, lambda: is_stopping(tmp_path))
        started.terminate()
        assert started.wait(PATIENCE) == 128 + signal.SIGTERM, log(tmp_path)
    assert texts(tmp_path) == []


@pytest.mark.qualify
def test_a_program_whose_batch_fails_after_sigterm_has_failed(tmp_path: Path) -> None:
    with in_a_batch(tmp_path, *OWN, *JSON, last="fail") as started:
        started.terminate()
        let_go(tmp_path, started)
        assert started.wait(PATIENCE) == 1, log(tmp_path)
    assert "ValueError: asked to fail" in log(tmp_path)


def test_a_run_whose_batch_fails_after_a_request_to_stop_has_failed(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "amadou")
    bring(tmp_path, "wait", "fail")
    params = {"PLACE": str(tmp_path), "RECORDS": str(tmp_path / "records"), "TEXTS": str(tmp_path / "texts")}
    requests = _run._Requests()
    running = start(job, spark, params=params)

    def go() -> None:
        try:
            wait_for((tmp_path / "here").exists)
            requests.stop.set()  # as the handler of SIGTERM does
            wait_for(lambda: "the run ends after the current batch" in caplog.text)
        finally:
            (tmp_path / "go").touch()

    going = threading.Thread(target=go)
    going.start()
    with pytest.raises(CallbackError, match="asked to fail"):
        _run._follow(running, requests, None)
    going.join()


@pytest.mark.qualify
def test_a_program_whose_java_was_killed_logs_only_json_lines_and_one_of_them_has_the_reason(tmp_path: Path) -> None:
    with in_a_batch(tmp_path, *OWN, *JSON) as started:
        kill_java(started)
        assert started.wait(PATIENCE) == 1, log(tmp_path)
    messages = [json.loads(line)["message"] for line in (tmp_path / "log").read_text().splitlines()]
    (reason,) = (message for message in messages if " failed in Spark: " in message)
    assert reason.endswith(
        "of 'waiting' failed in Spark: Spark's Java process has ended. It was killed, or ran out of memory: "
        "see the system log"
    )
    assert any(" in a request to Accumulator" in message for message in messages)


@pytest.mark.qualify
def test_a_program_whose_java_was_killed_fails_with_one_line(tmp_path: Path) -> None:
    with in_a_batch(tmp_path, *OWN) as started:
        kill_java(started)
        assert started.wait(PATIENCE) == 1, log(tmp_path)
    # a thread of Spark's that was in a request writes its own traceback, before or after this line
    assert (
        "'waiting' failed in Spark: Spark's Java process has ended. It was killed, or ran out of memory: "
        "see the system log\n"
    ) in log(tmp_path)


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ([], 0, "waiting: 0 events in 0 batches"),
        pytest.param(
            ["--savepoint", "end"],
            1,
            "end: it was not written: the run was stopped while Spark started\n",
            marks=pytest.mark.qualify,
        ),
    ],
    ids=["without savepoint", "with savepoint"],
)
def test_sigterm_while_spark_starts_ends_a_run_without_a_batch(
    options: list[str], status: int, message: str, tmp_path: Path
) -> None:
    with begun(tmp_path, *OWN, *options, first="wait") as started:
        wait_for(lambda: any("SparkSubmit" in command_of(pid) for pid in descendants(started.pid)))
        started.send_signal(signal.SIGUSR1)  # asks for a savepoint later
        started.terminate()
        assert started.wait(PATIENCE) == status, log(tmp_path)
    assert message in log(tmp_path)
    assert not (tmp_path / "here").exists()


def bring(place: Path, *records: str) -> None:
    """Write a file of records."""
    (place / "records").mkdir(exist_ok=True)
    new = place / "new"
    new.write_text("".join(f"{record}\n" for record in records))
    new.rename(place / "records" / f"{len(os.listdir(place / 'records'))}")


@contextmanager
def begun(place: Path, *command: str, first: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a process.

    :param first: its first record
    """
    bring(place, first)
    options = ["--checkpoint", str(place / "checkpoint"), "-p", f"PLACE={place}"]
    for name in ("RECORDS", "TEXTS"):
        options += ["-p", f"{name}={place / name.lower()}"]
    with process(place / "log", *command, *options, **environment) as started:
        yield started


@contextmanager
def in_a_batch(place: Path, *command: str, last: str = "", **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a process, in the middle of a batch.

    :param last: one more record of the batch
    """
    with begun(place, *command, first=f"wait\n{last}" if last else "wait", **environment) as started:
        wait_while_running(started, place, (place / "here").exists)
        yield started


def python_of(started: subprocess.Popen[bytes]) -> int:
    """The driver's process, which spark-submit starts."""
    (python,) = (pid for pid in descendants(started.pid) if command_of(pid).startswith(f"{sys.executable} {JOB} "))
    return python


def kill_java(started: subprocess.Popen[bytes]) -> None:
    (java,) = (pid for pid in descendants(started.pid) if "SparkSubmit" in command_of(pid))
    os.kill(java, signal.SIGKILL)


def is_stopping(place: Path) -> bool:
    """`True` if a program with JSON lines has logged that it is going to stop."""
    return "the run ends after the current batch" in (place / "log").read_text()


def wait_while_running(started: subprocess.Popen[bytes], place: Path, done: Callable[[], bool]) -> None:
    """Wait until something is true. Fail if the program ends before."""
    wait_for(done, lambda: log(place), has_ended=lambda: started.poll() is not None)


def let_go(place: Path, started: subprocess.Popen[bytes]) -> None:
    """Let the batch go on as soon as the program is going to stop."""
    wait_while_running(started, place, lambda: is_stopping(place))
    (place / "go").touch()


def texts(place: Path) -> list[str]:
    lines = [json.loads(line) for path in place.glob("texts/*.jsonl") for line in path.read_text().splitlines()]
    return sorted(lines)


def log(place: Path) -> str:
    return (place / "log").read_text()[-4000:]
