"""Ranks the pages of a web server: the ten most viewed pages of each minute, over all pages.

The exact rules:

- A view is a line of the access log (common log format) with a GET request that succeeded (status 200 to 299 or 304).
- Images are not pages. The part of an address after a question mark does not belong to the page.
- Pages with the same number of views are ranked by name.
"""

import re
from datetime import datetime, timedelta

from attrs import frozen

from amadou import FromPort, Handler, Job, KeyedEvent, MapSpec, Param, SinkSpec, Stage, Subject
from amadou_plugins.aggregates import Count
from amadou_plugins.connectors import JsonLinesSink, LinesSource
from amadou_plugins.windows import TumblingWindow, Window
from amadou_runtime import main

RANKS = 10
MINUTE = timedelta(minutes=1)
VIEW = re.compile(rb'\S+ \S+ \S+ \[([^\]]+)\] "GET ([^ "?]+)[^"]*" (?:2\d\d|304) ')
IMAGES = (b".gif", b".jpg", b".png", b".xbm")


@frozen
class PageViews:
    page: str
    minute: datetime
    views: int


@frozen
class Rank:
    minute: datetime
    rank: int
    page: str
    views: int


class ViewsPerMinute(Handler[str]):
    """Counts the views of each page per minute."""

    per_minute = TumblingWindow(size=MINUTE, value=Count())
    views = SinkSpec(PageViews)

    def key_event(self, record: bytes) -> list[KeyedEvent[None]]:
        view = VIEW.match(record)
        if view is None or view[2].lower().endswith(IMAGES):
            return []
        return [KeyedEvent(view[2].decode("latin-1"), datetime.strptime(view[1].decode(), "%d/%b/%Y:%H:%M:%S %z"))]

    def on_event(self, subject: Subject[str], event: KeyedEvent[None]) -> None:
        self.per_minute.add(subject, event)

    @per_minute.on_close
    def count(self, subject: Subject[str], window: Window, views: int) -> None:
        self.views.collect(subject, PageViews(subject.key, window.start, views))


class TopPages(Handler[str]):
    """Ranks the pages of a minute, which is the key. All counts of a minute have the time of its end."""

    pages = MapSpec(str, int)
    top = SinkSpec(Rank)

    def on_event(self, subject: Subject[str], event: KeyedEvent[PageViews]) -> None:
        self.pages.state_for(subject)[event.value.page] = event.value.views
        # While the watermark is exactly at this time, other counts of the minute can still arrive.
        subject.set_timer(event.timestamp + timedelta(microseconds=1))

    def on_timer_expired(self, subject: Subject[str], timestamp: datetime) -> None:
        pages = self.pages.state_for(subject)
        ranked = sorted(pages.items(), key=lambda page: (-page[1], page[0]))
        for rank, (page, views) in enumerate(ranked[:RANKS], 1):
            self.top.collect(subject, Rank(datetime.fromisoformat(subject.key), rank, page, views))
        pages.clear()


job = Job(
    "top-pages",
    stages={
        "views": Stage(ViewsPerMinute(), sources={"log": LinesSource(Param("LOG", default="access.log"))}),
        "top": Stage(
            TopPages(),
            sources={"views": FromPort("views", "views", key=lambda views: views.minute.isoformat())},
            sinks={"top": JsonLinesSink(Param("TOP", default="top/"))},
        ),
    },
)

if __name__ == "__main__":
    main(job)
