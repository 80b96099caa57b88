"""The base class of all windows: settings, the handler's callbacks, late events and early results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import not_
from types import NoneType
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypedDict, overload

from typing_extensions import NamedTuple, TypeVar

from amadou import Key, KeyedEvent, Subject
from amadou.components import ComponentState, EventColumns, Invoke, Plain, check_ran, copied, copied_if_possible
from amadou.errors import SpecError
from amadou.event_time import BEGINNING_OF_TIME, END_OF_TIME, MICROSECOND, from_micros
from amadou_plugins._calling import CallingComponent, H, OnLate, X, latest, micros_of
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
"""A window's start and end, and the times of the window's oldest and newest events, all in microseconds."""


# A part of a window is stored as a list. The constants below are the first two indices of this list.
COUNT, ACCUMULATOR = range(2)


K_co = TypeVar("K_co", bound=Key, covariant=True, default=Any)


class _Span(NamedTuple, Generic[K_co]):
    start: datetime
    end: datetime
    key: K_co
    partial: bool = False


# A named tuple, like `KeyedEvent`: a window is created for every result, and named tuples are fast to create.
class Window(_Span[K_co]):
    """A window as passed to callbacks: a named tuple of `start`, `end`, `key` and `partial`. Two windows are equal if
    these four fields are equal. The type of the key can be specified, as in `Window[str]`.

    :param start: start of the window, inclusive
    :param end: end of the window; inclusive in sliding and count windows only
    :param key: key of the window
    :param partial: `True` for an early result
    :param first: time of the window's oldest event; defaults to `start`
    :param last: time of the window's newest event; defaults to `end`
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
        return f"{self.start.isoformat()} … {self.end.isoformat()}{' (partial)' if self.partial else ''}"


R = TypeVar("R")
Value: TypeAlias = AggregateLike[Any] | Mapping[str, Any] | None
"""A window's `value`: an aggregate, a mapping of names to aggregates, or `None` to count events."""
V = TypeVar("V", bound=Value, default=None)
V_co = TypeVar("V_co", bound=Value, covariant=True, default=Any)
OnResult: TypeAlias = Callable[[Subject, Window, Any], Any]
ResultMethod: TypeAlias = Callable[[H, Subject, Window, R], X]


class CommonSettings(TypedDict, total=False):
    """The settings that all windows share; see `HoppingWindow`."""

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
    """The settings of all windows except count windows, whose `early` cannot be an interval."""

    early: Early


class Emission:
    """Passes a window's result to an `on_close` or `on_early` function; see `Invoke`.

    :param accumulators: accumulators of the window's parts, which are merged when the function is called. If the merge
        fails, the call fails
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
        result = self._aggregate.result(self._accumulators[0])
        return self._function(subject, window, copied_if_possible(result) if self._aggregate.keeps_values else result)


def merged(aggregate: Aggregate[Any, Any], accumulators: Sequence[Any]) -> Any:
    """Merge accumulators into a single accumulator, without changing any of them."""
    if len(accumulators) == 1:
        return accumulators[0]
    whole = aggregate.create()
    for accumulator in accumulators:
        whole = aggregate.merge(whole, accumulator)
    return whole


def _kept(aggregate: Aggregate[Any, Any]) -> Aggregate[Any, Any]:
    """Return the aggregate that a window stores if it consists of several parts: one that can be merged, in order."""
    if aggregate.mergeable and not aggregate.ordered:
        return aggregate
    return ByTurns(aggregate if aggregate.mergeable else Retaining(aggregate))


class WindowSpec(CallingComponent, Generic[V_co]):
    """The base class of all windows. The class is generic in the type of `value` so that type checkers can infer the
    type of the results.

    A key's state is a list of two items. The first item is a time, or `None`: windows up to this time are closed
    regardless of the watermark. For count windows, the first item is the number of events to skip. The second item
    contains the open windows. `max_active` is a limit per key, so a key's windows depend only on this key's events.
    """

    noun = "window"
    by_keyword: ClassVar[str | None] = None
    """Parameter that the user probably meant if a duration or a number was passed as `value`."""
    _includes_end: ClassVar[int] = 0
    """1 µs if an event at the end of a window belongs to it, so that the window closes when the watermark is past the
    end; otherwise 0."""
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
            raise SpecError(f"value must be an aggregate, not {value!r}: pass {self.by_keyword}= by keyword")
        if max_active is not None and (type(max_active) is not int or max_active < 1):
            raise SpecError(f"max_active must be a positive integer, not {max_active!r}")
        if storage not in ("persistent", "memory"):
            raise SpecError(f'storage must be "persistent" or "memory", not {storage!r}')
        self.in_memory = storage == "memory"
        self.aggregate = aggregate_of(Count() if value is None else value)
        """The aggregate that computes a window's result from the window's events."""
        self._max_active = max_active
        self._kept = _kept(self.aggregate) if merges else self.aggregate
        """The aggregate whose accumulators are stored."""
        self._set_early(early)
        super().__init__(
            {"on_close": on_close, "on_early": on_early, "on_late": on_late, "on_close_all": None},
            allowed_lateness=allowed_lateness,
            late=late,
            ttl=ttl,
            name=name,
            version=version,
            migrate=migrate,
        )

    def _set_early(self, early: Early) -> None:
        self._early_interval = self._early_count = 0
        self._early_predicate: Callable[[KeyedEvent[Any]], Any] | None = None
        if isinstance(early, timedelta):
            self._early_interval = micros_of("early", early, least=1)
        elif type(early) is int and early > 0:
            self._early_count = early
        elif callable(early):
            self._early_predicate = early
        elif early is not None:
            raise SpecError(f"early must be a timedelta, a positive integer or a function of an event, not {early!r}")

    @overload
    def on_close(self: "WindowSpec[AggregateLike[R]]", function: ResultMethod[H, R, X]) -> ResultMethod[H, R, X]: ...
    @overload
    def on_close(
        self: "WindowSpec[Mapping[str, Any]]", function: ResultMethod[H, dict[str, Any], X]
    ) -> ResultMethod[H, dict[str, Any], X]: ...
    @overload
    def on_close(self: "WindowSpec[None]", function: ResultMethod[H, int, X]) -> ResultMethod[H, int, X]: ...
    def on_close(self, function: Any) -> Any:
        """Mark the handler method that receives results: ``(self, subject, window, value)``. Every window needs such a
        method, or a function passed as `on_close`.
        """
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
        """Mark the handler method that receives early results, with the same arguments as the `on_close` method. If
        there is no such method, the `on_close` method also receives early results. The settings `early` and
        `max_active` trigger early results.
        """
        return self.mark("on_early", function)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        """Add one of the subject's events.

        :raises WindowEventError: the event belongs to a different subject, its window would start or end outside the
            years 1 to 9999, or its window closed before a callback of a different component added the event at the same
            time
        :raises SpecError: the window was created at run time, and `check` found a mistake in its settings
        """
        raise NotImplementedError

    @property
    def fields(self) -> frozenset[str] | None:
        """Fields of an event's value that the window reads; `None` if the window might need the complete event."""
        whole = self.diverts or self._early_predicate is not None or self._given["on_late"] is not None
        return None if whole else self.aggregate.fields

    def check(self) -> None:
        super().check()
        self.require("on_close")
        if self._given["on_early"] is not None and not self._has_early and self._max_active is None:
            raise SpecError("on_early is never called: set early= or max_active=, or remove on_early")

    def _part(self, subject: Subject, event: KeyedEvent[Any]) -> ComponentState:
        """Check that the event belongs to the subject, and return the subject's state.

        :raises WindowEventError: the event belongs to a different subject
        :raises SpecError: the window was created at run time, and `check` found a mistake in its settings
        """
        if event.key != subject.key:
            problem = (
                f"its key is {event.key!r}, but the subject has the key {subject.key!r}: pass an event with this key"
            )
            raise WindowEventError(self.name, event.timestamp, problem)
        if not self._was_checked:
            self.check()
            self._was_checked = True
        return self.state_for(subject)

    def _out_of_time(self, timestamp: datetime) -> WindowEventError:
        problem = "its window would start or end outside the years 1 to 9999: skip the event or correct its timestamp"
        return WindowEventError(self.name, timestamp, problem)

    def emission(self, subject: Subject, accumulators: Sequence[Any], *, partial: bool = False) -> Emission:
        """Return a callable that passes a window's result to the `on_close` or `on_early` function.

        :param accumulators: accumulators of the window's parts
        """
        function = self.function("on_early", subject.handler) if partial else None
        if function is None:
            function = self.function("on_close", subject.handler)
        if function is None:  # a window created at run time
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
        """Pass a window's result to the `on_close` or `on_early` function. `on_close` sees the time of the window's end
        plus `allowed_lateness`, also if the window's timer is due after it.

        :param accumulators: accumulators of the window's parts
        :param times: number of times to emit the result
        """
        time = subject.timestamp
        if self._includes_end and not partial:
            subject.timestamp = from_micros(min(span[1] + self._lateness, END_OF_TIME))
        start, end, first, last = map(from_micros, span)
        window = Window(start, end, subject.key, partial, first, last)
        emission = self.emission(subject, accumulators, partial=partial)
        for _ in range(times):
            call(subject, emission, window)
        subject.timestamp = time

    def _add(
        self,
        part: ComponentState,
        kept: list[Any],
        event: KeyedEvent[Any],
        parts: Iterable[list[Any]],
        near: Callable[[Any], Iterable[Any]],
    ) -> None:
        """Add an event to a window part.

        :param parts: all window parts of the subject
        :param near: function that receives the part's new kind, and returns the kinds of all parts that share a window
            with this part; see `Aggregate.kind`
        :raises ValueKindError: a window that contains the event already contains values of a different kind
        """
        before = self._kept.kind(kept[ACCUMULATOR]) if self._kept.has_kinds else None
        event = self._own(event)
        if isinstance(self._kept, ByTurns):
            batch_local = self._batch_local(part)
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
        """Reject an event that would mix values of two kinds in a window."""
        differing = different(kind, other)
        if differing is not None:
            taken = f"values of the same kind within a window, not both {differing[0]} and {differing[1]}"
            raise ValueKindError(repr(self.aggregate), event.value, taken)

    def _batch_local(self, part: ComponentState) -> dict[str, Any]:
        """Return the subject's batch-local data; see `ComponentState.batch_local`."""
        batch_local: dict[str, Any] | None = part.batch_local
        if batch_local is None:
            batch_local = part.batch_local = {}
        return batch_local

    def _too_late(self, subject: Subject, event: KeyedEvent[Any], *, just: bool) -> None:
        """Handle a late event.

        :param just: `True` if the window's closing time is exactly the current watermark or firing time
        :raises WindowEventError: the window closed before a callback of a different component added the event at the
            same time
        """
        feeds = self.fired_before(subject) if just else None
        if feeds is not None:
            problem = (
                f"its window closed at {subject.timestamp.isoformat()}, before {feeds!r} added the event at the "
                f"same time: declare {self.name!r} after {feeds!r} (windows created at run time close in order of name)"
            )
            raise WindowEventError(self.name, event.timestamp, problem)
        self.too_late(subject, event)

    @property
    def _is_plain(self) -> bool:
        """`True` if results are emitted only when windows close, and only the watermark closes windows."""
        return not self._has_early and self._max_active is None

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
        """Pass the results of many keys to `on_close` or `on_close_all`, in the given order."""
        values = self._kept.results(column)
        together = self.function("on_close_all", subject.handler)
        wait = min(self._lateness, END_OF_TIME - BEGINNING_OF_TIME)
        limit, lateness = from_micros(END_OF_TIME - wait), wait * MICROSECOND
        closed = [min(end, limit) + lateness for end in ends] if wait else ends
        if together is not None:
            check_ran("on_close_all", together(subject, keys, starts, ends, values, closed))
            return
        function = self.function("on_close", subject.handler)
        events = map(from_micros, firsts), map(from_micros, lasts)
        if self._kept.keeps_values:
            values = list(map(copied_if_possible, values))
        for key, start, end, first, last, value, at in zip(keys, starts, ends, *events, values, closed, strict=True):
            subject.key, subject.timestamp = key, at
            returned = function(subject, Window(start, end, key, False, first, last), value)
            if returned is not None:
                check_ran("on_close", returned)

    def _on_time(self, subject: Subject, events: EventColumns, first: int) -> EventColumns:
        """Return the events at or after `first`, and handle earlier events as late."""
        if min(events.micros) >= first:
            return events
        return self._without_late(subject, events, [micros >= first for micros in events.micros])

    def _without_late(self, subject: Subject, events: EventColumns, on_time: list[bool]) -> EventColumns:
        """Return the events that are on time, and handle the others as late."""
        for event in events.where(map(not_, on_time)).each():
            subject.key, subject.timestamp, subject.is_late = event.key, event.timestamp, True
            self.too_late(subject, event)
        subject.is_late = False
        return events.where(on_time)

    def _closed(self, watermark: int | None, before: int | None, length: int = 0) -> int | None:
        """Return the latest start time of closed windows of this length; `None` if no windows are closed. With a length
        of 0, start times are also end times.

        :param before: latest start time of windows that are closed regardless of the watermark; `None` if there are no
            such windows
        """
        return before if watermark is None else latest(before, self._passed(watermark, length))

    def _passed(self, watermark: int, length: int) -> int:
        """Return the latest start time of windows of this length that the watermark closes. A watermark at the end of
        time closes all windows.
        """
        return END_OF_TIME if watermark >= END_OF_TIME else watermark - self._includes_end - self._lateness - length

    def _closes_at(self, end: int) -> int:
        return min(end + self._lateness + self._includes_end, END_OF_TIME)

    def _is_early(self, event: KeyedEvent[Any], events: int) -> bool:
        """Return `True` if an event triggers an early result for a window that contains this number of events."""
        return self._asks_for_early(event) and self._emits_early(events)

    def _asks_for_early(self, event: KeyedEvent[Any]) -> bool:
        """Return `True` if an event triggers early results of the windows that it is in; see `_emits_early`."""
        return bool(self._early_count or (self._early_predicate is not None and self._early_predicate(event)))

    def _own(self, event: KeyedEvent[Any]) -> KeyedEvent[Any]:
        """Return an event whose value the window can keep: the callback may change that of the event in place."""
        if not self._kept.keeps_values:
            return event
        value = copied(event.value)
        return event if value is event.value else KeyedEvent(event.key, event.timestamp, value)

    def _emits_early(self, events: int) -> bool:
        """Return `True` if an event that triggers early results does so for a window with this number of events."""
        return not self._early_count or events % self._early_count == 0

    def _is_due(self, start: int, end: int, now: int, watermark: int | None) -> bool:
        """Return `True` if the `early` interval makes an open window emit an early result at `now`. If the watermark
        passes several such times in one step, the window emits an early result only at the last of them.
        """
        if not self._early_interval or not start < now < end or (now - start) % self._early_interval:
            return False
        return watermark is None or now + self._early_interval > min(watermark, end - 1)

    def _timer_of(self, start: int, end: int, now: int | None, watermark: int | None) -> int:
        """Return the time at which an open window closes or its `early` interval next triggers a result.

        :param now: event time up to which early results have been emitted; `None` if none have been emitted
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

    def has_form(self, value: Any) -> bool:
        if type(value) is not list or len(value) != 2:
            return False
        return type(value[0]) in (int, NoneType) and self._are_open(value[1])

    def _are_open(self, windows: Any) -> bool:
        """Return `True` if the second item of a key's state has the form of open windows."""
        return True

    def open_windows(self, value: Any) -> list[tuple[int, int, list[Any]]]:
        """Return each open window in a key's state: its start and end in microseconds, and its parts' accumulators."""
        raise NotImplementedError

    def shown_value(self, key: Key, value: Any) -> dict[datetime, Any]:
        """Return the current results of a key's open windows, by window start."""
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
        self.check_form(key, part)
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
        """Return a key's state with each accumulator converted. By default, the state contains a dict that maps times
        to parts. Each part contains a number of events and an accumulator. Window classes that store their state
        differently override this method.
        """
        before, parts = value
        return [
            before,
            {time: [number, convert(accumulator), *times] for time, (number, accumulator, *times) in parts.items()},
        ]

    @property
    def layout(self) -> Plain:
        return [self.version, self._kept.layout, self._kept.names if isinstance(self._kept, ByTurns) else None]

    def _accumulators(self, layout: Any, column: Any, keys: Sequence[Key]) -> list[Any]:
        """Return the accumulators in a column, one per key.

        :param layout: the window's layout when the column was stored
        """
        version, form, _ = layout
        if type(version) is not int or version < 0:
            raise self.unreadable(ValueError(f"its version is {version!r}"), form, type(self.aggregate), keys[0])
        if version > self.version:
            raise self.newer(form, version, keys[0])
        try:
            found = accumulators_of(self._kept, form, column, len(keys))
        except Exception as error:
            raise self.unreadable(error, form, type(self.aggregate), keys[0]) from error
        if version == self.version:
            return found
        return [self._migration(version, key)(part) for key, part in zip(keys, found, strict=True)]

    def structure(self) -> dict[str, Any]:
        return {**super().structure(), "aggregate": self.aggregate.structure(), "keeps": self._keeps}

    @property
    def _keeps(self) -> str:
        """Name of the storage format of a window's parts."""
        if not isinstance(self._kept, ByTurns):
            return "results"
        return "results in order" if self.aggregate.mergeable else "events"

    def __repr__(self) -> str:
        settings = [f"{name}={setting}" for name, setting in self._settings().items()]
        return f"{type(self).__name__}({', '.join([*settings, repr(self.aggregate)])})"
