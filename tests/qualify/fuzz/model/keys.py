"""The state and timers of a key (rules 10, 14 to 16)."""

from typing import Any

from tests.qualify.fuzz.scripts import MICRO, Key, Stage


def order(key: Key) -> Any:
    """Where a key stands among others (rule 6)."""
    return ("tuple", tuple(map(order, key))) if isinstance(key, tuple) else (type(key).__name__, key)


class Aged:
    """A value and when it was written (rule 16 c)."""

    __slots__ = ("at", "value")

    def __init__(self, value: Any, at: float) -> None:
        self.value = value
        self.at = at

    def written(self, value: Any, at: float) -> "Aged":
        return Aged(value, max(self.at, at))

    def lives(self, ttl: int | None, at: float) -> bool:
        """Whether it is visible at a time (rule 16 a)."""
        return ttl is None or at < self.at + ttl * MICRO


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

    def copy(self) -> "KeyState":
        made = KeyState(self.key, self.stage)
        made.total, made.names, made.history = self.total, dict(self.names), list(self.history)
        made.running, made.timers, made.is_watching = dict(self.running), set(self.timers), self.is_watching
        made.components = {name: component.copy() for name, component in self.components.items()}
        return made

    def seen(self, now: float) -> "KeyState":
        """A copy with what is visible at a time."""
        made, ttl = self.copy(), self.stage.ttl
        if self.total is not None and not self.total.lives(ttl.get("total"), now):
            made.total = None
        made.names = {name: aged for name, aged in self.names.items() if aged.lives(ttl.get("names"), now)}
        made.history = [aged for aged in self.history if aged.lives(ttl.get("history"), now)]
        return made

    def expire(self, now: float) -> list[str]:
        """Remove what is no longer visible at a time. Return the names of components of which a value was removed."""
        seen = self.seen(now)
        self.total, self.names, self.history = seen.total, seen.names, seen.history
        removed = []
        for component in self.stage.components:
            name, ttl = component.name, component.settings.get("ttl")
            if name in self.running and not self.running[name].lives(ttl, now):
                del self.running[name]
                removed.append(name)
        return removed + [name for name, model in self.components.items() if model.expire(now)]

    def shown(self) -> list[Any]:
        values = [aged.value for aged in self.history]
        total = 0 if self.total is None else self.total.value
        return [total, [[name, aged.value] for name, aged in self.names.items()], values, self.shown_timers()]

    def shown_timers(self) -> list[list[Any]]:
        return [list(timer) for timer in sorted(self.timers)]

    def is_empty(self) -> bool:  # rule 15 c
        stored = self.total is not None or self.names or self.history or self.timers or self.running
        return not (stored or self.is_watching or any(not of.is_empty() for of in self.components.values()))
