import logging
from datetime import datetime
from operator import index
from typing import Any, Final, Generic, NamedTuple

from amadou._connectors.codec import check_text
from amadou._engine.batch import Batch
from amadou._handler.event import K_co, KeyedEvent
from amadou._handler.letters import LATE_EVENTS, LateEvent
from amadou._state.state_table import StateTable
from amadou.errors import KeylessError, PortError, TimerError, TimerLoopError
from amadou.event_time import from_micros, to_micros

NOT_SET: Final = "timers.not_set"
"""The counter of timers that `on_timer_expired` has not set during a flush."""
_MANY: Final = 10_000
"""Number of timers that a key's timer callbacks set for the same batch at which a warning is logged."""
_TOO_MANY: Final = 1_000_000
"""The number at which the callback fails."""
_MOST_COUNTED: Final = 2**53
"""The number up to which the readers of counters, such as Prometheus, know all integers."""
_logger = logging.getLogger("amadou")


class Timer(NamedTuple):
    """A pending timer: its time and its tag."""

    timestamp: datetime
    tag: str

    def __str__(self) -> str:
        return f"timer {self.timestamp.isoformat()}" + (f" tag={self.tag!r}" if self.tag else "")


class Subject(Generic[K_co]):
    """The key for which amadou calls a callback, with the time of the current event or timer. Provides access to the
    key's timers and state.

    The key's type can be declared: `subject.key` has the type `str` for a `Subject[str]`, and `Any` for a plain
    `Subject`.

    Access state through the handler's specs: ``self.counts.state_for(subject)``. A subject is valid only during the
    callback that receives it: the next callback may receive the same object, with a different key.
    """

    __slots__ = ("_batch", "_tables", "_timers", "is_late", "key", "source", "timer_tag", "timestamp")

    key: K_co
    """The key, of the type that `key_event` returned; `None` in a callback without a key."""
    timestamp: datetime
    """The time of the current event or timer, in UTC."""
    source: str | None
    """The name of the current event's source; `None` while timers fire. In a dependency callback, the name of the
    source that is down or has recovered."""
    is_late: bool
    """`True` if the current event is older than the watermark of its batch (`semantics.md` 13)."""
    timer_tag: str
    """The tag of the current timer; empty in `on_event` and for timers without a tag."""

    def __init__(self, batch: Batch) -> None:
        self.source = None
        self.is_late = False
        self.timer_tag = ""
        self._batch = batch
        self._timers = batch.timers
        self._tables: dict[str, StateTable] = {}  # for the specs that callbacks used

    @property
    def watermark(self) -> datetime | None:
        """The batch's watermark; `None` before the first watermark. Timers that the watermark has reached fire before
        the batch's events are processed.
        """
        return self._batch.watermark

    @property
    def watermark_micros(self) -> int | None:
        """The watermark in microseconds since 1970, for arithmetic."""
        return self._batch.watermark_micros

    def set_timer(self, timestamp: datetime, tag: str = "") -> bool:
        """Set a timer: `on_timer_expired` is called when the watermark reaches the timer's time.

        Timers are deduplicated by key, timestamp and tag: setting the same timer again has no effect
        (`semantics.md` 10).

        :param timestamp: an aware datetime, with microsecond precision
        :param tag: string that distinguishes timers due at the same time; available as `subject.timer_tag` when the
            timer fires
        :returns: `True` if the timer is set; `False`, without any effect, if the timestamp is at or before the
            watermark. In a timer callback, `False` if the timestamp is at or before the timer's time; a timer for a
            later time that the watermark has passed fires in the same batch (`semantics.md` 9)
        :raises NaiveTimestampError: the timestamp has no time zone
        :raises TimestampRangeError: the timestamp is outside the years 1 to 9999 in UTC
        :raises TypeError: the tag is not a `str`
        :raises EncodeError: the tag contains a lone surrogate
        :raises TimerError: the handler does not define `on_timer_expired`
        """
        batch = self._batch
        if not batch.has_timer_callback:
            raise TimerError(type(batch.handler).__name__)
        micros = to_micros(timestamp)
        watermark = batch.watermark_micros
        if type(tag) is not str:
            raise TypeError(f"a timer's tag must be a str, not {tag!r}")
        if not tag.isascii():
            check_text(tag)
        is_due = watermark is not None and micros <= watermark
        if is_due and not self._can_chain(micros):
            return False
        pending = self._timers.pending
        self._timers.add(self.key, micros, tag)
        if is_due and self._timers.pending > pending:
            self._count_chained(micros)
        return True

    def _can_chain(self, micros: int) -> bool:
        """Return `True` if a timer for a time that the watermark has reached fires in this batch: a timer callback sets
        it, for a time after its own.
        """
        batch = self._batch
        if batch.firing_micros is None or micros <= to_micros(self.timestamp):
            return False
        is_handler = batch.fired is None  # the callback is on_timer_expired, and not that of a component
        end = batch.before_end
        if end is not None and is_handler and (end.newest is None or micros > end.newest):
            self.count(NOT_SET)
            return False
        return True

    def _count_chained(self, micros: int) -> None:
        """Count a timer that was set to fire in this batch.

        :raises TimerLoopError: the key has set too many such timers
        """
        batch, key = self._batch, self.key
        number = batch.chains[key] = batch.chains.get(key, 0) + 1
        if number in (_MANY, _TOO_MANY):
            error = TimerLoopError(key, number, self.timestamp, from_micros(micros) - self.timestamp, batch.watermark)
            if number == _TOO_MANY:
                raise error
            _logger.warning("%s", error)
        batch.chained.append(micros)

    def delete_timer(self, timestamp: datetime, tag: str = "") -> bool:
        """Delete a timer.

        :returns: `True` if the timer was pending (`semantics.md` 10)
        :raises NaiveTimestampError: the timestamp has no time zone
        """
        return self._timers.discard(self.key, to_micros(timestamp), tag)

    def timers(self) -> list[Timer]:
        """Return the pending timers of this key, sorted by timestamp and tag."""
        return [Timer(from_micros(micros), tag) for micros, tag in self._timers.of(self.key)]

    @property
    def handler(self) -> Any:
        """The handler whose callback is running."""
        return self._batch.handler

    def count(self, counter: str, by: int = 1) -> None:
        """Increase a counter of the run. The run's summary shows the counter.

        :param counter: the counter's name
        :param by: the number to add, of at most 2⁵³
        """
        if not isinstance(counter, str) or not hasattr(by, "__index__"):
            raise TypeError(f"a counter's name must be a str, and its number an int, not {counter!r} and {by!r}")
        by = index(by)  # an integer of NumPy becomes an int
        if not counter.isascii():
            check_text(counter)
        if abs(by) > _MOST_COUNTED:
            raise ValueError(f"the counter {counter!r} cannot increase by more than 2⁵³ at once")
        counts = self._batch.counts
        counts[counter] = counts.get(counter, 0) + by

    def drop(self, event: KeyedEvent[Any], by: str = "") -> None:
        """Count an event as dropped. A component calls this method for an event that is too late for the component. An
        event dropped by more than one component is counted once.

        :param by: the component's name
        """
        batch = self._batch
        if id(event) not in batch.dropped_events:
            batch.dropped += 1
            batch.dropped_events[id(event)] = event
            batch.report_late("dropped", self.source or "", event, by)

    def divert(self, event: KeyedEvent[Any], by: str) -> None:
        """Send an event to the job's port for late events. A component calls this method for an event that is too late
        for the component.

        :param by: the component's name
        :raises PortError: the job has no port for late events, because neither the job nor a declared component diverts
            events
        """
        batch = self._batch
        late = LateEvent(batch.job, self.source or "", *event, batch.watermark, by)
        port = batch.ports.get(LATE_EVENTS)
        if port is None:
            raise PortError(LATE_EVENTS, tuple(batch.ports))
        port.encoded_values.append(port.encode(late))
        batch.report_late("diverted", self.source or "", event, by)

    def _table(self, spec: str) -> StateTable:
        """Load and return the state that a spec declares, for all subjects of the batch. Called when a callback first
        uses the spec in a batch.
        """
        batch = self._batch
        table = self._tables[spec] = batch.tables.setdefault(spec, StateTable({}))
        table.load(batch.touched, spec)
        return table

    def __repr__(self) -> str:
        return f"Subject(key={self.key!r})"


def batch_of(subject: Subject) -> Batch:
    """Return the batch that a subject belongs to. This function is for engines, not for handlers."""
    return subject._batch


class KeylessSubject(Subject):
    """The subject of a callback without a key. This subject can collect values, but has neither state nor timers.

    :param callback: the callback's name
    """

    __slots__ = ("_callback",)

    def __init__(self, batch: Batch, callback: str) -> None:
        super().__init__(batch)
        self.key = None
        self._callback = callback

    def set_timer(self, timestamp: datetime, tag: str = "") -> bool:
        raise KeylessError(self._callback)

    def delete_timer(self, timestamp: datetime, tag: str = "") -> bool:
        raise KeylessError(self._callback)

    def timers(self) -> list[Timer]:
        raise KeylessError(self._callback)

    def _table(self, spec: str) -> StateTable:
        raise KeylessError(self._callback)
