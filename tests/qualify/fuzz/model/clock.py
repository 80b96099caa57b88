"""Watermarks (rules 2, 3, 36 b and c)."""

import math
from collections.abc import Iterable

from tests.qualify.fuzz.known import Rules
from tests.qualify.fuzz.scripts import MICRO, Stage

END = math.inf
"""The maximum timestamp."""


class Clock:
    """The watermark of a stage. All times are in microseconds."""

    def __init__(self, stage: Stage, rules: Rules) -> None:
        self.rules = rules
        self.stage = stage
        self.watermark: float | None = None
        self.last_watermark: float | None = None
        """The watermark, but in a flush the one before it."""
        self.newest: dict[tuple[str, str], float] = {}
        """The newest event time of each partition, less the delay."""
        self.brought: dict[tuple[str, str], int] = {}
        """When each partition last delivered events."""
        self.is_flushing = False
        self.without_partitions: set[str] = set()
        """Sources for which a time was brought before their first event."""
        self.began = 0
        """When the run began."""
        self.feeding: dict[str, float | None] = {source.name: None for source in stage.fed}
        self.delay = {source.name: source.delay * MICRO for source in stage.sources}
        in_memory = any(component.settings.get("storage") == "memory" for component in stage.components)
        default = 5 * MICRO if in_memory else math.inf  # rule 3 b
        self.idle = {source.name: default if source.idle is None else source.idle * MICRO for source in stage.external}

    def raise_to(self, at: float | None) -> None:  # rule 2 c
        if at is not None and (self.watermark is None or at > self.watermark):
            self.watermark = at
            if at < END:
                self.last_watermark = at

    def follow(self, now: int) -> list[str]:
        """Advance to what the sources that are not idle have reached. Return their names."""
        counting = [place for place, at in self.brought.items() if now - at < self.idle[place[0]]]
        heard = {source for source, _ in self.brought}
        silent = [name for name, idle in self.idle.items() if name not in heard and now - self.began < idle]
        marks: list[float | None] = [self.newest[place] for place in counting]
        marks += [None if at is None else at - self.delay[name] for name, at in self.feeding.items()]
        if self.is_flushing and all(at == END for at in self.feeding.values()):
            self.raise_to(END)
        elif marks and None not in marks and not silent:  # rule 2 d
            self.raise_to(min(mark for mark in marks if mark is not None))
        elif self.newest and not silent and not self.feeding:  # all are idle: those that counted last
            idle_at = {source: max(at for (of, _), at in self.brought.items() if of == source) for source in heard}
            last = max(idle_at[source] + self.idle[source] for source in heard)
            self.raise_to(
                min(
                    self.newest[place]
                    for place, at in self.brought.items()
                    if idle_at[place[0]] + self.idle[place[0]] == last and at == idle_at[place[0]]
                )
            )
        return silent + [source for source, _ in counting]

    def pass_time(self, now: int, seconds: int) -> None:
        """Rule 3 c: when all sources are idle, the watermark advances with processing time."""
        for second in range(seconds):
            counting = self.follow(now + second * MICRO)
            can_be_idle = not self.feeding and all(timeout < math.inf for timeout in self.idle.values())
            if not counting and can_be_idle and self.watermark is not None:
                self.raise_to(self.watermark + MICRO)

    def flush(self) -> None:
        """Rules 12 and 36 f."""
        self.is_flushing = True

    def observe(self, events: Iterable[tuple[str, str, float]], now: int) -> None:
        """Events of a batch, each with source, partition and time."""
        events = list(events)
        for source in self.without_partitions & {source for source, _, _ in events}:
            self.without_partitions.discard(source)
            if not any(event[:2] == (source, "") for event in events):
                del self.newest[source, ""], self.brought[source, ""]
        for source, partition, at in events:
            place, reached = (source, partition), at - self.delay[source]
            self.newest[place] = max(reached, self.newest.get(place, reached))
            self.brought[place] = now

    @property
    def last_event(self) -> float:
        """The newest event time of all sources."""
        return max((at + self.delay[source] for (source, _), at in self.newest.items()), default=-math.inf)

    def bring(self, source: str, at: float, now: int) -> None:
        """A source has reached a time, whatever its delay."""
        places = [place for place in self.newest if place[0] == source]
        if not places:
            places = [(source, "")]
            self.without_partitions.add(source)
        for place in places:
            self.newest[place] = max(at, self.newest.get(place, at))
            self.brought[place] = now
