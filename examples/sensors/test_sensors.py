"""Tests of `sensors.py`: comparisons with a plain Python script, with various batch sizes and restarts."""

import csv
import json
import os
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path

import attrs
import pytest
from sensors import Alert, Sensors, Statistic, job
from sensors_oracle import alerts, readings_of, statistics

from amadou import Job
from amadou_runtime import TestResult, TestRun

HERE = Path(__file__).parent
SAMPLE = (HERE / "readings.jsonl").read_bytes().splitlines()
REAL = Path(os.environ.get("AMADOU_SHARED", HERE.parents[2] / "shared")) / "data/machine_temperature_system_failure.csv"
EIGHT = datetime(2025, 3, 1, 8, tzinfo=timezone.utc)


def reading(minute: float, sensor: str = "roof", celsius: float | str = 20.0) -> bytes:
    at = EIGHT + timedelta(minutes=minute)
    return json.dumps({"sensor": sensor, "timestamp": at.isoformat(), "celsius": celsius}).encode()


def minutes(alert: Alert) -> tuple[str, str, float]:
    return alert.sensor, alert.what, (alert.timestamp - EIGHT) / timedelta(minutes=1)


CUTS: dict[str, Callable[[int, random.Random], int]] = {
    "one batch": lambda records, _: records,
    "one by one": lambda *_: 1,
    **{f"random {seed}": lambda records, chance: chance.choice((0, 1, 2, 3, 10, records // 4)) for seed in range(4)},
}


def processed(records: list[bytes], cut: str, job: Job = job, restarts: bool = False) -> TestResult:
    """Process the records in batches, and end with the last timers."""
    run = TestRun(job)
    chance = random.Random(cut)
    start = 0
    while start < len(records):
        size = CUTS[cut](len(records), chance)
        run.add_records(records[start : start + size]).end_batch()
        if restarts and start % 3 == 0:
            run.restart()
        start += size
    return run.run(flush=True)


def assert_same_as_plain_python(result: TestResult, records: list[bytes]) -> None:
    sensors = readings_of(records)
    assert Counter(result.records("statistics")) == Counter(Statistic(*row) for row in statistics(sensors))
    assert Counter(result.records("alerts")) == Counter(Alert(*row) for row in alerts(sensors))
    assert result.late == []


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_the_outputs_are_those_of_plain_python_in_any_batches(cut: str, restarts: bool) -> None:
    result = processed(SAMPLE, cut, restarts=restarts)

    assert_same_as_plain_python(result, SAMPLE)
    assert [letter.record.value["celsius"] for letter in result.dead_letters] == ["E17"]


@pytest.mark.skipif(
    not REAL.exists(),
    reason=f"{REAL} is missing: set AMADOU_SHARED to the folder with {REAL.parent.name}/{REAL.name}",
)
@pytest.mark.parametrize("cut", ["one batch", "random 0", "random 1"])
def test_the_outputs_for_a_real_machine_are_those_of_plain_python(cut: str) -> None:
    with REAL.open() as file:
        rows = islice(csv.DictReader(file), 10_000, 10_300)  # among them, an hour for the second time
        records = [
            reading(
                (datetime.fromisoformat(row["timestamp"]).replace(tzinfo=timezone.utc) - EIGHT) / timedelta(minutes=1),
                "machine",
                float(row["value"]),
            )
            for row in rows
        ]
    result = processed(records, cut, attrs.evolve(job, watermark_delay=timedelta(hours=2)))

    assert_same_as_plain_python(result, records)


def test_a_silent_sensor_is_reported_while_others_are_heard() -> None:
    run = TestRun(job).add_records([reading(0), reading(0, "cellar")]).end_batch()
    result = run.add_record(reading(17, "cellar")).end_batch().run()

    assert [minutes(alert) for alert in result.records("alerts")] == [("cellar", "silent", 15), ("roof", "silent", 15)]


def test_a_sensor_is_back_a_minute_after_its_first_reading() -> None:
    run = TestRun(job).add_records([reading(0), reading(40)]).end_batch()
    assert [minutes(alert) for alert in run.run().records("alerts")] == [("roof", "silent", 15)]
    run.add_record(reading(42)).end_batch()

    assert [minutes(alert) for alert in run.run().records("alerts", new=True)] == [("roof", "back", 40)]


def test_a_sensor_is_not_silent_after_exactly_a_quarter_of_an_hour() -> None:
    result = TestRun(job).add_records([reading(0), reading(15)]).run(flush=True)

    assert [minutes(alert) for alert in result.records("alerts")] == [("roof", "silent", 30)]


def test_a_silent_sensor_is_reported_by_the_clock_if_all_are_silent() -> None:
    run = TestRun(job).add_record(reading(0)).end_batch()
    run.advance_processing_time(timedelta(minutes=16))
    assert run.run().records("alerts") == []
    run.advance_processing_time(timedelta(minutes=2))

    assert [minutes(alert) for alert in run.run().records("alerts")] == [("roof", "silent", 15)]


def test_the_state_of_a_silent_sensor_is_the_begin_of_its_silence() -> None:
    result = TestRun(job).add_record(reading(0)).add_watermark(EIGHT + timedelta(hours=1)).run()

    assert result.state(Sensors.silent_since, "roof") == EIGHT
    assert result.timers("roof") == []


def test_a_reading_that_is_not_a_number_becomes_a_dead_letter() -> None:
    result = TestRun(job).add_records([reading(0), reading(1, celsius="E17"), reading(2)]).run(flush=True)

    assert [letter.record.value["celsius"] for letter in result.dead_letters] == ["E17"]
    assert [statistic.readings for statistic in result.records("statistics")] == [2]
