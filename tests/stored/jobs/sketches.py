"""A job with aggregates whose state other packages encode. Fixtures were made with it: never change it."""

import json
from datetime import datetime, timedelta
from typing import Any

from amadou import Handler, Job, KeyedEvent, SinkSpec, Subject
from amadou_plugins.aggregates import DistinctCount, Quantiles, RunningSpec
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import TumblingWindow, Window

SKETCHES = {"distinct": DistinctCount("value", approximate=True), "quantiles": Quantiles("value", [0.5, 0.9])}


class Sketches(Handler):
    running = RunningSpec(SKETCHES)
    hour = TumblingWindow(timedelta(hours=1), SKETCHES)
    out = SinkSpec(list)

    def key_event(self, record: bytes) -> KeyedEvent[dict[str, Any]]:
        key, time, value = json.loads(record)
        return KeyedEvent(key, datetime.fromisoformat(time), {"value": value})

    def on_event(self, subject: Subject, event: KeyedEvent[dict[str, Any]]) -> None:
        self.hour.add(subject, event)
        self.out.collect(subject, ["so far", subject.key, self.running.add(subject, event)])

    @hour.on_close
    def hour_over(self, subject: Subject, window: Window, value: dict[str, Any]) -> None:
        self.out.collect(subject, ["hour", subject.key, value])


def sketches_job(place: str, out: str, store: str) -> Job:
    return Job(
        "sketches",
        Sketches(),
        {"in": LinesSource(f"{place}/in/in/")},
        {"out": JsonLinesSink(f"{out}/out")},
        key_groups=4,
        state=store,
    )
