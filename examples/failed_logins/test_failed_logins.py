"""Tests of `failed_logins.py`: comparisons with a plain Python script, with various batch sizes and on Spark."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from failed_logins import Alarm, FailedLogins, job
from oracle import alarms

from amadou_runtime import TestRun

HERE = Path(__file__).parent
SAMPLE = HERE / "auth.log"
ROOT = HERE.parents[1]
REAL = Path(os.environ.get("AMADOU_SHARED", ROOT.parent / "shared")) / "data" / "openssh_2k.log"

real_log = pytest.mark.skipif(
    not REAL.exists(), reason=f"{REAL} is missing: set AMADOU_SHARED to the folder with data/openssh_2k.log"
)


def random_sizes(seed: int, lines: int) -> Iterator[int]:
    sizes = random.Random(seed)
    while True:
        yield sizes.choice((0, 1, 2, 3, 10, 50, 400))


CUTS: dict[str, Callable[[int], Iterator[int]]] = {
    "one by one": lambda _: iter(lambda: 1, None),
    "by 7": lambda _: iter(lambda: 7, None),
    "by 100": lambda _: iter(lambda: 100, None),
    "all at once": lambda lines: iter(lambda: lines, None),
    **{f"random {seed}": partial(random_sizes, seed) for seed in range(3)},
}


def at(time: str) -> datetime:
    return datetime.fromisoformat(f"2016-03-03T{time}").replace(tzinfo=timezone.utc)


def failure(time: str, address: str = "192.0.2.1") -> bytes:
    return f"Mar  3 {time} host sshd[1]: Failed password for root from {address} port 22 ssh2".encode()


def expected(log: Path) -> set[Alarm]:
    return {Alarm(**alarm) for alarm in alarms(log)}


def test_five_failures_in_a_minute_raise_one_alarm() -> None:
    run = TestRun(job)
    for second in (0, 10, 20, 30, 40, 50):
        run.add_record(failure(f"12:00:{second:02}"))

    assert run.run().records("alarms") == [Alarm("192.0.2.1", at("12:00:40"), at("12:00:00"))]


@pytest.mark.parametrize(("fifth", "raised"), [("12:01:00", 1), ("12:01:01", 0)])
def test_five_failures_in_exactly_a_minute_raise_an_alarm(fifth: str, raised: int) -> None:
    run = TestRun(job).add_records(failure(f"12:00:{second:02}") for second in (0, 15, 30, 45))
    run.end_batch().add_record(failure(fifth))

    assert len(run.run().records("alarms")) == raised


@pytest.mark.parametrize(("pause_ends", "raised"), [("12:01:04", 1), ("12:01:05", 2)])
def test_there_is_another_alarm_after_a_pause_of_more_than_a_minute(pause_ends: str, raised: int) -> None:
    run = TestRun(job).add_records(failure(f"12:00:0{second}") for second in range(5))
    run.end_batch().add_records([failure(pause_ends)] * 5)

    assert len(run.run().records("alarms")) == raised


def test_failures_are_counted_by_address() -> None:
    run = TestRun(job).add_records(failure("12:00:00", f"192.0.2.{last}") for last in range(5))

    assert run.run().records("alarms") == []


def test_the_year_of_the_log_is_a_parameter() -> None:
    run = TestRun(job, params={"YEAR": "2024"}).add_records([failure("12:00:00")] * 5)

    assert run.run().records("alarms")[0].timestamp == datetime(2024, 3, 3, 12, tzinfo=timezone.utc)


def test_a_late_line_leaves_no_state() -> None:
    run = TestRun(job).add_record(failure("12:00:00")).add_watermark(at("12:30:00"))
    run.add_record(failure("12:00:01"))

    assert run.run().keys() == []


def test_the_state_of_an_address_is_removed_a_minute_after_its_last_failure() -> None:
    run = TestRun(job).add_records([failure("12:00:00")] * 6).add_watermark(at("12:01:00"))
    result = run.run()
    assert result.keys() == ["192.0.2.1"]
    assert result.state(FailedLogins.burst, "192.0.2.1").alarmed

    run.add_watermark(at("12:01:01"))
    result = run.run()
    assert result.keys() == []
    assert result.timers("192.0.2.1") == []


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("log", [SAMPLE, pytest.param(REAL, marks=real_log)], ids=["sample", "real"])
def test_the_alarms_are_those_of_plain_python_in_any_batches(log: Path, cut: str) -> None:
    lines = log.read_bytes().splitlines()
    sizes = CUTS[cut](len(lines))
    run = TestRun(job)
    start = 0
    while start < len(lines):
        size = next(sizes)
        run.add_records(lines[start : start + size]).end_batch()
        start += size

    raised = run.run().records("alarms")

    assert set(raised) == expected(log)
    assert len(raised) == len(set(raised))
    assert raised


@pytest.mark.qualify
@pytest.mark.spark
def test_spark_submit_raises_the_alarms_of_plain_python(tmp_path: Path) -> None:
    log = REAL if REAL.exists() else SAMPLE
    lines = log.read_bytes().splitlines(keepends=True)
    (tmp_path / "logs").mkdir()
    for piece in range(2):
        part = tmp_path / "logs" / f"auth.log.{piece}"
        part.write_bytes(b"".join(lines[len(lines) * piece // 2 : len(lines) * (piece + 1) // 2]))
        os.utime(part, (1_700_000_000 + piece, 1_700_000_000 + piece))

    spark_submit(
        "examples/failed_logins/failed_logins.py",
        "--once",
        *("-p", f"LOG={tmp_path / 'logs'}"),
        *("-p", f"ALARMS={tmp_path / 'alarms'}"),
        *("-p", "FILES_PER_BATCH=1"),
        *("--checkpoint", str(tmp_path / "checkpoint")),
    )

    committed = [file for file in (tmp_path / "checkpoint" / "commits").iterdir() if file.name.isdigit()]
    assert len(committed) >= 2
    files = sorted((tmp_path / "alarms").glob("*.jsonl"))
    raised = [read_alarm(line) for file in files for line in file.read_text().splitlines()]
    assert set(raised) == expected(log)
    assert len(raised) == len(set(raised))


def spark_submit(*arguments: str) -> None:
    import pyspark

    home = Path(pyspark.__file__).parent
    environment = {**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def read_alarm(line: str) -> Alarm:
    fields: dict[str, Any] = json.loads(line)
    return Alarm(
        fields["address"], datetime.fromisoformat(fields["timestamp"]), datetime.fromisoformat(fields["since"])
    )
