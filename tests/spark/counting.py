"""A job whose key groups are too large to be stored as one entry: each view is counted, and each minute has a timer."""

from datetime import datetime, timedelta
from hashlib import shake_256

import orjson
from attrs import evolve, frozen

from amadou import Handler, Job, KeyedEvent, Param, SinkSpec, Subject, ValueSpec, truncate
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_runtime import main

MINUTE = timedelta(minutes=1)


@frozen
class Channel:
    """The state of a channel.

    :param noise: bytes that do not compress
    """

    views: int
    noise: bytes


@frozen
class Counted:
    """A view, or the end of a minute with views.

    :param sum: the number of the view in its channel; -1 at the end of a minute
    """

    channel_id: str
    timestamp: datetime
    sum: int


class Counting(Handler):
    """Numbers the views of each channel."""

    channels = ValueSpec(Channel)
    sums = SinkSpec(Counted)

    def key_event(self, record: bytes) -> KeyedEvent:
        view = orjson.loads(record)
        return KeyedEvent(view["channel_id"], datetime.fromisoformat(view["timestamp"]))

    def on_event(self, subject: Subject, event: KeyedEvent) -> None:
        state = self.channels.state_for(subject)
        channel = state.value if state.exists else Channel(0, shake_256(subject.key.encode()).digest(200))
        state.value = channel = evolve(channel, views=channel.views + 1)
        minute = truncate(event.timestamp, MINUTE)
        subject.set_timer(minute + 3 * MINUTE)
        self.sums.collect(subject, Counted(subject.key, minute, channel.views))

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        self.sums.collect(subject, Counted(subject.key, timestamp, -1))


job = Job(
    "counting",
    handler=Counting(),
    sources={"views": LinesSource(Param("VIEWS", default="views/"))},
    sinks={"sums": JsonLinesSink(Param("SUMS", default="sums/"))},
    key_groups=8,
)

if __name__ == "__main__":
    main(job)
