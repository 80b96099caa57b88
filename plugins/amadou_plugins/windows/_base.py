"""What all kinds of windows have in common: their settings, the handler's callbacks, late events, early results."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import not_
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, overload

from typing_extensions import TypeVar

from amadou import Call, Events, Key, KeyedEvent, Part, Subject, from_micros
from amadou.errors import SpecError
from amadou_plugins._calling import (
    BEGINNING_OF_TIME,
    END_OF_TIME,
    MICROSECOND,
    CallingComponent,
    H,
    LateMethod,
    OnLate,
    X,
    latest,
    micros_of,
)
from amadou_plugins.aggregates import Aggregate, AggregateLike, Count, aggregate_of
from amadou_plugins.aggregates._several import accumulators_of
from amadou_plugins.windows._errors import WindowEventError
from amadou_plugins.windows._retaining import Retaining

Early: TypeAlias = timedelta | int | Callable[[KeyedEvent[Any]], Any] | None
Migrate: TypeAlias = Callable[[Any, int], Any]

K_co = TypeVar("K_co", bound=Key, covariant=True, default=Any)


# A named tuple, as `KeyedEvent` is: one is made for every result.
class Window(NamedTuple, Generic[K_co]):
    """A window, as callbacks see it. Its type may name that of the key, as in `Window[str]`.

    :param start: its beginning, which belongs to it
    :param end: its end; belongs to it in sliding and count windows only
    :param key: whose window it is
    :param partial: whether the result comes before the window is closed
    """

    start: datetime
    end: datetime
    key: K_co
    partial: bool = False

    def __str__(self) -> str:
        return f"{self.start.isoformat()} … {self.end.isoformat()}{' so far' if self.partial else ''}"


R = TypeVar("R")
Value: TypeAlias = AggregateLike[Any] | Mapping[str, Any] | None
"""What a window's `value` may be: an aggregate, several by name, or nothing, to count events."""
V = TypeVar("V", bound=Value, default=None)
V_co = TypeVar("V_co", bound=Value, covariant=True, default=Any)
OnResult: TypeAlias = Callable[[Subject, Window, Any], Any]
ResultMethod: TypeAlias = Callable[[H, Subject, Window, R], X]


class Emission:
    """Gives a result to a function of the handler's; see `Call`."""

    __slots__ = ("__name__", "_aggregate", "_function")

    def __init__(self, function: Callable[..., Any], aggregate: Aggregate[Any, Any]) -> None:
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._aggregate = aggregate

    def __call__(self, subject: Subject, window: Window, accumulator: Any) -> None:
        self._function(subject, window, self._aggregate.result(accumulator))


class WindowSpec(CallingComponent, Generic[V_co]):
    """The base of all kinds of windows. Its type names that of its `value`: type checkers know by it what results are.

    A key's value is a list: up to which window all are known to be closed (`None` for none), and what the kind keeps of
    its open windows. A bound on open windows is one of each key, so that what becomes of a key's windows
    depends on its own events alone.
    """

    by_keyword: ClassVar[str | None] = None
    """The parameter of the kind that one may have meant who gives no aggregate in the place of `value`."""
    _was_checked = False

    def __init__(
        self,
        value: Value,
        *,
        allowed_lateness: timedelta,
        late: Literal["drop", "divert"],
        early: Early,
        max_active: int | None,
        ttl: timedelta | None,
        storage: Literal["persistent", "memory"],
        version: int,
        migrate: Migrate | None,
        name: str | None,
        on_close: OnResult | None,
        on_early: OnResult | None,
        on_late: OnLate | None,
        merges: bool,
    ) -> None:
        if self.by_keyword is not None and isinstance(value, timedelta | int):
            raise SpecError(f"value must be an aggregate, not {value!r}: give {self.by_keyword}= by its name")
        if max_active is not None and (type(max_active) is not int or max_active < 1):
            raise SpecError(f"max_active must be a whole number above zero, not {max_active!r}")
        if storage not in ("persistent", "memory"):
            raise SpecError(f'storage must be "persistent" or "memory", not {storage!r}')
        self.in_memory = storage == "memory"
        self.aggregate = aggregate_of(Count() if value is None else value)
        """What the events of a window come to."""
        self._max_active = max_active
        self._kept = self.aggregate if self.aggregate.mergeable or not merges else Retaining(self.aggregate)
        self._early_interval = self._early_count = 0
        self._early_predicate: Callable[[KeyedEvent[Any]], Any] | None = None
        if isinstance(early, timedelta):
            self._early_interval = micros_of("early", early, least=1)
        elif type(early) is int and early > 0:
            self._early_count = early
        elif callable(early):
            self._early_predicate = early
        elif early is not None:
            raise SpecError(
                f"early must be a timedelta, a number of events above zero or a function of an event, not {early!r}"
            )
        super().__init__(
            {"on_close": on_close, "on_early": on_early, "on_late": on_late, "on_close_all": None},
            allowed_lateness=allowed_lateness,
            late=late,
            ttl=ttl,
            name=name,
            version=version,
            migrate=migrate,
        )

    @overload
    def on_close(self: "WindowSpec[AggregateLike[R]]", function: ResultMethod[H, R, X]) -> ResultMethod[H, R, X]: ...
    @overload
    def on_close(
        self: "WindowSpec[Mapping[str, Any]]", function: ResultMethod[H, dict[str, Any], X]
    ) -> ResultMethod[H, dict[str, Any], X]: ...
    @overload
    def on_close(self: "WindowSpec[None]", function: ResultMethod[H, int, X]) -> ResultMethod[H, int, X]: ...
    def on_close(self, function: Any) -> Any:
        """Marks the handler's method for results: ``(self, subject, window, value)``. Every window needs one."""
        return self.mark("on_close", function)

    @overload
    def on_early(self: "WindowSpec[AggregateLike[R]]", function: ResultMethod[H, R, X]) -> ResultMethod[H, R, X]: ...
    @overload
    def on_early(
        self: "WindowSpec[Mapping[str, Any]]", function: ResultMethod[H, dict[str, Any], X]
    ) -> ResultMethod[H, dict[str, Any], X]: ...
    @overload
    def on_early(self: "WindowSpec[None]", function: ResultMethod[H, int, X]) -> ResultMethod[H, int, X]: ...
    def on_early(self, function: Any) -> Any:
        """Marks the handler's method for results before the close, with the same arguments; else they go to that of
        `on_close`. There are some with `early` and `max_active`.
        """
        return self.mark("on_early", function)

    def on_late(self, function: LateMethod[H, X]) -> LateMethod[H, X]:
        """Marks the handler's method for late events: ``(self, subject, event)``. They are counted as
        ``<name>.late`` whatever becomes of them.
        """
        return self.mark("on_late", function)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        """Take an event of the subject in.

        :raises WindowEventError: it is another subject's, or its window would begin or end outside of time
        :raises SpecError: the window was made at run time, and does not hold together
        """
        raise NotImplementedError

    @property
    def fields(self) -> frozenset[str] | None:
        """The fields of an event's value that are read; `None` where the event may be looked at as a whole."""
        whole = self.diverts or self._early_predicate is not None or self._given["on_late"] is not None
        return None if whole else self.aggregate.fields

    def check(self) -> None:
        super().check()
        self.require("on_close")
        if self._given["on_early"] is not None and not self._has_early and self._max_active is None:
            raise SpecError("on_early is never called: say when there are early results, with early=")

    def _part(self, subject: Subject, event: KeyedEvent[Any]) -> Part:
        """What is kept of a subject, for an event of its.

        :raises WindowEventError: the event is another subject's
        :raises SpecError: the window was made at run time, and does not hold together
        """
        if event.key != subject.key:
            raise WindowEventError(
                self.name, event.timestamp, f"its key is {event.key!r}, and that of the subject {subject.key!r}"
            )
        if not self._was_checked:
            self.check()
            self._was_checked = True
        return self.state_for(subject)

    def _out_of_time(self, timestamp: datetime) -> WindowEventError:
        return WindowEventError(self.name, timestamp, "its window would begin or end outside of the years 1 to 9999")

    def emission(self, subject: Subject, *, partial: bool = False) -> Emission:
        """What gives results to the handler."""
        function = self.function("on_early", subject.handler) if partial else None
        if function is None:
            function = self.function("on_close", subject.handler)
        if function is None:  # of one that was made at run time
            self.require("on_close")
        return Emission(function, self._kept)

    def _emit(self, subject: Subject, call: Call, start: int, end: int, accumulator: Any, *, partial: bool) -> None:
        """Give a result to the handler."""
        window = Window(from_micros(start), from_micros(end), subject.key, partial)
        call(subject, self.emission(subject, partial=partial), window, accumulator)

    @property
    def _is_plain(self) -> bool:
        """Whether all results come when windows close, and windows close by the watermark alone."""
        return not self._has_early and self._max_active is None and self.ttl is None

    @property
    def _has_early(self) -> bool:
        return bool(self._early_interval or self._early_count) or self._early_predicate is not None

    def _emit_all(
        self,
        subject: Subject,
        keys: Sequence[Key],
        starts: Sequence[datetime],
        ends: Sequence[datetime],
        column: Any,
    ) -> None:
        """Give results of many keys to the handler, in their order."""
        values = self._kept.results(column)
        together = self.function("on_close_all", subject.handler)
        if together is not None:
            together(subject, keys, starts, ends, values)
            return
        function = self.function("on_close", subject.handler)
        wait = min(self._lateness, END_OF_TIME - BEGINNING_OF_TIME)
        last, lateness = from_micros(END_OF_TIME - wait), wait * MICROSECOND
        for key, start, end, value in zip(keys, starts, ends, values, strict=True):
            subject.key, subject.timestamp = key, min(end, last) + lateness
            function(subject, Window(start, end, key, False), value)

    def _on_time(self, subject: Subject, events: Events, first: int) -> Events:
        """The events from a time on. The others have come too late, and are dealt with."""
        if min(events.micros) >= first:
            return events
        return self._without_late(subject, events, [micros >= first for micros in events.micros])

    def _without_late(self, subject: Subject, events: Events, on_time: list[bool]) -> Events:
        """The events that are on time. The others are dealt with."""
        for event in events.where(map(not_, on_time)).each():
            subject.key, subject.timestamp, subject.is_late = event.key, event.timestamp, True
            self.too_late(subject, event)
        subject.is_late = False
        return events.where(on_time)

    def _closed(self, subject: Subject, before: int | None, length: int = 0) -> int | None:
        """Windows of a length that begin up to here are closed, by the watermark or before their time.

        :param before: up to where they are known to be
        """
        watermark = subject.watermark_micros
        return before if watermark is None else latest(before, self._passed(watermark, length))

    def _passed(self, watermark: int, length: int) -> int:
        """Windows of a length that begin up to here are closed by a watermark; at the end of time all are."""
        return END_OF_TIME if watermark >= END_OF_TIME else watermark - self._lateness - length

    def _closes_at(self, end: int) -> int:
        return min(end + self._lateness, END_OF_TIME)

    def _is_early(self, event: KeyedEvent[Any], events: int) -> bool:
        """Whether an event calls for an early result of a window that has so many events now."""
        if self._early_count:
            return events % self._early_count == 0
        return self._early_predicate is not None and bool(self._early_predicate(event))

    def _is_due(self, start: int, end: int, now: int) -> bool:
        """Whether a window gives an early result by time at a time."""
        return bool(self._early_interval) and start < now < end and (now - start) % self._early_interval == 0

    def _wakes_at(self, start: int, end: int, now: int | None) -> int:
        """When an open window gives its next early result by time, or closes.

        :param now: up to when results were given
        """
        if self._early_interval:
            passed = 0 if now is None else (now - start) // self._early_interval
            early = start + max(passed + 1, 1) * self._early_interval
            if early < end:
                return early
        return self._closes_at(end)

    def _merged(self, parts: list[tuple[int, Any]]) -> tuple[int, Any]:
        """Several parts of a window, each a number of events and an accumulator, as one."""
        if len(parts) == 1:
            count, accumulator = parts[0]
            return count, accumulator
        accumulator = self._kept.create()
        for _, part in parts:
            accumulator = self._kept.merge(accumulator, part)
        return sum(part[0] for part in parts), accumulator

    def open_windows(self, value: Any) -> list[tuple[int, int, Any]]:
        """Start, end and accumulator of the windows in what is kept of a key."""
        raise NotImplementedError

    def shown_value(self, key: Key, value: Any) -> dict[datetime, Any]:
        """What the events of a key's open windows have come to so far, by the beginning of each."""
        return {
            from_micros(start): self._kept.result(accumulator)
            for start, _, accumulator in ([] if value is None else self.open_windows(value))
        }

    def _migrated(self, part: Any, version: int, key: Key) -> Any:
        migrated = super()._migrated
        return self._with_accumulators(part, lambda accumulator: migrated(accumulator, version, key))

    def _with_accumulators(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        """What is kept of a key, with each accumulator converted. It has them by time, each with a number of events,
        where a kind does not say otherwise.
        """
        before, parts = value
        return [before, {time: [number, convert(accumulator)] for time, (number, accumulator) in parts.items()}]

    @property
    def layout(self) -> Any:
        return [self.version, self._kept.layout]

    def _accumulators(self, layout: Any, column: Any, keys: Sequence[Key]) -> list[Any]:
        """The accumulators of a column of some keys.

        :param layout: the window's when the column was stored
        """
        version, form = layout
        try:
            found = accumulators_of(self._kept, form, column, len(keys))
        except Exception as error:
            raise self.unreadable(error, form, type(self.aggregate), keys[0]) from error
        if version == self.version:
            return found
        return [super(WindowSpec, self)._migrated(part, version, key) for key, part in zip(keys, found, strict=True)]

    def structure(self) -> dict[str, Any]:
        kept = {"aggregate": self.aggregate.structure(), "settings": self._settings()}
        return {**super().structure(), **kept, "keeps": "events" if isinstance(self._kept, Retaining) else "results"}

    def _fixed(self) -> dict[str, timedelta | int | None]:
        """The settings of the kind, by name, `None` for one that is not there."""
        return {}

    def _settings(self) -> dict[str, str]:
        """The settings that decide which events a window has and when it closes, as texts."""
        given = {**self._fixed(), "allowed_lateness": self._lateness * MICROSECOND if self._lateness else None}
        return {name: str(setting) for name, setting in given.items() if setting is not None}

    def __repr__(self) -> str:
        told = [f"{name}={setting}" for name, setting in self._settings().items()]
        return f"{type(self).__name__}({', '.join([*told, repr(self.aggregate)])})"
