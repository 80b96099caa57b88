"""From records to events packed by key group: the first stage of both engines."""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from amadou import KeyedEvent
from amadou._event import check_key
from amadou._time import to_micros
from amadou._wire import pack
from amadou.errors import AmadouError, EventTypeError, NaiveTimestampError
from amadou_runtime._failure import callback_error

_BEGINNING = datetime.min.replace(tzinfo=UTC)


class Chunk(NamedTuple):
    """Events of one key group, packed, as they travel to it."""

    source: str
    order: bytes
    """Puts chunks of one source into the source's order."""
    events: bytes


class Packed(NamedTuple):
    """Records after keying."""

    events: dict[int, bytes]
    """Packed events by key group: key, timestamp and value of each, one after the other."""
    newest: int | None
    """The newest event time in microseconds; `None` without events."""


def key_group(key: Any, groups: int) -> int:
    """The key group of a key: the same in every process, release and on every machine."""
    return zlib.crc32(key.encode() if type(key) is str else pack(key)) % groups


class Keying:
    """Turns the records of one source into packed events.

    :param handler: the handler's class name, for errors
    :param source: the source's name
    :param key_event: the source's or the handler's function
    :param groups: how many key groups there are
    """

    def __init__(self, handler: str, source: str, key_event: Callable[[Any], Any], groups: int) -> None:
        self._handler = handler
        self._source = source
        self._key_event = key_event
        self._groups = groups

    def pack(self, records: Iterable[Any]) -> Packed:
        """Key and pack records.

        :raises CallbackError: `key_event` failed, or returned what cannot be used
        """
        key_event = self._key_event
        groups = self._groups
        newest = _BEGINNING
        by_group: defaultdict[int, list[Any]] = defaultdict(list)
        by_key: dict[Any, list[Any]] = {}
        for record in records:
            event: Any = None
            try:
                events = key_event(record)
                if type(events) is KeyedEvent:
                    events = (events,)
                elif events is None:
                    continue
                for event in events:
                    key, timestamp, _ = event
                    if timestamp > newest:
                        # in UTC: within one zone Python compares clock readings, and an hour is there twice in autumn
                        newest = timestamp if timestamp.tzinfo is UTC else timestamp.astimezone(UTC)
                    if type(key) is not str:
                        check_key(key)
                    packed = by_key.get(key)
                    if packed is None:
                        packed = by_key[key] = by_group[key_group(key, groups)]
                    packed += event
            except Exception as error:
                raise self._failed(record, event, error)  # noqa: B904 - it has its cause
        return Packed(self._pack_groups(by_group), None if newest is _BEGINNING else to_micros(newest))

    def _pack_groups(self, by_group: Mapping[int, list[Any]]) -> dict[int, bytes]:
        packed = {}
        for group, events in by_group.items():
            try:
                packed[group] = pack(events)
            except AmadouError:
                for event in zip(events[0::3], events[1::3], events[2::3], strict=True):
                    try:
                        pack(event)
                    except AmadouError as error:
                        raise self._failed(KeyedEvent(*event), KeyedEvent(*event), error)  # noqa: B904
                raise
        return packed

    def _failed(self, record: Any, event: Any, error: Exception) -> AmadouError:
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            error = self._explained(event, error)
        return callback_error(
            error,
            handler=self._handler,
            callback="key_event",
            source=self._source,
            record=record,
            key=event.key if isinstance(event, KeyedEvent) else None,
        )

    def _explained(self, event: Any, error: Exception) -> Exception:
        """What an error means that arose while this module took a returned event apart."""
        if not isinstance(event, KeyedEvent):
            if isinstance(event, tuple) and len(event) == 3:
                return error
            returned = "an iterable of events" if event is None else f"an iterable with {event!r}"
            return EventTypeError(
                f"key_event must return a KeyedEvent, an iterable of them or None: not {returned} ({error})"
            )
        if not isinstance(event.timestamp, datetime):
            return EventTypeError(f"the timestamp of {event!r} is no datetime")
        if event.timestamp.tzinfo is None:
            return NaiveTimestampError(event.timestamp)
        return error
