"""Fires the timers of the handler and its components, ordered by time, key and tag (`semantics.md` 6, 23)."""

from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from itertools import repeat
from typing import TypeAlias

from amadou import Key, Subject, Timer
from amadou.components import check_ran, in_key_order
from amadou.engine import Batch, Timers, batch_of
from amadou.errors import TimerError
from amadou.event_time import from_micros
from amadou_runtime.core.callbacks import Callbacks
from amadou_runtime.core.key_group import KeyGroup

ComponentTimers: TypeAlias = dict[int, dict[Key, set[str]]]
"""Names of the components that have a timer, by time and key."""


class Firing:
    """Fires all timers of a key group that are due at a watermark.

    :param callbacks: the handler's callbacks
    :param subject: the `Subject` object, which is reused for all subjects
    :param due: the times of the handler's due timers, in microseconds
    :param due_components: the components' due timers
    """

    def __init__(self, callbacks: Callbacks, subject: Subject, due: list[int], due_components: ComponentTimers) -> None:
        self._callbacks = callbacks
        self._subject = subject
        self._batch: Batch = batch_of(subject)
        self._due = due
        self._components = due_components
        self._times = sorted({*due, *due_components})
        self._planned = set(self._times)
        self.calls: dict[str, int] = {}
        """Number of calls of each callback."""

    def fire(self) -> int:
        """Fire all due timers.

        :returns: number of timers that fired
        """
        callbacks, subject, batch, times = self._callbacks, self._subject, self._batch, self._times
        timers, stopwatch = batch.timers, callbacks.stopwatch
        if self._due and not batch.has_timer_callback:
            raise TimerError(callbacks.name)
        fired = 0
        on_timer_expired = callbacks.on_timer_expired
        while times:
            micros = batch.firing_micros = batch.since = heappop(times)
            timestamp = from_micros(micros)
            with_timers = self._components.pop(micros, {})
            for subject.key in in_key_order(with_timers):
                fired += self._fire_components(micros, with_timers[subject.key])
            subject.timestamp = timestamp
            self._planned.discard(micros)
            if micros not in timers.plain and micros not in timers.tagged:
                continue
            expired = (
                _expired_with_tags(timers, micros)
                if micros in timers.tagged
                else zip(in_key_order(timers.take(micros)), repeat(""))
            )
            if stopwatch.turn_of != "on_timer_expired":
                stopwatch.turn("on_timer_expired")
            for subject.key, subject.timer_tag in expired:
                fired += 1
                try:
                    returned = on_timer_expired(subject, timestamp)
                    if returned is not None:
                        check_ran("on_timer_expired", returned)
                except Exception as error:
                    timer = Timer(timestamp, subject.timer_tag)
                    raise callbacks.failed(error, "on_timer_expired", batch, None, subject.key, timer)
                if batch.chained:
                    self._plan_chained()
                if batch.stored:
                    self._plan(micros, ())
        subject.timer_tag = ""
        batch.firing_micros = None
        expirations = fired - sum(self.calls.values())
        if expirations:
            self.calls["on_timer_expired"] = expirations
        return fired

    def _fire_components(self, micros: int, due: set[str]) -> int:
        """Fire a subject's component timers that are due at a time, including timers that callbacks set for this time.

        :param due: names of the components whose timers are due
        :returns: number of timers that fired
        """
        callbacks, subject, batch = self._callbacks, self._subject, self._batch
        timestamp = from_micros(micros)
        fired = batch.fired = []
        while due:
            name = min(due, key=callbacks.position) if len(due) > 1 else next(iter(due))
            due.remove(name)
            if _component_timer(batch, subject.key, name) != micros:  # another component's callback changed the timer
                continue
            if callbacks.stopwatch.turn_of != name:
                callbacks.stopwatch.turn(name)
            self.calls[name] = self.calls.get(name, 0) + 1
            fired.append(name)
            subject.timestamp, subject.timer_tag = timestamp, ""
            callbacks.fire(name, subject, timestamp, callbacks.call)
            if batch.chained:
                self._plan_chained()
            batch.stored.add(name)
            due |= self._plan(micros, fired)
        batch.fired = None
        return len(fired)

    def _plan(self, micros: int, fired: Collection[str]) -> set[str]:
        """Schedule the component timers that a callback set, if they are already due.

        :param micros: the time of the timers that are firing
        :param fired: names of the subject's components whose timer for that time has fired
        :returns: names of the components with a new timer for the same time
        """
        batch, key, now = self._batch, self._subject.key, set()
        assert batch.watermark_micros is not None
        for name in batch.stored:
            at = _component_timer(batch, key, name)
            if at is None or at > batch.watermark_micros:
                continue
            if at < micros or (at == micros and name in fired):
                raise AssertionError(f"{name} set its timer to a time in the past")
            if at == micros:
                now.add(name)
                continue
            self._plan_at(at)
            self._components.setdefault(at, {}).setdefault(key, set()).add(name)
        batch.stored.clear()
        return now

    def _plan_chained(self) -> None:
        """Schedule the handler's timers that a callback has set and that are due in this batch."""
        chained = self._batch.chained
        for at in chained:
            self._plan_at(at)
        chained.clear()

    def _plan_at(self, micros: int) -> None:
        if micros not in self._planned:
            self._planned.add(micros)
            heappush(self._times, micros)


def due_components(group: KeyGroup, watermark: int | None) -> ComponentTimers:
    """Return the components' timers that are due at a watermark."""
    found: ComponentTimers = {}
    if watermark is not None:
        for name, table in group.tables.items():
            for key, at in table.next_timers.items():
                if at <= watermark:
                    found.setdefault(at, {}).setdefault(key, set()).add(name)
    return found


def _component_timer(batch: Batch, key: Key, name: str) -> int | None:
    """Return the time of a component's timer for a subject; `None` if no timer is set."""
    table = batch.tables.get(name)
    if table is None:
        return None
    part = table.states.get(key)
    return table.next_timers.get(key) if part is None else part.next_timer


def _expired_with_tags(timers: Timers, micros: int) -> Iterator[tuple[Key, str]]:
    """Remove and yield the timers due at a time, one by one, because a callback can delete timers that fire later."""
    for key in in_key_order(timers.at(micros)):
        for tag in timers.tags(key, micros):
            if timers.discard(key, micros, tag):
                yield key, tag
