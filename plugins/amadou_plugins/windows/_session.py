"""Session windows: stretches of events that are near each other."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Literal

from amadou import Call, Events, Key, KeyedEvent, Subject, Whole, from_micros, in_key_order, to_micros
from amadou.errors import SpecError
from amadou_plugins._calling import END_OF_TIME, MICROSECOND, OnLate, direct, latest, micros_of
from amadou_plugins.windows._base import Early, Migrate, OnResult, V, V_co, WindowSpec

# A session is kept as a list of these; events are counted where early results ask for it. With `max_duration` its
# accumulator is a dict: its events by their times, each a number of events and an accumulator, since an event may still
# come that moves where the session is cut.
_START, _LAST, _COUNT, _ACCUMULATOR = range(4)
_EPOCH = from_micros(0)


class SessionWindow(WindowSpec[V_co]):
    """Windows from an event up to a gap after the last one that is near it.

    An event extends a session where it is at most `gap` from its nearest event; one that comes out of order may join
    two. A session ends `gap` after its last event. An event is late where a session of it alone would be closed, and it
    belongs to none that was open when its batch began; with `max_duration`, to whatever it belongs.

    :param gap: the longest time between neighbouring events of a session
    :param value: an aggregate, or several by name, which give a mapping; counts without it
    :param max_duration: how long a session is at most; what follows begins another. Not shorter than `gap`

    The other parameters are those of `HoppingWindow`; `max_active` bounds a key's open sessions.
    """

    by_keyword = "max_duration"

    def __init__(
        self: "SessionWindow[V]",
        gap: timedelta,
        value: V = None,  # type: ignore[assignment]
        *,
        max_duration: timedelta | None = None,
        allowed_lateness: timedelta = timedelta(0),
        late: Literal["drop", "divert"] = "drop",
        early: Early = None,
        max_active: int | None = None,
        ttl: timedelta | None = None,
        storage: Literal["persistent", "memory"] = "persistent",
        version: int = 0,
        migrate: Migrate | None = None,
        name: str | None = None,
        on_close: OnResult | None = None,
        on_early: OnResult | None = None,
        on_late: OnLate | None = None,
    ) -> None:
        self._gap = micros_of("gap", gap, least=1)
        self._longest = None if max_duration is None else micros_of("max_duration", max_duration, least=1)
        if self._longest is not None and self._longest < self._gap:
            raise SpecError(f"max_duration must not be shorter than gap ({gap}), not {max_duration}")
        super().__init__(
            value,
            merges=True,
            allowed_lateness=allowed_lateness,
            late=late,
            early=early,
            max_active=max_active,
            ttl=ttl,
            storage=storage,
            version=version,
            migrate=migrate,
            name=name,
            on_close=on_close,
            on_early=on_early,
            on_late=on_late,
        )

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        micros = to_micros(event.timestamp)
        part = self._part(subject, event)
        before, sessions = part.value or (None, [])
        watermark = subject.watermark_micros
        late = False
        if watermark is not None:
            if part.noted is None:
                part.noted = [session[:_COUNT] for session in sessions if self._is_open(session[_LAST], watermark)]
            late = not self._is_open(micros, watermark) and not self._is_near(part.noted, micros)
        if late or (before is not None and micros < before):
            self.too_late(subject, event)
            return
        if micros + self._gap > END_OF_TIME:
            raise self._out_of_time(event.timestamp)
        session = self._extended(sessions, micros, event)
        part.store([before, sessions], min(self._next_wake(other, watermark) for other in sessions))
        if self._is_early(event, session[_COUNT]):
            start, end, accumulator, _ = self._cut(session)
            self._emit(subject, direct, start, end, accumulator, partial=True)
        if self._max_active is not None:
            self._push_out(subject, self._max_active)

    def woken(self, subject: Subject, timestamp: datetime, call: Call) -> None:
        part = self.state_for(subject)
        if part.value is None:
            return
        now = to_micros(timestamp)
        before, sessions = part.value
        results = []
        left: list[list[Any]] = []
        waiting = sessions[::-1]
        while waiting:
            session = waiting.pop()
            start, end, accumulator, rest = self._cut(session)
            if self._closes_at(end) > now:
                left.append(session)
                if self._is_due(start, end, now) and not self._closes_in_batch(subject, end):
                    results.append((start, end, accumulator, True))
                continue
            results.append((start, end, accumulator, False))
            if rest is not None:  # the session was cut
                before = latest(before, end)
                waiting.append(rest)
        wake_at = min((self._next_wake(session, subject.watermark_micros) for session in left), default=None)
        part.store([before, left] if left else None, wake_at)
        for start, end, accumulator, partial in results:
            self._emit(subject, call, start, end, accumulator, partial=partial)

    @property
    def at_once(self) -> bool:
        return self._is_plain and self._longest is None

    # As a whole, a key group's sessions are four columns: keys, starts, times of the last events, accumulators. Numbers
    # of events are for early results.

    def gathered(self, values: Mapping[Key, Any], wake_at: int | None) -> Whole | None:
        rows = [
            (key, start, last, accumulator)
            for key, (_, sessions) in values.items()
            for start, last, _, accumulator in sessions
        ]
        if any(before is not None for before, _ in values.values()):
            return None
        if not rows:
            return Whole()
        keys, starts, lasts, accumulators = map(list, zip(*rows, strict=True))
        return Whole([keys, starts, lasts, self._kept.column(accumulators)], wake_at, list(values))

    def spread(self, value: Any, wake_at: int, layout: Any) -> Iterator[tuple[Key, Any, int]]:
        keys, starts, lasts, column = value
        found: dict[Key, list[list[Any]]] = {}
        for key, start, last, accumulator in zip(
            keys, starts, lasts, self._accumulators(layout, column, keys), strict=True
        ):
            found.setdefault(key, []).append([start, last, 0, accumulator])
        for key, sessions in found.items():
            sessions.sort(key=itemgetter(_START))
            yield key, [None, sessions], self._closes_at(sessions[0][_LAST] + self._gap)

    def add_all(self, subject: Subject, whole: Whole, events: Events) -> None:
        gap, watermark = self._gap, subject.watermark_micros
        keys, starts, lasts, column = whole.value or [[], [], [], self._kept.column(())]
        if watermark is not None:
            if whole.noted is None:
                whole.noted = list(keys), list(starts), list(lasts)
            if not self._is_open(min(events.micros), watermark):
                events = self._without_late(subject, events, self._taken(events, whole.noted, watermark))
            if not events:
                return
        newest = max(events.micros)
        if newest + gap > END_OF_TIME:
            raise self._out_of_time(from_micros(newest))
        known: dict[Key, list[int]] = {}  # the rows of each key, by start
        for row, key in enumerate(keys):
            rows = known.get(key)
            if rows is None:
                known[key] = [row]
            else:
                rows.append(row)
                rows.sort(key=starts.__getitem__)
        at: list[int] = []  # the row of each event
        joined: list[int] = []  # rows that are part of others now
        taken, rows_taken = 0, len(keys)  # how many events, and the rows of how many, the accumulators know

        def take_in() -> None:
            nonlocal taken, rows_taken
            self._kept.extend(column, len(keys) - rows_taken)
            self._kept.add_each(column, at[taken:], events.between(taken, len(at)))
            taken, rows_taken = len(at), len(keys)

        for key, micros in zip(events.keys, events.micros, strict=True):
            rows = known.get(key)
            # most events come in their order, which needs no search
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
        self._store(whole, value, known.keys())

    def _near(self, rows: list[int], micros: int, starts: list[int], lasts: list[int]) -> list[int]:
        """The sessions of a key that an event belongs to, of rows that are in the order of their starts."""
        newest, gap = rows[-1], self._gap
        if micros >= starts[newest] - gap and (len(rows) == 1 or micros > lasts[rows[-2]] + gap):
            return [newest]
        return [row for row in rows if starts[row] - gap <= micros <= lasts[row] + gap]

    def _taken(self, events: Events, noted: tuple[list[Key], list[int], list[int]], watermark: int) -> list[bool]:
        """Which events are not late.

        :param noted: keys, starts and times of the last events of the sessions that were open when the batch began
        """
        late = {key for key, at in zip(events.keys, events.micros, strict=True) if not self._is_open(at, watermark)}
        found: dict[Key, list[Sequence[int]]] = {key: [] for key in late}
        for key, *span in zip(*noted, strict=True):
            if key in found:
                found[key].append(span)
        return [
            self._is_open(micros, watermark) or self._is_near(found[key], micros)
            for key, micros in zip(events.keys, events.micros, strict=True)
        ]

    def _is_open(self, last: int, watermark: int) -> bool:
        """Whether a session is open whose last event has some time."""
        return last > self._passed(watermark, self._gap)

    def _is_near(self, noted: Iterable[Sequence[int]], micros: int) -> bool:
        """Whether an event belongs to a session that was open when its batch began: one that came in the batch itself
        would make it a question of their order. Where sessions are cut it might move a cut to before the watermark.

        :param noted: starts, and times of the last events
        """
        return self._longest is None and any(start - self._gap <= micros <= last + self._gap for start, last in noted)

    def woken_all(self, subject: Subject, whole: Whole, watermark: int) -> int:
        keys, _, lasts, _ = whole.value
        newest = self._passed(watermark, self._gap)
        due = [row for row, last in enumerate(lasts) if last <= newest]
        left = [row for row, last in enumerate(lasts) if last > newest]
        if len({lasts[row] for row in due}) < len(due):
            due = in_key_order(due, keys.__getitem__)
        due.sort(key=lasts.__getitem__)
        keys, starts, lasts, column = self._rows(whole.value, due)
        value = self._rows(whole.value, left)
        self._store(whole, value, set(value[0]))
        lengths = [last - start + self._gap for start, last in zip(starts, lasts, strict=True)]
        spans = {length: length * MICROSECOND for length in set(lengths)}  # sessions of one event are all as long
        starts = [_EPOCH + start * MICROSECOND for start in starts]
        ends = [start + spans[length] for start, length in zip(starts, lengths, strict=True)]
        self._emit_all(subject, keys, starts, ends, column)
        return len(due)

    def _rows(self, value: list[Any], rows: list[int]) -> list[Any]:
        """Some of the sessions."""
        *columns, accumulators = value
        return [*(list(map(column.__getitem__, rows)) for column in columns), self._kept.taken(accumulators, rows)]

    def _store(self, whole: Whole, value: list[Any], keys: Collection[Key]) -> None:
        if keys:
            whole.store(value, self._closes_at(min(value[2]) + self._gap), keys)
        else:
            whole.store(None, None, ())

    def _extended(self, sessions: list[list[Any]], micros: int, event: KeyedEvent[Any]) -> list[Any]:
        """Take an event into the sessions of a key, which are in the order of time. Returns its session."""
        near = [
            at for at, known in enumerate(sessions) if known[_START] - self._gap <= micros <= known[_LAST] + self._gap
        ]
        if near:
            session = sessions[near[0]]
            for other in sessions[near[0] + 1 : near[-1] + 1]:
                session[_LAST] = other[_LAST]
                session[_COUNT] += other[_COUNT]
                session[_ACCUMULATOR] = self._joined(session[_ACCUMULATOR], other[_ACCUMULATOR])
            del sessions[near[0] + 1 : near[-1] + 1]
            session[_START], session[_LAST] = min(session[_START], micros), max(session[_LAST], micros)
        else:
            session = [micros, micros, 0, self._kept.create() if self._longest is None else {}]
            sessions.append(session)
            sessions.sort(key=itemgetter(_START))
        if self._early_count:
            session[_COUNT] += 1
        if self._longest is None:
            session[_ACCUMULATOR] = self._kept.add(session[_ACCUMULATOR], event)
        else:
            step = session[_ACCUMULATOR].setdefault(micros, [0, self._kept.create()])
            step[0] += 1
            step[1] = self._kept.add(step[1], event)
        return session

    def _joined(self, left: Any, right: Any) -> Any:
        return self._kept.merge(left, right) if self._longest is None else {**left, **right}

    def _cut(self, session: list[Any]) -> tuple[int, int, Any, list[Any] | None]:
        """Start, end and accumulator of a session up to `max_duration`, and what follows, if anything does."""
        start, last, _, steps = session
        if self._longest is None:
            return start, last + self._gap, steps, None
        times = sorted(steps)
        inside = [time for time in times if time < start + self._longest]
        _, accumulator = self._merged([steps[time] for time in inside])
        after = {time: steps[time] for time in times[len(inside) :]}
        rest = [min(after), last, sum(step[0] for step in after.values()), after] if after else None
        return start, self._end(session), accumulator, rest

    def _end(self, session: list[Any]) -> int:
        """When a session up to `max_duration` ends."""
        last: int = session[_LAST]
        if self._longest is None:
            return last + self._gap
        longest: int = session[_START] + self._longest
        if last >= longest:
            last = max(time for time in session[_ACCUMULATOR] if time < longest)
        return min(last + self._gap, longest)

    def _next_wake(self, session: list[Any], now: int | None) -> int:
        """When a session gives an early result, or closes."""
        return self._wakes_at(session[_START], self._end(session), now)

    def _closes_in_batch(self, subject: Subject, end: int) -> bool:
        return subject.watermark_micros is None or self._closes_at(end) <= subject.watermark_micros

    def _push_out(self, subject: Subject, most: int) -> None:
        """Close the oldest sessions where there are more than may be open."""
        part = self.state_for(subject)
        _, sessions = part.value
        while len(sessions) > most:
            start, end, accumulator, rest = self._cut(sessions[0])
            sessions[:1] = [] if rest is None else [rest]
            wake_at = min(self._next_wake(session, subject.watermark_micros) for session in sessions)
            part.store([end, sessions], wake_at)
            subject.count(f"{self.name}.pushed_out")
            self._emit(subject, direct, start, end, accumulator, partial=True)

    def _with_accumulators(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        before, sessions = value
        for session in sessions:
            steps = session[_ACCUMULATOR]
            session[_ACCUMULATOR] = (
                convert(steps)
                if self._longest is None
                else {time: [number, convert(accumulator)] for time, (number, accumulator) in steps.items()}
            )
        return [before, sessions]

    def open_windows(self, value: Any) -> list[tuple[int, int, Any]]:
        return [self._cut(session)[:3] for session in value[1]]

    def _fixed(self) -> dict[str, timedelta | int | None]:
        longest = None if self._longest is None else self._longest * MICROSECOND
        return {"gap": self._gap * MICROSECOND, "max_duration": longest}
