"""Reports the visits to a web shop, and the sales by page and minute: two jobs with one window each."""

from datetime import datetime, timedelta
from typing import Any

import orjson
from attrs import frozen

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, Subject
from amadou_plugins.aggregates import Collect, Count, Sum
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import SessionWindow, TumblingWindow, Window, windowed
from amadou_runtime import main


@frozen
class Visit:
    visitor: str
    start: datetime
    seconds: float
    pages: list[str]
    spent: int


class Visits(Handler):
    """Reports each visit once the visitor has not clicked for half an hour."""

    visits = SinkSpec(Visit)
    visit = SessionWindow(
        gap=timedelta(minutes=30),
        value={"pages": Collect("page"), "spent": Sum("cents")},
        max_duration=timedelta(hours=4),
        late="divert",
    )

    def key_event(self, record: bytes) -> KeyedEvent[dict[str, Any]]:
        click = orjson.loads(record)
        return KeyedEvent(click["visitor"], datetime.fromisoformat(click["timestamp"]), click)

    def on_event(self, subject: Subject, event: KeyedEvent[dict[str, Any]]) -> None:
        self.visit.add(subject, event)

    @visit.on_close
    def visit_ended(self, subject: Subject, window: Window, value: dict[str, Any]) -> None:
        seconds = (window.last - window.first).total_seconds()
        self.visits.collect(subject, Visit(window.key, window.start, seconds, value["pages"], value["spent"]))


clicks = LinesSource(Param("CLICKS", default="clicks.jsonl"))
visits = Job(
    "visits",
    handler=Visits(),
    sources={"clicks": clicks},
    sinks={"visits": JsonLinesSink(Param("VISITS", default="visits/"))},
    watermark_delay=timedelta(minutes=1),
)

# Processes the same clicks by page and minute. A handler that only adds events to a window does not need a class.
sales = Job(
    "sales",
    handler=windowed(
        key="page",
        timestamp="timestamp",
        window=TumblingWindow(size=timedelta(minutes=1), value={"clicks": Count(), "cents": Sum("cents")}),
        port="sales",
    ),
    sources={"clicks": clicks},
    sinks={"sales": JsonLinesSink(Param("SALES", default="sales/"))},
    watermark_delay=timedelta(minutes=1),
)

if __name__ == "__main__":
    main(visits)
