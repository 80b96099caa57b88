"""Joins by time: what the events of one source have to do with those of another, key by key.

A join is declared on the handler's class; the handler gives it the events of both sources and gets matches back::

    class Trades(Handler):
        priced = SinkSpec(PricedTrade)
        quote = AsOfJoin(left="trades", right="quotes", tolerance=timedelta(seconds=5))

        def on_event(self, subject, event):
            self.quote.add(subject, event)

        @quote.on_match
        def matched(self, subject, trade, quote):
            self.priced.collect(subject, PricedTrade(subject.key, trade.value, quote and quote.value))

Which side an event belongs to says `subject.source`. A match is two events of the subject, `None` standing for one that
there is not.

- `LatestJoin` answers each left event at once, with the newest right event that has come so far.
- `AsOfJoin` answers each left event when the watermark has passed all that could change the answer, with the right
  event nearest in time.
- `IntervalJoin` gives each pair of events that are so far apart, as soon as the second one has come.

What the last two give depends neither on the order of events within a batch nor, as long as no event is behind the
watermark by more than `allowed_lateness`, on how the input is cut into batches. An event is late once the watermark of
its batch has passed all that it could take part in; each kind says what that is. What is kept of events is forgotten as
the watermark rises. The join keeps the values that it gives: do not change them in place.
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
