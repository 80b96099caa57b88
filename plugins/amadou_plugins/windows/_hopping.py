"""Tumbling and hopping windows, which consist of panes of equal length."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import count, takewhile
from math import gcd
from typing import Any, Final, TypeAlias

from typing_extensions import Unpack

from amadou import Key, KeyedEvent, Subject
from amadou.components import EventColumns, Invoke, KeyGroupState, Plain, in_key_order
from amadou.errors import SpecError
from amadou.event_time import BEGINNING_OF_TIME, END_OF_TIME, MICROSECOND, from_micros, to_micros
from amadou_plugins._calling import direct, earliest, latest, micros_of
from amadou_plugins._stored_form import is_by_time
from amadou_plugins.aggregates import AggregateError
from amadou_plugins.aggregates._kinds import different
from amadou_plugins.windows._base import (
    ACCUMULATOR,
    COUNT,
    Span,
    V,
    V_co,
    WindowSettings,
    WindowSpec,
)
from amadou_plugins.windows._by_turns import ByTurns, turn_of, turns_of

# At these indices, a pane's list contains the times of the pane's oldest and newest events.
_FIRST, _LAST = range(2, 4)
MOST_PANES: Final = 10_000
"""Maximum number of panes per window. Assembling a window from more panes would take longer than all other work."""

_Panes: TypeAlias = dict[int, list[Any]]
"""The windows of a key group as columns, by the start of the pane: ``[keys, event counts, times of the oldest events,
times of the newest events, column of accumulators]``.
"""


class HoppingWindow(WindowSpec[V_co]):
    """Windows of a fixed size that start at regular intervals. The windows overlap if `hop` is shorter than `size`.

    Flink, Beam and Spark call these windows sliding windows. The sliding windows of Kafka Streams are amadou's
    `SlidingWindow`.

    An event is stored in a single pane, even if the event belongs to many windows. The length of a pane is the greatest
    common divisor of `size` and `hop`. Each key has one timer, for its next window result.

    :param size: length of each window
    :param hop: time from the start of one window to the start of the next. `size` need not be a multiple of `hop`. If
        `hop` is longer than `size`, events between two windows do not belong to any window
    :param value: an aggregate, or a mapping of names to aggregates; by default, the window counts events
    :param offset: shift of all window starts relative to the multiples of `hop` since 1970-01-01T00:00Z; zero by
        default. It knows no time zone, and no daylight saving time
    :param allowed_lateness: how long a window still accepts events after its end, in event time
    :param late: `"drop"` drops events that are late for all their windows; `"divert"` sends these events to the sink
        `late_events`. Either way, `on_late` receives these events
    :param early: when to emit early results, which are marked as partial. With a `timedelta`, a window emits a result
        at this interval of event time, counted from the window's start. With an integer `n`, a window emits a result
        after every `n` of its events. With a function of an event, a window emits a result each time the function
        returns `True`
    :param max_active: maximum number of open windows per key. If a key exceeds this maximum, the key's oldest window
        emits an early result and accepts no more events
    :param ttl: for windows that the watermark does not close (`CountWindow`): how long a key can go without an event,
        in event time, before its window expires without a result, counted as ``<name>.expired``. For others, a `ttl`
        under the time that a result needs is an error, and a longer one has no effect (`semantics.md` 16)
    :param storage: `"persistent"` stores open windows for later runs; `"memory"` stores open windows only for the
        current run; see below
    :param version: version of the aggregate; must be positive if `migrate` is set
    :param migrate: function that receives an older accumulator and its version, and returns an accumulator of the
        current version. If an aggregate cannot be merged, windows that overlap or grow store lists of events, and the
        function converts these lists instead
    :param name: name that the state is stored under; defaults to the attribute's name, and is required for a window
        created at run time
    :param on_close: function to call with each result, in place of a method decorated with `on_close`:
        ``(subject, window, value)``
    :param on_early: function that receives early results, with the same arguments as `on_close`
    :param on_late: function that receives late events: ``(subject, event)``
    :raises SpecError: a setting is invalid

    With `storage="memory"`, a window exists only in the run that opened the window. Open windows are lost when the run
    ends or crashes, for example during an upgrade of the job. The next run does not read the records of these windows
    again. It counts the keys that lost windows as ``<name>.lost``, shows the count in its summary, and logs a warning.

    If a handler declares a window with memory storage, the job's `idle_timeout` defaults to 5 seconds. While no events
    arrive, windows then close with a delay of at most 5 seconds plus the `idle_timeout` and the `watermark_delay`: by
    default, at most 10 seconds. The job's other windows and timers use the same watermark. Use memory storage if every
    run can start with empty windows, as for a dashboard.
    """

    by_keyword = "offset"

    def __init__(
        self: "HoppingWindow[V]",
        size: timedelta,
        hop: timedelta,
        value: V = None,  # type: ignore[assignment]
        *,
        offset: timedelta = timedelta(0),
        **settings: Unpack[WindowSettings],
    ) -> None:
        self._size = micros_of("size", size, least=1)
        self._hop = micros_of("hop", hop, least=1)
        if not isinstance(offset, timedelta):
            raise SpecError(f"offset must be a timedelta, not {offset!r}")
        self._offset = offset // MICROSECOND % self._hop
        self._pane = gcd(self._size, self._hop)
        panes = self._size // self._pane
        if panes > MOST_PANES:
            raise SpecError(
                f"a window of {size} every {hop} would consist of {panes:,} panes of {self._pane * MICROSECOND}, more "
                f"than {MOST_PANES:,}: choose a size and a hop with a larger common divisor"
            )
        first = BEGINNING_OF_TIME + (self._offset - BEGINNING_OF_TIME) % self._hop
        last = END_OF_TIME - self._size - (END_OF_TIME - self._size - self._offset) % self._hop
        # times of events whose windows all start and end within the years 1 to 9999
        self._taken = range(first + max(self._size - self._hop, 0), last + self._hop)
        self._has_parts = panes > 1
        super().__init__(value, merges=self._has_parts, **settings)

    @property
    def _closes_after(self) -> int:
        return self._size

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        micros = to_micros(event.timestamp)
        newest = micros - (micros - self._offset) % self._hop  # start of the newest window that could contain the event
        if micros >= newest + self._size:
            return
        part = self._part(subject, event)
        value: tuple[int | None, dict[int, Any]] = part.value or (None, {})
        before, panes = value
        reached = self.reached(subject)
        closed = self._closed(reached, before, self._size)
        if closed is not None and newest <= closed:
            self._too_late(subject, event, just=closed != before and newest == closed)
            return
        pane = micros - (micros - self._offset) % self._pane
        kept = panes.get(pane)
        if kept is None:
            if pane not in self._taken:
                raise self._out_of_time(event.timestamp)
            kept = [0, self._kept.create(), micros, micros]
            next_timer: int | None = earliest(
                part.next_timer, self._next_timer([pane], closed, reached, subject.watermark_micros)
            )
        else:
            next_timer = part.next_timer
        if self._has_parts:
            others = lambda _: (  # noqa: E731
                self._kept.kind(other[ACCUMULATOR]) for place, other in panes.items() if self._share(pane, place)
            )
            self._add(part, kept, event, panes.values(), others)
        else:
            kept[ACCUMULATOR] = self._kept.add(kept[ACCUMULATOR], self._own(event))
        kept[COUNT] += 1
        kept[_FIRST], kept[_LAST] = min(kept[_FIRST], micros), max(kept[_LAST], micros)
        panes[pane] = kept
        part.store([before, panes], next_timer)
        if self._early_count or self._early_predicate is not None:
            for start in self._open(closed, [pane]):
                self._emit_if_early(subject, event, start, self._inside(panes, start))
        if self._max_active is not None:
            self._evict(subject, self._max_active)

    def _emit_if_early(self, subject: Subject, event: KeyedEvent[Any], start: int, parts: list[list[Any]]) -> None:
        if self._is_early(event, sum(part[COUNT] for part in parts)):
            self._emit(subject, direct, *self._result(start, parts), partial=True)

    @property
    def is_vectorized(self) -> bool:
        return self._is_plain and self._hop <= self._size

    # All windows that start before the next window to be closed are already closed.

    def to_columns(self, values: Mapping[Key, Any], next_timer: int | None) -> KeyGroupState | None:
        panes: _Panes = {}
        for key, (before, kept) in values.items():
            if before is not None:
                return None
            for pane, (number, accumulator, *times) in kept.items():
                columns = panes.setdefault(pane, [[], [], [], [], []])
                for column, value in zip(columns, (key, number, *times, accumulator), strict=True):
                    column.append(value)
        for columns in panes.values():
            columns[-1] = self._kept.column(columns[-1])
        return KeyGroupState(panes or None, next_timer, list(values))

    def from_columns(self, value: Any, next_timer: int, layout: Any) -> Iterator[tuple[Key, Any, int]]:
        closed = next_timer - self._lateness - self._size - 1
        found: dict[Key, dict[int, list[Any]]] = {}
        for pane, (keys, numbers, firsts, lasts, column) in value.items():
            accumulators = self._accumulators(layout, column, keys)
            for key, *kept in zip(keys, numbers, accumulators, firsts, lasts, strict=True):
                found.setdefault(key, {})[pane] = kept
        for key, panes in found.items():
            yield key, [None, panes], self._next_timer(panes, closed, None, None)

    def add_columns(self, subject: Subject, group_state: KeyGroupState, events: EventColumns) -> None:
        closed = self._closed(subject.watermark_micros, None, self._size)
        if closed is not None:
            first = closed - (closed - self._offset) % self._hop + self._hop  # start of the first open window
            events = self._on_time(subject, events, first)
            if not events:
                return
        panes: _Panes = group_state.value or {}
        self._add_to_panes(panes, events)
        self._store(group_state, panes, closed)

    def _add_to_panes(self, panes: _Panes, events: EventColumns) -> None:
        offset, length = self._offset, self._pane
        places = [micros - (micros - offset) % length for micros in events.micros]
        turns = self._turns(panes, events, places) if isinstance(self._kept, ByTurns) else {}
        for pane, part in events.by(places).items():
            if pane not in self._taken:
                raise self._out_of_time(from_micros(part.micros[0]))
            (_, numbers, firsts, lasts, column), at = self._with_keys(panes, pane, part.keys)
            for position, micros in zip(at, part.micros, strict=True):
                numbers[position] += 1
                if micros < firsts[position]:
                    firsts[position] = micros
                if micros > lasts[position]:
                    lasts[position] = micros
            if isinstance(self._kept, ByTurns):
                self._kept.add_each_in(column, at, part, turns[pane])
            else:
                self._kept.add_each(column, at, part)
        self._check_columns(panes)

    def _with_keys(
        self, panes: _Panes, pane: int, keys: list[Key]
    ) -> tuple[tuple[list[Key], list[int], list[int], list[int], Any], list[int]]:
        """Add keys to a pane that do not have events in it yet. Return the pane's columns, and the positions of the
        keys.
        """
        known, numbers, firsts, lasts, column = panes.get(pane) or ([], [], [], [], self._kept.column(()))
        before = len(known)
        known, at = _positions(known, keys)
        added = len(known) - before
        numbers += [0] * added
        firsts += [END_OF_TIME] * added
        lasts += [BEGINNING_OF_TIME] * added
        self._kept.extend(column, added)
        panes[pane] = [known, numbers, firsts, lasts, column]
        return (known, numbers, firsts, lasts, column), at

    def _check_columns(self, panes: _Panes) -> None:
        if self._has_parts and not self._kept.are_alike([columns[-1] for columns in panes.values()]):
            self._check_kinds(panes)

    @property
    def is_combinable(self) -> bool:
        return self.is_vectorized and self._kept.mergeable and not self._kept.ordered

    def combine(self, events: EventColumns) -> Plain:
        panes: _Panes = {}
        self._add_to_panes(panes, events)
        return panes

    def add_combined(self, subject: Subject, group_state: KeyGroupState, combined: Any) -> int:
        panes: _Panes = group_state.value or {}
        for pane, (others, *counts, other) in combined.items():
            if pane not in panes:
                panes[pane] = [others, *counts, other]
                continue
            (_, numbers, firsts, lasts, column), at = self._with_keys(panes, pane, others)
            for position, number, first, last in zip(at, *counts, strict=True):
                numbers[position] += number
                firsts[position] = min(first, firsts[position])
                lasts[position] = max(last, lasts[position])
            self._kept.merge_each(column, at, other)
        self._check_columns(panes)
        self._store(group_state, panes, self._closed(subject.watermark_micros, None, self._size))
        return sum(sum(numbers) for _, numbers, *_ in combined.values())

    def divide_combined(self, combined: Any) -> Iterator[tuple[Key, Plain, int]]:
        found: dict[Key, dict[int, list[Any]]] = {}
        for pane, (keys, numbers, firsts, lasts, column) in combined.items():
            accumulators = self._kept.accumulators(column)
            for key, *kept in zip(keys, numbers, accumulators, firsts, lasts, strict=True):
                found.setdefault(key, {})[pane] = kept
        for key, panes in found.items():
            yield key, panes, sum(kept[COUNT] for kept in panes.values())

    def add_combined_for(self, subject: Subject, combined: Any) -> None:
        part = self.state_for(subject)
        value: tuple[int | None, dict[int, Any]] = part.value or (None, {})
        before, panes = value
        reached, next_timer = self.reached(subject), part.next_timer
        closed = self._closed(reached, before, self._size)
        for pane, given in combined.items():
            self._check_kind(pane, given, panes)
            kept = panes.get(pane)
            if kept is None:
                panes[pane] = given
                next_timer = earliest(next_timer, self._next_timer([pane], closed, reached, subject.watermark_micros))
                continue
            kept[ACCUMULATOR] = self._kept.merge(kept[ACCUMULATOR], given[ACCUMULATOR])
            kept[COUNT] += given[COUNT]
            kept[_FIRST], kept[_LAST] = min(kept[_FIRST], given[_FIRST]), max(kept[_LAST], given[_LAST])
        part.store([before, panes], next_timer)

    def _check_kind(self, pane: int, given: list[Any], panes: dict[int, list[Any]]) -> None:
        """Reject events in combined form whose values differ in kind from other values in the same window."""
        if not self._kept.has_kinds:
            return
        kind = self._kept.kind(given[ACCUMULATOR])
        for place, kept in panes.items():
            other = self._kept.kind(kept[ACCUMULATOR])
            if different(kind, other) is not None and self._share(pane, place):
                raise AggregateError(repr(self._kept), f"cannot merge {kind} with {other}")

    def _turns(self, panes: _Panes, events: EventColumns, places: list[int]) -> dict[int, list[int]]:
        """Return the turn number of each event, by pane and in the order of the events; see `ByTurns`.

        :param places: the pane of each event
        """
        newest = dict.fromkeys(events.keys, (0, 0))
        for pane, (keys, *_, column) in panes.items():
            for key, accumulator in zip(keys, column, strict=True):
                if key in newest:
                    newest[key] = max(newest[key], (turn_of(accumulator), pane))
        found: dict[int, list[int]] = {}
        for pane, turn in zip(places, turns_of(events.keys, places, newest.__getitem__), strict=True):
            found.setdefault(pane, []).append(turn)
        return found

    def on_timers(self, subject: Subject, group_state: KeyGroupState, watermark: int) -> int:
        assert group_state.next_timer is not None
        panes, order = group_state.value, deque(sorted(group_state.value))
        # the timer may have been set for an early result that the window no longer emits
        closing = self._starts(order[0], group_state.next_timer - self._lateness - self._size - 1)[0]
        fired, closed = 0, closing
        while order and self._closes_at(closing + self._size) <= watermark:
            inside = takewhile(lambda pane: pane < closing + self._size, order)  # noqa: B023
            keys, firsts, lasts, column = self._joined([panes[pane] for pane in inside if pane >= closing])
            places = in_key_order(range(len(keys)), keys.__getitem__)
            keys = [keys[place] for place in places]
            firsts, lasts = [firsts[place] for place in places], [lasts[place] for place in places]
            number = len(keys)
            starts, ends = [from_micros(closing)] * number, [from_micros(closing + self._size)] * number
            self._emit_all(subject, keys, starts, ends, firsts, lasts, self._kept.taken(column, places))
            fired += number
            closed = closing
            while order and not self._starts(order[0], closed):
                del panes[order.popleft()]
            if order:
                closing = self._starts(order[0], closed)[0]
        self._store(group_state, panes, closed)
        return fired

    def _joined(self, parts: list[list[Any]]) -> tuple[list[Key], list[int], list[int], Any]:
        """Merge the panes of a window. Return four columns: the keys, the times of the oldest events, the times of the
        newest events, and the accumulators.
        """
        if len(parts) == 1:
            keys, _, firsts, lasts, column = parts[0]
            return keys, firsts, lasts, column
        keys, firsts, lasts = [], [], []
        joined = self._kept.column(())
        for added, _, oldest, newest, column in parts:
            before = len(keys)
            keys, at = _positions(keys, added)
            firsts += [END_OF_TIME] * (len(keys) - before)
            lasts += [BEGINNING_OF_TIME] * (len(keys) - before)
            for position, first, last in zip(at, oldest, newest, strict=True):
                if first < firsts[position]:
                    firsts[position] = first
                if last > lasts[position]:
                    lasts[position] = last
            self._kept.extend(joined, len(keys) - before)
            self._kept.merge_each(joined, at, column)
        return keys, firsts, lasts, joined

    def _check_kinds(self, panes: _Panes) -> None:
        """Reject events whose values differ in kind from other values in the same window; see `Aggregate.kind`."""
        found: dict[Key, dict[int, Any]] = {}
        for pane, (keys, *_, column) in panes.items():
            for key, accumulator in zip(keys, self._kept.accumulators(column), strict=True):
                kinds = found.setdefault(key, {})
                kind = kinds[pane] = self._kept.kind(accumulator)
                for place, other in kinds.items():
                    if different(kind, other) is not None and self._share(pane, place):
                        raise AggregateError(repr(self._kept), f"cannot merge {kind} with {other} for key {key!r}")

    def _share(self, pane: int, other: int) -> bool:
        """Return `True` if any window contains both panes."""
        earlier, later = self._starts(min(pane, other), None), self._starts(max(pane, other), None)
        return later[0] <= earlier[-1]

    def _store(self, group_state: KeyGroupState, panes: _Panes, closed: int | None) -> None:
        if not panes:
            group_state.store(None, None, ())
            return
        keys = next(iter(panes.values()))[0] if len(panes) == 1 else set().union(*(pane[0] for pane in panes.values()))
        group_state.store(panes, self._next_timer(panes, closed, None, None), keys)

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        part = self.state_for(subject)
        if part.value is None:
            return
        before, panes = part.value
        now, watermark = to_micros(timestamp), subject.watermark_micros
        closing = now if now == END_OF_TIME else now - self._lateness - self._size
        results = [(start, False) for start in self._closing(panes, before, now)]
        if self._early_interval:
            results += [
                (start, True)
                for start in self._open(self._closed(watermark, before, self._size), panes)
                if self._is_due(start, start + self._size, now, watermark)
            ]
        given = [(self._inside(panes, start), start, partial) for start, partial in results]
        self._drop(panes, closing)
        after = latest(before, closing)
        next_timer = self._next_timer(panes, after, now, watermark) if panes else None
        closed_early = before if after > closing else None
        part.store([closed_early, panes] if panes else None, next_timer, renews=False)
        for parts, start, partial in given:
            if parts:
                self._emit(subject, call, *self._result(start, parts), partial=partial)

    def _closing(self, panes: dict[int, Any], before: int | None, now: int) -> list[int]:
        """Return the starts of the windows that close now, in order: at most one, or at the end of time all."""
        start = now - self._lateness - self._size
        if now == END_OF_TIME:
            return self._open(latest(before, start - 1), panes)
        is_start = (start - self._offset) % self._hop == 0
        return [start] if is_start and (before is None or start > before) else []

    def _starts(self, pane: int, after: int | None) -> range:
        """Return the starts of the windows that contain a pane. Starts at or before `after` are omitted."""
        last = pane - (pane - self._offset) % self._hop
        first = last - (last + self._size - pane - self._pane) // self._hop * self._hop
        if after is not None and first <= after:
            first += ((after - first) // self._hop + 1) * self._hop
        return range(first, last + 1, self._hop)

    def _open(self, closed: int | None, among: Iterable[int]) -> list[int]:
        """Return the starts of the open windows that contain at least one of these panes."""
        return sorted({start for pane in among for start in self._starts(pane, closed)})

    def _result(self, start: int, parts: list[list[Any]]) -> tuple[Span, list[Any]]:
        """Return a window's span, and the accumulators of its parts."""
        times = min(part[_FIRST] for part in parts), max(part[_LAST] for part in parts)
        return (start, start + self._size, *times), [part[ACCUMULATOR] for part in parts]

    def _inside(self, panes: dict[int, Any], start: int) -> list[list[Any]]:
        """Return the stored panes of a window, in time order."""
        if self._pane == self._size:
            return [panes[start]] if start in panes else []
        inside = range(start, start + self._size, self._pane)
        if len(inside) > len(panes):
            return [panes[pane] for pane in sorted(panes) if pane in inside]
        return [panes[pane] for pane in inside if pane in panes]

    def _drop(self, panes: dict[int, Any], closed: int) -> None:
        """Remove the panes that belong only to closed windows."""
        if self._pane == self._size:
            for pane in [pane for pane in panes if pane <= closed]:
                del panes[pane]
            return
        for pane in [pane for pane in panes if not self._starts(pane, closed)]:
            del panes[pane]

    def _next_timer(self, panes: Iterable[int], closed: int | None, now: int | None, watermark: int | None) -> int:
        """Return the first time at which an open window that contains one of these panes closes or emits an early
        result.

        :param now: event time up to which early results have been emitted; `None` if none have been emitted
        """
        if self._early_interval:
            starts = self._open(closed, panes)
            return min(self._timer_of(start, start + self._size, now, watermark) for start in starts)
        pane = min(panes)
        first = pane if self._pane == self._size else self._starts(pane, closed)[0]
        return self._closes_at(first + self._size)

    def _evict(self, subject: Subject, most: int) -> None:
        """Close a subject's oldest windows until at most `most` windows are open."""
        part = self.state_for(subject)
        before, panes = part.value
        reached = self.reached(subject)
        opened = self._open(self._closed(reached, before, self._size), panes)
        for start in opened[: max(len(opened) - most, 0)]:
            parts = self._inside(panes, start)
            self._drop(panes, start)
            part.store([start, panes], self._next_timer(panes, start, reached, subject.watermark_micros))
            subject.count(f"{self.name}.evicted")
            self._emit(subject, direct, *self._result(start, parts), partial=True)

    def _are_open(self, windows: Any) -> bool:
        if not is_by_time(windows, 4, _FIRST, _LAST):
            return False
        for pane in windows:
            start = (pane - self._offset) % self._hop
            if pane not in self._taken or start >= self._size or start % self._pane:
                return False
        return True

    def open_windows(self, value: Any) -> list[tuple[int, int, list[Any]]]:
        before, panes = value
        return [
            (start, start + self._size, [part[ACCUMULATOR] for part in self._inside(panes, start)])
            for start in self._open(before, panes)
        ]

    def _fixed(self) -> dict[str, Any]:
        offset = self._offset * MICROSECOND if self._offset else None
        return {"size": self._size * MICROSECOND, "hop": self._hop * MICROSECOND, "offset": offset}


def _positions(known: list[Key], keys: list[Key]) -> tuple[list[Key], list[int]]:
    """Return a list of the known keys followed by the new keys, and the positions of `keys` in this list."""
    index = defaultdict(count(len(known)).__next__, zip(known, range(len(known)), strict=True))
    at = [index[key] for key in keys]
    return list(index), at


class TumblingWindow(HoppingWindow[V_co]):
    """Windows of a fixed size that follow each other without gaps or overlaps.

    :param size: length of each window
    :param offset: shift of all window starts relative to the multiples of `size` since 1970-01-01T00:00Z; zero by
        default. It knows no time zone, and no daylight saving time

    The other parameters are those of `HoppingWindow`.
    """

    def __init__(
        self: "TumblingWindow[V]",
        size: timedelta,
        value: V = None,  # type: ignore[assignment]
        *,
        offset: timedelta = timedelta(0),
        **settings: Unpack[WindowSettings],
    ) -> None:
        super().__init__(size, size, value, offset=offset, **settings)

    def _fixed(self) -> dict[str, Any]:
        return {**super()._fixed(), "hop": None}
