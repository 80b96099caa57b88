"""Joins by time: match the events of one source with those of another, key by key.

A join is declared on the handler's class; the handler adds the events of both sources to it and gets matches back::

    class Trades(Handler):
        priced = SinkSpec(PricedTrade)
        quote = AsOfJoin(left="trades", right="quotes", tolerance=timedelta(seconds=5))

        def on_event(self, subject, event):
            self.quote.add(subject, event)

        @quote.on_match
        def matched(self, subject, trade, quote):
            self.priced.collect(subject, PricedTrade(subject.key, trade.value, quote and quote.value))

`subject.source` decides the side of an event. A match is two events of the subject; `None` stands for a missing one.

- `LatestJoin` answers each left event at once, with the newest right event that has arrived so far.
- `AsOfJoin` answers each left event with the right event nearest in time, once the watermark has passed every event
  that could change the answer.
- `IntervalJoin` gives each pair of events whose times differ by a given interval, as soon as the second one arrives.

The results of `AsOfJoin` and `IntervalJoin` do not depend on the order of events within a batch. As long as no event is
behind the watermark by more than `allowed_lateness`, they do not depend on how the input is cut into batches either. An
event is late once the watermark of its batch has passed every match that it could take part in; each kind gives its
rule. Kept events are removed as the watermark rises. The join keeps the values that it gives: do not change them in
place.
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
