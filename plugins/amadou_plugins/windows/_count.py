"""Count windows: windows of a fixed number of a key's events."""

from collections.abc import Callable
from datetime import timedelta
from math import gcd
from typing import Any

from typing_extensions import Unpack

from amadou import KeyedEvent, Subject
from amadou.components import ComponentState
from amadou.errors import SpecError
from amadou.event_time import to_micros
from amadou_plugins._calling import direct
from amadou_plugins._stored_form import are_rows
from amadou_plugins.windows._base import ACCUMULATOR, COUNT, CommonSettings, V, V_co, WindowSpec


class CountWindow(WindowSpec[V_co]):
    """Windows that each contain a fixed number of a key's events, in order of arrival.

    A window closes when its last event arrives. `window.start` and `window.end` are the times of the window's oldest
    and newest events. A window that is not full stays open until the key has had no events for the duration of the
    `ttl`. The window then expires without a result. Set a `ttl` if the number of keys keeps growing.

    :param size: number of events in a window
    :param hop: number of events from the start of one window to the start of the next; defaults to `size`
    :param value: an aggregate, or a mapping of names to aggregates; by default, the window counts events
    :param early: when to emit early results, which are marked as partial. With an integer `n`, a window emits a result
        after every `n` of its events. With a function of an event, a window emits a result each time the function
        returns `True`. A `timedelta` is not allowed, because a window that never fills up would emit early results
        forever

    The other parameters are those of `HoppingWindow`. Time never closes a count window, so events are never late, and
    `allowed_lateness`, `late` and `on_late` have no effect.
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
                raise SpecError(f"{which} must be a positive integer (number of events), not {number!r}")
        if isinstance(early, timedelta):
            raise SpecError(
                f"early of a CountWindow must be a number of events or a function of an event, not {early!r}: "
                "a window that never fills up would emit early results forever"
            )
        self._size = size
        self._hop = size if hop is None else hop
        self._pane = gcd(self._size, self._hop)
        super().__init__(value, merges=self._hop != self._size, early=early, **settings)
        self._lateness = 0  # the setting has no effect, so changing it keeps a checkpoint valid

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        micros = to_micros(event.timestamp)
        part = self._part(subject, event)
        value: tuple[int, list[Any]] = part.value or (0, [])
        skip, panes = value  # number of events to skip before the next window starts
        if skip:
            part.store([skip - 1, panes] if skip > 1 else None, None)
            return
        self._add_to_pane(part, panes, event, micros)
        step = self._hop // self._pane  # number of panes from one window's start to the next
        is_full = self._events(panes) == self._size
        is_evicted = not is_full and self._max_active is not None and len(panes) > self._max_active * step
        left = panes[step:] if is_full or is_evicted else panes
        skip = max(self._hop - self._size, 0) if is_full else 0
        part.store([skip, left] if skip or left else None, None)
        stored = part.value
        if is_evicted:
            subject.count(f"{self.name}.evicted")
        if is_full or is_evicted:
            self._give(subject, panes, partial=is_evicted)
        firsts = range(0, len(left), step) if self._asks_for_early(event) else ()
        for first in firsts:
            if part.value is not stored:  # a callback has added another event, with early results of its own
                break
            if self._emits_early(self._events(left[first:])):
                self._give(subject, left[first:], partial=True)

    def _events(self, panes: list[Any]) -> int:
        """Return the number of events in consecutive panes, of which only the last one may not be full."""
        last: int = panes[-1][COUNT]
        return (len(panes) - 1) * self._pane + last

    def _add_to_pane(self, part: ComponentState, panes: list[Any], event: KeyedEvent[Any], micros: int) -> None:
        """Add an event to the last pane, or to a new one if that is full."""
        is_new = not panes or panes[-1][COUNT] == self._pane
        pane = [0, self._kept.create(), micros, micros] if is_new else panes[-1]
        self._add(part, pane, event, panes, lambda _: (self._kept.kind(other[ACCUMULATOR]) for other in panes))
        pane[COUNT] += 1
        pane[2], pane[3] = min(pane[2], micros), max(pane[3], micros)
        if is_new:
            panes.append(pane)

    def _give(self, subject: Subject, panes: list[Any], *, partial: bool) -> None:
        start, end, accumulators = self._whole(panes)
        self._emit(subject, direct, (start, end, start, end), accumulators, partial=partial)

    def _with_accumulators(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        skip, panes = value
        return [skip, [[number, convert(accumulator), *times] for number, accumulator, *times in panes]]

    def _are_open(self, windows: Any) -> bool:
        return are_rows(windows, 4, 2, 3)

    def open_windows(self, value: Any) -> list[tuple[int, int, list[Any]]]:
        _, panes = value
        return [self._whole(panes)] if panes else []

    def _whole(self, panes: list[Any]) -> tuple[int, int, list[Any]]:
        """Return the window that consists of the given panes as a tuple: the time of the oldest event, the time of the
        newest event, and the panes' accumulators.
        """
        accumulators = [pane[ACCUMULATOR] for pane in panes]
        return min(pane[2] for pane in panes), max(pane[3] for pane in panes), accumulators

    def _fixed(self) -> dict[str, Any]:
        return {"size": self._size, "hop": self._hop}
