"""Counts the views of each channel per minute: a handler with map state and event-time timers."""

from datetime import datetime, timedelta

import orjson
from attrs import frozen

from amadou import Handler, Job, KeyedEvent, MapSpec, Param, SinkSpec, Subject, truncate
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main

MINUTE = timedelta(minutes=1)


@frozen
class ViewSum:
    channel_id: str
    timestamp: datetime
    sum: int


class ViewsPerMinute(Handler):
    """Counts the views of each channel per minute."""

    counts = MapSpec(datetime, int)
    sums = SinkSpec(ViewSum)

    def key_event(self, record: bytes) -> list[KeyedEvent]:
        view = orjson.loads(record)
        return [KeyedEvent(view["channel_id"], datetime.fromisoformat(view["timestamp"]))]

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        minute = truncate(event.timestamp, MINUTE)
        if subject.set_timer(minute + MINUTE):
            counts = self.counts.state_for(subject)
            counts[minute] = counts.get(minute, 0) + 1
        else:
            subject.drop(event)  # it is late: the sum of its minute has been written

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        minute = timestamp - MINUTE
        self.sums.collect(subject, ViewSum(subject.key, minute, self.counts.state_for(subject).pop(minute)))


job = Job(
    "views-per-minute",
    handler=ViewsPerMinute(),
    sources={"views": LinesSource(Param("VIEWS", default="views/"))},
    sinks={"sums": JsonLinesSink(Param("SUMS", default="sums/"))},
)

if __name__ == "__main__":
    main(job)
