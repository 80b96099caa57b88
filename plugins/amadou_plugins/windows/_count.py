"""Count windows: so many events of a key."""

from collections.abc import Callable
from datetime import timedelta
from math import gcd
from typing import Any, Unpack

from amadou import KeyedEvent, Subject, to_micros
from amadou.errors import SpecError
from amadou_plugins._calling import direct
from amadou_plugins.windows._base import ACCUMULATOR, COUNT, CommonSettings, V, V_co, WindowSpec


class CountWindow(WindowSpec[V_co]):
    """Windows of a number of a key's events, in the order in which they come.

    A window closes with its last event; `window.start` and `window.end` are the times of its oldest and newest event.
    Windows that are not full stay open for as long as the key lives: give a `ttl` where keys come and go.

    :param size: how many events a window has
    :param hop: after how many events the next window begins, as many as `size` without it
    :param value: an aggregate, or several by name, which give a mapping; counts without it
    :param early: results before the close, marked as partial: after each such number of events of a window, or at
        events for which a function gives true. None come by time: a window that is never full would give them for good

    The other parameters are those of `HoppingWindow`. No time closes a window, so that no event is late:
    `allowed_lateness`, `late` and `on_late` change nothing.
    """

    by_keyword = "hop"
    drops_late = False

    def __init__(
        self: "CountWindow[V]",
        size: int,
        value: V = None,  # type: ignore[assignment]
        *,
        hop: int | None = None,
        early: int | Callable[[KeyedEvent[Any]], Any] | None = None,
        **settings: Unpack[CommonSettings],
    ) -> None:
        for which, number in (("size", size), ("hop", size if hop is None else hop)):
            if type(number) is not int or number < 1:
                raise SpecError(f"{which} must be a number of events above zero, not {number!r}")
        if isinstance(early, timedelta):
            raise SpecError(
                "a CountWindow has no early results by time, since one that is never full would give them for good: "
                "give a number or a function as early="
            )
        self._size = size
        self._hop = size if hop is None else hop
        self._pane = gcd(self._size, self._hop)
        super().__init__(value, merges=self._hop != self._size, early=early, **settings)
        self._lateness = 0  # it has no effect, so that a checkpoint does not mind another one

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        micros = to_micros(event.timestamp)
        part = self._part(subject, event)
        value: tuple[int, list[Any]] = part.value or (0, [])
        skip, panes = value  # how many events are in no window before the next one begins
        if skip:
            part.store([skip - 1, panes] if skip > 1 else None, None)
            return
        is_new = not panes or panes[-1][COUNT] == self._pane
        pane = [0, self._kept.create(), micros, micros] if is_new else panes[-1]
        self._add(part, pane, event, panes, lambda _: (self._kept.kind(other[ACCUMULATOR]) for other in panes))
        pane[COUNT] += 1
        pane[2], pane[3] = min(pane[2], micros), max(pane[3], micros)
        if is_new:
            panes.append(pane)
        count = (len(panes) - 1) * self._pane + pane[COUNT]
        step = self._hop // self._pane  # the panes from one window's beginning to the next one's
        if count >= self._size:
            left, skip = panes[step:], max(self._hop - self._size, 0)
            part.store([skip, left] if skip or left else None, None)
            self._give(subject, panes, partial=False)
        elif self._max_active is not None and len(panes) > self._max_active * step:
            part.store([0, panes[step:]], None)
            subject.count(f"{self.name}.evicted")
            self._give(subject, panes, partial=True)
        else:
            part.store([0, panes], None)
            if self._is_early(event, count):
                self._give(subject, panes, partial=True)

    def _give(self, subject: Subject, panes: list[Any], *, partial: bool) -> None:
        start, end, accumulators = self._whole(panes)
        self._emit(subject, direct, (start, end, start, end), accumulators, partial=partial)

    def _with_accumulators(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        skip, panes = value
        return [skip, [[number, convert(accumulator), *times] for number, accumulator, *times in panes]]

    def open_windows(self, value: Any) -> list[tuple[int, int, list[Any]]]:
        _, panes = value
        return [self._whole(panes)] if panes else []

    def _whole(self, panes: list[Any]) -> tuple[int, int, list[Any]]:
        """The window of some panes: the times of its oldest and newest event, and the panes' accumulators."""
        accumulators = [pane[ACCUMULATOR] for pane in panes]
        return min(pane[2] for pane in panes), max(pane[3] for pane in panes), accumulators

    def _fixed(self) -> dict[str, timedelta | int | None]:
        return {"size": self._size, "hop": self._hop}
