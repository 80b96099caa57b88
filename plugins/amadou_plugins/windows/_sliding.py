"""Sliding windows: one window per event, which ends at the event's time."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from typing_extensions import Unpack

from amadou import KeyedEvent, Subject
from amadou.components import ComponentState, Invoke
from amadou.event_time import BEGINNING_OF_TIME, END_OF_TIME, MICROSECOND, to_micros
from amadou_plugins._calling import direct, earliest, latest, micros_of
from amadou_plugins._stored_form import is_by_time
from amadou_plugins.windows._base import (
    ACCUMULATOR,
    COUNT,
    Span,
    V,
    V_co,
    WindowSettings,
    WindowSpec,
)


class SlidingWindow(WindowSpec[V_co]):
    """Windows of a fixed size, one per event. A window ends at its event's time. Both ends are inclusive.

    Kafka Streams calls these windows sliding windows, too. The sliding windows of Flink, Beam and Spark are amadou's
    `HoppingWindow`.

    A window emits its result when the watermark is past the window's end plus `allowed_lateness`. The order in which
    events arrive before then does not affect the result. If several events have the same time, the same result is
    emitted once per event. An event is late if the window that ends at the event's time has closed. The open windows of
    later events still include the late event. A window is assembled only when its result is emitted. The more distinct
    event times a window contains, the longer its assembly takes.

    :param size: length of each window
    :param value: an aggregate, or a mapping of names to aggregates; by default, the window counts events

    The other parameters are those of `HoppingWindow`.
    """

    _includes_end = 1

    def __init__(
        self: "SlidingWindow[V]",
        size: timedelta,
        value: V = None,  # type: ignore[assignment]
        **settings: Unpack[WindowSettings],
    ) -> None:
        self._size = micros_of("size", size, least=1)
        super().__init__(value, merges=True, **settings)

    @property
    def _closes_after(self) -> int:
        return self._size

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        micros = to_micros(event.timestamp)
        part = self._part(subject, event)
        value: tuple[int | None, dict[int, Any]] = part.value or (None, {})
        before, steps = value
        reached, watermark = self.reached(subject), subject.watermark_micros
        closed = self._closed(reached, before)
        late = closed is not None and micros <= closed
        if not late and micros - self._size < BEGINNING_OF_TIME:
            raise self._out_of_time(event.timestamp)
        if reached is None or micros > self._passed(reached, self._size):
            self._add_to_step(part, steps, event, micros)
            next_timer = (
                self._closes_at(micros + self._size)
                if late
                else self._timer_of(micros - self._size, micros, reached, watermark)
            )
            part.store([before, steps], earliest(part.next_timer, next_timer))
        if late:
            self._too_late(subject, event, just=closed != before and micros == closed)
            return
        if self._early_count or self._early_predicate is not None:
            inside = self._inside(steps, micros)
            if self._is_early(event, sum(steps[time][COUNT] for time in inside)):
                self._emit(subject, direct, *self._result(steps, micros), partial=True)
        if self._max_active is not None:
            self._evict(subject, self._max_active)

    def _add_to_step(self, part: ComponentState, steps: dict[int, Any], event: KeyedEvent[Any], micros: int) -> None:
        step = steps.get(micros) or [0, self._kept.create()]
        others = lambda _: (  # noqa: E731
            self._kept.kind(other[ACCUMULATOR]) for time, other in steps.items() if abs(time - micros) <= self._size
        )
        self._add(part, step, event, steps.values(), others)
        step[COUNT] += 1
        steps[micros] = step

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        part = self.state_for(subject)
        if part.value is None:
            return
        before, steps = part.value
        now, watermark = to_micros(timestamp), subject.watermark_micros
        closing = self._passed(now, 0) if now < END_OF_TIME else now - self._lateness
        results = [(end, False) for end in self._open(self._closing(steps, now, closing), before)]
        if self._early_interval:
            left = self._open(steps, self._closed(watermark, before))
            results += [(end, True) for end in left if self._is_due(end - self._size, end, now, watermark)]
        given = [(steps[end][COUNT], self._result(steps, end), partial) for end, partial in results]
        for time in [time for time in steps if now == END_OF_TIME or time + self._size <= closing]:
            del steps[time]
        after = latest(before, closing)
        next_timer = self._next_timer(steps, after, now, watermark) if steps else None
        part.store([after, steps] if steps else None, next_timer, renews=False)
        for times, result, partial in given:
            self._emit(subject, call, *result, partial=partial, times=times)

    def _closing(self, steps: dict[int, Any], now: int, closing: int) -> list[int]:
        """Return the ends of the windows that close now, in order: one of them, or at the end of time all.

        :param closing: the end of the window that closes now, if there is one
        """
        if now == END_OF_TIME:
            return sorted(time for time in steps if time >= closing)
        return [closing] if closing in steps else []

    def _inside(self, steps: dict[int, Any], end: int) -> list[int]:
        """Return the distinct event times in a window, in order of time."""
        return [time for time in sorted(steps) if end - self._size <= time <= end]

    def _result(self, steps: dict[int, Any], end: int) -> tuple[Span, list[Any]]:
        """Return a window's span, and the accumulators of its parts."""
        inside = self._inside(steps, end)
        span = end - self._size, end, inside[0], inside[-1]
        return span, [steps[time][ACCUMULATOR] for time in inside]

    def _open(self, steps: Iterable[int], closed: int | None) -> list[int]:
        """Return the ends of the open windows."""
        return sorted(time for time in steps if closed is None or time > closed)

    def _next_timer(self, steps: dict[int, Any], closed: int | None, now: int | None, watermark: int | None) -> int:
        """Return the first time at which an open window closes or emits an early result. If no window is open, return
        the time at which the stored events can be removed because no future window can contain them.

        :param now: event time up to which early results have been emitted; `None` if none have been emitted
        """
        ends = self._open(steps, closed)
        if not ends:
            return self._closes_at(max(steps) + self._size)
        first = ends if self._early_interval else ends[:1]
        return min(self._timer_of(end - self._size, end, now, watermark) for end in first)

    def _evict(self, subject: Subject, most: int) -> None:
        """Close a subject's oldest windows until at most `most` windows are open."""
        part = self.state_for(subject)
        before, steps = part.value
        reached = self.reached(subject)
        ends = self._open(steps, self._closed(reached, before))
        for end in ends[: max(len(ends) - most, 0)]:
            part.store([end, steps], self._next_timer(steps, end, reached, subject.watermark_micros))
            times = steps[end][COUNT]
            subject.count(f"{self.name}.evicted", times)
            self._emit(subject, direct, *self._result(steps, end), partial=True, times=times)

    def _are_open(self, windows: Any) -> bool:
        return is_by_time(windows, 2)

    def open_windows(self, value: Any) -> list[tuple[int, int, list[Any]]]:
        before, steps = value
        return [(end - self._size, end, self._result(steps, end)[1]) for end in self._open(steps, before)]

    def _fixed(self) -> dict[str, Any]:
        return {"size": self._size * MICROSECOND}
