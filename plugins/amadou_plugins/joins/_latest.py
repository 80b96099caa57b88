"""The latest join: matches each left event with the newest right event that has already arrived."""

from datetime import datetime
from typing import Any, Literal

from typing_extensions import Unpack

from amadou import KeyedEvent, Subject
from amadou.components import Invoke, copied
from amadou.event_time import to_micros
from amadou_plugins._calling import direct
from amadou_plugins._stored_form import are_times
from amadou_plugins.joins._base import JoinSettings, JoinSpec, Kept


class LatestJoin(JoinSpec):
    """Enriches each left event immediately with the newest right event of the same key that has already arrived.

    The newest right event is the right event with the latest time, even if this time is after the left event's time. If
    several right events have the latest time, the last one to arrive is the newest. The join stores only the newest
    right event.

    The result depends on which right events have arrived when a left event is processed. Therefore, the result depends
    on how the input is split into batches, and on the lag between the two sources. Within a batch, the events from the
    two sources are merged by event time; events with equal times are ordered by source name (`semantics.md` 7).
    `AsOfJoin` waits for the watermark, so neither the batches nor the lag affect its results as long as no event is
    late.

    A left event is never late. A right event is late if the watermark of its batch has reached the event's time plus
    `ttl` plus `allowed_lateness`. Without a `ttl`, a right event is never late.

    :param how: `"left"` emits every left event, with `None` if no right event is stored; `"inner"` emits a left event
        only if a right event is stored
    :param ttl: duration in event time for which left events are matched with a right event. The duration starts at the
        right event's time, or at the watermark when the right event arrives, whichever is later (`semantics.md` 16). By
        default, the join stores the newest right event of each key forever

    The other parameters are those of `JoinSpec`. However, `allowed_lateness` does not delay the results of this join.
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
            part.store([micros, copied(event.value)], None)

    def _is_late(self, subject: Subject, micros: int) -> bool:
        watermark = subject.watermark_micros
        if self.ttl is None or watermark is None:
            return False
        return micros + self.life + self._lateness <= watermark

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        """Do nothing: the join has no timers."""

    def has_form(self, value: Any) -> bool:
        return type(value) is list and len(value) == 2 and are_times(value[:1])

    def sides(self, value: Any) -> tuple[list[Kept], list[Kept]]:
        return [], [value]
