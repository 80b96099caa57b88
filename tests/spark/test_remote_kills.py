"""Runs with source, sinks and checkpoint on HDFS or S3, killed at any time: nothing is lost, and nothing comes twice.

`AMADOU_KILLS` sets the number of kills for each file system.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.services import Storage
from tests.spark.clusters import wait_for

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("AMADOU_KILLS", "1"))
BATCHES = 4 * KILLS
KEYS = 5
RECORDS = 40
"""In each batch."""
JOB = """
import json
import os
from datetime import datetime, timedelta, timezone

from amadou import Handler, Job, KeyedEvent, SinkSpec, ValueSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main

class Counts(Handler):
    count = ValueSpec(int, default=0)
    counts = SinkSpec(list)
    totals = SinkSpec(list)

    def key_event(self, record):
        key, second = json.loads(record)
        return KeyedEvent(key, datetime(2025, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=second))

    def on_event(self, subject, event):
        with open("calls", "a") as calls:
            calls.write("x")
        count = self.count.state_for(subject)
        count.value += 1
        self.counts.collect(subject, [subject.key, count.value])
        subject.set_timer(event.timestamp + timedelta(seconds=1))

    def on_timer_expired(self, subject, timestamp):
        self.totals.collect(subject, [subject.key, timestamp.isoformat()])


base = os.environ["BASE"]
job = Job(
    "counts",
    Counts(),
    {"in": LinesSource(f"{base}/in/", max_files_per_batch=1)},
    {"counts": JsonLinesSink(f"{base}/counts"), "totals": JsonLinesSink(f"{base}/totals")},
    state="log",
)
if __name__ == "__main__":
    main(job)
"""
READ = """
import json
import os
import sys

from amadou.remote_files import RemoteDirectory
from amadou_runtime.spark import session

spark = session("read", master="local[1]", conf=json.loads(os.environ["CONF"]))
base = RemoteDirectory(os.environ["BASE"])
if sys.argv[1:]:
    for name in sorted(os.listdir(sys.argv[1])):
        base.upload(os.path.join(sys.argv[1], name), f"in/{name}")
else:
    found = {
        port: [line for name in files for line in base.read(f"{port}/{name}").decode().splitlines()]
        for port in ("counts", "totals")
        for files in [[name for name in base.names(port) if not name.startswith(".")]]
    }
    print("FOUND " + json.dumps(found))
"""


def ran(directory: Path, place: Storage, *words: str) -> str:
    """Run the program that fills or reads the directory, and return its output."""
    environment = {**os.environ, "BASE": place.directory, "CONF": json.dumps(place.conf)}
    done = subprocess.run(
        [sys.executable, "-c", READ, *words], cwd=directory, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def started(directory: Path, place: Storage) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "job.py", "--once", "--master", "local[2]", "--checkpoint", f"{place.directory}/state"]
    command += [word for name, value in place.conf.items() for word in ("--conf", f"{name}={value}")]
    with (directory / "log").open("ab") as log:
        return subprocess.Popen(
            command,
            cwd=directory,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "BASE": place.directory},
        )


def wait_for_call(calls: Path, run: "subprocess.Popen[bytes]", log: Path) -> None:
    before = calls.stat().st_size
    wait_for(lambda: calls.stat().st_size > before or run.poll() is not None, log.read_text)


def test_nothing_is_lost_and_nothing_comes_twice(storage: Storage, tmp_path: Path) -> None:
    place, chance = storage, random.Random(KILLS)
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "in").mkdir()
    keys = [f"k{number}" for number in range(KEYS)]
    for batch in range(BATCHES):
        records = [json.dumps([keys[number % KEYS], batch * RECORDS + number]) for number in range(RECORDS)]
        path = tmp_path / "in" / f"{batch:05}.txt"
        path.write_text("".join(f"{record}\n" for record in records))
    ran(tmp_path, place, "in")
    log, calls, killed = tmp_path / "log", tmp_path / "calls", 0
    calls.touch()
    while killed < KILLS:
        run = started(tmp_path, place)
        try:
            wait_for_call(calls, run, log)
            time.sleep(chance.uniform(0, 4))
            if run.poll() is not None:
                break
            killed += 1
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
            run.wait()
    assert killed >= KILLS / 2, f"only {killed} kills: {log.read_text()[-4000:]}"
    run = started(tmp_path, place)
    assert run.wait(600) == 0, log.read_text()[-4000:]

    output = next(line for line in ran(tmp_path, place).splitlines() if line.startswith("FOUND "))
    found = json.loads(output.removeprefix("FOUND "))
    each = BATCHES * RECORDS // KEYS
    counts = [json.dumps([key, count], separators=(",", ":")) for key in keys for count in range(1, each + 1)]
    assert Counter(found["counts"]) == Counter(counts)
    assert len({*found["totals"]}) == len(found["totals"]) == BATCHES * RECORDS - 1
