"""Session windows: groups of events that are close to each other in time."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from typing_extensions import Unpack

from amadou import Key, KeyedEvent, Subject
from amadou.components import ComponentState, EventColumns, Invoke, KeyGroupState, in_key_order
from amadou.errors import SpecError
from amadou.event_time import END_OF_TIME, EPOCH, MICROSECOND, from_micros, to_micros
from amadou_plugins._calling import direct, latest, micros_of
from amadou_plugins._stored_form import are_rows, is_by_time
from amadou_plugins.aggregates._kinds import different, joined
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

# A session is stored as a list. The constants below are the list's indices after `COUNT` and `ACCUMULATOR`. Events are
# counted only if early results need the count. With `max_duration`, the accumulator is a dict that maps each event time
# to a number of events and an accumulator: an out-of-order event can still change where the session is cut. Such a
# session also stores the kind of its values.
_START, _LAST, _KIND = range(2, 5)
_MIXED = "mixed"
_LATE_SESSIONS = ".late_sessions"
"""Suffix of the counter of late events that are in a session of their own."""


class SessionWindow(WindowSpec[V_co]):
    """Windows of events that are close to each other in time. A session starts at its first event and ends `gap` after
    its last event.

    An event extends a session if the session's nearest event is at most `gap` away. An out-of-order event can merge
    two sessions. An event is late if two conditions hold: a session of only that event would already be closed, and the
    event does not belong to a session that was open when the event's batch began. With `max_duration`, the first
    condition is enough. An event is also late if it is older than the end of a session that closed at `max_duration` or
    because of `max_active`.

    A late event can open a session, which can be less than `gap` away from one that has closed, as in Flink. Such
    events are counted as ``<name>.late_sessions``. With an `allowed_lateness` of at least `gap`, there are none.

    :param gap: maximum gap, in event time, between consecutive events in a session
    :param value: an aggregate, or a mapping of names to aggregates; by default, the window counts events
    :param max_duration: maximum duration of a session, at least `gap`; later events start a new session

    The other parameters are those of `HoppingWindow`; `max_active` limits the number of open sessions per key.
    """

    by_keyword = "max_duration"
    _includes_end = 1

    def __init__(
        self: "SessionWindow[V]",
        gap: timedelta,
        value: V = None,  # type: ignore[assignment]
        *,
        max_duration: timedelta | None = None,
        **settings: Unpack[WindowSettings],
    ) -> None:
        self._gap = micros_of("gap", gap, least=1)
        self._longest = None if max_duration is None else micros_of("max_duration", max_duration, least=1)
        if self._longest is not None and self._longest < self._gap:
            raise SpecError(f"max_duration must be at least gap ({gap}), not {max_duration}")
        super().__init__(value, merges=True, **settings)

    @property
    def _closes_after(self) -> int:
        return self._gap

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        micros = to_micros(event.timestamp)
        part = self._part(subject, event)
        before, sessions = part.value or (None, [])
        reached = self.reached(subject)
        if not self._takes(subject, event, part, micros, reached):
            return
        if micros + self._gap > END_OF_TIME:
            raise self._out_of_time(event.timestamp)
        session = self._extended(part, sessions, micros, event)
        next_timer = min(self._next_timer(other, reached, subject.watermark_micros) for other in sessions)
        part.store([before, sessions], next_timer)
        if self._asks_for_early(event):
            window = next(each for each in self._windows_in(session) if micros <= each[1])
            if self._emits_early(self._count(session, window)):
                self._emit(subject, direct, *self._result(session, window), partial=True)
        if self._max_active is not None:
            self._evict(subject, self._max_active)

    def _takes(
        self, subject: Subject, event: KeyedEvent[Any], part: ComponentState, micros: int, reached: int | None
    ) -> bool:
        """Return `True` for an event that is on time. Handle others as late."""
        before, sessions = part.value or (None, [])
        open_before: list[Sequence[int]] = []
        if reached is not None:
            open_before = self._open_before(part, sessions, reached)
            if not self._is_open(micros, reached) and not self._is_near(open_before, micros):
                self._too_late(subject, event, just=self._is_open(micros, reached - 1))
                return False
        if before is not None and micros < before:
            self.too_late(subject, event)
            return False
        is_behind = reached is not None and self._is_behind(micros, reached)
        if is_behind and not self._is_within_gap(open_before, micros):
            subject.count(f"{self.name}{_LATE_SESSIONS}")
        return True

    def _open_before(self, part: ComponentState, sessions: list[Any], reached: int) -> list[Sequence[int]]:
        """Return starts and last event times of the sessions that were open when the event's batch began."""
        local = self._batch_local(part)
        if "open" not in local:
            opened = (session for session in sessions if self._is_open(session[_LAST], reached))
            local["open"] = [session[_START:_KIND] for session in opened]
        found: list[Sequence[int]] = local["open"]
        return found

    def on_timer(self, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        part = self.state_for(subject)
        if part.value is None:
            return
        now, watermark = to_micros(timestamp), subject.watermark_micros
        before, sessions = part.value
        results = []
        left: list[list[Any]] = []
        waiting = sessions[::-1]
        while waiting:
            session = waiting.pop()
            window = next(self._windows_in(session))
            if self._closes_at(self._end(*window)) > now:
                left.append(session)
                windows = self._windows_in(session) if self._early_interval else ()
                due = (each for each in windows if self._emits_at(subject, each, now))
                results += [(self._result(session, each), True) for each in due]
                continue
            results.append((self._result(session, window), False))
            rest = self._rest(session, window)
            if rest is not None:  # the session was cut
                before = latest(before, self._end(*window))
                waiting.append(rest)
        next_timer = min((self._next_timer(session, now, watermark) for session in left), default=None)
        part.store([before, left] if left else None, next_timer, renews=False)
        for result, partial in results:
            self._emit(subject, call, *result, partial=partial)

    @property
    def is_vectorized(self) -> bool:
        return self._is_plain and self._longest is None

    # A key group's sessions are stored as four columns: keys, starts, times of the last events, accumulators. Event
    # counts are left out because only early results need them.

    def to_columns(self, values: Mapping[Key, Any], next_timer: int | None) -> KeyGroupState | None:
        rows = [
            (key, start, last, accumulator)
            for key, (_, sessions) in values.items()
            for _, accumulator, start, last, _ in sessions
        ]
        if any(before is not None for before, _ in values.values()):
            return None
        if not rows:
            return KeyGroupState()
        keys, starts, lasts, accumulators = map(list, zip(*rows, strict=True))
        return KeyGroupState([keys, starts, lasts, self._kept.column(accumulators)], next_timer, list(values))

    def from_columns(self, value: Any, next_timer: int, layout: Any) -> Iterator[tuple[Key, Any, int]]:
        keys, starts, lasts, column = value
        found: dict[Key, list[list[Any]]] = {}
        accumulators = self._accumulators(layout, column, keys)
        for key, start, last, accumulator in zip(keys, starts, lasts, accumulators, strict=True):
            found.setdefault(key, []).append([0, accumulator, start, last, None])
        for key, sessions in found.items():
            sessions.sort(key=itemgetter(_START))
            yield key, [None, sessions], self._closes_at(sessions[0][_LAST] + self._gap)

    def add_columns(self, subject: Subject, group_state: KeyGroupState, events: EventColumns) -> None:
        gap, watermark = self._gap, subject.watermark_micros
        keys, starts, lasts, column = group_state.value or [[], [], [], self._kept.column(())]
        if watermark is not None:
            if group_state.batch_local is None:
                group_state.batch_local = list(keys), list(starts), list(lasts)
            if self._is_behind(min(events.micros), watermark):
                taken_late, on_time = self._taken(events, group_state.batch_local, watermark)
                if taken_late:
                    subject.count(f"{self.name}{_LATE_SESSIONS}", taken_late)
                events = self._without_late(subject, events, on_time) if not all(on_time) else events
            if not events:
                return
        newest = max(events.micros)
        if newest + gap > END_OF_TIME:
            raise self._out_of_time(from_micros(newest))
        known: dict[Key, list[int]] = {}  # the rows of each key, sorted by start
        for row, key in enumerate(keys):
            rows = known.get(key)
            if rows is None:
                known[key] = [row]
            else:
                rows.append(row)
                rows.sort(key=starts.__getitem__)
        at: list[int] = []  # the row of each event
        joined: list[int] = []  # rows that were merged into others
        taken, rows_taken = 0, len(keys)  # numbers of events and of rows that the accumulators already contain

        def take_in() -> None:
            nonlocal taken, rows_taken
            self._kept.extend(column, len(keys) - rows_taken)
            rows, new = at[taken:], events.between(taken, len(at))
            if isinstance(self._kept, ByTurns):
                newest = lambda key: max((turn_of(column[row]), row) for row in known[key])  # noqa: E731
                self._kept.add_each_in(column, rows, new, turns_of(new.keys, rows, newest))
            else:
                self._kept.add_each(column, rows, new)
            taken, rows_taken = len(at), len(keys)

        for key, micros in zip(events.keys, events.micros, strict=True):
            rows = known.get(key)
            # most events arrive in order and need no search
            near = [] if rows is None or micros > lasts[rows[-1]] + gap else self._near(rows, micros, starts, lasts)
            if near:
                row, *others = near
                if others:
                    take_in()
                for other in others:
                    lasts[row] = lasts[other]
                    self._kept.merge_each(column, [row], self._kept.taken(column, [other]))
                    known[key].remove(other)
                    joined.append(other)
                starts[row], lasts[row] = min(starts[row], micros), max(lasts[row], micros)
                at.append(row)
                continue
            row = len(keys)
            keys.append(key)
            starts.append(micros)
            lasts.append(micros)
            at.append(row)
            if rows is None:
                known[key] = [row]
            else:
                rows.append(row)
                if micros < starts[rows[-2]]:
                    rows.sort(key=starts.__getitem__)
        take_in()
        value = [keys, starts, lasts, column]
        if joined:
            value = self._rows(value, sorted({*range(len(keys))}.difference(joined)))
        self._store(group_state, value, known.keys())

    def _near(self, rows: list[int], micros: int, starts: list[int], lasts: list[int]) -> list[int]:
        """Return the rows of the sessions that an event belongs to; `rows` are a key's sessions, sorted by start."""
        newest, gap = rows[-1], self._gap
        if micros >= starts[newest] - gap and (len(rows) == 1 or micros > lasts[rows[-2]] + gap):
            return [newest]
        return [row for row in rows if starts[row] - gap <= micros <= lasts[row] + gap]

    def _taken(
        self, events: EventColumns, open_before: tuple[list[Key], list[int], list[int]], watermark: int
    ) -> tuple[int, list[bool]]:
        """Return the number of events for `late_sessions`, and a list with `True` for each event that is on time, and
        `False` for each late event.

        :param open_before: keys, starts and last event times of the sessions that were open when the batch began
        """
        behind = {key for key, at in zip(events.keys, events.micros, strict=True) if self._is_behind(at, watermark)}
        found: dict[Key, list[Sequence[int]]] = {key: [] for key in behind}
        for key, *span in zip(*open_before, strict=True):
            if key in found:
                found[key].append(span)
        late_sessions, on_time = 0, []
        for key, micros in zip(events.keys, events.micros, strict=True):
            is_behind = self._is_behind(micros, watermark)
            is_near = is_behind and self._is_near(found[key], micros)
            is_open = self._is_open(micros, watermark)
            on_time.append(is_open or is_near)
            late_sessions += is_open and is_behind and not is_near
        return late_sessions, on_time

    def _is_behind(self, micros: int, watermark: int) -> bool:
        """Return `True` if an event is so late that a session within `gap` of it can have closed."""
        return micros < watermark - self._lateness or not self._is_open(micros, watermark)

    def _is_open(self, last: int, watermark: int) -> bool:
        """Return `True` if a session whose last event has this time is open at this watermark."""
        return last > self._passed(watermark, self._gap)

    def _is_near(self, open_before: Iterable[Sequence[int]], micros: int) -> bool:
        """Return `True` if an event belongs to a session that was open when the event's batch began. Sessions opened
        within the batch are ignored; otherwise, the result would depend on the order of events. With `max_duration`,
        the result is always `False`, because the event could move a cut to a time before the watermark.

        :param open_before: starts and last event times of the sessions that were open when the batch began
        """
        return self._longest is None and self._is_within_gap(open_before, micros)

    def _is_within_gap(self, open_before: Iterable[Sequence[int]], micros: int) -> bool:
        return any(start - self._gap <= micros <= last + self._gap for start, last in open_before)

    def on_timers(self, subject: Subject, group_state: KeyGroupState, watermark: int) -> int:
        keys, _, lasts, _ = group_state.value
        newest = self._passed(watermark, self._gap)
        due = [row for row, last in enumerate(lasts) if last <= newest]
        left = [row for row, last in enumerate(lasts) if last > newest]
        if len({lasts[row] for row in due}) < len(due):
            due = in_key_order(due, keys.__getitem__)
        due.sort(key=lasts.__getitem__)
        keys, firsts, lasts, column = self._rows(group_state.value, due)
        value = self._rows(group_state.value, left)
        self._store(group_state, value, set(value[0]))
        lengths = [last - first + self._gap for first, last in zip(firsts, lasts, strict=True)]
        spans = {length: length * MICROSECOND for length in set(lengths)}  # sessions of one event are equally long
        starts = [EPOCH + first * MICROSECOND for first in firsts]
        ends = [start + spans[length] for start, length in zip(starts, lengths, strict=True)]
        self._emit_all(subject, keys, starts, ends, firsts, lasts, column)
        return len(due)

    def _rows(self, value: list[Any], rows: list[int]) -> list[Any]:
        """Return the sessions in these rows."""
        *columns, accumulators = value
        return [*(list(map(column.__getitem__, rows)) for column in columns), self._kept.taken(accumulators, rows)]

    def _store(self, group_state: KeyGroupState, value: list[Any], keys: Collection[Key]) -> None:
        if keys:
            group_state.store(value, self._closes_at(min(value[2]) + self._gap), keys)
        else:
            group_state.store(None, None, ())

    def _extended(
        self, part: ComponentState, sessions: list[list[Any]], micros: int, event: KeyedEvent[Any]
    ) -> list[Any]:
        """Add an event to a key's sessions, which are in time order, and return the event's session."""
        near = [
            at for at, known in enumerate(sessions) if known[_START] - self._gap <= micros <= known[_LAST] + self._gap
        ]
        if near:
            session = sessions[near[0]]
            for other in sessions[near[0] + 1 : near[-1] + 1]:
                self._join(session, other, event)
            del sessions[near[0] + 1 : near[-1] + 1]
            session[_START], session[_LAST] = min(session[_START], micros), max(session[_LAST], micros)
        else:
            session = [0, self._kept.create() if self._longest is None else {}, micros, micros, None]
            sessions.append(session)
            sessions.sort(key=itemgetter(_START))
        if self._longest is not None:
            self._add_step(part, session, event, sessions)
        elif isinstance(self._kept, ByTurns):
            self._add(part, session, event, sessions, lambda _: ())
        else:
            session[ACCUMULATOR] = self._kept.add(session[ACCUMULATOR], self._own(event))
        if self._early_count:
            session[COUNT] += 1
        return session

    def _join(self, session: list[Any], other: list[Any], event: KeyedEvent[Any]) -> None:
        """Merge two sessions that an event connects."""
        left, right = session[ACCUMULATOR], other[ACCUMULATOR]
        if self._longest is None:
            self._check_kinds_fit(event, self._kept.kind(left), self._kept.kind(right))
            session[ACCUMULATOR] = self._kept.merge(left, right)
        else:
            session[ACCUMULATOR] = {**left, **right}
            session[_KIND] = _one_kind(session[_KIND], other[_KIND])
        session[_LAST] = other[_LAST]
        session[COUNT] += other[COUNT]

    def _add_step(
        self, part: ComponentState, session: list[Any], event: KeyedEvent[Any], sessions: list[list[Any]]
    ) -> None:
        """Add an event to a session, if `max_duration` is set."""
        micros, steps = to_micros(event.timestamp), session[ACCUMULATOR]
        step = steps.get(micros) or [0, self._kept.create()]

        def near(kind: Any) -> Iterator[Any]:
            if different(kind, session[_KIND]) is not None:  # most sessions have values of a single kind
                times = next(times for times in self._cuts([*steps, micros]) if micros in times)
                yield from (self._kept.kind(steps[time][ACCUMULATOR]) for time in times if time in steps)

        self._add(part, step, event, chain(*(other[ACCUMULATOR].values() for other in sessions)), near)
        step[COUNT] += 1
        steps[micros] = step
        if self._kept.has_kinds:
            session[_KIND] = _one_kind(session[_KIND], self._kept.kind(step[ACCUMULATOR]))

    def _windows_in(self, session: list[Any]) -> Iterator[tuple[int, int]]:
        """Yield the windows into which `max_duration` cuts a session: the first and the last event time of each."""
        if self._longest is None or session[_LAST] < session[_START] + self._longest:
            yield session[_START], session[_LAST]
        else:
            yield from ((times[0], times[-1]) for times in self._cuts(session[ACCUMULATOR]))

    def _cuts(self, times: Iterable[int]) -> Iterator[list[int]]:
        """Split a session into pieces that are not longer than `max_duration`. Yield the event times of each piece."""
        assert self._longest is not None
        ordered = sorted(times)
        begin = 0
        while begin < len(ordered):
            end = bisect_left(ordered, ordered[begin] + self._longest, begin)
            yield ordered[begin:end]
            begin = end

    def _steps_in(self, session: list[Any], window: tuple[int, int]) -> list[list[Any]]:
        """Return the steps of a window, in order of time, if `max_duration` is set."""
        first, last = window
        return [session[ACCUMULATOR][time] for time in sorted(session[ACCUMULATOR]) if first <= time <= last]

    def _count(self, session: list[Any], window: tuple[int, int]) -> int:
        """Return the number of events in a window of a session; it is only right if `early` is a number."""
        if window == (session[_START], session[_LAST]):
            return int(session[COUNT])
        return sum(step[COUNT] for step in self._steps_in(session, window))

    def _result(self, session: list[Any], window: tuple[int, int]) -> tuple[Span, list[Any]]:
        """Return the span of a window of a session, and the accumulators of its parts."""
        parts = session[ACCUMULATOR]
        accumulators = (
            [parts] if self._longest is None else [step[ACCUMULATOR] for step in self._steps_in(session, window)]
        )
        return (window[0], self._end(*window), *window), accumulators

    def _rest(self, session: list[Any], window: tuple[int, int]) -> list[Any] | None:
        """Return a session without its first window; `None` if it has only one."""
        _, last = window
        if last == session[_LAST]:
            return None
        steps = {time: step for time, step in session[ACCUMULATOR].items() if time > last}
        kind = session[_KIND]
        if kind == _MIXED:
            kind = reduce(_one_kind, (self._kept.kind(step[ACCUMULATOR]) for step in steps.values()), None)
        return [sum(step[COUNT] for step in steps.values()), steps, min(steps), session[_LAST], kind]

    def _end(self, first: int, last: int) -> int:
        """Return the end of a window, as limited by `max_duration`, from its first and its last event time."""
        return last + self._gap if self._longest is None else min(last + self._gap, first + self._longest)

    def _next_timer(self, session: list[Any], now: int | None, watermark: int | None) -> int:
        """Return the time at which a window of a session closes or at which its next `early` interval ends, whichever
        comes first.

        :param now: event time up to which early results have been emitted; `None` if none have been emitted
        """
        windows = self._windows_in(session)
        if not self._lateness or not self._early_interval:  # the first window closes before the next one is due
            windows = islice(windows, 1)
        return min(self._timer_of(first, self._end(first, last), now, watermark) for first, last in windows)

    def _emits_at(self, subject: Subject, window: tuple[int, int], now: int) -> bool:
        """Return `True` if the `early` interval makes a window emit an early result at a time."""
        end = self._end(*window)
        is_due = self._is_due(window[0], end, now, subject.watermark_micros)
        return is_due and not self._closes_in_batch(subject, end)

    def _closes_in_batch(self, subject: Subject, end: int) -> bool:
        return subject.watermark_micros is None or self._closes_at(end) <= subject.watermark_micros

    def _evict(self, subject: Subject, most: int) -> None:
        """Close the oldest sessions until at most `most` are open."""
        part = self.state_for(subject)
        _, sessions = part.value
        while len(sessions) > most:
            session = sessions[0]
            window = next(self._windows_in(session))
            rest = self._rest(session, window)
            sessions[:1] = [] if rest is None else [rest]
            reached, watermark = self.reached(subject), subject.watermark_micros
            next_timer = min(self._next_timer(session, reached, watermark) for session in sessions)
            part.store([self._end(*window), sessions], next_timer)
            subject.count(f"{self.name}.evicted")
            self._emit(subject, direct, *self._result(session, window), partial=True)

    def migrated(self, part: Any, version: int, key: Key) -> Any:
        for session in part[1]:
            session[_KIND] = None  # the stored kind belongs to the older version of the aggregate
        return super().migrated(part, version, key)

    def _with_accumulators(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        before, sessions = value
        for session in sessions:
            steps = session[ACCUMULATOR]
            session[ACCUMULATOR] = (
                convert(steps)
                if self._longest is None
                else {time: [number, convert(accumulator)] for time, (number, accumulator) in steps.items()}
            )
        return [before, sessions]

    def _are_open(self, windows: Any) -> bool:
        if not are_rows(windows, 5, _START, _LAST):
            return False
        return self._longest is None or all(is_by_time(session[ACCUMULATOR], 2) for session in windows)

    def open_windows(self, value: Any) -> list[tuple[int, int, list[Any]]]:
        windows = [self._result(session, window) for session in value[1] for window in self._windows_in(session)]
        return [(start, end, accumulators) for (start, end, *_), accumulators in windows]

    def _fixed(self) -> dict[str, Any]:
        longest = None if self._longest is None else self._longest * MICROSECOND
        return {"gap": self._gap * MICROSECOND, "max_duration": longest}


def _one_kind(kind: Any, other: Any) -> Any:
    """Return the common kind of a session's values; `_MIXED` if their kinds differ. See `Aggregate.kind`."""
    return joined((kind, other)) if different(kind, other) is None else _MIXED
