"""The interval join: all pairs of events whose time difference is within a given interval."""

from datetime import datetime, timedelta
from typing import Any, Literal

from typing_extensions import Unpack

from amadou import KeyedEvent, Subject
from amadou.components import ComponentState, Invoke, copied
from amadou.errors import SpecError
from amadou.event_time import END_OF_TIME, MICROSECOND, to_micros
from amadou_plugins._calling import direct
from amadou_plugins.joins._base import JoinSettings, JoinSpec, Kept
from amadou_plugins.joins._timeline import Timeline, is_timeline, timelines

_LEFT, _RIGHT = 0, 1


class IntervalJoin(JoinSpec):
    """Emits each pair of a left and a right event of the same key whose time difference is between `lower` and `upper`,
    inclusive. The difference is the right event's time minus the left event's time.

    The join emits a pair once, as soon as the pair's second event arrives. No later event can invalidate the pair, so
    waiting would only delay the result and enlarge the state. If an arriving event has several partners, the join emits
    the pairs in the order of the partners' times. Partners with the same time are in arrival order.

    An event waits for partners until the watermark is past both the event's time and the latest possible time of a
    partner, each plus `allowed_lateness`. Then the join removes the event. If the event had no partner and `how`
    includes the event's side, the join emits the event with `None` for the partner. If several unmatched events are due
    at the same time, the join emits left events first. An event is late if the watermark of its batch is already past
    the end of this wait.

    :param lower: minimum difference, as the right event's time minus the left event's time; negative if the right event
        can be earlier
    :param upper: maximum difference, as the right event's time minus the left event's time
    :param how: sides whose unmatched events the join emits in addition to pairs: `"left"`, `"right"`, both (`"outer"`)
        or none (`"inner"`)

    The other parameters are those of `JoinSpec`.
    """

    hows = ("inner", "left", "right", "outer")

    def __init__(
        self,
        *,
        lower: timedelta,
        upper: timedelta,
        how: Literal["inner", "left", "right", "outer"] = "inner",
        **settings: Unpack[JoinSettings],
    ) -> None:
        for which, bound in (("lower", lower), ("upper", upper)):
            if not isinstance(bound, timedelta):
                raise SpecError(f"{which} must be a timedelta, not {bound!r}")
        if lower > upper:
            raise SpecError(f"lower must not be above upper ({upper!r}), but is {lower!r}")
        self._lower = lower // MICROSECOND
        self._upper = upper // MICROSECOND
        self._waits = (max(self._upper, 0), max(-self._lower, 0))  # how much later a partner can be, by side
        super().__init__(how=how, **settings)
        self._emits_unmatched = (how in ("left", "outer"), how in ("right", "outer"))

    @property
    def _closes_after(self) -> int:
        return max(self._waits)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        own, other = (_LEFT, _RIGHT) if self._is_left(subject) else (_RIGHT, _LEFT)
        micros = to_micros(event.timestamp)
        watermark = subject.watermark_micros
        if watermark is not None and micros < self._waiting(own, watermark):
            self.too_late(subject, event)
            return
        part = self.state_for(subject)
        sides = timelines(part.value)
        if watermark is not None:
            for side in (_LEFT, _RIGHT):
                sides[side].take_before(self._waiting(side, watermark))
        if own == _LEFT:
            partners = sides[other].between(micros + self._lower, micros + self._upper)
        else:
            partners = sides[other].between(micros - self._upper, micros - self._lower)
        for _, entry in partners:
            entry[1] = True
        sides[own].insert(micros, [copied(event.value), bool(partners)])
        self._store(part, sides)
        kept = (micros, event.value)
        for time, (value, _) in partners:
            pair = (kept, (time, value)) if own == _LEFT else ((time, value), kept)
            self._give(subject, direct, *pair)

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        part = self.state_for(subject)
        if part.value is None:
            return
        now = to_micros(timestamp)
        sides = timelines(part.value)
        lone: tuple[list[Kept], list[Kept]] = ([], [])
        for side in (_LEFT, _RIGHT):
            waiting = END_OF_TIME + 1 if now >= END_OF_TIME else self._waiting(side, now)
            for time, (value, paired) in sides[side].take_before(waiting):
                if self._emits_unmatched[side] and not paired:
                    lone[side].append((time, value))
        self._store(part, sides, renews=False)
        for left in lone[_LEFT]:
            self._give(subject, call, left, None)
        for right in lone[_RIGHT]:
            self._give(subject, call, None, right)

    def _waiting(self, side: int, now: int) -> int:
        """Return the earliest event time at which an event on a side still waits for partners, at the watermark.

        :param now: the watermark
        """
        return now - self._waits[side] - self._lateness

    def _store(self, part: ComponentState, sides: tuple[Timeline, Timeline], *, renews: bool = True) -> None:
        """Store the events, with a timer for the first event that might be emitted without a partner. If there is no
        such event, the timer is due when all events can be removed.
        """
        waits = [wait + self._lateness + 1 for wait in self._waits]
        unmatched_due = [
            sides[side].times[0] + waits[side]
            for side in (_LEFT, _RIGHT)
            if self._emits_unmatched[side] and sides[side].times
        ]
        ends = [sides[side].times[-1] + waits[side] for side in (_LEFT, _RIGHT) if sides[side].times]
        next_timer = min(unmatched_due) if unmatched_due else max(ends, default=END_OF_TIME)
        part.store([side.stored() for side in sides] if ends else None, min(next_timer, END_OF_TIME), renews=renews)

    def has_form(self, value: Any) -> bool:
        if type(value) is not list or len(value) != 2 or not all(map(is_timeline, value)):
            return False
        return all(type(entry) is list and len(entry) == 2 for _, entries in value for entry in entries)

    def sides(self, value: Any) -> tuple[list[Kept], list[Kept]]:
        lefts, rights = ([(time, value) for time, (value, _) in zip(*side, strict=True)] for side in value)
        return lefts, rights

    def _fixed(self) -> dict[str, Any]:
        return {**super()._fixed(), "lower": self._lower * MICROSECOND, "upper": self._upper * MICROSECOND}
