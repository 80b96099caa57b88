"""The latest join: matches the newest known event of the other source."""

from datetime import datetime
from typing import Any, Literal, Unpack

from amadou import Invoke, KeyedEvent, Subject, to_micros
from amadou.event_time import MICROSECOND
from amadou_plugins._calling import direct
from amadou_plugins.joins._base import JoinSettings, JoinSpec, Kept


class LatestJoin(JoinSpec):
    """Enriches each left event at once with the newest right event of its key that has arrived so far.

    The newest right event is the one with the latest time, even if that is after the left event's time; of several with
    that time, the last to arrive. The join keeps no other event. The answer depends on the arrived events, and so on
    how the input is cut into batches and on how the sources keep pace. Within a batch, events are processed in time
    order; at equal times, those of the source whose name sorts first come first (`semantics.md` 7). `AsOfJoin` waits,
    and does not depend on any of this.

    A left event is never late. A right event is late if its `ttl` is over: if its time plus `ttl` plus
    `allowed_lateness` is not after the watermark of its batch.

    :param how: `"left"` gives each left event, with `None` where no right one is known; `"inner"` only where one is
    :param ttl: event time for which a right event is used, counted from its time, or from the watermark at its arrival
        if that is later (`semantics.md` 16). Without it the newest right event of each key stays forever

    The other parameters are those of `JoinSpec`.
    """

    def __init__(self, *, how: Literal["left", "inner"] = "left", **settings: Unpack[JoinSettings]) -> None:
        super().__init__(how=how, **settings)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        is_left = self._is_left(subject)
        part = self.state_for(subject)
        micros = to_micros(event.timestamp)
        if is_left:
            if part.value is not None or self._how == "left":
                self._give(subject, direct, (micros, event.value), part.value)
        elif self._is_late(subject, micros):
            self.too_late(subject, event)
        elif part.value is None or micros >= part.value[0]:
            part.store([micros, event.value], None)

    def _is_late(self, subject: Subject, micros: int) -> bool:
        watermark = subject.watermark_micros
        if self.ttl is None or watermark is None:
            return False
        return micros + self.ttl // MICROSECOND + self._lateness <= watermark

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        """Do nothing: the join has no timers."""

    def sides(self, value: Any) -> tuple[list[Kept], list[Kept]]:
        return [], [value]
