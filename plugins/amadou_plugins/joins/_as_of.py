"""The as-of join: matches each left event with the right event that is nearest in time."""

from bisect import bisect_left, bisect_right
from datetime import datetime, timedelta
from typing import Any, Literal

from typing_extensions import Unpack

from amadou import KeyedEvent, Subject
from amadou.components import ComponentState, Invoke, copied
from amadou.errors import SpecError
from amadou.event_time import BEGINNING_OF_TIME, END_OF_TIME, MICROSECOND, to_micros
from amadou_plugins._calling import micros_of
from amadou_plugins._stored_form import are_times
from amadou_plugins.joins._base import JoinSettings, JoinSpec, Kept
from amadou_plugins.joins._timeline import Timeline, is_timeline, timelines

DIRECTIONS = ("backward", "forward", "nearest")


class AsOfJoin(JoinSpec):
    """Matches each left event with the right event of the same key that is nearest in time, in the given direction.

    A right event at the same time as the left event matches in every direction. If several right events have the same
    time, the last one in source order matches. If two right events are equally near, the earlier one matches.

    The result for a left event is emitted as soon as no on-time event can change it. This is the case once the
    watermark is past the left event's time plus `allowed_lateness` and, unless `direction` is `"backward"`, plus
    `tolerance`. The results for a key are emitted in the order of the left events' times, and in source order if these
    times are equal.

    A left event is late if the event's result is already due by the watermark of its batch. A right event is late if
    the results of all left events that it could match are already due by then. Without a
    `tolerance`, a right event is never late, because it can always match a future left event.

    :param tolerance: maximum time difference between matching events; unlimited by default
    :param how: `"left"` emits every left event, with `None` if no right event matches; `"inner"` emits only the left
        events that have a match
    :param direction: `"backward"` matches right events at or before the left event's time; `"forward"` matches right
        events at or after this time; `"nearest"` matches both. `"forward"` and `"nearest"` require a `tolerance`
    :param ttl: without a `tolerance`: duration in event time for which a right event matches after the key's last
        event. In order of time, a left event does not match if this duration or more has passed since the key's event
        before it. If neither a `tolerance` nor a `ttl` is set, the newest right event of each key is stored forever.
        Set a `ttl` if the number of keys keeps growing. Must be longer than `allowed_lateness`

    The other parameters are those of `JoinSpec`.
    """

    hides_expired = False

    def __init__(
        self,
        *,
        tolerance: timedelta | None = None,
        how: Literal["left", "inner"] = "left",
        direction: Literal["backward", "forward", "nearest"] = "backward",
        **settings: Unpack[JoinSettings],
    ) -> None:
        if direction not in DIRECTIONS:
            raise SpecError(f"direction must be one of {', '.join(map(repr, DIRECTIONS))}, not {direction!r}")
        if tolerance is None and direction != "backward":
            raise SpecError(f"direction={direction!r} needs a tolerance: without one, no left event would get a result")
        self._tolerance = tolerance
        self._direction = direction
        distance = None if tolerance is None else micros_of("tolerance", tolerance, least=0)
        self._back = 0 if direction == "forward" else distance
        self._ahead = 0 if direction == "backward" or distance is None else distance
        super().__init__(how=how, **settings)
        if isinstance(self.ttl, timedelta) and self.life <= self._lateness:
            raise SpecError(
                f"ttl must be longer than allowed_lateness ({self._lateness * MICROSECOND}), not {self.ttl}: otherwise "
                "left events expire before their results are due"
            )

    @property
    def _closes_after(self) -> int | None:
        return max(self._back or 0, self._ahead) if self._tolerance is not None else None

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        is_left = self._is_left(subject)
        micros = to_micros(event.timestamp)
        watermark = subject.watermark_micros
        if watermark is not None and self._is_late(is_left, micros, watermark):
            self.too_late(subject, event)
            return
        part = self.state_for(subject)
        lefts, rights, last = _stored(part.value)
        if is_left:
            lefts.insert(micros, copied(event.value))
        else:
            rights.replace(micros, copied(event.value))
        self._store(part, lefts, rights, last, watermark)

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        part = self.state_for(subject)
        if part.value is None:
            return
        now = to_micros(timestamp)
        lefts, rights, last = _stored(part.value)
        answered = END_OF_TIME + 1 if now >= END_OF_TIME else self._unanswered(now)
        matches = []
        for left in lefts.take_before(answered):
            right = self._nearest(rights, left[0])
            if right is not None and self.ttl is not None and left[0] - max(right[0], last) >= self.life:
                rights.take_before(right[0] + 1)
                self.count_expired(subject)
                right = None
            last = left[0]
            matches.append((left, right))
        self._store(part, lefts, rights, last, now, renews=False)
        for left, right in matches:
            if right is not None or self._how == "left":
                self._give(subject, call, left, right)

    def _unanswered(self, now: int) -> int:
        """Return the earliest time of a left event whose result is not yet due by this watermark."""
        return now - self._ahead - self._lateness

    def _is_late(self, is_left: bool, micros: int, watermark: int) -> bool:
        if is_left:
            return micros < self._unanswered(watermark)
        return self._back is not None and micros + self._back < self._unanswered(watermark)

    def _nearest(self, rights: Timeline, micros: int) -> Kept | None:
        """Return the right event that matches a left event with this time; `None` if there is no match."""
        times, found = rights.times, None
        after = bisect_right(times, micros)
        if after and (self._back is None or micros - times[after - 1] <= self._back):
            found = after - 1
        if after < len(times):
            distance = times[after] - micros
            if distance <= self._ahead and (found is None or distance < micros - times[found]):
                found = after
        return None if found is None else (times[found], rights.entries[found])

    def _store(
        self,
        part: ComponentState,
        lefts: Timeline,
        rights: Timeline,
        last: int,
        now: int | None,
        *,
        renews: bool = True,
    ) -> None:
        """Store the pending left events, and the right events that a pending or future left event can match.

        :param last: the time of the last left event whose result has been emitted
        """
        if now is not None:
            first = self._unanswered(now)
            useless = max(bisect_right(rights.times, first) - 1, 0)  # up to `first`, only the last event can match
            if self._back is not None:
                useless = max(useless, bisect_left(rights.times, first - self._back))
            rights.take(len(rights.times) if now >= END_OF_TIME else useless)
        wait = self._ahead + self._lateness + 1
        next_timer = None
        if lefts.times:
            next_timer = min(lefts.times[0] + wait, END_OF_TIME)
        elif rights.times and self._back is not None:
            next_timer = min(rights.times[-1] + self._back + wait, END_OF_TIME)
        value = [lefts.stored(), rights.stored(), *([] if self.ttl is None else [last])]
        part.store(value if lefts.times or rights.times else None, next_timer, renews=renews)

    def has_form(self, value: Any) -> bool:
        if type(value) is not list or len(value) not in (2, 3):
            return False
        return all(map(is_timeline, value[:2])) and are_times(value[2:])

    def sides(self, value: Any) -> tuple[list[Kept], list[Kept]]:
        lefts, rights = (list(zip(*side, strict=True)) for side in value[:2])
        return lefts, rights

    def _fixed(self) -> dict[str, Any]:
        return {**super()._fixed(), "direction": self._direction, "tolerance": self._tolerance}


def _stored(value: Any) -> tuple[Timeline, Timeline, int]:
    """Return the left and the right events in a key's state, and the time of the last left event whose result has been
    emitted. Without a `ttl`, this time is not stored.
    """
    if value is None:
        return *timelines(None), BEGINNING_OF_TIME
    left, right, last = (*value, BEGINNING_OF_TIME)[:3]
    return *timelines([left, right]), last
