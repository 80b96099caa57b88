"""Windows of a key (`docs/windows.md`), each from its definition."""

import math
from typing import Any, NamedTuple, Protocol

from tests.qualify.fuzz.scripts import MICRO, Component

EPOCH = 1_735_689_600
"""Seconds from 1970 to `START`: windows are aligned to 1970."""


class Event(NamedTuple):
    at: float
    value: dict[str, Any]
    mark: float | None
    """The watermark that decided whether it was late."""


class Call(Protocol):
    """What components need of the callback that adds events, or of the timer that fires."""

    at: float
    watermark: float | None
    now: float
    is_timer: bool

    def has_passed(self, at: float, place: int) -> bool:
        """Whether a component has closed what closes at a time."""

    def emit(self, component: Component, parts: list[Any], values: Any) -> None:
        """Pass a result to the component's callback."""

    def too_late(self, component: Component, event: Event) -> None:
        """An event is late for a component."""

    def increase(self, counter: str) -> None: ...

    def meets(self, name: str) -> None:
        """See `Rules.meets`."""


def seconds(value: Any) -> int:
    return int(value or 0) * MICRO


class Windows:
    """The open windows of a kind; `place` is that of the component in the handler."""

    def __init__(self, component: Component, place: int) -> None:
        self.component = component
        self.place = place
        self.lateness = seconds(component.settings.get("lateness"))
        self.early = component.settings.get("early") or [None]
        self.most = component.settings.get("max_active") or math.inf

    def emit(self, call: Call, start: float, end: float, events: list[Event], partial: bool) -> None:
        times = [event.at for event in events]
        span = [start, end, min(times), max(times), partial]
        call.emit(self.component, span, [event.value for event in events])

    def mark(self, call: Call) -> float | None:
        return call.watermark

    def expire(self, now: float) -> bool:
        """Remove what has expired. Of windows, only count windows have a ttl."""
        return False

    def begin(self) -> None:
        """The events of a batch begin."""

    def settle(self, mark: float) -> None:
        """Forget what no window can include any more."""


class Hopping(Windows):
    """Tumbling and hopping windows: those that the event's time is in."""

    def __init__(self, component: Component, place: int) -> None:
        super().__init__(component, place)
        options = component.settings
        self.size = seconds(options["size"])
        self.hop = seconds(options.get("hop", options["size"]))
        self.offset = seconds(options.get("offset")) - EPOCH * MICRO
        self.open: dict[float, list[Event]] = {}
        self.evicted = -math.inf
        self.shown: dict[float, float] = {}
        """Up to when the early results of each window have been emitted."""

    def copy(self) -> "Hopping":
        made = type(self)(self.component, self.place)
        made.open = {start: list(events) for start, events in self.open.items()}
        made.evicted, made.shown = self.evicted, dict(self.shown)
        return made

    def is_empty(self) -> bool:
        return not self.open

    def lose(self) -> bool:
        had, self.open, self.shown, self.evicted = bool(self.open), {}, {}, -math.inf
        return had

    def starts(self, at: float) -> list[float]:
        first = (at - self.size - self.offset) // self.hop * self.hop + self.offset
        tried = [first + number * self.hop for number in range(int(self.size // self.hop) + 3)]
        return [start for start in tried if start <= at < start + self.size]

    def add(self, call: Call, at: float, value: dict[str, Any]) -> None:
        event = Event(at, value, self.mark(call))
        own = self.starts(at)
        taking = [
            start
            for start in own
            if not call.has_passed(start + self.size + self.lateness, self.place) and start + self.size > self.evicted
        ]
        if own and not taking:
            call.too_late(self.component, event)
        for start in taking:
            if start not in self.open:
                self.open[start] = []
                self.shown[start] = -math.inf if call.watermark is None else call.watermark
            self.open[start].append(event)
        for start in taking:
            number = len(self.open[start])
            if (self.early[0] == "count" and number % self.early[1] == 0) or (
                self.early[0] == "flag" and value.get("flag")
            ):
                self.emit(call, start, start + self.size, self.open[start], partial=True)
        while len(self.open) > self.most:
            start = min(self.open)
            self.evicted = max(self.evicted, start + self.size)
            self.close(call, start, partial=True)
            call.increase(f"{self.component.name}.evicted")

    def close(self, call: Call, start: float, partial: bool = False) -> None:
        events = self.open.pop(start)
        del self.shown[start]
        self.emit(call, start, start + self.size, events, partial)

    def early_at(self, start: float, watermark: float) -> float | None:
        """The last time at which a window has an early result to emit."""
        if self.early[0] != "every" or start + self.size + self.lateness <= watermark:
            return None
        every = seconds(self.early[1])
        times = [start + every * number for number in range(1, int(self.size // every) + 1)]
        due = [at for at in times if self.shown[start] < at <= watermark and at < start + self.size]
        return max(due, default=None)

    def due(self, watermark: float) -> float | None:
        times = [start + self.size + self.lateness for start in self.open]
        times += [at for start in self.open if (at := self.early_at(start, watermark)) is not None]
        return min((at for at in times if at <= watermark), default=None)

    def fire(self, call: Call, watermark: float) -> None:
        for start in sorted(self.open):
            if start + self.size + self.lateness == call.at:
                self.close(call, start)
            elif self.early_at(start, watermark) == call.at:
                self.shown[start] = call.at
                self.emit(call, start, start + self.size, self.open[start], partial=True)


class Session(Windows):
    """Stretches of events that are at most a gap apart."""

    def __init__(self, component: Component, place: int) -> None:
        super().__init__(component, place)
        self.gap = seconds(component.settings["gap"])
        longest = component.settings.get("max_duration")
        self.longest = math.inf if longest is None else seconds(longest)
        self.open: list[Event] = []
        self.before: list[list[Event]] = []
        """The sessions that were open when the batch began."""
        self.ended = -math.inf
        """The end of the last session that was split."""

    def copy(self) -> "Session":
        made = type(self)(self.component, self.place)
        made.open, made.before, made.ended = list(self.open), self.before, self.ended
        return made

    def is_empty(self) -> bool:
        return not self.open

    def lose(self) -> bool:
        had, self.open, self.before, self.ended = bool(self.open), [], [], -math.inf
        return had

    def begin(self) -> None:
        self.before = self.sessions()

    def sessions(self) -> list[list[Event]]:
        found: list[list[Event]] = []
        for event in sorted(self.open, key=lambda event: event.at):
            if (
                found
                and event.at - found[-1][-1].at <= self.gap
                and (self.longest == math.inf or event.at < found[-1][0].at + self.longest)
            ):
                found[-1].append(event)
            else:
                found.append([event])
        return found

    def end(self, session: list[Event]) -> float:
        return min(session[-1].at + self.gap, session[0].at + self.longest)

    def add(self, call: Call, at: float, value: dict[str, Any]) -> None:
        event = Event(at, value, self.mark(call))
        is_near = self.longest == math.inf and any(
            each[0].at - self.gap <= at <= each[-1].at + self.gap for each in self.before
        )
        if (call.has_passed(at + self.gap + self.lateness + 1, self.place) and not is_near) or at < self.ended:
            call.too_late(self.component, event)
            return
        is_by = any(each[0].at - self.gap <= at <= each[-1].at + self.gap for each in self.before)
        if call.watermark is not None and at < call.watermark - self.lateness and not is_by:
            call.increase(f"{self.component.name}.late_sessions")
        self.open.append(event)
        if self.early[0] == "flag" and value.get("flag"):
            session = next(each for each in self.sessions() if event in each)
            self.emit(call, session[0].at, self.end(session), self.in_order(session), partial=True)

    def in_order(self, session: list[Event]) -> list[Event]:
        """The events of a session as they were added."""
        members = set(map(id, session))
        return [event for event in self.open if id(event) in members]

    def due(self, watermark: float) -> float | None:
        times = [self.end(session) + self.lateness + 1 for session in self.sessions()]
        return min((at for at in times if at <= watermark), default=None)

    def fire(self, call: Call, watermark: float) -> None:
        for session in self.sessions():
            if self.end(session) + self.lateness == call.at:
                events = self.in_order(session)
                members = set(map(id, session))
                self.open = [event for event in self.open if id(event) not in members]
                if any(session[-1].at < event.at <= session[-1].at + self.gap for event in self.open):  # it was split
                    self.ended = max(self.ended, self.end(session))
                self.emit(call, session[0].at, self.end(session), events, partial=False)


class Sliding(Windows):
    """For each event, those that are at most the size before it."""

    def __init__(self, component: Component, place: int) -> None:
        super().__init__(component, place)
        self.size = seconds(component.settings["size"])
        self.events: list[Event] = []
        self.waiting: list[float] = []

    def copy(self) -> "Sliding":
        made = type(self)(self.component, self.place)
        made.events, made.waiting = list(self.events), list(self.waiting)
        return made

    def is_empty(self) -> bool:
        return not self.events

    def settle(self, mark: float) -> None:
        self.events = [event for event in self.events if event.at + self.size + self.lateness >= mark]

    def lose(self) -> bool:
        had, self.events, self.waiting = bool(self.events), [], []
        return had

    def add(self, call: Call, at: float, value: dict[str, Any]) -> None:
        event = Event(at, value, self.mark(call))
        self.events.append(event)
        if call.has_passed(at + self.lateness + 1, self.place):
            call.too_late(self.component, event)
        else:
            self.waiting.append(at)

    def due(self, watermark: float) -> float | None:
        times = [at + self.lateness + 1 for at in self.waiting]
        return min((at for at in times if at <= watermark), default=None)

    def fire(self, call: Call, watermark: float) -> None:
        end = call.at - self.lateness
        inside = [
            event
            for event in self.events
            if end - self.size <= event.at <= end and (event.mark is None or end + self.lateness >= event.mark)
        ]
        number = self.waiting.count(end)
        self.waiting = [at for at in self.waiting if at != end]
        for _ in range(number):
            self.emit(call, end - self.size, end, inside, partial=False)


class Counting(Windows):
    """So many events each, in the order in which they arrive."""

    def __init__(self, component: Component, place: int) -> None:
        super().__init__(component, place)
        self.size = component.settings["size"]
        self.hop = component.settings.get("hop") or self.size
        self.ttl = component.settings.get("ttl")
        self.number = 0
        self.open: list[list[Event]] = []
        self.age = -math.inf

    def copy(self) -> "Counting":
        made = type(self)(self.component, self.place)
        made.number, made.open = self.number, [list(events) for events in self.open]
        made.age = self.age
        return made

    def is_empty(self) -> bool:
        return not self.open and (self.hop <= self.size or self.number % self.hop == 0)

    def lose(self) -> bool:
        had = not self.is_empty()
        self.number, self.open = 0, []
        return had

    def expire(self, now: float) -> bool:
        if self.ttl is None or self.is_empty() or now < self.age + self.ttl * MICRO:
            return False
        self.number, self.open, self.age = 0, [], -math.inf
        return True

    def add(self, call: Call, at: float, value: dict[str, Any]) -> None:
        if self.expire(call.now - call.is_timer):  # a timer that is due when it expires sees it
            call.increase(f"{self.component.name}.expired")
        self.age = max(self.age, call.now)
        if self.number % self.hop == 0:
            self.open.append([])
        self.number += 1
        for events in self.open:
            events.append(Event(at, value, None))
        if self.open and len(self.open[0]) == self.size:
            self.show(call, self.open.pop(0), partial=False)
        while len(self.open) > self.most:
            self.show(call, self.open.pop(0), partial=True)
            call.increase(f"{self.component.name}.evicted")
        for events in self.open:
            if (self.early[0] == "count" and len(events) % self.early[1] == 0) or (
                self.early[0] == "flag" and value.get("flag")
            ):
                self.show(call, events, partial=True)
        if self.is_empty():
            self.age = -math.inf

    def show(self, call: Call, events: list[Event], partial: bool) -> None:
        times = [event.at for event in events]
        self.emit(call, min(times), max(times), events, partial)

    def due(self, watermark: float) -> float | None:
        return None

    def fire(self, call: Call, watermark: float) -> None:
        raise AssertionError
