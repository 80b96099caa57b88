"""What a test run remembers of its callbacks, for the messages of failing tests."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import attrs

from amadou import Key, KeyedEvent, Subject
from amadou._letters import LATE_EVENTS


@attrs.frozen
class TraceEntry:
    """One callback of a test run, or what became of an event instead.

    :param callback: `on_event` or `on_timer_expired`; `dropped` or `diverted` for a late event that is not delivered;
        `key_event` where that failed and the job goes on
    :param key: the subject's key; `None` in `key_event`
    :param timestamp: the time of the event or timer; `None` in `key_event`
    :param watermark: the batch's watermark
    :param source: the event's source; `None` for a timer
    :param value: the event's value
    :param tag: the timer's tag
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
        if self.source is None or self.timestamp is None or self.watermark is None:
            return False
        return self.timestamp < self.watermark

    def __str__(self) -> str:
        what = self.callback if self.source is None else f"{self.callback} ({self.source})"
        detail = f" tag={self.tag!r}" if self.tag else ""
        if self.value is not None:
            detail += f" value={self.value!r}"
        if self.timestamp is None:
            lines = [f"{what}{detail}"]
        else:
            late = "  late" if self.is_late else ""
            lines = [f"{self.timestamp.isoformat()}  {what}  key={self.key!r}{detail}{late}"]
        lines += [f"    → {port}: {value!r}" for port, value in self.outputs]
        if self.error is not None:
            lines.append(f"    ✗ {self.error}")
        return "\n".join(lines)


class SimulatedCrash(BaseException):
    """Ends a worker in the middle of a batch, past all that catches errors."""


class Trace:
    """Watches the callbacks of an operator. Entries stay raw until someone looks: most test runs pass."""

    def __init__(self) -> None:
        self._raw: list[list[Any]] = []
        self.crash_after: int | None = None
        """After how many further callbacks to crash."""

    def observed_event(
        self, on_event: Callable[[Subject, KeyedEvent[Any]], None]
    ) -> Callable[[Subject, KeyedEvent[Any]], None]:
        """`on_event`, watched."""

        def observed(subject: Subject, event: KeyedEvent[Any]) -> None:
            before = self._begin(subject, "on_event", event.timestamp, event.value)
            on_event(subject, event)
            self._end(subject, before)

        return observed

    def observed_timer(
        self, on_timer_expired: Callable[[Subject, datetime], None]
    ) -> Callable[[Subject, datetime], None]:
        """`on_timer_expired`, watched."""

        def observed(subject: Subject, timestamp: datetime) -> None:
            before = self._begin(subject, "on_timer_expired", timestamp, None)
            on_timer_expired(subject, timestamp)
            self._end(subject, before)

        return observed

    def failed(self, error: str, outputs: list[tuple[str, Any]]) -> None:
        """The last callback raised an error.

        :param outputs: what it left, as pairs of port and wire form
        """
        self._raw[-1][-2:] = [outputs, error]

    def not_delivered(self, verdict: str, source: str, event: tuple[Any, ...], watermark: datetime, wire: Any) -> None:
        """A late event did not come to `on_event`.

        :param verdict: ``dropped`` or ``diverted``
        :param event: key, timestamp and value
        :param wire: what went to the port of late events, or `None`
        """
        outputs = [] if wire is None else [(LATE_EVENTS, wire)]
        key, timestamp, value = event
        self._raw.append([verdict, key, timestamp, watermark, source, value, "", outputs, None])

    def take(self) -> list[list[Any]]:
        """The raw entries since the last call, in terms of msgpack."""
        taken, self._raw = self._raw, []
        return taken

    def _begin(self, subject: Subject, callback: str, timestamp: datetime, value: Any) -> list[int]:
        if self.crash_after is not None:
            if self.crash_after <= 0:
                raise SimulatedCrash
            self.crash_after -= 1
        watermark = subject._batch.watermark
        self._raw.append(
            [callback, subject.key, timestamp, watermark, subject.source, value, subject.timer_tag, (), None]
        )
        return [len(port.wires) for port in subject._batch.ports.values()]

    def _end(self, subject: Subject, before: list[int]) -> None:
        collected = [
            (name, wire)
            for (name, port), start in zip(subject._batch.ports.items(), before, strict=True)
            for wire in port.wires[start:]
        ]
        if collected:
            self._raw[-1][-2] = collected


def trace_entries(raw: list[list[Any]], decoders: Mapping[str, Callable[[Any], Any]]) -> list[TraceEntry]:
    """Raw entries with their outputs decoded.

    :param decoders: turns the wire form of each port's values back
    """
    return [
        TraceEntry(
            callback=callback,
            key=key,
            timestamp=timestamp,
            watermark=watermark,
            source=source,
            value=value,
            tag=tag,
            outputs=tuple((port, decoders[port](wire)) for port, wire in outputs),
            error=error,
        )
        for callback, key, timestamp, watermark, source, value, tag, outputs, error in raw
    ]
