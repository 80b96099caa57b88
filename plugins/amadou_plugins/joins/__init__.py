"""Joins by time: match events from one source with events from another, per key.

Declare a join on the handler's class. The handler adds the events from both sources to the join and receives matches::

    class Trades(Handler):
        priced = SinkSpec(PricedTrade)
        quote = AsOfJoin(left="trades", right="quotes", tolerance=timedelta(seconds=5))

        def on_event(self, subject, event):
            self.quote.add(subject, event)

        @quote.on_match
        def matched(self, subject, trade, quote):
            self.priced.collect(subject, PricedTrade(subject.key, trade.value, quote and quote.value))

`subject.source` determines the side of an event. A match is a pair of the subject's events; a missing event is `None`.

- `LatestJoin` matches each left event immediately, with the newest right event that has already arrived.
- `AsOfJoin` matches each left event with the right event nearest in time, once the watermark is past the time of every
  event that could change the match.
- `IntervalJoin` matches events whose time difference is within a given interval. It emits each pair as soon as the
  second event of the pair arrives.

The results of `AsOfJoin` and `IntervalJoin` do not depend on the order of events within a batch. As long as no event is
more than `allowed_lateness` behind the watermark, these results do not depend on how the input is split into batches
either. An event is late if the watermark of its batch has passed every match that the event could be part of. The exact
rule is in each join's docstring. As the watermark advances, a join removes the events that it no longer needs. The
values that a join passes to the handler are also stored in the join's state: do not change them in place.
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
