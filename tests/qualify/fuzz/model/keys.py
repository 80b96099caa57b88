"""The state and timers of a key (rules 10, 14 to 16), and a call of a callback."""

import math
from typing import Any

from tests.qualify.fuzz.known import Rules
from tests.qualify.fuzz.scripts import MICRO, Key, Stage


def order(key: Key) -> Any:
    """Where a key stands among others (rule 6)."""
    return ("tuple", tuple(map(order, key))) if isinstance(key, tuple) else (type(key).__name__, key)


class Aged:
    """A value and when it was written: at the latest, and the last time."""

    __slots__ = ("last", "newest", "value")

    def __init__(self, value: Any, newest: float, last: float) -> None:
        self.value = value
        self.newest = newest
        self.last = last

    def written(self, value: Any, at: float) -> "Aged":
        return Aged(value, max(self.newest, at), at)


class Moment:
    """What is visible to a callback, and how old what it writes is (rule 16 b and c)."""

    __slots__ = ("rules", "until", "written_at")

    def __init__(self, rules: Rules, at: float, watermark: float | None, is_timer: bool) -> None:
        self.rules = rules
        mark = -math.inf if watermark is None else watermark
        self.until = at if is_timer else mark + 0.5  # times are whole: what ends at the watermark has expired
        self.written_at = at if is_timer else max(at, mark)

    def sees(self, aged: Aged, ttl: int | None) -> bool:
        if ttl is None:
            return True
        newest, last = (at + ttl * MICRO >= self.until for at in (aged.newest, aged.last))
        if newest != last:
            self.rules.meets("older-write")
        return newest

    def new(self, value: Any) -> Aged:
        return Aged(value, self.written_at, self.written_at)


class KeyState:
    """What is stored for a key of a stage."""

    def __init__(self, key: Key, stage: Stage) -> None:
        self.key = key
        self.stage = stage
        self.total: Aged | None = None
        self.names: dict[str, Aged] = {}
        self.history: list[Aged] = []
        self.running: dict[str, Aged] = {}
        self.timers: set[tuple[float, str]] = set()
        self.components: dict[str, Any] = {}
        self.is_watching = False
        self.expired_in = 0
        """The number of the last batch in which a callback no longer saw something."""

    def copy(self) -> "KeyState":
        made = KeyState(self.key, self.stage)
        made.total, made.names, made.history = self.total, dict(self.names), list(self.history)
        made.running, made.timers, made.is_watching = dict(self.running), set(self.timers), self.is_watching
        made.expired_in = self.expired_in
        made.components = {name: component.copy() for name, component in self.components.items()}
        return made

    def expire(self, moment: Moment) -> None:
        """Remove what a callback does not see. No later callback sees it."""
        ttl = self.stage.ttl
        if self.total is not None and not moment.sees(self.total, ttl.get("total")):
            self.total = None
        if "names" in ttl:
            self.names = {name: aged for name, aged in self.names.items() if moment.sees(aged, ttl["names"])}
        if "history" in ttl:
            self.history = [aged for aged in self.history if moment.sees(aged, ttl["history"])]
        for component in self.stage.components:
            name, lasts = component.name, component.settings.get("ttl")
            if lasts is not None and name in self.running and not moment.sees(self.running[name], lasts):
                del self.running[name]
        for model in self.components.values():
            model.expire(moment)

    def shown(self) -> list[Any]:
        values = [aged.value for aged in self.history]
        total = 0 if self.total is None else self.total.value
        return [total, [[name, aged.value] for name, aged in self.names.items()], values, self.shown_timers()]

    def shown_timers(self) -> list[list[Any]]:
        return [list(timer) for timer in sorted(self.timers)]

    def is_empty(self) -> bool:  # rule 15 c
        stored = self.total is not None or self.names or self.history or self.timers or self.running
        return not (stored or self.is_watching or any(not of.is_empty() for of in self.components.values()))
