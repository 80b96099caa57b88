"""The operator core: what happens to a key group in a batch. Both engines call this and nothing else."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from heapq import merge
from itertools import groupby
from typing import Any, NamedTuple

from amadou import Job, Key, KeyedEvent, Subject
from amadou._subject import Batch, Port, tags_of
from amadou._time import from_micros
from amadou._wire import unpack
from amadou.errors import AmadouError, TimerError
from amadou_runtime._failure import callback_error
from amadou_runtime._group import KeyGroup
from amadou_runtime._keying import Chunk
from amadou_runtime._trace import Trace

_new_event: Callable[[Any], KeyedEvent[Any]] = partial(tuple.__new__, KeyedEvent)


class Processed(NamedTuple):
    """A key group after a batch."""

    state: bytes | None
    next_timer: int | None
    """When the group must be called again at the latest, in microseconds of event time."""
    outputs: dict[str, list[Any]]
    """What was collected into each port, in wire form."""
    events: int
    late: int
    fired: int
    keys: int
    """Keys that have state or timers."""
    pending: int
    """Timers that are set and not due."""


class Operator:
    """A job's handler, ready to process key groups.

    :param job: a job without unresolved parameters
    :param trace: takes an entry for each callback, for test runs
    """

    def __init__(self, job: Job, trace: Trace | None = None) -> None:
        handler = job.handler
        self.handler = handler
        self._name = type(handler).__name__
        self._has_timer_callback = job.has_timers
        self._encoders = {name: port_codec(job, name).encode for name in job.ports}
        self._trace = trace
        self._on_event: Callable[[Subject, KeyedEvent[Any]], None] = handler.on_event
        self._on_timer_expired: Callable[[Subject, datetime], None] = handler.on_timer_expired
        if trace is not None:
            self._on_event = trace.observed_event(handler.on_event)
            self._on_timer_expired = trace.observed_timer(handler.on_timer_expired)

    def open(self) -> None:
        """Let the handler prepare itself."""
        self._guarded("open", self.handler.open)

    def close(self) -> None:
        """Let the handler clean up."""
        self._guarded("close", self.handler.close)

    def process(self, state: bytes | None, chunks: Sequence[Chunk], watermark: int | None) -> Processed:
        """Play one batch of one key group: due timers, then events (`semantics.md` 5).

        :param state: what the last `Processed.state` was
        :param chunks: the batch's events, in any order
        :param watermark: the batch's watermark in microseconds, `None` before the first
        :raises CallbackError: a callback failed; nothing of the batch counts
        """
        group = KeyGroup(state)
        ports = {name: Port(encode) for name, encode in self._encoders.items()}
        batch = Batch(self._name, self._has_timer_callback, ports, watermark)
        due = [] if watermark is None else group.due(watermark)
        runs = in_order(chunks)
        touched = {*due}.union(*(events[0::3] for _, events in runs))
        subjects = group.load(touched, batch)
        fired = self._fire([subjects[key] for key in due], batch) if due else 0
        count = late = 0
        for source, events in runs:
            late += self._play(source, events, subjects, batch)
            count += len(events) // 3
        for subject in subjects.values():
            if subject._changed:
                try:
                    group.store(subject)
                except AmadouError as error:  # what msgpack finds only now, such as a text that is no valid Unicode
                    raise callback_error(
                        error,
                        handler=self._name,
                        callback="on_event" if subject.source is not None else "on_timer_expired",
                        source=subject.source,
                        key=subject.key,
                        watermark=batch.watermark,
                    ) from error
            subject._states.clear()  # breaks the cycle of subject and state, so that no garbage waits for collection
        group.pending += batch.pending
        outputs = {name: port.wires for name, port in ports.items() if port.wires}
        return Processed(
            group.pack(), group.next_timer(), outputs, count, late, fired, len(group.subjects), group.pending
        )

    def _fire(self, subjects: list[Subject], batch: Batch) -> int:
        watermark = batch.watermark_micros
        assert watermark is not None
        if not self._has_timer_callback:
            raise TimerError(self._name)
        queue = [
            (micros, subject.key, tag, subject)
            for subject in subjects
            for micros, tags in subject._timers.items()
            if micros <= watermark
            for tag in tags_of(tags)
        ]
        try:
            queue.sort(key=lambda due: due[:3])
        except TypeError:  # keys of several types
            queue.sort(key=lambda due: (due[0], sortable(due[1]), due[2]))
        fired = 0
        last, timestamp = watermark, batch.watermark
        on_timer_expired = self._on_timer_expired
        for micros, key, tag, subject in queue:
            if not subject._discard_timer(micros, tag):
                continue  # an earlier timer of the key deleted it
            if micros != last or timestamp is None:
                last, timestamp = micros, from_micros(micros)
            subject.timestamp = timestamp
            subject.timer_tag = tag
            try:
                on_timer_expired(subject, timestamp)
            except Exception as error:
                shown = f"timer {timestamp.isoformat()}" + (f" with tag {tag!r}" if tag else "")
                raise self._failed(error, "on_timer_expired", batch, None, key, shown) from error
            subject.timer_tag = ""
            fired += 1
        return fired

    def _play(self, source: str, events: list[Any], subjects: dict[Key, Subject], batch: Batch) -> int:
        late = 0
        on_event = self._on_event
        watermark = batch.watermark
        fields = iter(events)
        for event in map(_new_event, zip(fields, fields, fields, strict=True)):
            key, timestamp, _ = event
            subject = subjects.get(key)
            if subject is None:
                subject = subjects[key] = Subject(key, batch, {}, {})
            subject.timestamp = timestamp
            subject.source = source
            if watermark is not None:
                subject.is_late = timestamp < watermark
                late += subject.is_late
            try:
                on_event(subject, event)
            except Exception as error:
                raise self._failed(error, "on_event", batch, source, key, event) from error
        return late

    def _guarded(self, callback: str, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:
            raise callback_error(error, handler=self._name, callback=callback) from error

    def _failed(
        self, error: Exception, callback: str, batch: Batch, source: str | None, key: Key, record: Any
    ) -> AmadouError:
        if self._trace is not None:
            self._trace.failed(error)
        return callback_error(
            error,
            handler=self._name,
            callback=callback,
            source=source,
            key=key,
            record=record,
            watermark=batch.watermark,
        )


def port_codec(job: Job, port: str) -> Any:
    """The codec of a port: the port's own, else its sink's."""
    spec = job.ports[port]
    return spec.codec or job.sinks[port].codec(spec.type)


def in_order(chunks: Sequence[Chunk]) -> list[tuple[str, list[Any]]]:
    """A batch's events in the order of `semantics.md` 7, as runs of one source each: key, timestamp, value, key, …"""
    by_source: dict[str, list[Any]] = {}
    for chunk in sorted(chunks):
        by_source.setdefault(chunk.source, []).extend(unpack(chunk.events))
    if len(by_source) < 2:
        return list(by_source.items())

    def stream(source: str, events: list[Any]) -> Iterator[tuple[str, Any, Any, Any]]:
        fields = iter(events)
        return ((source, key, timestamp, value) for key, timestamp, value in zip(fields, fields, fields, strict=True))

    merged = merge(*(stream(source, events) for source, events in by_source.items()), key=lambda event: event[2])
    return [
        (source, [field for event in run for field in event[1:]])
        for source, run in groupby(merged, key=lambda event: event[0])
    ]


def sortable(key: Key) -> Any:
    """A stand-in for a key that can be compared with those of keys of other types."""
    if type(key) is tuple:
        return ("tuple", tuple(sortable(part) for part in key))
    return (type(key).__name__, key)
