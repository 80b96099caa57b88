"""Computes ten-minute statistics per sensor, and reports when a sensor falls silent and when it sends again."""

from datetime import datetime, timedelta
from typing import Any

import orjson
from attrs import frozen

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, Subject, ValueSpec
from amadou_plugins.aggregates import Count, Max, Mean, Min
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import SessionWindow, TumblingWindow, Window
from amadou_runtime import main

TEN_MINUTES = timedelta(minutes=10)
SILENCE = timedelta(minutes=15)


@frozen
class Statistic:
    sensor: str
    start: datetime
    readings: int
    mean: float | None
    least: float | None
    greatest: float | None


@frozen
class Alert:
    """A sensor is `"silent"` or `"back"`; `last` is the time of the sensor's last reading before the silence."""

    sensor: str
    timestamp: datetime
    what: str
    last: datetime


class Sensors(Handler):
    """Reports statistics and alerts. A sensor is silent if it has sent nothing for more than a quarter of an hour."""

    statistics = SinkSpec(Statistic)
    alerts = SinkSpec(Alert)

    silent_since = ValueSpec(datetime, ttl=timedelta(days=30))
    by_ten_minutes = TumblingWindow(
        TEN_MINUTES,
        {"n": Count("celsius"), "mean": Mean("celsius"), "least": Min("celsius"), "greatest": Max("celsius")},
        late="divert",
    )
    # A session ends 15 minutes after its last reading. Its first early result is emitted a minute after its start.
    heard = SessionWindow(SILENCE, early=timedelta(minutes=1))

    def key_event(self, record: bytes) -> KeyedEvent[dict[str, Any]]:
        reading = orjson.loads(record)
        return KeyedEvent(reading["sensor"], datetime.fromisoformat(reading["timestamp"]), reading)

    def on_event(self, subject: Subject, event: KeyedEvent[dict[str, Any]]) -> None:
        self.by_ten_minutes.add(subject, event)
        self.heard.add(subject, event)

    @by_ten_minutes.on_close
    def ten_minutes_over(self, subject: Subject, window: Window, value: dict[str, Any]) -> None:
        self.statistics.collect(
            subject,
            Statistic(window.key, window.start, value["n"], value["mean"], value["least"], value["greatest"]),
        )

    @heard.on_early
    def is_heard(self, subject: Subject, window: Window, readings: int) -> None:
        silent_since = self.silent_since.state_for(subject)
        if silent_since.value is not None:
            self.alerts.collect(subject, Alert(window.key, window.first, "back", silent_since.value))
            silent_since.clear()

    @heard.on_close
    def fell_silent(self, subject: Subject, window: Window, readings: int) -> None:
        self.is_heard(subject, window, readings)  # in case one batch contained the entire session
        self.silent_since.state_for(subject).value = window.last
        self.alerts.collect(subject, Alert(window.key, window.end, "silent", window.last))


job = Job(
    "sensors",
    handler=Sensors(),
    sources={
        "readings": LinesSource(
            Param("READINGS", default="readings.jsonl"),
            max_files_per_batch=Param("FILES_PER_BATCH", default=1000, type=int),
            partition_by=r"([^/]+)/[^/]+$",  # the file's directory, so each site has its own watermark
        )
    },
    sinks={
        "statistics": JsonLinesSink(Param("STATISTICS", default="statistics/")),
        "alerts": JsonLinesSink(Param("ALERTS", default="alerts/")),
    },
    watermark_delay=timedelta(minutes=1),
    idle_timeout=timedelta(minutes=1),  # if all sensors are silent, the watermark advances with the clock
    on_error="dead_letter",  # for readings that are not numbers
)

if __name__ == "__main__":
    main(job)
