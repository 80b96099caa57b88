"""Windows over real data give the results of pandas over all of the data."""

import csv
import io
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from amadou import Handler, Job, KeyedEvent, MemorySink, MemorySource, SinkSpec, Subject
from amadou_plugins.aggregates import Collect, Count, Max, Mean, Min, StdDev, Sum
from amadou_plugins.windows import HoppingWindow, SessionWindow, TumblingWindow, Window, WindowSpec, windowed
from amadou_runtime import TestRun

FindShared = Callable[[str], Path]
HOUR = timedelta(hours=1)


def stamp(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def measured(path: Path) -> list[dict[str, Any]]:
    rows = csv.DictReader(io.StringIO(path.read_text()))
    return [{"timestamp": stamp(row["timestamp"]), "value": float(row["value"])} for row in rows]


def results_of(records: list[Any], window: WindowSpec, *, size: int, delay: timedelta, key: Any = None) -> Any:
    """Return the results of a window over records in batches of a size."""
    handler = windowed(key=key or (lambda record: "all"), timestamp="timestamp", window=window)
    test_job = Job(
        "real", handler, sources={"in": MemorySource()}, sinks={"results": MemorySink()}, watermark_delay=delay
    )
    run = TestRun(test_job)
    for start in range(0, len(records), size):
        run.add_records(records[start : start + size]).end_batch()
    result = run.run(flush=True)
    assert result.counters == {}, "nothing is late"
    assert result.keys() == []
    return result.records("results")


def frame(records: list[Any]) -> Any:
    return pd.DataFrame(records).set_index("timestamp").sort_index(kind="stable")


@pytest.mark.parametrize(("size", "rule"), [(HOUR, "1h"), (24 * HOUR, "1D")])
def test_tumbling_windows_of_taxi_rides_agree_with_pandas(shared_data: FindShared, size: timedelta, rule: str) -> None:
    records = measured(shared_data("data/nyc_taxi.csv"))[:4000]
    aggregates = {"n": Count(), "sum": Sum("value"), "mean": Mean("value"), "min": Min("value"), "max": Max("value")}
    results = results_of(records, TumblingWindow(size, aggregates), size=997, delay=timedelta(0))
    expected = frame(records)["value"].resample(rule).agg(["count", "sum", "mean", "min", "max"])
    assert [result.start for result in results] == list(expected.index.to_pydatetime())
    assert [tuple(result.value.values()) for result in results] == list(expected.itertuples(index=False, name=None))


def test_tumbling_windows_of_events_out_of_order_agree_with_pandas(shared_data: FindShared) -> None:
    records = measured(shared_data("data/machine_temperature_system_failure.csv"))
    times = [record["timestamp"] for record in records]
    disorder = max(max(times[:at]) - times[at] for at in range(1, len(times)) if times[at] < times[at - 1])
    window = TumblingWindow(6 * HOUR, {"mean": Mean("value"), "deviation": StdDev("value")})
    results = {result.start: result.value for result in results_of(records, window, size=500, delay=disorder)}
    expected = frame(records)["value"].resample("6h").agg(["count", "mean", "std"])
    expected = expected[expected["count"] > 0]
    assert list(results) == list(expected.index.to_pydatetime())
    assert [value["mean"] for value in results.values()] == pytest.approx(list(expected["mean"]), rel=1e-12)
    assert [value["deviation"] for value in results.values()] == pytest.approx(list(expected["std"]), rel=1e-9)


def test_hopping_windows_of_temperatures_agree_with_pandas(shared_data: FindShared) -> None:
    records = measured(shared_data("data/ambient_temperature_system_failure.csv"))
    window = HoppingWindow(24 * HOUR, 6 * HOUR, Mean("value"))
    results = {result.start: result.value for result in results_of(records, window, size=300, delay=timedelta(0))}
    values = frame(records)["value"]
    for start, mean in results.items():
        inside = values[(values.index >= start) & (values.index < start + 24 * HOUR)]
        assert mean == pytest.approx(inside.mean(), rel=1e-12)
    first, last = values.index[0].floor("6h") - 18 * HOUR, values.index[-1].floor("6h")
    every = pd.date_range(first, last, freq="6h")
    assert set(results) == {
        start for start in every if len(values[start : start + 24 * HOUR - timedelta(microseconds=1)])
    }


def log_lines(path: Path) -> list[dict[str, Any]]:
    """Return address and time of each failed login. The log has no year."""
    logins = []
    for line in path.read_text().splitlines():
        if "Failed password" in line:
            timestamp = datetime.strptime("2023 " + line[:15], "%Y %b %d %H:%M:%S").replace(tzinfo=timezone.utc)
            words = line.split()
            logins.append({"timestamp": timestamp, "address": words[words.index("from") + 1]})
    return logins


def test_sessions_of_failed_logins_agree_with_pandas(shared_data: FindShared) -> None:
    records = log_lines(shared_data("data/openssh_2k.log"))
    gap = timedelta(minutes=5)
    results = results_of(records, SessionWindow(gap), size=50, delay=timedelta(0), key="address")
    logins = pd.DataFrame(records)
    before = logins.groupby("address")["timestamp"].diff()
    logins["session"] = ((before > gap) | before.isna()).groupby(logins["address"]).cumsum()
    expected = logins.groupby(["address", "session"])["timestamp"].agg(["min", "max", "count"])
    assert sorted((result.key, result.start, result.end, result.value) for result in results) == sorted(
        (address, row["min"].to_pydatetime(), row["max"].to_pydatetime() + gap, row["count"])
        for (address, _), row in expected.iterrows()
    )


class Alarms(Handler):
    """Collects an alarm at each fifth failed login within a minute, before the minute ends."""

    alarms = SinkSpec(tuple)
    minute = TumblingWindow(timedelta(minutes=1), Collect("address", limit=5), early=5)

    def key_event(self, record: dict[str, Any]) -> KeyedEvent[Any]:
        return KeyedEvent(record["address"], record["timestamp"], record)

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.minute.add(subject, event)

    @minute.on_early
    def alarm(self, subject: Subject, window: Window, addresses: list[str]) -> None:
        assert addresses == [subject.key] * 5
        self.alarms.collect(subject, (subject.key, window.start))

    @minute.on_close
    def minute_closed(self, subject: Subject, window: Window, addresses: list[str]) -> None:
        """Does nothing, because `alarm` has collected the alarm."""


def test_early_results_of_failed_logins_agree_with_pandas(shared_data: FindShared) -> None:
    records = log_lines(shared_data("data/openssh_2k.log"))
    run = TestRun(Job("alarms", Alarms(), sources={"in": MemorySource()}, sinks={"alarms": MemorySink()}))
    for start in range(0, len(records), 20):
        run.add_records(records[start : start + 20]).end_batch()
    results = run.run(flush=True).records("alarms")
    logins = pd.DataFrame(records)
    counts = logins.groupby(["address", logins["timestamp"].dt.floor("1min")]).size()
    expected = [(address, minute.to_pydatetime()) for (address, minute), n in counts.items() for _ in range(n // 5)]
    assert sorted(results) == sorted(expected)
    assert expected
