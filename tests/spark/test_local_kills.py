"""A run on one machine whose Python processes are killed, or end by themselves."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.spark.clusters import command_of, descendants, paths, wait_for

from amadou_runtime.spark.lost_tasks import died_error

pytestmark = pytest.mark.spark

JOB = """
import os
import time
from datetime import datetime, timezone

from amadou import Handler, Job, KeyedEvent, SinkSpec, ValueSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main


class Counts(Handler):
    count = ValueSpec(int, default=0)
    counts = SinkSpec(list)

    def key_event(self, record):
        return KeyedEvent(record.decode(), datetime(2025, 1, 1, tzinfo=timezone.utc))

    def on_event(self, subject, event):
        if subject.key == "end":
            os._exit(7)
        with open(os.environ["CALLS"], "a") as calls:
            calls.write("x")
        time.sleep(0.02)
        count = self.count.state_for(subject)
        count.value += 1
        self.counts.collect(subject, [subject.key, count.value])


job = Job(
    "counts", Counts(), {"in": LinesSource("in/", max_files_per_batch=1)}, {"counts": JsonLinesSink("out/")}
)
if __name__ == "__main__":
    main(job)
"""
BATCHES = 4
KEYS = 7
RECORDS = 210
"""In each batch."""


def files(directory: Path, texts: list[str]) -> None:
    (directory / "in").mkdir()
    for number, text in enumerate(texts):
        path = directory / "in" / f"{number}.txt"
        path.write_text(text)
        os.utime(path, (number, number))  # Spark takes the oldest first


@contextmanager
def running(directory: Path, master: str, state: str = "auto") -> Iterator[subprocess.Popen[bytes]]:
    (directory / "job.py").write_text(JOB)
    command = [sys.executable, "job.py", "--once", "--master", master, "--checkpoint", "checkpoint", "--state", state]
    command += ["--conf", f"spark.local.dir={directory / 'local'}"]
    environment = {**os.environ, "CALLS": str(directory / "calls")}
    with (directory / "log").open("wb") as log:
        started = subprocess.Popen(
            command, cwd=directory, stderr=log, stdout=log, start_new_session=True, env=environment
        )
        try:
            yield started
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait()


def log(directory: Path) -> str:
    return (directory / "log").read_text()


def lines(directory: Path) -> list[str]:
    found = [path for path in (directory / "out").glob("*.jsonl") if not path.name.startswith(".")]
    return [line for path in found for line in path.read_text().splitlines()]


def daemon(run: subprocess.Popen[bytes]) -> int:
    """The process that forks the workers of tasks."""
    found = [pid for pid in descendants(run.pid) if {"pyspark.daemon", "pyspark.worker"} <= {*command_of(pid).split()}]
    return found[0]  # an ancestor comes before its descendants; numbers of processes wrap


def wait_for_calls(directory: Path, count: int, run: subprocess.Popen[bytes]) -> None:
    calls = directory / "calls"
    wait_for(
        lambda: (calls.exists() and calls.stat().st_size >= count) or run.poll() is not None, lambda: log(directory)
    )
    assert run.poll() is None, log(directory)


def views(directory: Path) -> list[Path]:
    return [path for path in paths(directory / "local") if path.parent.name == "amadou-views"]


@pytest.mark.parametrize("state", ["groups", "log"])
def test_workers_and_their_daemon_may_be_killed(state: str, tmp_path: Path) -> None:
    files(tmp_path, ["".join(f"k{n % KEYS}\n" for n in range(RECORDS))] * BATCHES)
    with running(tmp_path, "local[2]", state) as run:
        for count in range(1, 3):
            wait_for_calls(tmp_path, count * RECORDS + 20 * (2 * count - 1), run)
            parent = daemon(run)
            workers = descendants(parent)
            for pid in (workers, [parent, *workers])[count - 1]:
                with suppress(ProcessLookupError):  # an idle worker may just have ended
                    os.kill(pid, signal.SIGKILL)
            assert bool(views(tmp_path)) == (state == "log")
        assert run.wait(240) == 0, log(tmp_path)
    wait_for(lambda: not views(tmp_path), lambda: f"left behind: {views(tmp_path)}")  # Spark's Java ends last

    each = RECORDS // KEYS * BATCHES
    assert Counter(lines(tmp_path)) == Counter(
        json.dumps([f"k{key}", count], separators=(",", ":")) for key in range(KEYS) for count in range(1, each + 1)
    )
    assert "job counts: one of Spark's Python workers was killed or crashed during batch 1. Spark retried" in log(
        tmp_path
    )
    assert "org.apache.spark" not in log(tmp_path)
    assert "incubator" not in log(tmp_path)
    assert "UDF" not in log(tmp_path)


def test_a_handler_that_ends_its_worker_each_time_ends_the_run(tmp_path: Path) -> None:
    files(tmp_path, ["a\n", "end\n"])
    with running(tmp_path, "local[2]") as run:
        assert run.wait(240) == 1
    assert "batch 1 of 'counts' failed: a task's Python worker died 4 times in a row" in log(tmp_path)
    assert "Possible causes: the system killed the process for lack of memory" in log(tmp_path)
    assert "org.apache.spark" not in log(tmp_path)
    assert lines(tmp_path) == ['["a",1]']


def test_a_session_that_tries_nothing_twice_is_named() -> None:
    told = "Task 0 in stage 1.0 failed 1 times, most recent failure: Python worker exited unexpectedly (crashed)"
    error = died_error("counts", 3, told, "local[2]")
    assert "a task's Python worker died once, without a Python error" in str(error)
    assert str(error).endswith("create the session with local[N,4], which retries each task up to 3 times")
    assert died_error("counts", 3, "Task 0 failed 1 times: no space left", "local[2]") is None
