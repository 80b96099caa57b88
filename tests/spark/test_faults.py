"""Jobs on a cluster whose processes are killed: their output is that of an undisturbed run. On the store `log`, views
are removed and damaged, too.

AMADOU_FAULTS says how many faults there are (one of each kind without it), AMADOU_FAULTS_SEED makes them the same
again.
"""

import json
import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import tests.spark.counting as counting
import views
from tests.spark.clusters import Cluster, cluster, command_of, descendants, logs, paths, process, submitting

from amadou import Job
from amadou_runtime import TestRun

pytestmark = pytest.mark.spark

KINDS = ("driver", "executor", "worker", "python worker")
OF_VIEWS = ("lost view", "torn view")
SEED = int(os.environ.get("AMADOU_FAULTS_SEED", time.time_ns() % 100_000))
EVENTS = 2000
"""In each file."""
PACE = 0.8
"""Seconds between two files."""
BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
PATIENCE = 240


class Submitted:
    """The job on the cluster, started again where it ended.

    :param job: the job's file
    :param state: the job's store
    """

    def __init__(
        self, made: Cluster, spark_home: Path, job: str, state: str, directory: Path, stack: ExitStack
    ) -> None:
        self._command = [
            *(str(spark_home / "bin" / "spark-submit"), "--master", made.url, "--executor-memory", "800m"),
            *("--conf", "spark.driver.host=127.0.0.1", job, "--trigger", "0 seconds"),
            *("-p", f"VIEWS={directory / 'views'}", "-p", f"SUMS={directory / 'sums'}"),
            *("--checkpoint", str(directory / "checkpoint"), "--state", state),
        ]
        self._environment = submitting(spark_home)
        self.directory = directory
        self._stack = stack
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        log = self.directory / f"submit-{self.starts}.log"
        self.process = self._stack.enter_context(process(log, *self._command, **self._environment))

    def keep_running(self) -> bool:
        """Start it again should it have ended. Returns whether it had."""
        if self.process.poll() is None:
            return False
        self.start()
        return True


@pytest.mark.parametrize(("state", "module", "channels"), [("groups", views, 50), ("log", counting, 30_000)])
def test_nothing_is_lost_and_nothing_comes_twice_whatever_is_killed(
    state: str, module: Any, channels: int, tmp_path: Path
) -> None:
    spark_home = Path(pytest.importorskip("pyspark").__file__).parent
    drawn = random.Random(SEED)
    each = KINDS if state == "groups" else KINDS + OF_VIEWS
    faults = int(os.environ.get("AMADOU_FAULTS", len(each)))
    kinds = [each[number % len(each)] for number in range(faults)]
    drawn.shuffle(kinds)
    pause = (3.0, 9.0)
    (tmp_path / "views").mkdir()
    table = [f"seed {SEED}"]
    feeder = Feeder(tmp_path / "views", channels)
    with cluster(spark_home, tmp_path) as made, ExitStack() as stack:
        submitted = Submitted(made, spark_home, module.__file__, state, tmp_path, stack)
        feeder.start()
        stack.callback(feeder.stop)
        _wait(lambda: bool(_lines(tmp_path)), submitted, tmp_path)
        began = time.monotonic()
        for number, kind in enumerate(kinds, start=1):
            time.sleep(drawn.uniform(*pause))
            restarted = submitted.keep_running()
            harm = _kill if kind in KINDS else _harm_view
            while (harmed := harm(kind, made, submitted, drawn)) is None:
                submitted.keep_running()
                assert time.monotonic() < began + PATIENCE + 30 * faults, f"no {kind} came\n{logs(tmp_path)}"
                time.sleep(0.2)
            told = f"{number:3} {kind:<14} at {time.monotonic() - began:6.1f} s, {harmed}"
            table.append(f"{told}{', after the job was started again' if restarted else ''}")
            time.sleep(1)
            if kind == "driver":
                assert submitted.keep_running()
        expected = _undisturbed(module.job, feeder.end())
        _wait(lambda: len(_lines(tmp_path)) >= len(expected), submitted, tmp_path)
        time.sleep(2)
        table.append(f"{len(feeder.files)} files of {EVENTS} events, {len(expected)} results")
        table.append(f"the job was started {submitted.starts} times")
    found = Counter(_lines(tmp_path))
    print("\n".join(table))
    assert found == Counter(expected), f"{found - Counter(expected)} too many, {Counter(expected) - found} missing"


class Feeder(threading.Thread):
    """Writes files of views, each of one minute, until `end`."""

    def __init__(self, directory: Path, channels: int) -> None:
        super().__init__(daemon=True)
        self.files: list[str] = []
        self._directory = directory
        self._channels = channels
        self._drawn = random.Random(SEED)
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.wait(PACE):
            minute = BEGIN + timedelta(minutes=len(self.files))
            times = sorted(minute + timedelta(seconds=self._drawn.random() * 60) for _ in range(EVENTS))
            self._write("".join(_view(f"channel-{self._drawn.randrange(self._channels)}", at) for at in times))

    def stop(self) -> None:
        self._ends.set()

    def end(self) -> list[str]:
        """Write a last view, which closes all windows. Return the content of all files."""
        self.stop()
        self.join()
        self._write(_view("end", BEGIN + timedelta(days=1)))
        return self.files

    def _write(self, text: str) -> None:
        beside = self._directory.parent / "next.part"
        beside.write_text(text)
        beside.rename(self._directory / f"{len(self.files):05}.jsonl")
        self.files.append(text)


def _view(channel: str, at: datetime) -> str:
    return json.dumps({"channel_id": channel, "timestamp": at.isoformat()}) + "\n"


def _undisturbed(job: Job, files: list[str]) -> list[str]:
    """The lines that a run without faults writes."""
    run = TestRun(job, params={"VIEWS": "views", "SUMS": "sums"})
    for text in files:
        run.add_records(line.encode() for line in text.splitlines())
    sums = run.end_batch().run().records("sums")
    return [_line({"channel_id": s.channel_id, "timestamp": s.timestamp.isoformat(), "sum": s.sum}) for s in sums]


def _line(fields: dict[str, object]) -> str:
    timestamp = datetime.fromisoformat(str(fields["timestamp"]))
    return json.dumps([fields["channel_id"], timestamp.isoformat(), fields["sum"]])


def _lines(directory: Path) -> list[str]:
    return [
        _line(json.loads(line))
        for path in (directory / "sums").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]


def _wait(done: Callable[[], bool], submitted: Submitted, directory: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not done():
        submitted.keep_running()
        assert time.monotonic() < until, f"it does not come to its end\n{logs(directory)}"
        time.sleep(0.5)


def _harm_view(kind: str, made: Cluster, submitted: Submitted, drawn: random.Random) -> str | None:
    """Remove the view of a key range, or damage one of its files; `None` where there is no view just now."""
    local = submitted.directory / "local"
    views = sorted(path for path in paths(local) if path.parent.parent.name == "amadou-views")
    if not views:
        return None
    view = drawn.choice(views)
    if kind == "lost view":
        shutil.rmtree(view, ignore_errors=True)
        return f"range {view.name}"
    files = sorted(path for path in paths(view) if path.name.startswith(("data", "pending", "current")))
    with suppress(IndexError, ValueError, FileNotFoundError):
        file = drawn.choice(files)
        size = file.stat().st_size
        with file.open("r+b") as opened:
            opened.seek(drawn.randrange(size))
            opened.write(drawn.randbytes(5000)) if drawn.random() < 0.5 else opened.truncate()
        return f"range {view.name}, {file.name.partition('-')[0]} of {size:,} bytes"
    return None


def _kill(kind: str, made: Cluster, submitted: Submitted, drawn: random.Random) -> str | None:
    """Kill a process of a kind; `None` where there is none just now."""
    if kind == "driver":
        os.killpg(submitted.process.pid, signal.SIGKILL)
        submitted.process.wait()
        return f"pid {submitted.process.pid}"
    name = drawn.choice(sorted(made.workers))
    if kind == "worker":
        pid = made.workers[name].pid
        os.killpg(pid, signal.SIGKILL)
        made.workers[name].wait()
        made.start_worker(name)
        return f"pid {pid}"
    below = [pid for worker in made.workers.values() for pid in descendants(worker.pid)]
    wanted = "CoarseGrainedExecutorBackend" if kind == "executor" else "pyspark.daemon"
    found = [pid for pid in below if wanted in command_of(pid)]
    if not found:
        return None
    pid = drawn.choice(found)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return f"pid {pid}"
