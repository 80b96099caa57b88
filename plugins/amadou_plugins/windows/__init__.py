"""Windows: aggregates of a key's events over a period of time, or over a number of events.

Declare a window on the handler's class. The handler adds events to the window and receives its results::

    class Traffic(Handler):
        counts = SinkSpec(ChannelCount)
        per_minute = TumblingWindow(size=timedelta(minutes=1), value=Count(), allowed_lateness=timedelta(seconds=30))

        def on_event(self, subject, event):
            self.per_minute.add(subject, event)

        @per_minute.on_close
        def minute_closed(self, subject, window, count):
            self.counts.collect(subject, ChannelCount(subject.key, window.start, count))

Time windows are half-open, `[start, end)`, except sliding windows. A window closes once, when the watermark reaches
`end + allowed_lateness`, before the handler's timers for this time fire; session and sliding windows close when it is
past this time. An event is late for a window if the watermark of the event's batch has reached the window's closing
time. A late event never reopens a window. Windows close in event-time order. An event that an `on_close` method adds to
a window declared further down is not late. Once all of a key's time windows have closed, no window state is stored for
the key.

If a handler would only add events to a single window, you do not need to write a class: see `windowed`.
"""

from amadou_plugins.windows._base import Window, WindowSpec
from amadou_plugins.windows._count import CountWindow
from amadou_plugins.windows._errors import WindowEventError
from amadou_plugins.windows._hopping import HoppingWindow, TumblingWindow
from amadou_plugins.windows._session import SessionWindow
from amadou_plugins.windows._sliding import SlidingWindow
from amadou_plugins.windows._windowed import RecordError, Windowed, WindowResult, windowed

__all__ = [
    "CountWindow",
    "HoppingWindow",
    "RecordError",
    "SessionWindow",
    "SlidingWindow",
    "TumblingWindow",
    "Window",
    "WindowEventError",
    "WindowResult",
    "WindowSpec",
    "Windowed",
    "windowed",
]
