"""The handler that `windowed` returns: it adds every record to one window."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import datetime
from typing import Any, NamedTuple, TypeAlias

import attrs
import orjson

from amadou import Filtered, Job, Key, KeyedEvent, SinkSpec, Subject
from amadou.components import VectorizedHandler
from amadou.errors import AmadouError, SpecError, error_class
from amadou.event_time import from_text
from amadou_plugins.windows._base import Window, WindowSpec

Reading: TypeAlias = str | Sequence[str] | Callable[[Any], Any]
"""A field name, a list of field names (read as a tuple), or a function of the record."""


@error_class
class RecordError(AmadouError):
    """A `windowed` handler cannot read a record: a field is missing, the timestamp is invalid, or the record is not a
    JSON object.

    :param what: the value that cannot be read: ``record``, ``key``, ``timestamp`` or ``value``
    :param why: the problem with the record
    """

    what: str
    why: str

    def _message(self) -> str:
        return f"the {self.what} cannot be read: {self.why}"


# A named tuple, like `KeyedEvent`, because one is created for every result.
class WindowResult(NamedTuple):
    """A result that a `windowed` handler collects.

    :param key: key of the window
    :param start: start of the window
    :param end: end of the window
    :param value: result of the window's aggregate
    :param partial: `True` for an early result
    """

    key: Any
    start: datetime
    end: datetime
    value: Any
    partial: bool


class Windowed(VectorizedHandler):
    """The handler that `windowed` returns."""

    def __init__(
        self,
        window: WindowSpec[Any],
        key: Reading,
        timestamp: Reading,
        value: Reading | None,
        port: str,
        filter: Callable[[Any], Any] | None = None,
    ) -> None:
        self.window = window
        self._filter = filter
        if type(self).on_event is Windowed.on_event and type(self).closed is Windowed.closed:
            self.delegates_to = window.name
        self.results = SinkSpec(WindowResult, name=port)
        self._read_key = _reader("key", key)
        self._read_timestamp = _reader("timestamp", timestamp)
        self._read_value = _only(window.fields) if value is None else _reader("value", value)

    def for_job(self, job: Job) -> "Windowed":
        if not isinstance(self._read_value, _Only) or (job.on_error == "fail" and job.late_events != "divert"):
            return self
        made = copy(self)
        made._read_value = None  # late events and dead letters must contain the complete records
        return made

    def key_event(self, record: Any) -> KeyedEvent[Any] | Filtered | None:
        read = _json(record) if isinstance(record, bytes | str) else record
        if self._filter is not None and not self._filter(read):
            try:
                return Filtered(self._timestamp_of(read))
            except Exception:  # such as a KeyError in a function for the time of the other records
                return None
        timestamp = self._timestamp_of(read)
        return KeyedEvent(self._read_key(read), timestamp, read if self._read_value is None else self._read_value(read))

    def _timestamp_of(self, read: Any) -> datetime:
        timestamp = self._read_timestamp(read)
        if isinstance(timestamp, str):
            try:
                timestamp = from_text(timestamp)
            except (ValueError, OverflowError) as error:
                problem = f"use the ISO 8601 format, or convert it in a timestamp= function ({error})"
                raise RecordError("timestamp", problem) from None
        if not isinstance(timestamp, datetime):
            problem = f"{timestamp!r} is neither a datetime nor an ISO 8601 string: convert it in a timestamp= function"
            raise RecordError("timestamp", problem)
        return timestamp

    def key_batch(self, records: list[Any]) -> tuple[list[Key], list[datetime], list[Any]] | None:
        readers = (self._read_key, self._read_timestamp, self._read_value)
        has_functions = not all(reader is None or isinstance(reader, _Field | _Fields | _Only) for reader in readers)
        if has_functions or self._filter is not None:
            return None  # user functions must be called record by record, in the same order as in `key_event`
        read = list(map(orjson.loads, records)) if set(map(type, records)) <= {bytes, str} else records
        if set(map(type, read)) != {dict}:
            return None
        keys, timestamps, values = (read if reader is None else reader.each(read) for reader in readers)  # type: ignore[attr-defined]
        if set(map(type, timestamps)) == {str}:
            try:
                timestamps = list(map(datetime.fromisoformat, timestamps))
            except ValueError:  # such as hour 24
                timestamps = list(map(from_text, timestamps))
        return (keys, timestamps, values) if set(map(type, timestamps)) == {datetime} else None

    def on_event(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        self.window.add(subject, event)

    def closed(self, subject: Subject, window: Window, value: Any) -> None:
        """Collect a result."""
        self.results.collect(subject, WindowResult(window.key, window.start, window.end, value, window.partial))

    def all_closed(
        self,
        subject: Subject,
        keys: list[Key],
        starts: list[datetime],
        ends: list[datetime],
        values: list[Any],
        closed: list[datetime],
    ) -> None:
        """Collect the results of closed windows for many keys.

        :param closed: the times of the timers with which the windows close
        """
        rows = list(zip(keys, starts, ends, values, [False] * len(keys), strict=True))
        self.results.collect_rows(subject, rows, keys=keys, timestamps=closed)


def windowed(
    *,
    key: Reading,
    timestamp: Reading,
    window: WindowSpec[Any],
    event_value: Reading | None = None,
    port: str = "results",
    filter: Callable[[Any], Any] | None = None,
) -> Windowed:
    """Return a handler that adds every record to a window and collects `WindowResult`s::

        handler = windowed(
            key="channel_id",
            timestamp="timestamp",
            window=TumblingWindow(timedelta(minutes=1), {"n": Count(), "mean": Mean("ms")}, late="divert"),
        )
        job = Job("per minute", handler, sources={...}, sinks={"results": JsonLinesSink("results")})

    Records are JSON objects (as text or bytes), mappings, or objects with attributes. `key`, `timestamp` and
    `event_value` can each be a field name, a list of field names (read as a tuple), or a function of the record.

    :param key: the event's key
    :param timestamp: the event's time: a datetime or an ISO 8601 string, with a time zone
    :param window: the window, without an `on_close` function; the handler uses a copy of the window
    :param event_value: the event's value, which the window's aggregate reads; defaults to the record
    :param port: name of the port that receives the results
    :param filter: function of a record that returns `True` for the records to add. The times of the others advance the
        watermark, if they have one that can be read
    :raises SpecError: a parameter has the wrong type, or the window already has an `on_close` function
    """
    if not isinstance(window, WindowSpec):
        raise SpecError(f"window must be a window, such as TumblingWindow(timedelta(minutes=1)), not {window!r}")
    if filter is not None and not callable(filter):
        raise SpecError(f"filter must be a function of the record, not {filter!r}")
    window = window.copied()
    if window.given_name is None:
        window.__set_name__(Windowed, "window")
    window.on_close(Windowed.closed)
    window.mark("on_close_all", Windowed.all_closed)
    return Windowed(window, key, timestamp, event_value, port, filter)


def _only(fields: frozenset[str] | None) -> Callable[[Any], Any] | None:
    """Return a function that extracts the fields that a window reads so that other fields are not transferred. Return
    `None` if the window needs the complete record.

    :param fields: see `WindowSpec.fields`
    """
    return None if fields is None else _Only(sorted(fields))


def _json(record: bytes | str) -> Any:
    try:
        read = orjson.loads(record)
    except orjson.JSONDecodeError as error:
        raise RecordError("record", f"it is not JSON: correct the record ({error})") from None
    if not isinstance(read, dict):
        raise RecordError("record", "it is not a JSON object: write each record as an object with named fields")
    return read


def _reader(what: str, reading: Reading) -> Callable[[Any], Any]:
    if callable(reading):
        return reading
    if isinstance(reading, str):
        return _Field(what, reading)
    if isinstance(reading, Sequence) and reading and all(isinstance(name, str) for name in reading):
        return _Fields([_Field(what, name) for name in reading])
    raise SpecError(f"{what} must be a field name, a list of field names, or a function of the record, not {reading!r}")


@attrs.frozen
class _Field:
    what: str
    name: str

    def __call__(self, record: Any) -> Any:
        try:
            # most records are dicts, and checking for a Mapping takes longer than the lookup itself
            return (
                record[self.name] if type(record) is dict or isinstance(record, Mapping) else getattr(record, self.name)
            )
        except (KeyError, AttributeError):
            raise RecordError(self.what, f"the record has no field {self.name!r}: correct the name or record") from None

    def each(self, records: list[dict[str, Any]]) -> list[Any]:
        return [record[self.name] for record in records]


@attrs.frozen
class _Fields:
    fields: list[_Field]

    def __call__(self, record: Any) -> Any:
        return tuple(field(record) for field in self.fields)

    def each(self, records: list[dict[str, Any]]) -> list[Any]:
        return list(zip(*(field.each(records) for field in self.fields), strict=True))


@attrs.frozen
class _Only:
    names: list[str]

    def __call__(self, record: Any) -> Any:
        if not self.names:
            return None
        try:
            if type(record) is dict or isinstance(record, Mapping):
                return {name: record[name] for name in self.names}
            return {name: getattr(record, name) for name in self.names}
        except (KeyError, AttributeError):
            return record  # the aggregates report the missing field

    def each(self, records: list[dict[str, Any]]) -> list[Any]:
        if not self.names:
            return [None] * len(records)
        if len(self.names) == 1:
            (name,) = self.names
            return [{name: record[name]} if name in record else record for record in records]
        return list(map(self, records))
