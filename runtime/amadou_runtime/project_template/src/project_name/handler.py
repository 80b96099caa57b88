"""The handler: it counts the events of each key per minute."""

from datetime import datetime, timedelta
from typing import Any

from amadou import Handler, KeyedEvent, MapSpec, SinkSpec, Subject, truncate
from attrs import frozen

MINUTE = timedelta(minutes=1)


@frozen
class MinuteCount:
    """Number of events of a key in a minute.

    :param minute: the beginning of the minute
    """

    key: str
    minute: datetime
    events: int


class EventsPerMinute(Handler[str]):
    """Counts the events of each key per minute.

    A count is written when the minute has ended in event time. Events that arrive
    later are counted as dropped.
    """

    open_minutes = MapSpec(datetime, int)
    counts = SinkSpec(MinuteCount)

    def key_event(self, record: dict[str, Any]) -> KeyedEvent:
        return KeyedEvent(record["key"], datetime.fromisoformat(record["time"]))

    def on_event(self, subject: Subject[str], event: KeyedEvent) -> None:
        minute = truncate(event.timestamp, MINUTE)
        if not subject.set_timer(minute + MINUTE):  # its count has been written
            subject.drop(event)
            return
        open_minutes = self.open_minutes.state_for(subject)
        open_minutes[minute] = open_minutes.get(minute, 0) + 1

    def on_timer_expired(self, subject: Subject[str], timestamp: datetime) -> None:
        minute = timestamp - MINUTE
        events = self.open_minutes.state_for(subject).pop(minute)
        self.counts.collect(subject, MinuteCount(subject.key, minute, events))
