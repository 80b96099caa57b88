"""The example `examples/sensors` as a user runs it: over files that keep coming, stopped twice and killed once."""

import json
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sensors_oracle import alerts, readings_of, statistics
from tests.spark.programs import program

pytestmark = [pytest.mark.spark, pytest.mark.qualify]

JOB = Path(__file__).parents[2] / "examples" / "sensors" / "sensors.py"
BEGIN = datetime(2025, 3, 1, 8, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
SITES = {"roof": 0, "cellar": 6}
"""The sites, and how many files each is behind."""
SENSORS = 3
"""At each site."""
FILES = 20
"""Of each site."""
MINUTES = 15
"""In each file."""
PACE = 0.4
"""Seconds between two files."""


class Readings(threading.Thread):
    """Puts files into the sites' directories while the job is started and stopped. Sites are over an hour apart."""

    def __init__(self, directory: Path) -> None:
        super().__init__(daemon=True)
        self._directory = directory
        drawn = random.Random(5)
        self._files = {site: list(self._files_of(site, drawn)) for site in SITES}
        self.lines = [line for files in self._files.values() for file in files for line in file]
        self.broken = [line for line in self.lines if b"E17" in line]

    def run(self) -> None:
        for number in range(FILES + max(SITES.values())):
            for site, behind in SITES.items():
                self.bring(site, number if number == 0 else number - behind)
            time.sleep(PACE)

    def bring(self, site: str, number: int) -> None:
        """Put a file where the job finds it, if the site has one of this number that has not come yet."""
        path = self._directory / site / f"{number:02}.jsonl"
        if not 0 <= number < FILES or path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}")
        hidden.write_bytes(b"".join(line + b"\n" for line in self._files[site][number]))
        hidden.rename(path)

    @staticmethod
    def _files_of(site: str, drawn: random.Random) -> Iterator[list[bytes]]:
        """A reading of each sensor in most minutes, up to half a minute late. Sensors are silent now and then."""
        came: list[tuple[float, bytes]] = []
        for sensor in range(SENSORS):
            minute = 0.0
            while minute < FILES * MINUTES:
                celsius = drawn.choice([*(round(drawn.gauss(20, 3), 1) for _ in range(40)), None, "E17"])
                fields = {"sensor": f"{site}-{sensor}", "timestamp": (BEGIN + minute * MINUTE).isoformat()}
                came.append((minute + drawn.random() / 2, json.dumps({**fields, "celsius": celsius}).encode()))
                minute += drawn.choice((*(0.3, 1, 1.5) * 10, drawn.uniform(14, 60)))
        came.sort()
        for number in range(FILES):
            last = number == FILES - 1
            begin, end = number * MINUTES, float("inf") if last else (number + 1) * MINUTES
            yield [line for at, line in came if begin <= at < end]


def test_the_outputs_are_the_oracles_though_the_job_is_stopped_twice_and_killed(tmp_path: Path) -> None:
    coming = Readings(tmp_path / "readings")
    coming.bring("roof", 0)
    settings = {
        "READINGS": str(tmp_path / "readings" / "*"),
        "FILES_PER_BATCH": "3",
        "STATISTICS": str(tmp_path / "statistics"),
        "ALERTS": str(tmp_path / "alerts"),
    }
    coming.start()
    for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
        with program(JOB, tmp_path, **settings) as running:
            before = len(lines(tmp_path / "statistics"))
            running.wait_for(lambda before=before: len(lines(tmp_path / "statistics")) > before)
            running.stop(number)
    coming.join()
    in_the_end = len(lines(tmp_path / "statistics"))
    with program(JOB, tmp_path, "--once", "--flush", **settings) as running:
        running.finish()
    sensors = readings_of(coming.lines)
    written = Counter(map(statistic, lines(tmp_path / "statistics")))
    assert written == Counter(statistics(sensors))
    assert in_the_end < written.total(), "the last signal came before the end"
    assert Counter(map(alert, lines(tmp_path / "alerts"))) == Counter(alerts(sensors))
    assert lines(tmp_path / "checkpoint" / "late_events") == []
    assert len(lines(tmp_path / "checkpoint" / "dead_letters")) == len(coming.broken)


def lines(directory: Path) -> list[dict[str, Any]]:
    """The values in a directory of JSON lines."""
    return [json.loads(line) for path in directory.glob("[!.]*.jsonl") for line in path.read_bytes().splitlines()]


def statistic(line: dict[str, Any]) -> tuple[Any, ...]:
    figures = (line[name] for name in ("readings", "mean", "least", "greatest"))
    return line["sensor"], datetime.fromisoformat(line["start"]), *figures


def alert(line: dict[str, Any]) -> tuple[Any, ...]:
    timestamp, last = (datetime.fromisoformat(line[name]) for name in ("timestamp", "last"))
    return line["sensor"], timestamp, line["what"], last
