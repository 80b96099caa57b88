"""Sliding windows: one for each event, looking back."""

from datetime import datetime, timedelta
from typing import Any, Literal

from amadou import Call, KeyedEvent, Subject, to_micros
from amadou_plugins._calling import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    MICROSECOND,
    OnLate,
    direct,
    earliest,
    latest,
    micros_of,
)
from amadou_plugins.windows._base import Early, Migrate, OnResult, V, V_co, WindowSpec


class SlidingWindow(WindowSpec[V_co]):
    """For each event the window of a length that ends with it; both ends belong to it.

    Its result comes when the watermark has reached the event's time plus `allowed_lateness`, so that it does not depend
    on the order in which events come; events of the same time give the same result, each its own. An event that is late
    for its own window still counts in those of later events that are open. What a window has is put together for its
    result alone, which takes the longer the more times its events have.

    :param size: how far each window looks back
    :param value: an aggregate, or several by name, which give a mapping; counts without it

    The other parameters are those of `HoppingWindow`.
    """

    def __init__(
        self: "SlidingWindow[V]",
        size: timedelta,
        value: V = None,  # type: ignore[assignment]
        *,
        allowed_lateness: timedelta = timedelta(0),
        late: Literal["drop", "divert"] = "drop",
        early: Early = None,
        max_active: int | None = None,
        ttl: timedelta | None = None,
        storage: Literal["persistent", "memory"] = "persistent",
        version: int = 0,
        migrate: Migrate | None = None,
        name: str | None = None,
        on_close: OnResult | None = None,
        on_early: OnResult | None = None,
        on_late: OnLate | None = None,
    ) -> None:
        self._size = micros_of("size", size, least=1)
        super().__init__(
            value,
            merges=True,
            allowed_lateness=allowed_lateness,
            late=late,
            early=early,
            max_active=max_active,
            ttl=ttl,
            storage=storage,
            version=version,
            migrate=migrate,
            name=name,
            on_close=on_close,
            on_early=on_early,
            on_late=on_late,
        )

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        micros = to_micros(event.timestamp)
        part = self._part(subject, event)
        value: tuple[int | None, dict[int, Any]] = part.value or (None, {})
        before, steps = value
        closed = self._closed(subject, before)
        late = closed is not None and micros <= closed
        if not late and micros - self._size < BEGINNING_OF_TIME:
            raise self._out_of_time(event.timestamp)
        watermark = subject.watermark_micros
        if watermark is None or micros > self._passed(watermark, self._size):
            step = steps.setdefault(micros, [0, self._kept.create()])
            step[0] += 1
            step[1] = self._kept.add(step[1], event)
            wake_at = (
                self._closes_at(micros + self._size) if late else self._wakes_at(micros - self._size, micros, watermark)
            )
            part.store([before, steps], earliest(part.wake_at, wake_at))
        if late:
            self.too_late(subject, event)
            return
        if self._early_count or self._early_predicate is not None:
            parts = self._inside(steps, micros)
            if self._is_early(event, sum(count for count, _ in parts)):
                _, accumulator = self._merged(parts)
                self._emit(subject, direct, micros - self._size, micros, accumulator, partial=True)
        if self._max_active is not None:
            self._push_out(subject, self._max_active)

    def woken(self, subject: Subject, timestamp: datetime, call: Call) -> None:
        part = self.state_for(subject)
        if part.value is None:
            return
        before, steps = part.value
        now, watermark = to_micros(timestamp), subject.watermark_micros
        closing = now - self._lateness  # where the window ends that closes now, if there is one
        ends = [closing] if closing in steps else []
        if now == END_OF_TIME:
            ends = sorted(time for time in steps if time >= closing)
        results = [(end, False) for end in ends if before is None or end > before]
        if self._early_interval:
            left = self._open(steps, self._closed(subject, before))
            results += [(end, True) for end in left if self._is_due(end - self._size, end, now)]
        given = [(end, steps[end][0], self._merged(self._inside(steps, end))[1], partial) for end, partial in results]
        for time in [time for time in steps if now == END_OF_TIME or time + self._size <= closing]:
            del steps[time]
        after = latest(before, closing)
        part.store([after, steps] if steps else None, self._next_wake(steps, after, watermark) if steps else None)
        for end, times, accumulator, partial in given:
            for _ in range(times):
                self._emit(subject, call, end - self._size, end, accumulator, partial=partial)

    def _inside(self, steps: dict[int, Any], end: int) -> list[Any]:
        """What a window has of each time."""
        return [steps[time] for time in sorted(steps) if end - self._size <= time <= end]

    def _open(self, steps: dict[int, Any], closed: int | None) -> list[int]:
        """Where the windows end that are open."""
        return sorted(time for time in steps if closed is None or time > closed)

    def _next_wake(self, steps: dict[int, Any], closed: int | None, now: int | None) -> int:
        """When the first of the open windows closes, or gives an early result; where none is open, when no event can
        look back that far any more.
        """
        ends = self._open(steps, closed)
        if not ends:
            return self._closes_at(max(steps) + self._size)
        first = ends if self._early_interval else ends[:1]
        return min(self._wakes_at(end - self._size, end, now) for end in first)

    def _push_out(self, subject: Subject, most: int) -> None:
        """Close the oldest windows where there are more than may be open."""
        part = self.state_for(subject)
        before, steps = part.value
        ends = self._open(steps, self._closed(subject, before))
        for end in ends[: max(len(ends) - most, 0)]:
            times = steps[end][0]
            _, accumulator = self._merged(self._inside(steps, end))
            part.store([end, steps], self._next_wake(steps, end, subject.watermark_micros))
            subject.count(f"{self.name}.pushed_out", times)
            for _ in range(times):
                self._emit(subject, direct, end - self._size, end, accumulator, partial=True)

    def open_windows(self, value: Any) -> list[tuple[int, int, Any]]:
        before, steps = value
        return [(end - self._size, end, self._merged(self._inside(steps, end))[1]) for end in self._open(steps, before)]

    def _fixed(self) -> dict[str, timedelta | int | None]:
        return {"size": self._size * MICROSECOND}
