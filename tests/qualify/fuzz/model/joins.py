"""Joins of a key, from the table in `docs/windows.md` and the docstrings of the joins."""

import math
from typing import Any

from tests.qualify.fuzz.model.windows import Call, Event, seconds
from tests.qualify.fuzz.scripts import MICRO, Component


class Join:
    def __init__(self, component: Component, place: int) -> None:
        self.component = component
        self.place = place
        options = component.settings
        self.left, self.right = options["sources"]
        self.how = options["how"]
        self.lateness = seconds(options.get("lateness"))
        self.ttl = options.get("ttl")

    def match(self, call: Call, left: Event | None, right: Event | None) -> None:
        sides = [None if side is None else side.value["id"] for side in (left, right)]
        call.emit(self.component, sides, -1 if right is None else right.value["v"])

    def expire(self, now: float) -> bool:
        return False

    def begin(self) -> None: ...

    def settle(self, mark: float) -> None: ...

    def lose(self) -> bool:
        return False


class Interval(Join):
    """Pairs at once; those without a partner when none can come on time."""

    def __init__(self, component: Component, place: int) -> None:
        super().__init__(component, place)
        self.lower = seconds(component.settings["lower"])
        self.upper = seconds(component.settings["upper"])
        self.stored: list[tuple[Event, str, list[bool]]] = []
        """Events with their side, and whether each had a partner."""

    def copy(self) -> "Interval":
        made = type(self)(self.component, self.place)
        made.stored = [(event, side, list(had)) for event, side, had in self.stored]
        return made

    def is_empty(self) -> bool:
        return not self.stored

    def until(self, at: float, side: str) -> float:
        """The last watermark at which a partner can come on time."""
        reach = self.upper if side == self.left else -self.lower
        return max(at, at + reach) + self.lateness

    def add(self, call: Call, source: str | None, at: float, value: dict[str, Any]) -> None:
        assert source is not None
        event = Event(at, value, call.watermark)
        if call.watermark is not None and call.watermark > self.until(at, source):
            call.too_late(self.component, event)
            return
        had = [False]
        for other, side, theirs in sorted(self.stored, key=lambda stored: stored[0].at):
            left, right = (event, other) if source == self.left else (other, event)
            if side != source and self.lower <= right.at - left.at <= self.upper:
                had[0] = theirs[0] = True
                self.match(call, left, right)
        self.stored.append((event, source, had))

    def due(self, watermark: float) -> float | None:
        times = [self.until(event.at, side) + 1 for event, side, _ in self.stored]
        return min((at for at in times if at <= watermark), default=None)

    def fire(self, call: Call, watermark: float) -> None:
        due = [each for each in self.stored if self.until(each[0].at, each[1]) + 1 == call.at]
        self.stored = [each for each in self.stored if each not in due]
        for event, side, (had_partner,) in sorted(due, key=lambda each: (each[1] != self.left, each[0].at)):
            if not had_partner and self.how in ("outer", "left" if side == self.left else "right"):
                self.match(call, event if side == self.left else None, event if side == self.right else None)


class AsOf(Join):
    """Each left event with the nearest right event, once no event on time can change that."""

    def __init__(self, component: Component, place: int) -> None:
        super().__init__(component, place)
        options = component.settings
        self.tolerance = math.inf if options.get("tolerance") is None else seconds(options["tolerance"])
        self.direction = options["direction"]
        self.wait = self.lateness + (0 if self.direction == "backward" else self.tolerance)
        self.lefts: list[Event] = []
        self.rights: list[Event] = []
        self.age = -math.inf
        self.last_left = -math.inf
        """The time of the last left event whose result has been emitted."""

    def copy(self) -> "AsOf":
        made = type(self)(self.component, self.place)
        made.lefts, made.rights = list(self.lefts), list(self.rights)
        made.age, made.last_left = self.age, self.last_left
        return made

    def expire(self, now: float) -> bool:
        if self.ttl is None or self.is_empty() or now < self.age + self.ttl * MICRO:
            return False
        self.lefts, self.rights, self.age, self.last_left = [], [], -math.inf, -math.inf
        return True

    def is_empty(self) -> bool:
        return not self.lefts and not self.rights

    def settle(self, mark: float) -> None:
        """Forget right events that no left event on time can match."""
        if self.tolerance < math.inf:
            self.rights = [event for event in self.rights if self.last(self.right, event.at) + self.wait >= mark]

    def last(self, source: str | None, at: float) -> float:
        """The last time of a left event that an event concerns."""
        return at if source == self.left or self.direction == "forward" else at + self.tolerance

    def add(self, call: Call, source: str | None, at: float, value: dict[str, Any]) -> None:
        event = Event(at, value, call.watermark)
        if call.watermark is not None and call.watermark > self.last(source, at) + self.wait:
            call.too_late(self.component, event)
            return
        if self.is_empty():
            self.age, self.last_left = -math.inf, -math.inf
        self.age = max(self.age, call.now)
        (self.lefts if source == self.left else self.rights).append(event)

    def due(self, watermark: float) -> float | None:
        return min((at for event in self.lefts if (at := event.at + self.wait + 1) <= watermark), default=None)

    def fire(self, call: Call, watermark: float) -> None:
        due = [event for event in self.lefts if event.at + self.wait + 1 == call.at]
        self.lefts = [event for event in self.lefts if event not in due]
        for left in sorted(due, key=lambda event: event.at):
            right = self.nearest(left.at)
            lasts = math.inf if self.ttl is None else self.ttl * MICRO
            if right is not None and left.at - max(right.at, self.last_left) >= lasts:
                self.rights = [event for event in self.rights if event.at > left.at]
                call.increase(f"{self.component.name}.expired")
                right = None
            self.last_left = left.at
            if right is not None or self.how == "left":
                self.match(call, left, right)

    def nearest(self, at: float) -> Event | None:
        found: Event | None = None
        for right in sorted(self.rights, key=lambda event: event.at):
            after = right.at - at
            wrong = (after > 0 and self.direction == "backward") or (after < 0 and self.direction == "forward")
            if wrong or abs(after) > self.tolerance:
                continue
            if found is None or abs(after) < abs(found.at - at) or right.at == found.at:
                found = right
        return found


class Latest(Join):
    """Each left event at once with the newest right event so far."""

    def __init__(self, component: Component, place: int) -> None:
        super().__init__(component, place)
        self.stored: Event | None = None
        self.age = -math.inf

    def copy(self) -> "Latest":
        made = type(self)(self.component, self.place)
        made.stored, made.age = self.stored, self.age
        return made

    def is_empty(self) -> bool:
        return self.stored is None

    def expire(self, now: float) -> bool:
        had = self.stored is not None
        if self.ttl is not None and now >= self.age + self.ttl * MICRO:
            self.stored = None
        return had and self.stored is None

    def add(self, call: Call, source: str | None, at: float, value: dict[str, Any]) -> None:
        event = Event(at, value, call.watermark)
        lives = self.ttl is None or call.now - call.is_timer < self.age + self.ttl * MICRO
        if source == self.left:
            seen = self.stored if lives else None
            if seen is not None or self.how == "left":
                self.match(call, event, seen)
            return
        lasts = math.inf if self.ttl is None else self.ttl * MICRO
        if call.watermark is not None and call.watermark >= at + lasts + self.lateness:
            call.too_late(self.component, event)
        elif self.stored is None or not lives or at >= self.stored.at:
            if self.stored is not None and not lives:
                call.increase(f"{self.component.name}.expired")
            self.age = call.now if self.stored is None or not lives else max(self.age, call.now)
            self.stored = event

    def due(self, watermark: float) -> float | None:
        return None

    def fire(self, call: Call, watermark: float) -> None:
        raise AssertionError
