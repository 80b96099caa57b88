from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from amadou._event import Key
from amadou._time import from_micros, to_micros
from amadou.errors import TimerError


class Timer(NamedTuple):
    """A pending timer: when it is due, and the tag that it was set with."""

    timestamp: datetime
    tag: str


class Port:
    """What has been collected into one port, in wire form, and how values get there."""

    __slots__ = ("encode", "wires")

    def __init__(self, encode: Callable[[Any], Any]) -> None:
        self.encode = encode
        self.wires: list[Any] = []


class Batch:
    """What all subjects of one key group share while a batch is processed."""

    __slots__ = ("handler", "has_timer_callback", "pending", "ports", "watermark", "watermark_micros")

    def __init__(
        self, handler: str, has_timer_callback: bool, ports: dict[str, Port], watermark_micros: int | None
    ) -> None:
        self.handler = handler
        self.has_timer_callback = has_timer_callback
        self.ports = ports
        self.watermark_micros = watermark_micros
        self.watermark = None if watermark_micros is None else from_micros(watermark_micros)
        self.pending = 0
        """Timers set, less those fired and deleted, in this batch."""


class Subject:
    """The owner of one key, as a callback sees it: its key, the time in hand, its timers and its state.

    A subject is valid during the callback that it was given to. State is reached through the handler's specs:
    ``self.counts.state_for(subject)``.
    """

    __slots__ = (
        "_batch",
        "_changed",
        "_states",
        "_timers",
        "_wires",
        "is_late",
        "key",
        "source",
        "timer_tag",
        "timestamp",
    )

    key: Key
    """The key, with the type that `key_event` gave it."""
    timestamp: datetime
    """The time of the event or the timer in hand, in UTC."""
    source: str | None
    """The name of the source of the event in hand; `None` in `on_timer_expired`."""
    is_late: bool
    """Whether the event in hand is older than the watermark of its batch (`semantics.md` 13)."""
    timer_tag: str
    """The tag of the timer in hand; empty in `on_event` and for timers without one."""

    def __init__(self, key: Key, batch: Batch, wires: dict[str, Any], timers: dict[int, Any]) -> None:
        self.key = key
        self.source = None
        self.is_late = False
        self.timer_tag = ""
        self._batch = batch
        self._wires = wires
        self._timers = timers  # by time in microseconds: a tag, or a list of several
        self._states: dict[str, Any] = {}
        self._changed = False

    @property
    def watermark(self) -> datetime | None:
        """The watermark of this batch: no timer at or before it is pending any more. `None` before the first one."""
        return self._batch.watermark

    def set_timer(self, timestamp: datetime, tag: str = "") -> bool:
        """Ask for `on_timer_expired` once the watermark reaches a time.

        Timers coalesce on key, timestamp and tag: setting one again changes nothing (`semantics.md` 10).

        :param timestamp: an aware datetime, kept to the microsecond
        :param tag: tells timers of the same time apart; given back as `subject.timer_tag`
        :returns: `True` where a timer now stands; `False`, with nothing done, for a time at or before the watermark
            (`semantics.md` 9)
        :raises NaiveTimestampError: the timestamp has no zone
        :raises TimerError: the handler does not define `on_timer_expired`
        """
        batch = self._batch
        if not batch.has_timer_callback:
            raise TimerError(batch.handler)
        micros = to_micros(timestamp)
        watermark = batch.watermark_micros
        if watermark is not None and micros <= watermark:
            return False
        tags = self._timers.get(micros)
        if tags is None:
            if type(tag) is not str:
                raise TypeError(f"a timer's tag is a str, not {tag!r}")
            self._timers[micros] = tag
        elif tag in tags if type(tags) is list else tag == tags:
            return True
        elif type(tags) is list:
            tags.append(tag)
        else:
            self._timers[micros] = [tags, tag]
        batch.pending += 1
        self._changed = True
        return True

    def delete_timer(self, timestamp: datetime, tag: str = "") -> bool:
        """Take back a timer.

        :returns: whether there was one (`semantics.md` 10)
        :raises NaiveTimestampError: the timestamp has no zone
        """
        return self._discard_timer(to_micros(timestamp), tag)

    def timers(self) -> list[Timer]:
        """The pending timers of this key, by timestamp and tag."""
        pending = sorted((micros, tag) for micros, tags in self._timers.items() for tag in tags_of(tags))
        return [Timer(from_micros(micros), tag) for micros, tag in pending]

    def _discard_timer(self, micros: int, tag: str) -> bool:
        tags = self._timers.get(micros)
        if tags is None or tag not in tags_of(tags):
            return False
        if type(tags) is list and len(tags) > 1:
            tags.remove(tag)
        else:
            del self._timers[micros]
        self._batch.pending -= 1
        self._changed = True
        return True

    def __repr__(self) -> str:
        return f"Subject(key={self.key!r})"


def tags_of(tags: Any) -> Sequence[str]:
    """The tags of the timers of one time: most often there is one, which stands alone in state."""
    return tags if type(tags) is list else (tags,)
