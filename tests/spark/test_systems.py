"""A million events from Kafka into Kafka, PostgreSQL and files, while the driver is killed again and again."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.services import KafkaLogin
from tests.spark.minutes import BEGIN, MINUTE
from tests.topics import committed, contents, fill, make_topic

pytestmark = pytest.mark.spark

JOB = Path(__file__).with_name("minutes.py")
EVENTS, KILLS = 1_000_000, 5
PATIENCE = 600
MILLIS_APART = 6


def test_nothing_is_lost_and_what_comes_twice_is_known_by_its_id(
    kafka: str, kafka_sasl: KafkaLogin, postgres: str, tmp_path: Path
) -> None:
    drawn = random.Random(11)
    incoming, outgoing, once = (make_topic(kafka, 3) for _ in range(3))
    expected: Counter[tuple[str, datetime]] = Counter()
    views: list[dict[str, Any]] = []
    for number in range(EVENTS):
        channel, millis = f"channel-{drawn.randrange(150)}", number * MILLIS_APART + drawn.randrange(5000)
        expected[channel, BEGIN + millis // 60_000 * MINUTE] += 1
        views.append({"value": f"{channel} {millis}".encode(), "partition": number % 3})
    fill(kafka, incoming, views)
    with psycopg.connect(postgres, autocommit=True) as database:
        database.execute("CREATE TABLE minutes (channel text, minute timestamptz, sum bigint)")
        settings = {"TOPIC": incoming, "KAFKA": kafka_sasl.address, "OUT": outgoing, "ONCE": once}
        settings["FILES"] = str(tmp_path / "files")
        secrets = {"KAFKA_PASSWORD": kafka_sasl.password, "PGPASSWORD": urlsplit(postgres).password or ""}
        settings["KAFKA_USER"] = kafka_sasl.user
        for kill in range(KILLS):
            with run(settings, secrets, postgres, tmp_path) as process:
                wait_for_rows(database, len(expected) * (kill + 1) // (KILLS + 2), process, tmp_path)
                time.sleep(drawn.random())  # anywhere in a batch
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(PATIENCE)
        with run(settings, secrets, postgres, tmp_path) as process:
            assert process.wait(PATIENCE) == 0, log(tmp_path)

        rows = database.execute("SELECT channel, minute, sum FROM minutes").fetchall()
    assert Counter({(channel, minute): count for channel, minute, count in rows}) == expected
    assert len(rows) == len(expected), "none came twice"

    lines = [line for path in (tmp_path / "files").glob("*.jsonl") for line in path.read_bytes().splitlines()]
    assert sums(lines) == expected
    assert len(lines) == len(expected), "none came twice"

    values = [record.value() or b"" for record in committed(kafka, once)]
    assert sums(values) == expected
    assert len(values) == len(expected), "none came twice for readers of committed records"

    records = {dict(record.headers() or ())["amadou-id"]: record.value() or b"" for record in contents(kafka, outgoing)}
    assert sums(list(records.values())) == expected
    assert len(records) == len(expected), "none came twice with another id"

    for secret in secrets.values():
        told = [path for path in tmp_path.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
        assert not told, "no password stands in the log or the checkpoint"


def sums(lines: list[bytes]) -> Counter[tuple[str, datetime]]:
    parsed = map(json.loads, lines)
    return Counter({(each["channel"], datetime.fromisoformat(each["minute"])): each["sum"] for each in parsed})


@contextmanager
def run(
    settings: dict[str, str], secrets: dict[str, str], postgres: str, directory: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """The job as a program, in a process group of its own that does not outlive the test."""
    url = urlsplit(postgres)
    command = [sys.executable, str(JOB), "--master", "local[2]", "--conf", "spark.ui.enabled=false"]
    command += ["--checkpoint", str(directory / "checkpoint"), "--trigger", "available-now", "--flush"]
    settings = settings | {
        "POSTGRES": f"postgresql://{url.hostname}:{url.port}{url.path}",
        "PGUSER": url.username or "",
    }
    for name, value in settings.items():
        command += ["-p", f"{name}={value}"]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, **secrets}
    with (directory / "log").open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=directory, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for_rows(database: Any, count: int, process: subprocess.Popen[bytes], directory: Path) -> None:
    until = time.monotonic() + PATIENCE
    while database.execute("SELECT count(*) FROM minutes").fetchone()[0] < count:
        assert process.poll() is None, f"the run ended early\n{log(directory)}"
        assert time.monotonic() < until, f"no rows came\n{log(directory)}"
        time.sleep(0.05)


def log(directory: Path) -> str:
    return (directory / "log").read_text()[-4000:]
