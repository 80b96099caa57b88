"""Windows: aggregates of a key's events over a stretch of time, or over a number of events.

A window is declared on the handler's class; the handler adds events to it and gets results back::

    class Traffic(Handler):
        counts = SinkSpec(ChannelCount)
        per_minute = TumblingWindow(size=timedelta(minutes=1), value=Count(), allowed_lateness=timedelta(seconds=30))

        def on_event(self, subject, event):
            self.per_minute.add(subject, event)

        @per_minute.on_close
        def minute_closed(self, subject, window, count):
            self.counts.collect(subject, ChannelCount(subject.key, window.start, count))

Time windows are half-open, `[start, end)`, except sliding ones. A window closes once, when the watermark reaches
`end + allowed_lateness`, before the handler's timers of that time fire. An event is late for a window that the
watermark of its batch has closed; a late event never reopens a window. Windows close in time order: a result that one
window gives at its close is on time for windows declared after it. Once the last window of a key has closed, nothing
of the key stays in the state.

A handler that only feeds one window needs no code: see `windowed`.
"""

from amadou_plugins.windows._base import Window, WindowSpec
from amadou_plugins.windows._count import CountWindow
from amadou_plugins.windows._errors import WindowEventError
from amadou_plugins.windows._panes import HoppingWindow, TumblingWindow
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
