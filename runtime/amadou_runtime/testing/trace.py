"""Trace of a test run's callbacks, for the messages of failing tests."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import attrs

from amadou import Key, KeyedEvent, Subject, Timer
from amadou.engine import DEAD_LETTERS, LATE_EVENTS, FeedingPort, Watch, batch_of
from amadou.errors import AmadouError, InPlaceChangeError
from amadou.event_time import from_micros
from amadou.text import qualified, shown_error
from amadou_runtime.core.observer import HELD, Call, Observer
from amadou_runtime.formats.failure import shown_state

DETAILED = 2000
"""Maximum number of callbacks for which a trace records state and timers so that long test runs stay fast."""
_TIMERS = 100
"""Number of timers that take about as long to record as one callback."""


@attrs.frozen
class Moment:
    """A subject's state and timers before or after a callback.

    :param state: the subject's state, by spec
    :param timers: the subject's pending timers, by timestamp and tag
    """

    state: dict[str, Any]
    timers: list[Timer]


class _OfEvent:
    """What an entry of a trace says of its event."""

    __slots__ = ()
    callback: str
    key: Key | None
    timestamp: datetime | None
    watermark: datetime | None
    source: str | None
    value: Any

    @property
    def event(self) -> KeyedEvent[Any]:
        """The event, whether or not it was delivered to `on_event`.

        :raises ValueError: the entry is for a timer, a record or a dependency change
        """
        if self.source is None or self.timestamp is None or self.key is None:
            raise ValueError(f"an entry for {self.callback} has no event: read its other attributes")
        return KeyedEvent(self.key, self.timestamp, self.value)

    @property
    def is_late(self) -> bool:
        """`True` for an event behind the watermark of its batch (`semantics.md` 13); `False` for a held event."""
        if self.callback == HELD or self.source is None or self.timestamp is None or self.watermark is None:
            return False
        return self.timestamp < self.watermark


@attrs.frozen
class TraceEntry(_OfEvent):
    """One callback of a test run, or an event that was not delivered.

    :param callback: `on_event`, `on_timer_expired`, `on_dependency_down` or `on_dependency_recovered`; the name of a
        component whose timer fired, such as a window; `dropped` or `diverted` for a late event that is not delivered,
        `held` for an event that waits for another source; `key_event` if `key_event` failed and the job continues
    :param key: the subject's key; `None` for `key_event` and for a dependency change
    :param timestamp: the time of the event or timer; `None` if `key` is `None`
    :param watermark: the batch's watermark
    :param source: the source of the event or record, or the source that is down or has recovered; `None` for a timer
    :param value: the event's value; the record for `key_event`; the progress of both sources, by name, for a dependency
        change
    :param tag: the timer's tag
    :param before: the subject's state and timers before the callback; `None` if no callback ran. Also `None` for all
        callbacks after the first 2,000 or so, or earlier if subjects have hundreds of timers
    :param after: the subject's state and timers after the callback; `None` if `before` is `None`
    :param outputs: collected values, as pairs of port and value
    :param error: the error that the callback raised
    :param stage: the name of the stage; empty in a job with one handler
    """

    callback: str
    key: Key | None
    timestamp: datetime | None
    watermark: datetime | None
    source: str | None = None
    value: Any = None
    tag: str = ""
    before: Moment | None = None
    after: Moment | None = None
    outputs: tuple[tuple[str, Any], ...] = ()
    error: str | None = None
    stage: str = ""

    def __str__(self) -> str:
        what = qualified(self.stage, self.callback) + ("" if self.source is None else f" ({self.source})")
        detail = f" tag={self.tag!r}" if self.tag else ""
        if self.value is not None:
            detail += f" value={_shown(self.value)}"
        if self.timestamp is None:
            lines = [f"{what}{detail}"]
        else:
            late = "  late" if self.is_late else ""
            lines = [f"{self.timestamp.isoformat()}  {what}  key={self.key!r}{detail}{late}"]
        lines += [f"    {change}" for change in self._changes()]
        lines += [f"    → {port}: {_shown(value)}" for port, value in self.outputs if port != DEAD_LETTERS]
        if self.error is not None:
            lines.append(f"    ✗ {self.error}")
        return "\n".join(lines)

    def _changes(self) -> Iterator[str]:
        before, after = self.before, self.after
        if before is None or after is None:
            return
        for name in {**before.state, **after.state}:
            old, new = (_shown(moment.state[name]) if name in moment.state else "∅" for moment in (before, after))
            yield f"{name}: {old}" if old == new else f"{name}: {old} ⇒ {new}"
        for sign, timers in (("+", set(after.timers) - {*before.timers}), ("-", set(before.timers) - {*after.timers})):
            yield from (f"{sign} {timer}" for timer in sorted(timers))


def _shown(value: Any) -> str:
    """Return a value as text: its `repr`, with times in ISO form."""
    if isinstance(value, datetime):
        return value.isoformat()
    if type(value) is dict:
        return f"{{{', '.join(f'{_shown(key)}: {_shown(part)}' for key, part in value.items())}}}"
    if type(value) is list:
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, tuple) and "__str__" in vars(type(value)):  # a named tuple that defines `__str__`
        return str(value)
    if attrs.has(type(value)):
        fields = [f"{field.name}={_shown(getattr(value, field.name))}" for field in attrs.fields(type(value))]
        return f"{type(value).__name__}({', '.join(fields)})"
    return repr(value)


class SimulatedCrash(BaseException):
    """Ends a worker in the middle of a batch. This class is not an `Exception`, so error handlers do not catch it."""


@attrs.define
class RawEntry(_OfEvent):
    """A `TraceEntry` in packed form. Most test runs pass, so their traces are never decoded.

    :param before: the subject's packed state by spec, and the subject's timers, before the callback
    :param after: the subject's packed state and timers after the callback
    :param outputs: pairs of port and encoded value
    """

    callback: str
    key: Any
    timestamp: datetime | None
    watermark: datetime | None
    source: str | None
    value: Any
    tag: str = ""
    before: Any = None
    after: Any = None
    outputs: list[tuple[str, Any]] = attrs.field(factory=list)
    error: str | None = None

    def parts(self) -> list[Any]:
        """Return the entry as nested lists. Unlike objects and tuples, lists do not count toward `MAX_NESTING`."""
        *parts, outputs, error = attrs.astuple(self, recurse=False)
        return [*parts, [[*pair] for pair in outputs], error]

    @classmethod
    def of(cls, parts: list[Any]) -> "RawEntry":
        """Create an entry from its `parts`."""
        entry = cls(*parts)
        entry.outputs = [(port, encoded) for port, encoded in entry.outputs]
        return entry


class Trace(Observer):
    """Records the callbacks of an operator."""

    def __init__(self) -> None:
        self._raw: list[RawEntry] = []
        self._seen = 0
        self.in_place: tuple[RawEntry, InPlaceChangeError] | None = None
        """The first call that changed a value of state in place, and the error."""
        self.crash_after: int | None = None
        """Number of callbacks left before a simulated crash."""

    def observed(self, function: Callable[..., Any], call: Callable[..., Call]) -> Callable[..., Any]:
        def observed(*arguments: Any) -> Any:
            subject, callback, timestamp, value = call(*arguments)
            before = self._begin(subject, callback, timestamp, value)
            if type(batch_of(subject).handler).check_in_place:
                with Watch() as watch:
                    returned = function(*arguments)
                self._check(watch)
            else:
                returned = function(*arguments)
            self._end(subject, before)
            return returned

        return observed

    def _check(self, watch: Watch) -> None:
        """Check that the last call has not changed values of state in place."""
        try:
            watch.check()
        except InPlaceChangeError as error:
            self._raw[-1].error = shown_error(error)
            if self.in_place is None:
                self.in_place = (self._raw[-1], error)

    def failed(self, error: str, outputs: list[tuple[str, Any]]) -> None:
        self._raw[-1].outputs, self._raw[-1].error = outputs, error

    def not_delivered(
        self, outcome: str, source: str, event: tuple[Any, ...], watermark: datetime | None, encoded: Any = None
    ) -> None:
        outputs = [] if encoded is None else [(LATE_EVENTS, encoded)]
        key, timestamp, value = event
        self._raw.append(RawEntry(outcome, key, timestamp, watermark, source, value, outputs=outputs))

    def take(self) -> list[RawEntry]:
        """Return the entries recorded since the last call."""
        taken, self._raw = self._raw, []
        return taken

    def _begin(self, subject: Subject, callback: str, timestamp: datetime | None, value: Any) -> list[int]:
        if self.crash_after is not None:
            if self.crash_after <= 0:
                raise SimulatedCrash
            self.crash_after -= 1
        watermark = batch_of(subject).watermark
        self._seen += 1
        before = self._snapshot(subject) if self._seen <= DETAILED else None
        self._raw.append(
            RawEntry(callback, subject.key, timestamp, watermark, subject.source, value, subject.timer_tag, before)
        )
        return [len(port.encoded_values) for port in batch_of(subject).outputs.values()]

    def _end(self, subject: Subject, before: list[int]) -> None:
        entry = self._raw[-1]
        if entry.before is not None:
            entry.after = self._snapshot(subject)
        collected = [
            (name, encoded)
            for (name, port), start in zip(batch_of(subject).outputs.items(), before, strict=True)
            if not isinstance(port, FeedingPort)
            for encoded in port.encoded_values[start:]
        ]
        if collected:
            entry.outputs = collected

    def _snapshot(self, subject: Subject) -> list[Any]:
        """Return a subject's packed state by spec, and its timers."""
        key, packed = subject.key, {}
        for name, table in batch_of(subject).tables.items():
            try:
                part = table.packed_now(key)
            except AmadouError:  # msgpack cannot pack the value: storing it later raises the error
                continue
            if part is not None:
                packed[name] = part
        timers = batch_of(subject).timers.of(key)
        self._seen += len(timers) // _TIMERS
        return [packed, timers]


def trace_entry(
    raw: RawEntry, decoders: Mapping[str, Callable[[Any], Any]], specs: Mapping[str, Any], stage: str
) -> TraceEntry:
    """Decode a raw entry.

    :param decoders: functions that decode each port's values, by port
    :param specs: the state specs, by name
    """
    before, after = (_moment(snapshot, raw.key, specs) for snapshot in (raw.before, raw.after))
    return TraceEntry(
        callback=raw.callback,
        key=raw.key,
        timestamp=raw.timestamp,
        watermark=raw.watermark,
        source=raw.source,
        value=raw.value,
        tag=raw.tag,
        before=before,
        after=before if raw.error is not None and after is None else after,
        outputs=tuple((port, decoders[port](encoded)) for port, encoded in raw.outputs),
        error=raw.error,
        stage=stage,
    )


def _moment(snapshot: list[Any] | None, key: Key, specs: Mapping[str, Any]) -> Moment | None:
    if snapshot is None:
        return None
    packed, timers = snapshot
    state = {name: shown_state(specs.get(name), key, part) for name, part in packed.items()}
    return Moment(state, [Timer(from_micros(micros), tag) for micros, tag in timers])
