"""The example `examples/fraud` as a user runs it: from Kafka into PostgreSQL, stopped twice and killed once."""

import json
import random
import signal
import threading
import time
from base64 import b64decode
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from fraud_oracle import alerts
from payments import BEGIN, BROKEN, payments
from tests.spark.programs import program
from tests.topics import fill, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.qualify]

EXAMPLE = Path(__file__).parents[2] / "examples" / "fraud"
PARTITIONS = 3
PAYMENTS = 4000
BEHIND = 300
"""How many payments each partition is behind the one before it."""
PIECES = 40
PACE = 0.5
"""Seconds between two pieces."""


class Payments(threading.Thread):
    """Writes payments piece by piece while the job is started and stopped: each partition in its order, and out of step
    with the others. In the last third some come an hour late.
    """

    def __init__(self, server: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._server, self._topic = server, topic
        drawn = random.Random(4)
        placed: list[tuple[int, dict[str, Any]]] = []
        self.in_time = []
        self.late = []
        for number, (card, record) in enumerate(payments(PAYMENTS, seed=4)):
            partition = int(card[-3:]) % PARTITIONS
            place = number + BEHIND * partition if number >= 10 * PARTITIONS else number
            placed.append((place, {"value": record, "key": card, "partition": partition}))
            self.in_time.append(record)
            if number > PAYMENTS * 2 / 3 and drawn.random() < 0.01:
                at = (BEGIN - timedelta(hours=1)).isoformat()
                fields = {"id": f"late-{number}", "card": card, "time": at, "cents": 1, "country": "FR"}
                self.late.append(f"late-{number}")
                placed.append((place, {"value": json.dumps(fields).encode(), "key": card, "partition": partition}))
        placed.sort(key=lambda each: each[0])
        self._records = [record for _, record in placed]

    def run(self) -> None:
        for piece in range(PIECES):
            begin, end = (len(self._records) * number // PIECES for number in (piece, piece + 1))
            fill(self._server, self._topic, self._records[begin:end])
            time.sleep(PACE)


def test_the_alerts_are_the_oracles_though_the_job_is_stopped_twice_and_killed(
    kafka: str, postgres: str, tmp_path: Path
) -> None:
    topic = make_topic(kafka, PARTITIONS)
    coming, settings = Payments(kafka, topic), settings_for(kafka, topic, postgres)
    with psycopg.connect(postgres, autocommit=True) as database:
        database.execute((EXAMPLE / "schema.sql").read_bytes())
        coming.start()
        for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
            with program(EXAMPLE / "fraud.py", tmp_path, **settings) as running:
                before = count(database, "alerts")
                running.wait_for(lambda before=before: count(database, "alerts") > before)
                running.stop(number)
        coming.join()
        in_the_end = count(database, "alerts")
        with program(EXAMPLE / "fraud.py", tmp_path, "--once", "--flush", **settings) as running:
            running.finish()
        raised = database.execute("SELECT card, time, rule, payment FROM alerts").fetchall()
        late = database.execute("SELECT value->>'id' FROM late_events").fetchall()
        dead_letters = database.execute("SELECT record->>'value' FROM dead_letters").fetchall()
    assert sorted(raised) == sorted(alerts(coming.in_time))
    assert in_the_end < len(raised), "the last signal came before the end"
    assert sorted(id_ for (id_,) in late) == sorted(coming.late)
    broken = [record for record in coming.in_time if record in BROKEN]
    assert sorted(b64decode(value) for (value,) in dead_letters) == sorted(broken)


def settings_for(server: str, topic: str, postgres: str) -> dict[str, str]:
    url = urlsplit(postgres)
    return {
        "KAFKA": server,
        "TOPIC": topic,
        "RECORDS_PER_BATCH": "400",
        "DATABASE": f"postgresql://{url.hostname}:{url.port}{url.path}",
        "DB_USER": url.username or "",
        "DB_PASSWORD": url.password or "",
    }


def count(database: Any, table: str) -> int:
    [(number,)] = database.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(number)
