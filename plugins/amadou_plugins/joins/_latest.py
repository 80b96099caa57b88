"""The join with the newest event of the other source that is known."""

from datetime import datetime
from typing import Any, Literal, Unpack

from amadou import Invoke, KeyedEvent, Subject, to_micros
from amadou.event_time import MICROSECOND
from amadou_plugins._calling import direct
from amadou_plugins.joins._base import JoinSettings, JoinSpec, Kept


class LatestJoin(JoinSpec):
    """Enriches each left event with the newest right event of its key that has come so far, at once.

    The newest one is that of the latest time, though it may be later than the left event's; of several of that time it
    is the one that came last. Nothing else is kept. The answer depends on what has come, and so on how the input is cut
    into batches and on how the sources keep pace: within a batch events run by their times, at equal times those of the
    source whose name sorts first (`semantics.md` 7). `AsOfJoin` waits, and does not depend on it.

    No left event is late. A right event is, where there is a `ttl` and it is over: when its time plus `ttl` plus
    `allowed_lateness` is not after the watermark of its batch.

    :param how: `"left"` gives each left event, with `None` where no right one is known; `"inner"` only where one is
    :param ttl: for how long a right event is used: until the watermark is so far past its time, or past where the
        watermark was when it came, if that is later (`semantics.md` 16). Without it the newest right event of each key
        stays for good

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
        """It asks for no time."""

    def sides(self, value: Any) -> tuple[list[Kept], list[Kept]]:
        return [], [value]
