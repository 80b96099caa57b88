"""What a test run remembers of its callbacks, for the messages of failing tests."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

import attrs

from amadou import DependencyChange, Invoke, Key, KeyedEvent, Subject, Timer
from amadou.engine import DEAD_LETTERS, LATE_EVENTS, batch_of
from amadou.errors import AmadouError
from amadou.event_time import from_micros
from amadou_runtime.core.failure import shown_state
from amadou_runtime.core.observer import HELD

DETAILED = 2000
"""Of how many callbacks a trace tells state and timers: to do so for many would make long test runs slow."""
_TIMERS = 100
"""How many timers of a subject take as long to tell as a callback."""


@attrs.frozen
class Moment:
    """What a subject was before or after a callback.

    :param state: what it had, by spec
    :param timers: its pending timers, by timestamp and tag
    """

    state: dict[str, Any]
    timers: list[Timer]


@attrs.frozen
class TraceEntry:
    """One callback of a test run, or what became of an event instead.

    :param callback: `on_event`, `on_timer_expired`, `on_dependency_down` or `on_dependency_recovered`; the name of a
        component that was woken, such as a window; `dropped` or `diverted` for a late event that is not delivered,
        `held` for one that waits for another source; `key_event` where that failed and the job goes on
    :param key: the subject's key; `None` in `key_event` and where a dependency changed
    :param timestamp: the time of the event or timer; `None` likewise
    :param watermark: the batch's watermark
    :param source: the event's source, or that which is down or back; `None` for a timer
    :param value: the event's value; where a dependency changed how far both sources had come, by name
    :param tag: the timer's tag
    :param before: what the subject was before; `None` where no callback ran, and after some thousands of callbacks, or
        fewer where a subject has hundreds of timers
    :param after: what it was afterwards
    :param outputs: what the callback collected, as pairs of port and value
    :param error: what it raised
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

    @property
    def event(self) -> KeyedEvent[Any]:
        """The event that came to `on_event`, or did not.

        :raises ValueError: it is a timer or a record
        """
        if self.source is None or self.timestamp is None or self.key is None:
            raise ValueError(f"there is no event in {self.callback}")
        return KeyedEvent(self.key, self.timestamp, self.value)

    @property
    def is_late(self) -> bool:
        """Whether it is an event behind the watermark of its batch (`semantics.md` 13)."""
        if self.callback == HELD or self.source is None or self.timestamp is None or self.watermark is None:
            return False
        return self.timestamp < self.watermark

    def __str__(self) -> str:
        what = self.callback if self.source is None else f"{self.callback} ({self.source})"
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
    """A value for people: as its `repr`, with times in ISO form."""
    if isinstance(value, datetime):
        return value.isoformat()
    if type(value) is dict:
        return f"{{{', '.join(f'{_shown(key)}: {_shown(part)}' for key, part in value.items())}}}"
    if type(value) is list:
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, tuple) and "__str__" in vars(type(value)):  # a named tuple that knows better
        return str(value)
    if attrs.has(type(value)):
        fields = [f"{field.name}={_shown(getattr(value, field.name))}" for field in attrs.fields(type(value))]
        return f"{type(value).__name__}({', '.join(fields)})"
    return repr(value)


class SimulatedCrash(BaseException):
    """Ends a worker in the middle of a batch, past all that catches errors."""


@attrs.define
class RawEntry:
    """A `TraceEntry` as it is noted and travels: most test runs pass, and nobody looks.

    :param before: the subject's packed state by spec, and its timers
    :param after: likewise
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
        """It as lists: an object or tuple around a value would count for how deep the value is nested."""
        *parts, outputs, error = attrs.astuple(self, recurse=False)
        return [*parts, [[*pair] for pair in outputs], error]

    @classmethod
    def of(cls, parts: list[Any]) -> "RawEntry":
        """The entry that `parts` gave."""
        entry = cls(*parts)
        entry.outputs = [(port, encoded) for port, encoded in entry.outputs]
        return entry


class Trace:
    """Watches the callbacks of an operator."""

    def __init__(self) -> None:
        self._raw: list[RawEntry] = []
        self._seen = 0
        self.crash_after: int | None = None
        """After how many further callbacks to crash."""

    def observed_event(
        self, on_event: Callable[[Subject, KeyedEvent[Any]], Any]
    ) -> Callable[[Subject, KeyedEvent[Any]], Any]:
        """`on_event`, watched."""

        def observed(subject: Subject, event: KeyedEvent[Any]) -> Any:
            before = self._begin(subject, "on_event", event.timestamp, event.value)
            returned = on_event(subject, event)
            self._end(subject, before)
            return returned

        return observed

    def observed_timer(
        self, on_timer_expired: Callable[[Subject, datetime], Any]
    ) -> Callable[[Subject, datetime], Any]:
        """`on_timer_expired`, watched."""

        def observed(subject: Subject, timestamp: datetime) -> Any:
            before = self._begin(subject, "on_timer_expired", timestamp, None)
            returned = on_timer_expired(subject, timestamp)
            self._end(subject, before)
            return returned

        return observed

    def observed_component(self, fire: Callable[..., None]) -> Callable[..., None]:
        """What wakes a component, watched."""

        def observed(name: str, subject: Subject, timestamp: datetime, call: Invoke) -> None:
            before = self._begin(subject, name, timestamp, None)
            fire(name, subject, timestamp, call)
            self._end(subject, before)

        return observed

    def observed_change(self, callback: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A callback for dependencies, watched."""

        def observed(change: DependencyChange) -> Any:
            come = {change.dependent: change.reached, change.source: change.newest}
            before = self._begin(change.subject, callback, None, come)
            returned = function(change)
            self._end(change.subject, before)
            return returned

        return observed

    def failed(self, error: str, outputs: list[tuple[str, Any]]) -> None:
        """The last callback raised an error.

        :param outputs: what it left, as pairs of port and encoded value
        """
        self._raw[-1].outputs, self._raw[-1].error = outputs, error

    def not_delivered(
        self, outcome: str, source: str, event: tuple[Any, ...], watermark: datetime | None, encoded: Any = None
    ) -> None:
        """An event did not come to `on_event`.

        :param outcome: ``dropped`` or ``diverted`` for a late one, ``held`` for one that waits
        :param event: key, timestamp and value
        :param encoded: what went to the port of late events, or `None`
        """
        outputs = [] if encoded is None else [(LATE_EVENTS, encoded)]
        key, timestamp, value = event
        self._raw.append(RawEntry(outcome, key, timestamp, watermark, source, value, outputs=outputs))

    def take(self) -> list[RawEntry]:
        """The entries since the last call."""
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
        return [len(port.encoded_values) for port in batch_of(subject).ports.values()]

    def _end(self, subject: Subject, before: list[int]) -> None:
        entry = self._raw[-1]
        if entry.before is not None:
            entry.after = self._snapshot(subject)
        collected = [
            (name, encoded)
            for (name, port), start in zip(batch_of(subject).ports.items(), before, strict=True)
            for encoded in port.encoded_values[start:]
        ]
        if collected:
            entry.outputs = collected

    def _snapshot(self, subject: Subject) -> list[Any]:
        """A subject's packed state by spec, and its timers."""
        key, packed = subject.key, {}
        for name, table in batch_of(subject).tables.items():
            try:
                part = table.packed_now(key)
            except AmadouError:  # what msgpack refuses is told where it is stored
                continue
            if part is not None:
                packed[name] = part
        timers = batch_of(subject).timers.of(key)
        self._seen += len(timers) // _TIMERS
        return [packed, timers]


def trace_entry(raw: RawEntry, decoders: Mapping[str, Callable[[Any], Any]], specs: Mapping[str, Any]) -> TraceEntry:
    """A raw entry, decoded.

    :param decoders: turns the encoded form of each port's values back
    :param specs: the specs of state by name
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
    )


def _moment(snapshot: list[Any] | None, key: Key, specs: Mapping[str, Any]) -> Moment | None:
    if snapshot is None:
        return None
    packed, timers = snapshot
    state = {name: shown_state(specs.get(name), key, part) for name, part in packed.items()}
    return Moment(state, [Timer(from_micros(micros), tag) for micros, tag in timers])
