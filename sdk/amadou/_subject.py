from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol

from amadou._codec import check_text
from amadou._event import K_co, Key, KeyedEvent
from amadou._group import Column, Timers
from amadou._letters import LATE_EVENTS, LateEvent
from amadou.errors import KeylessError, PortError, TimerError
from amadou.event_time import from_micros, to_micros


class Timer(NamedTuple):
    """A pending timer: when it is due, and the tag that it was set with."""

    timestamp: datetime
    tag: str

    def __str__(self) -> str:
        return f"timer {self.timestamp.isoformat()}" + (f" tag={self.tag!r}" if self.tag else "")


class Port:
    """What has been collected into one port, in wire form, and how values get there.

    :param codec: the port's `Codec`; may have `encode_rows`, which makes wire forms of tuples of what the type takes
    """

    __slots__ = ("encode", "encode_rows", "wires")

    def __init__(self, codec: Any) -> None:
        self.encode: Callable[[Any], Any] = codec.encode
        self.encode_rows: Callable[[list[tuple[Any, ...]]], list[Any]] | None = getattr(codec, "encode_rows", None)
        self.wires: list[Any] = []


class Keeper(Protocol):
    """Knows what components stored, also those that were made at run time."""

    def take(self, component: Any, key: Key) -> None:
        """Let a component have what is stored under its name.

        :param key: the key in hand
        :raises StateDecodeError: it cannot read it
        """

    def noun_of(self, name: str) -> str:
        """What messages call the component that stored something under a name."""


class Batch:
    """What all subjects of one key group share while a batch is processed.

    :param handler: the handler
    :param columns: state by spec name
    :param touched: the keys that have events or due timers
    :param components: the components that are known, by name
    :param job: the job's name
    :param keeper: lets components have what is stored under their names; anything without it
    """

    __slots__ = (
        "columns",
        "components",
        "counts",
        "dropped",
        "fed_by",
        "firing_micros",
        "handler",
        "has_timer_callback",
        "is_replay",
        "job",
        "keeper",
        "last_dropped",
        "ports",
        "stored",
        "timers",
        "touched",
        "watermark",
        "watermark_micros",
        "woken",
    )

    def __init__(
        self,
        handler: Any,
        has_timer_callback: bool,
        ports: dict[str, Port],
        watermark_micros: int | None,
        columns: dict[str, Column],
        timers: Timers,
        touched: Collection[Key],
        components: dict[str, Any] | None = None,
        job: str = "",
        keeper: Keeper | None = None,
    ) -> None:
        self.handler = handler
        self.keeper = keeper
        self.components = {} if components is None else components
        self.job = job
        self.counts: dict[str, int] = {}
        self.dropped = 0
        """How many events were dropped because they came too late."""
        self.last_dropped: KeyedEvent[Any] | None = None
        self.firing_micros: int | None = None
        """The time of the timers in hand, in microseconds; `None` while there are none."""
        self.woken: list[str] | None = None
        """The components of the key in hand that were woken at that time, the one in hand last, if there is one."""
        self.stored: set[str] = set()
        """The components that stored something since the callback in hand began, while timers fire."""
        self.fed_by: dict[Key, dict[str, frozenset[str]]] = {}
        """The components that gave something to others at a flush, also by way of others, by key and taker."""
        self.is_replay = False
        """Whether callbacks are played again that failed in earlier batches."""
        self.has_timer_callback = has_timer_callback
        self.ports = ports
        self.watermark_micros = watermark_micros
        self.watermark = None if watermark_micros is None else from_micros(watermark_micros)
        self.columns = columns
        self.timers = timers
        self.touched = touched


class Subject(Generic[K_co]):
    """The owner of one key, as a callback sees it: its key, the time in hand, its timers and its state.

    Its type may name that of the key: `subject.key` of a `Subject[str]` is a `str`, that of a `Subject` is `Any`.

    State is reached through the handler's specs: ``self.counts.state_for(subject)``. A subject is valid during the
    callback that it was given to: the next one, for another key, may get the same object.
    """

    __slots__ = ("_batch", "_columns", "_timers", "is_late", "key", "source", "timer_tag", "timestamp")

    key: K_co
    """The key, with the type that `key_event` gave it."""
    timestamp: datetime
    """The time of the event or the timer in hand, in UTC."""
    source: str | None
    """The name of the source of the event in hand; `None` in `on_timer_expired`."""
    is_late: bool
    """Whether the event in hand is older than the watermark of its batch (`semantics.md` 13)."""
    timer_tag: str
    """The tag of the timer in hand; empty in `on_event` and for timers without one."""

    def __init__(self, batch: Batch) -> None:
        self.source = None
        self.is_late = False
        self.timer_tag = ""
        self._batch = batch
        self._timers = batch.timers
        self._columns: dict[str, Column] = {}  # of the specs that callbacks asked for

    @property
    def watermark(self) -> datetime | None:
        """The watermark of this batch: no timer at or before it is pending any more. `None` before the first one."""
        return self._batch.watermark

    @property
    def watermark_micros(self) -> int | None:
        """The same in microseconds since 1970, for arithmetic."""
        return self._batch.watermark_micros

    def set_timer(self, timestamp: datetime, tag: str = "") -> bool:
        """Ask for `on_timer_expired` once the watermark reaches a time.

        Timers coalesce on key, timestamp and tag: setting one again changes nothing (`semantics.md` 10).

        :param timestamp: an aware datetime, kept to the microsecond
        :param tag: tells timers of the same time apart; given back as `subject.timer_tag`
        :returns: `True` where a timer now stands; `False`, with nothing done, for a time at or before the watermark
            (`semantics.md` 9)
        :raises NaiveTimestampError: the timestamp has no zone
        :raises TimestampRangeError: it is outside the years 1 to 9999 in UTC
        :raises EncodeError: the tag holds half of a surrogate pair
        :raises TimerError: the handler does not define `on_timer_expired`
        """
        batch = self._batch
        if not batch.has_timer_callback:
            raise TimerError(type(batch.handler).__name__)
        micros = to_micros(timestamp)
        watermark = batch.watermark_micros
        if watermark is not None and micros <= watermark:
            return False
        if type(tag) is not str:
            raise TypeError(f"a timer's tag is a str, not {tag!r}")
        if not tag.isascii():
            check_text(tag)
        self._timers.add(self.key, micros, tag)
        return True

    def delete_timer(self, timestamp: datetime, tag: str = "") -> bool:
        """Take back a timer.

        :returns: whether there was one (`semantics.md` 10)
        :raises NaiveTimestampError: the timestamp has no zone
        """
        return self._timers.discard(self.key, to_micros(timestamp), tag)

    def timers(self) -> list[Timer]:
        """The pending timers of this key, by timestamp and tag."""
        return [Timer(from_micros(micros), tag) for micros, tag in self._timers.of(self.key)]

    @property
    def handler(self) -> Any:
        """The handler whose callback it was given to."""
        return self._batch.handler

    def count(self, counter: str, by: int = 1) -> None:
        """Add to a counter of the run, which its summary shows."""
        counts = self._batch.counts
        counts[counter] = counts.get(counter, 0) + by

    def drop(self, event: KeyedEvent[Any]) -> None:
        """Count an event as dropped, as a component does for which it came too late. An event that several components
        drop counts once.
        """
        batch = self._batch
        if event is not batch.last_dropped:
            batch.dropped += 1
            batch.last_dropped = event

    def divert(self, event: KeyedEvent[Any], by: str) -> None:
        """Send an event to the run's output of late events, as a component does for which it came too late.

        :param by: the component's name
        :raises PortError: the job has no such output: neither it nor a component that it declares diverts events
        """
        batch = self._batch
        assert batch.watermark is not None
        late = LateEvent(batch.job, self.source or "", *event, batch.watermark, by)
        port = batch.ports.get(LATE_EVENTS)
        if port is None:
            raise PortError(LATE_EVENTS, tuple(batch.ports))
        port.wires.append(port.encode(late))

    def _column(self, spec: str) -> Column:
        """What the subjects of the batch have under a spec, asked for the first time in the batch."""
        batch = self._batch
        column = self._columns[spec] = batch.columns.setdefault(spec, Column({}))
        column.load(batch.touched, spec)
        return column

    def __repr__(self) -> str:
        return f"Subject(key={self.key!r})"


class KeylessSubject(Subject):
    """Stands in for a subject where a callback belongs to no key: what collects is there, state and timers are not.

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

    def _column(self, spec: str) -> Column:
        raise KeylessError(self._callback)
