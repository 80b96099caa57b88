"""The base of all kinds of windows: their settings, the handler's callbacks, late events, early results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import not_
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeAlias, TypedDict, overload

from typing_extensions import TypeVar

from amadou import ComponentState, EventColumns, Invoke, Key, KeyedEvent, Subject, check_ran, from_micros
from amadou.errors import SpecError
from amadou.event_time import BEGINNING_OF_TIME, END_OF_TIME, MICROSECOND
from amadou_plugins._calling import CallingComponent, H, LateMethod, OnLate, X, latest, micros_of
from amadou_plugins.aggregates import Aggregate, AggregateLike, Count, ValueKindError, aggregate_of
from amadou_plugins.aggregates._composite import CompositeAggregate, accumulators_of, forget_removed
from amadou_plugins.aggregates._kinds import different
from amadou_plugins.aggregates._migrated import check_migrated
from amadou_plugins.windows._by_turns import ByTurns, turn_of
from amadou_plugins.windows._errors import WindowEventError
from amadou_plugins.windows._retaining import Retaining

Early: TypeAlias = timedelta | int | Callable[[KeyedEvent[Any]], Any] | None
Migrate: TypeAlias = Callable[[Any, int], Any]
Span: TypeAlias = tuple[int, int, int, int]
"""Start and end of a window, and the times of its oldest and newest event, in microseconds."""


# A part of windows is kept as a list that begins with these.
COUNT, ACCUMULATOR = range(2)


K_co = TypeVar("K_co", bound=Key, covariant=True, default=Any)


class _Span(NamedTuple, Generic[K_co]):
    start: datetime
    end: datetime
    key: K_co
    partial: bool = False


# A named tuple, as `KeyedEvent` is: one is made for every result.
class Window(_Span[K_co]):
    """A window, as callbacks see it: a tuple of its first four attributes, which decide equality. Its type may name the
    type of the key, as in `Window[str]`.

    :param start: start of the window, inclusive
    :param end: end of the window; inclusive in sliding and count windows only
    :param key: key of the window
    :param partial: true if the result comes before the window closes
    :param first: time of its oldest event; `start` without it
    :param last: time of its newest event; `end` without it
    """

    first: datetime
    last: datetime

    def __new__(
        cls,
        start: datetime,
        end: datetime,
        key: K_co,
        partial: bool = False,
        first: datetime | None = None,
        last: datetime | None = None,
    ) -> "Window[K_co]":
        made = tuple.__new__(cls, (start, end, key, partial))
        made.first = start if first is None else first
        made.last = end if last is None else last
        return made

    def _replace(self, **changed: Any) -> "Window[K_co]":
        return Window(*super()._replace(**changed), self.first, self.last)

    def __str__(self) -> str:
        return f"{self.start.isoformat()} … {self.end.isoformat()}{' so far' if self.partial else ''}"


R = TypeVar("R")
Value: TypeAlias = AggregateLike[Any] | Mapping[str, Any] | None
"""A window's `value`: an aggregate, several by name, or nothing, to count events."""
V = TypeVar("V", bound=Value, default=None)
V_co = TypeVar("V_co", bound=Value, covariant=True, default=Any)
OnResult: TypeAlias = Callable[[Subject, Window, Any], Any]
ResultMethod: TypeAlias = Callable[[H, Subject, Window, R], X]


class CommonSettings(TypedDict, total=False):
    """The settings of every window; see `HoppingWindow`."""

    allowed_lateness: timedelta
    late: Literal["drop", "divert"]
    max_active: int | None
    ttl: timedelta | None
    storage: Literal["persistent", "memory"]
    version: int
    migrate: Migrate | None
    name: str | None
    on_close: OnResult | None
    on_early: OnResult | None
    on_late: OnLate | None


class WindowSettings(CommonSettings, total=False):
    """The settings of windows that may give early results by time."""

    early: Early


class Emission:
    """Gives the results of a window to a function of the handler; see `Invoke`.

    :param accumulators: accumulators of the window's parts; the call merges them, and fails if the merge fails
    """

    __slots__ = ("__name__", "_accumulators", "_aggregate", "_function")

    def __init__(
        self, function: Callable[..., Any], aggregate: Aggregate[Any, Any], accumulators: Sequence[Any]
    ) -> None:
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._function = function
        self._aggregate = aggregate
        self._accumulators = accumulators

    def __call__(self, subject: Subject, window: Window) -> Any:
        self._accumulators = [merged(self._aggregate, self._accumulators)]
        return self._function(subject, window, self._aggregate.result(self._accumulators[0]))


def merged(aggregate: Aggregate[Any, Any], accumulators: Sequence[Any]) -> Any:
    """Return the merge of several accumulators, which stay unchanged."""
    if len(accumulators) == 1:
        return accumulators[0]
    whole = aggregate.create()
    for accumulator in accumulators:
        whole = aggregate.merge(whole, accumulator)
    return whole


class WindowSpec(CallingComponent, Generic[V_co]):
    """The base of all kinds of windows. Its type names the type of its `value`, from which type checkers know the type
    of results.

    The state of a key is a list: the window up to which all are known to be closed (`None` for none), and the kind's
    open windows. `max_active` bounds the open windows of each key, so a key's windows depend on its own events alone.
    """

    noun = "window"
    by_keyword: ClassVar[str | None] = None
    """Parameter that a duration or a number in the place of `value` was probably meant for."""
    _was_checked = False

    def __init__(
        self,
        value: Value,
        *,
        merges: bool,
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
        if self.by_keyword is not None and isinstance(value, timedelta | int):
            raise SpecError(f"value must be an aggregate, not {value!r}: give {self.by_keyword}= by its name")
        if max_active is not None and (type(max_active) is not int or max_active < 1):
            raise SpecError(f"max_active must be a whole number above zero, not {max_active!r}")
        if storage not in ("persistent", "memory"):
            raise SpecError(f'storage must be "persistent" or "memory", not {storage!r}')
        self.in_memory = storage == "memory"
        self.aggregate = aggregate_of(Count() if value is None else value)
        """Aggregate of the events of a window."""
        self._max_active = max_active
        self._kept: Aggregate[Any, Any] = self.aggregate
        if merges and not self.aggregate.mergeable:
            self._kept = Retaining(self.aggregate)
        if merges and (self.aggregate.ordered or not self.aggregate.mergeable):
            self._kept = ByTurns(self._kept)
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
        """Mark the handler's method for results: ``(self, subject, window, value)``. Every window needs one."""
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
        """Mark the handler's method for early results, with the arguments of `on_close`. Without it they go to the
        method of `on_close`. `early` and `max_active` cause early results.
        """
        return self.mark("on_early", function)

    def on_late(self, function: LateMethod[H, X]) -> LateMethod[H, X]:
        """Mark the handler's method for late events: ``(self, subject, event)``. Every late event is counted as
        ``<name>.late``.
        """
        return self.mark("on_late", function)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        """Add an event of the subject.

        :raises WindowEventError: the event is another subject's, or its window would begin or end outside of the years
            1 to 9999
        :raises SpecError: the window was made at run time, and its settings do not fit together
        """
        raise NotImplementedError

    @property
    def fields(self) -> frozenset[str] | None:
        """Fields of an event's value that the window reads; `None` where the whole event may be read."""
        whole = self.diverts or self._early_predicate is not None or self._given["on_late"] is not None
        return None if whole else self.aggregate.fields

    def check(self) -> None:
        super().check()
        self.require("on_close")
        if self._given["on_early"] is not None and not self._has_early and self._max_active is None:
            raise SpecError("on_early is never called: say when there are early results, with early=")

    def _part(self, subject: Subject, event: KeyedEvent[Any]) -> ComponentState:
        """Return the state of a subject, for one of its events.

        :raises WindowEventError: the event is another subject's
        :raises SpecError: the window was made at run time, and its settings do not fit together
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

    def emission(self, subject: Subject, accumulators: Sequence[Any], *, partial: bool = False) -> Emission:
        """Return the callable that gives a window's results to the handler.

        :param accumulators: accumulators of the window's parts
        """
        function = self.function("on_early", subject.handler) if partial else None
        if function is None:
            function = self.function("on_close", subject.handler)
        if function is None:  # of a window made at run time
            self.require("on_close")
        return Emission(function, self._kept, accumulators)

    def _emit(
        self,
        subject: Subject,
        call: Invoke,
        span: Span,
        accumulators: Sequence[Any],
        *,
        partial: bool,
        times: int = 1,
    ) -> None:
        """Give a result to the handler.

        :param accumulators: accumulators of the window's parts
        :param times: number of equal results
        """
        start, end, first, last = map(from_micros, span)
        window = Window(start, end, subject.key, partial, first, last)
        emission = self.emission(subject, accumulators, partial=partial)
        for _ in range(times):
            call(subject, emission, window)

    def _add(
        self,
        part: ComponentState,
        kept: list[Any],
        event: KeyedEvent[Any],
        parts: Iterable[list[Any]],
        near: Callable[[Any], Iterable[Any]],
    ) -> None:
        """Add an event to a part of windows.

        :param parts: the subject's parts
        :param near: function from the part's new kind to the kinds of the parts that share a window with it; see
            `Aggregate.kind`
        :raises ValueKindError: the event's values are of another kind than those of one of its windows
        """
        before = self._kept.kind(kept[ACCUMULATOR]) if self._kept.has_kinds else None
        if isinstance(self._kept, ByTurns):
            batch_local = self._noted(part)
            newest = batch_local.get("turn")
            if newest is None:
                newest = max((turn_of(other[ACCUMULATOR]) for other in parts), default=0)
            batch_local["turn"] = turn = newest if newest and turn_of(kept[ACCUMULATOR]) == newest else newest + 1
            kept[ACCUMULATOR] = self._kept.add_in(kept[ACCUMULATOR], event, turn)
        else:
            kept[ACCUMULATOR] = self._kept.add(kept[ACCUMULATOR], event)
        kind = self._kept.kind(kept[ACCUMULATOR]) if self._kept.has_kinds else None
        if kind != before:
            for other in (before, *near(kind)):
                self._check_kinds_fit(event, kind, other)

    def _check_kinds_fit(self, event: KeyedEvent[Any], kind: Any, other: Any) -> None:
        """Refuse an event that would bring values of two kinds into a window."""
        differing = different(kind, other)
        if differing is not None:
            taken = f"values of one kind in a window, and would have {differing[0]} beside {differing[1]}"
            raise ValueKindError(repr(self.aggregate), event.value, taken)

    def _noted(self, part: ComponentState) -> dict[str, Any]:
        """Return the batch-local notes of a subject; see `ComponentState.batch_local`."""
        batch_local: dict[str, Any] | None = part.batch_local
        if batch_local is None:
            batch_local = part.batch_local = {}
        return batch_local

    def _too_late(self, subject: Subject, event: KeyedEvent[Any], *, just: bool) -> None:
        """Deal with a late event.

        :param just: true if its window closes at the very time that has been reached
        :raises WindowEventError: the event comes from another window that closes at that time, and should have closed
            before
        """
        feeds = self.fired_before(subject) if just else None
        if feeds is not None:
            told = (
                f"its window closed before {feeds!r} gave it, both at {subject.timestamp.isoformat()}: declare "
                f"{self.name!r} after {feeds!r}; windows that are made at run time close in the order of their names"
            )
            raise WindowEventError(self.name, event.timestamp, told)
        self.too_late(subject, event)

    @property
    def _is_plain(self) -> bool:
        """True if all results come when windows close, and only the watermark closes windows."""
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
        firsts: Iterable[int],
        lasts: Iterable[int],
        column: Any,
    ) -> None:
        """Give results of many keys to the handler, in their order."""
        values = self._kept.results(column)
        together = self.function("on_close_all", subject.handler)
        if together is not None:
            check_ran("on_close_all", together(subject, keys, starts, ends, values))
            return
        function = self.function("on_close", subject.handler)
        wait = min(self._lateness, END_OF_TIME - BEGINNING_OF_TIME)
        limit, lateness = from_micros(END_OF_TIME - wait), wait * MICROSECOND
        events = map(from_micros, firsts), map(from_micros, lasts)
        for key, start, end, first, last, value in zip(keys, starts, ends, *events, values, strict=True):
            subject.key, subject.timestamp = key, min(end, limit) + lateness
            returned = function(subject, Window(start, end, key, False, first, last), value)
            if returned is not None:
                check_ran("on_close", returned)

    def _on_time(self, subject: Subject, events: EventColumns, first: int) -> EventColumns:
        """Return the events from a time on, and deal with the others, which are late."""
        if min(events.micros) >= first:
            return events
        return self._without_late(subject, events, [micros >= first for micros in events.micros])

    def _without_late(self, subject: Subject, events: EventColumns, on_time: list[bool]) -> EventColumns:
        """Return the events that are on time, and deal with the others."""
        for event in events.where(map(not_, on_time)).each():
            subject.key, subject.timestamp, subject.is_late = event.key, event.timestamp, True
            self.too_late(subject, event)
        subject.is_late = False
        return events.where(on_time)

    def _closed(self, watermark: int | None, before: int | None, length: int = 0) -> int | None:
        """Return the start up to which windows of a length are closed, by a watermark or before their time.

        :param before: start up to which they are known to be closed
        """
        return before if watermark is None else latest(before, self._passed(watermark, length))

    def _passed(self, watermark: int, length: int) -> int:
        """Return the start up to which a watermark closes windows of a length; at the end of time it closes all."""
        return END_OF_TIME if watermark >= END_OF_TIME else watermark - self._lateness - length

    def _closes_at(self, end: int) -> int:
        return min(end + self._lateness, END_OF_TIME)

    def _is_early(self, event: KeyedEvent[Any], events: int) -> bool:
        """Return true if an event calls for an early result of a window, given its number of events."""
        if self._early_count:
            return events % self._early_count == 0
        return self._early_predicate is not None and bool(self._early_predicate(event))

    def _is_due(self, start: int, end: int, now: int, watermark: int | None) -> bool:
        """Return true if an open window gives an early result by time at `now`: only at the last such time that the
        watermark has passed.
        """
        if not self._early_interval or not start < now < end or (now - start) % self._early_interval:
            return False
        return watermark is None or now + self._early_interval > min(watermark, end - 1)

    def _timer_of(self, start: int, end: int, now: int | None, watermark: int | None) -> int:
        """Return the time when an open window gives its next early result by time, or closes.

        :param now: time up to which results were given
        """
        closes_at = self._closes_at(end)
        if not self._early_interval or (watermark is not None and closes_at <= watermark):
            return closes_at
        passed = 0 if now is None else max((now - start) // self._early_interval, 0)
        early = passed + 1
        if watermark is not None:
            early = max(early, (min(watermark, end - 1) - start) // self._early_interval)
        at = start + early * self._early_interval
        return at if at < end else closes_at

    def open_windows(self, value: Any) -> list[tuple[int, int, list[Any]]]:
        """Return the start, the end and the parts' accumulators of each open window in a key's state."""
        raise NotImplementedError

    def shown_value(self, key: Key, value: Any) -> dict[datetime, Any]:
        """Return the results so far of a key's open windows, by the start of each."""
        return {
            from_micros(start): self._kept.result(merged(self._kept, accumulators))
            for start, _, accumulators in ([] if value is None else self.open_windows(value))
        }

    def loaded(self, part: ComponentState) -> ComponentState:
        """Remove the accumulators of removed aggregates from all windows of a subject."""
        if not isinstance(self.aggregate, CompositeAggregate) or part.value is None:
            return part
        kept = self._kept

        def convert(accumulator: Any) -> Any:
            if kept.forget_removed(accumulator) if isinstance(kept, ByTurns) else forget_removed(kept, accumulator):
                part.mark_changed()
            return accumulator

        part.value = self._with_accumulators(part.value, convert)
        return part

    def migrated(self, part: Any, version: int, key: Key) -> Any:
        return self._with_accumulators(part, self._migration(version, key))

    def _migration(self, version: int, key: Key) -> Callable[[Any], Any]:
        """Return the function that converts accumulators of an older version."""
        migrated = super().migrated
        if not isinstance(self._kept, ByTurns):
            return lambda accumulator: migrated(accumulator, version, key)
        return lambda turns: [[turn, migrated(accumulator, version, key)] for turn, accumulator in turns]

    def encode_part(self, value: Any) -> Any:
        check_migrated(self._kept.aggregate if isinstance(self._kept, ByTurns) else self._kept, value)
        return super().encode_part(value)

    def _with_accumulators(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        """Return the state of a key with each accumulator converted. Unless a kind overrides this, the state has them
        by time, each with a number of events.
        """
        before, parts = value
        return [
            before,
            {time: [number, convert(accumulator), *times] for time, (number, accumulator, *times) in parts.items()},
        ]

    @property
    def layout(self) -> Any:
        return [self.version, self._kept.layout, self._kept.names if isinstance(self._kept, ByTurns) else None]

    def _accumulators(self, layout: Any, column: Any, keys: Sequence[Key]) -> list[Any]:
        """Return the accumulators of a column of some keys.

        :param layout: the window's layout when the column was stored
        """
        version, form, _ = layout
        try:
            found = accumulators_of(self._kept, form, column, len(keys))
        except Exception as error:
            raise self.unreadable(error, form, type(self.aggregate), keys[0]) from error
        if version == self.version:
            return found
        return [self._migration(version, key)(part) for key, part in zip(keys, found, strict=True)]

    def structure(self) -> dict[str, Any]:
        kept = {"aggregate": self.aggregate.structure(), "settings": self._settings()}
        return {**super().structure(), **kept, "keeps": self._keeps}

    @property
    def _keeps(self) -> str:
        """Form in which a window's parts are kept."""
        if not isinstance(self._kept, ByTurns):
            return "results"
        return "results in order" if self.aggregate.mergeable else "events"

    def _fixed(self) -> dict[str, timedelta | int | None]:
        """Return the settings of the kind by name, `None` for one that is not set."""
        return {}

    def _settings(self) -> dict[str, str]:
        """Return the settings that decide a window's events and its closing time, as texts."""
        given = {**self._fixed(), "allowed_lateness": self._lateness * MICROSECOND if self._lateness else None}
        return {name: str(setting) for name, setting in given.items() if setting is not None}

    def __repr__(self) -> str:
        told = [f"{name}={setting}" for name, setting in self._settings().items()]
        return f"{type(self).__name__}({', '.join([*told, repr(self.aggregate)])})"
