"""A job with two stages: the first sums views of pages by the minute, the second finds the most viewed page of each."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import orjson
from attrs import frozen

from amadou import (
    FromPort,
    Handler,
    Job,
    KeyedEvent,
    MapSpec,
    MemorySink,
    SinkSpec,
    Stage,
    Subject,
    ValueSpec,
    truncate,
)
from amadou.plugins import Sink, Source

MINUTE = timedelta(minutes=1)
START = datetime(2025, 1, 1, tzinfo=timezone.utc)


@frozen
class PageSum:
    page: str
    minute: datetime
    views: int


class Views(Handler):
    """Counts the views of each page per minute."""

    counts = MapSpec(datetime, int)
    sums = SinkSpec(PageSum)

    def key_event(self, record: bytes) -> KeyedEvent[int]:
        page, second = orjson.loads(record)
        return KeyedEvent(page, START + timedelta(seconds=second), second)

    def on_event(self, subject: Subject, event: KeyedEvent[int]) -> None:
        if event.value < 0:
            raise ValueError("below zero")
        counts, minute = self.counts.state_for(subject), truncate(event.timestamp, MINUTE)
        counts[minute] = counts.get(minute, 0) + 1
        subject.set_timer(minute + MINUTE)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        minute = timestamp - MINUTE
        self.sums.collect(subject, PageSum(subject.key, minute, self.counts.state_for(subject).pop(minute)))


class Top(Handler):
    """Finds the page with the most views in each minute."""

    best = ValueSpec(PageSum)
    top = SinkSpec(PageSum)

    def key_event(self, record: PageSum) -> KeyedEvent[PageSum]:
        if record.page.startswith("/bad"):
            raise ValueError(f"the page {record.page} is bad")
        return KeyedEvent(f"{record.minute:%H:%M}", record.minute + MINUTE, record)

    def on_event(self, subject: Subject, event: KeyedEvent[PageSum]) -> None:
        if event.value.page.startswith("/odd"):
            raise LookupError(f"the page {event.value.page} is odd, watermark {subject.watermark}")
        best = self.best.state_for(subject)
        if not best.exists or event.value.views > best.value.views:
            best.value = event.value
        subject.set_timer(event.timestamp + MINUTE)

    def on_timer_expired(self, subject: Subject, timestamp: datetime) -> None:
        best = self.best.state_for(subject)
        if best.value.page.startswith("/late"):
            raise KeyError(best.value.page)
        self.top.collect(subject, best.value)
        best.clear()


def view(page: str, second: int) -> bytes:
    """Return a record of the source `clicks`."""
    return orjson.dumps([page, second])


def top_pages(
    clicks: Source,
    top: Sink | None = None,
    *,
    handlers: tuple[Handler, Handler] = (Views(), Top()),
    dead_letters: Sink | None = None,
    plugins: Sequence[Any] = (),
    **settings: Any,
) -> Job:
    """Return the job.

    :param handlers: the handlers of the stages `views` and `top`
    :param dead_letters: the sink for the dead letters of both stages
    :param settings: settings of both stages
    """
    own = {} if dead_letters is None else {"dead_letters": dead_letters}
    return Job(
        "top-pages",
        stages={
            "views": Stage(handlers[0], sources={"clicks": clicks}, sinks=own, **settings),
            "top": Stage(
                handlers[1],
                sources={"sums": FromPort("views", "sums")},
                sinks={"top": top or MemorySink(), **own},
                **settings,
            ),
        },
        plugins=plugins,
    )
