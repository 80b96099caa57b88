"""Windows from Kafka into PostgreSQL, while broker and database go away and come back."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from confluent_kafka import Producer
from tests.services import OwnService
from tests.topics import make_topic
from tests.waits import wait_for

from amadou import Job, Secret, truncate
from amadou.event_time import from_micros
from amadou_plugins.aggregates import Count
from amadou_plugins.connectors import KafkaRecord, KafkaSource, PostgresSink
from amadou_plugins.windows import TumblingWindow, windowed
from amadou_runtime import start

pytestmark = pytest.mark.spark

SECOND = timedelta(seconds=1)
PARTITIONS = 3
IDLE_TIMEOUT = 4
OUTAGE = IDLE_TIMEOUT + 1
"""How many seconds broker and sensors are apart, so that a partition would be idle that just brings nothing."""
PATIENCE = 600


class Sensors:
    """One for each partition. Each brings its readings in the order of their times. While the broker is away, it holds
    them back.
    """

    def __init__(self, server: str, topic: str) -> None:
        self.brought: Counter[tuple[str, datetime]] = Counter()
        self.sent = 0
        """Number of readings that the broker has, or gets next."""
        self.reach_broker = True
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": server, "log_level": 0, "enable.idempotence": True})
        self._held: list[tuple[int, int]] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._bring)

    def __enter__(self) -> "Sensors":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _bring(self) -> None:
        while not self._is_over.wait(0.01):
            micros = time.time_ns() // 1000
            for partition in range(PARTITIONS):
                self._held.append((partition, micros))
                self.brought[f"s{partition}", truncate(from_micros(micros), SECOND)] += 1
            if self.reach_broker:
                for partition, micros in self._held:
                    self._producer.produce(self._topic, b"%d" % micros, key=f"s{partition}", partition=partition)
                self.sent += len(self._held)
                self._held.clear()
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE) == 0


def time_of(record: KafkaRecord) -> datetime:
    return from_micros(int(record.value or b""))


def sensor_of(record: KafkaRecord) -> str:
    return (record.key or b"").decode()


@pytest.mark.parametrize("outages", [1, pytest.param(3, marks=pytest.mark.qualify)])
def test_no_event_is_late_and_no_window_comes_twice_when_broker_and_database_come_back(
    outages: int, own_kafka: OwnService, own_postgres: OwnService, spark: Any, tmp_path: Path
) -> None:
    topic = make_topic(own_kafka.address, PARTITIONS)
    with psycopg.connect(own_postgres.url, autocommit=True) as database:
        database.execute(
            'CREATE TABLE counts (key text, start timestamptz, "end" timestamptz, value bigint, partial boolean)'
        )
    url = urlsplit(own_postgres.url)
    job = Job(
        "per-second",
        windowed(key=sensor_of, timestamp=time_of, window=TumblingWindow(size=SECOND, value=Count()), port="counts"),
        {"readings": KafkaSource(topic, own_kafka.address, options={"reconnect.backoff.max.ms": 100})},
        {
            "counts": PostgresSink(
                f"postgresql://{url.hostname}:{url.port}{url.path}",
                "counts",
                username=url.username,
                password=Secret(url.password or ""),
            )
        },
        watermark_delay=1,
        idle_timeout=IDLE_TIMEOUT,
    )
    running = start(job, spark, checkpoint=str(tmp_path / "checkpoint"), trigger="0 seconds")

    def wait_until(condition: Callable[[], bool]) -> None:
        wait_for(condition, has_ended=lambda: running.await_termination(0.05), patience=PATIENCE)

    def wait_for_windows(number: int) -> None:
        wait_until(lambda: len(windows(own_postgres)) >= number)

    def wait_for_events(number: int) -> None:
        wait_until(lambda: running.progress.counts.events >= number)

    try:
        with Sensors(own_kafka.address, topic) as sensors:
            wait_for_windows(PARTITIONS + 1)
            for _ in range(outages):
                sensors.reach_broker = False
                wait_for_events(sensors.sent)
                own_kafka.stop()
                time.sleep(OUTAGE)  # time itself is tested
                own_kafka.start()
                wait_until(lambda: not is_asking_sources(running))  # the job finds the broker before the sensors do
                before = running.progress.counts.events
                sensors.reach_broker = True
                wait_for_events(before + 1)
                own_postgres.stop()
                time.sleep(OUTAGE)
                own_postgres.start()
                wait_for_windows(len(windows(own_postgres)) + 1)
        expected = sum(sensors.brought.values())
        wait_until(lambda: (running.progress.counts.events, running.progress.counts.timers_pending) == (expected, 0))
    finally:
        running.stop()
    written = windows(own_postgres)
    assert running.summary is not None
    counts = running.summary.counts
    assert (counts.events, counts.late, counts.counters) == (expected, 0, {})
    assert len(written) == len(set(written)), "no window came twice"
    assert {(sensor, at): count for sensor, at, count in written} == sensors.brought


def is_asking_sources(running: Any) -> bool:
    """`True` while Spark waits for the source, which is as long as the broker does not answer."""
    return "Getting offsets" in running.query.status["message"]


def windows(service: OwnService) -> list[tuple[str, datetime, int]]:
    with psycopg.connect(service.url) as database:
        rows = database.execute("SELECT key, start, value FROM counts").fetchall()
    return [(sensor, at.astimezone(timezone.utc), count) for sensor, at, count in rows]
