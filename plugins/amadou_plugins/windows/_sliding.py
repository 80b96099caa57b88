"""Sliding windows: one for each event, looking back."""

from datetime import datetime, timedelta
from typing import Any

from amadou import Call, KeyedEvent, Subject, to_micros
from amadou_plugins._calling import MICROSECOND, direct, latest, micros_of
from amadou_plugins.windows._base import WindowSpec


class SlidingWindow(WindowSpec):
    """For each event the window of a length that ends with it; both ends belong to it.

    Its result comes when the watermark has reached the event's time plus `allowed_lateness`, so that it does not depend
    on the order in which events come; events of the same time give the same result, each its own. An event that is late
    for its own window still counts in those of later events that are open.

    :param size: how far each window looks back
    :param value: an aggregate, or several by name, which give a mapping; counts without it

    The other parameters are those of `HoppingWindow`, but that there are no early results by time.
    """

    intervals = False

    def __init__(self, size: timedelta, value: Any = None, **settings: Any) -> None:
        self._size = micros_of("size", size, least=1)
        super().__init__(value, merges=True, **settings)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        micros = to_micros(event.timestamp)
        part = self.state_for(subject)
        value: tuple[int | None, dict[int, Any]] = part.value or (None, {})
        before, steps = value
        closed = self._closed(subject, before)
        late = closed is not None and micros <= closed
        watermark = subject.watermark_micros
        if watermark is None or micros + self._size + self._lateness > watermark:
            step = steps.setdefault(micros, [0, self._kept.create()])
            step[0] += 1
            step[1] = self._kept.add(step[1], event)
            part.store([before, steps], self._next_wake(steps, closed))
        if late:
            self.too_late(subject, event)
            return
        if self._early_count or self._early_predicate is not None:
            count, accumulator = self._window(steps, micros)
            if self._is_early(event, count):
                self._emit(subject, direct, micros - self._size, micros, accumulator, partial=True)
        if self._max_active is not None:
            self._push_out(subject, self._max_active)

    def woken(self, subject: Subject, timestamp: datetime, call: Call) -> None:
        part = self.state_for(subject)
        if part.value is None:
            return
        before, steps = part.value
        closing = to_micros(timestamp) - self._lateness
        times, accumulator = 0, None
        if closing in steps and (before is None or closing > before):
            times = steps[closing][0]
            _, accumulator = self._window(steps, closing)
        for time in [time for time in steps if time + self._size <= closing]:
            del steps[time]
        after = latest(before, closing)
        part.store([after, steps] if steps else None, self._next_wake(steps, after) if steps else None)
        for _ in range(times):
            self._emit(subject, call, closing - self._size, closing, accumulator, partial=False)

    def _window(self, steps: dict[int, Any], end: int) -> tuple[int, Any]:
        return self._merged([steps[time] for time in sorted(steps) if end - self._size <= time <= end])

    def _next_wake(self, steps: dict[int, Any], closed: int | None) -> int:
        """When the next window closes; where none is open, when no event can look back that far any more."""
        ends = [time for time in steps if closed is None or time > closed]
        return (min(ends) if ends else max(steps) + self._size) + self._lateness

    def _push_out(self, subject: Subject, most: int) -> None:
        """Close the oldest windows where there are more than may be open."""
        part = self.state_for(subject)
        before, steps = part.value
        closed = self._closed(subject, before)
        ends = sorted(time for time in steps if closed is None or time > closed)
        for end in ends[: max(len(ends) - most, 0)]:
            times = steps[end][0]
            _, accumulator = self._window(steps, end)
            part.store([end, steps], self._next_wake(steps, end))
            subject.count(f"{self.name}.pushed_out", times)
            for _ in range(times):
                self._emit(subject, direct, end - self._size, end, accumulator, partial=True)

    def open_windows(self, value: Any) -> list[tuple[int, int, Any]]:
        before, steps = value
        ends = sorted(time for time in steps if before is None or time > before)
        return [(end - self._size, end, self._window(steps, end)[1]) for end in ends]

    def __repr__(self) -> str:
        return self._shown(size=self._size * MICROSECOND)
