"""Computes the outputs of `sensors.py` for a file of readings, without amadou: `python sensors_oracle.py READINGS`."""

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import pairwise
from statistics import mean
from typing import Any, TypeAlias

Sensors: TypeAlias = dict[str, list[tuple[datetime, float | None]]]


def readings_of(file: Iterable[str | bytes]) -> Sensors:
    """Return each sensor's times and temperatures in time order. Readings that are not numbers are omitted."""
    sensors: Sensors = {}
    for line in file:
        reading = json.loads(line)
        if not isinstance(reading["celsius"], str):
            at = datetime.fromisoformat(reading["timestamp"])
            sensors.setdefault(reading["sensor"], []).append((at, reading["celsius"]))
    return {sensor: sorted(readings, key=lambda reading: reading[0]) for sensor, readings in sensors.items()}


def statistics(sensors: Sensors) -> Iterator[tuple[Any, ...]]:
    for sensor, readings in sensors.items():
        spans: dict[datetime, list[float | None]] = {}
        for at, celsius in readings:
            spans.setdefault(at - (at - datetime(1970, 1, 1, tzinfo=timezone.utc)) % timedelta(minutes=10), []).append(
                celsius
            )
        for start, values in spans.items():
            there = [value for value in values if value is not None]
            figures = (mean(there), min(there), max(there)) if there else (None, None, None)
            yield sensor, start, len(there), *figures


def alerts(sensors: Sensors, silence: timedelta = timedelta(minutes=15)) -> Iterator[tuple[Any, ...]]:
    for sensor, readings in sensors.items():
        times = [at for at, _ in readings]
        for last, following in pairwise(times):
            if following - last > silence:
                yield sensor, last + silence, "silent", last
                yield sensor, following, "back", last
        yield sensor, times[-1] + silence, "silent", times[-1]


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sensors = readings_of(file)
    for row in sorted([*statistics(sensors), *alerts(sensors)], key=lambda row: row[:2]):
        print(json.dumps(row, default=str))
