"""Joins: match events of the same key from two sources by their times.

Declare a join on the handler's class. The handler adds the events from both sources to the join, and a method of the
handler receives the matches::

    class Trades(Handler):
        priced = SinkSpec(PricedTrade)
        quote = AsOfJoin(left="trades", right="quotes", tolerance=timedelta(seconds=5))

        def on_event(self, subject, event):
            self.quote.add(subject, event)

        @quote.on_match
        def matched(self, subject, trade, quote):
            self.priced.collect(subject, PricedTrade(subject.key, trade.value, quote and quote.value))

`subject.source` determines whether an event is a left or a right event. A match is a pair of a left and a right event
of the same subject. For an event without a partner, the other element of the pair is `None`.

- `LatestJoin` matches each left event immediately, with the newest right event that has already arrived.
- `AsOfJoin` matches each left event with the right event nearest in time, once the watermark is so far ahead that no
  on-time event can change the match.
- `IntervalJoin` matches events whose time difference is within a given interval. It emits each pair as soon as the
  second event of the pair arrives.

The results of `AsOfJoin` and `IntervalJoin` do not depend on the order of events within a batch. An exception: if
several right events have the same time, `AsOfJoin` uses the last one in source order. As long as no event is more than
`allowed_lateness` behind the watermark, the results do not depend on how the input is split into batches either. An
event is late for a join if the watermark of its batch is already so far ahead that the event can no longer contribute
to a match. The docstring of each join contains the exact rule. As the watermark advances, a join removes the events
that it no longer needs. The values that a join passes to the handler are also stored in the join's state: do not change
them in place.
"""

from amadou_plugins.joins._as_of import AsOfJoin
from amadou_plugins.joins._base import JoinSpec
from amadou_plugins.joins._errors import JoinSourceError
from amadou_plugins.joins._interval import IntervalJoin
from amadou_plugins.joins._latest import LatestJoin

__all__ = [
    "AsOfJoin",
    "IntervalJoin",
    "JoinSourceError",
    "JoinSpec",
    "LatestJoin",
]
