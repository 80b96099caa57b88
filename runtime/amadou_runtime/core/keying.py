"""Turns records into events and packs the events by key group. This is the first stage of both engines."""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from operator import itemgetter
from types import GeneratorType
from typing import Any, Final, Literal, NamedTuple

import attrs

from amadou import Filtered, Job, KeyedEvent
from amadou.components import check_ran, copied_if_possible
from amadou.engine import DEAD_LETTERS, FedSource, callbacks_of, check_key, pack
from amadou.errors import (
    AmadouError,
    CallbackError,
    EventError,
    EventTypeError,
    NaiveTimestampError,
    NotRunError,
    TimestampRangeError,
    TooFarAheadError,
)
from amadou.event_time import FIRST_TIME, LAST_TIME, from_micros, to_micros
from amadou.plugins import Counts, Source, TableSource
from amadou_runtime.core.combining import combiner_for
from amadou_runtime.core.dead_letters import DeadLetters
from amadou_runtime.core.events import pack_events
from amadou_runtime.core.feeding import FedRecord, changed_events, fed_key_event, fed_value, without_turn
from amadou_runtime.core.references import entry_event
from amadou_runtime.core.samples import Samples
from amadou_runtime.core.stopwatch import Stopwatch
from amadou_runtime.core.tally import BatchTally
from amadou_runtime.core.vectorized import Fallbacks, batch_keying
from amadou_runtime.formats.failure import callback_error


class KeyedRecords(NamedTuple):
    """Records after keying."""

    events: dict[int, bytes]
    """Packed events by key group; see `pack_events`."""
    newest: int | None
    """The newest event time in microseconds; `None` if there are no events."""
    oldest: int | None
    """The oldest event time in microseconds if the source depends on others, otherwise `None`."""
    letters: list[Any]
    """Encoded dead letters for records that could not be keyed."""
    fallbacks: dict[str, int] = {}
    """Number of failures of the vectorised path, by name; the only name is ``key_event``."""
    combined: dict[int, bytes] = {}
    """Events in combined form by key group; see `combining`."""
    failed: Sequence[Any] = ()
    """The records that could not be keyed."""


@attrs.define
class _Failed:
    """The records that cannot be keyed or packed, and their dead letters, with the position among all records.

    :param others: the other records, with the events that `key_event` returned, as a list, or with `Filtered`
    """

    found: list[tuple[int, Any, Any]] = attrs.field(factory=list)
    others: list[tuple[Any, Any]] = attrs.field(factory=list)

    def add(self, record: Any, letter: Any) -> None:
        self.found.append((len(self.found) + len(self.others), record, letter))

    def placed(self) -> Iterator[tuple[int, tuple[Any, Any]]]:
        """Yield the other records with their positions."""
        failed = {at for at, _, _ in self.found}
        places = (at for at in range(len(self.found) + len(self.others)) if at not in failed)
        return zip(list(places), self.others, strict=True)

    def of(self, keyed: KeyedRecords) -> KeyedRecords:
        """Return keyed records together with those that failed."""
        self.found.sort(key=itemgetter(0))
        return keyed._replace(
            letters=[letter for _, _, letter in self.found], failed=[record for _, record, _ in self.found]
        )


_CONSTANT: Final = frozenset({bytes, str})
"""Types of records that `key_event` cannot change."""
POSITIONS: Final = 1 << 32
"""Number of positions; see `key_position`."""


def key_position(key: Any) -> int:
    """Return the position of a key among all keys: a hash of the key, which is the same in every process, on every
    machine and in every release.

    The lowest bits of the checksum become the highest of the position. They spread similar keys, such as numbers, more
    evenly.
    """
    checksum = zlib.crc32(key.encode() if type(key) is str else pack(key))
    return (checksum << 24 | checksum >> 8) & (POSITIONS - 1)


def key_group(key: Any, groups: int) -> int:
    """Return the key group of a key. Each group contains the keys of an interval of positions, so that other numbers of
    groups divide or join intervals.
    """
    return key_position(key) * groups >> 32


def group_interval(number: int, groups: int) -> tuple[int, int]:
    """Return the first and the last position of a key group."""
    return -(-number * POSITIONS // groups), -(-(number + 1) * POSITIONS // groups) - 1


def key_event_of(job: Job, source: str) -> Callable[[Any], Any]:
    """Return the function that turns a source's records into events."""
    given = job.sources[source]
    key_event, decode = given.key_event or job.handler.key_event, given.decode
    if source in job.reference_sources:
        key_event = entry_event(key_event, job.reference_sources[source])
    if isinstance(given, FedSource):
        return fed_key_event(given, key_event)
    return key_event if decode is None else lambda record: key_event(decode(record))


def keyed_sources(job: Job) -> dict[str, Source]:
    """Return a job's sources in the form in which workers receive them."""
    return {name: _keyed(source) for name, source in job.sources.items()}


def _keyed(source: Source) -> Source:
    if isinstance(source, FedSource):
        return source
    return KeyedTable(source) if isinstance(source, TableSource) else KeyedSource(source)


class KeyedSource(Source):
    """A source reduced to the attributes that keying needs. Workers receive this object, not the original source."""

    def __init__(self, source: Source) -> None:
        self.key_event = source.key_event
        self.to_records = source.to_records
        self.decode = source.decode
        self.partition_of = source.partition_of


class KeyedTable(KeyedSource, TableSource):
    """A `TableSource` reduced to the attributes that keying needs."""


def _at(now: int, key_event: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a `key_event` function for the rows of a table, which have the time of the clock (`semantics.md` 37 e)."""
    timestamp = from_micros(now)
    return lambda row: changed_events(key_event(row), lambda event: KeyedEvent(event.key, timestamp, event.value))


class Keying:
    """Turns the records from one source into packed events.

    :param job: the job
    :param source: the source's name
    :param key_event: function that turns a record into events; see `key_event_of`
    :param groups: number of key groups
    """

    def __init__(self, job: Job, source: str, key_event: Callable[[Any], Any], groups: int) -> None:
        self._of = job.handler
        self._handler = type(job.handler).__name__
        self._source = source
        self._fed = job.fed_sources.get(source)
        self._key_event = key_event
        self._is_table = source in job.table_sources
        self._groups = groups
        assert job.max_ahead is None or isinstance(job.max_ahead, timedelta)
        self._max_ahead = job.max_ahead
        self._key_batch = batch_keying(job, key_event)
        self._fallbacks = Fallbacks(job.name)
        self._combiner = combiner_for(job, source)
        self._combines: int | Literal[False] | None = False
        self._is_dependent = any(each.dependent == source for each in job.dependencies)
        self._letters = DeadLetters(job) if job.on_error == "dead_letter" else None
        self._samples = Samples() if self._letters is None else self._letters.samples
        self.stopwatch = Stopwatch()
        """Measures the time that `key_event` takes."""

    def pack(self, records: list[Any], now: int) -> KeyedRecords:
        """Key and pack records. If the job writes dead letters, a record that cannot be keyed becomes a dead letter.

        :param now: the clock time in microseconds
        :raises CallbackError: `key_event` failed or returned an unusable value, and the job does not write dead letters
        """
        if self._key_batch is None:
            return self.per_record(records, now)
        packed, fallbacks = self._fallbacks.result(
            "key_event", lambda: self.vectorized(records, now), lambda: self.per_record(records, now)
        )
        return packed._replace(fallbacks=fallbacks) if fallbacks else packed

    def pack_combined(self, records: list[Any], now: int, watermark: int | None) -> KeyedRecords:
        """Key and pack records, and combine events if this makes them smaller; see `pack`.

        :param watermark: the batch's watermark in microseconds
        """
        self._combines = watermark
        try:
            return self.pack(records, now)
        finally:
            self._combines = False

    def vectorized(self, records: list[Any], now: int) -> KeyedRecords | None:
        """Key and pack all records in one call.

        :returns: the keyed records; `None` if there are no records, or if the handler cannot key them in one call
        :raises Exception: a record cannot be keyed; call `per_record` for the error that names this record
        """
        if self._key_batch is None or not records:
            return None
        with callbacks_of(self._of):
            self.stopwatch.turn("key_event")
            are_constant = set(map(type, records)) <= _CONSTANT
            columns = self._key_batch(records if are_constant else [*map(copied_if_possible, records)])
            self.stopwatch.turn()
            if columns is None:
                return None
            keys, timestamps, values = columns
            return self._pack_all(keys, timestamps, values, now)

    def per_record(self, records: list[Any], now: int) -> KeyedRecords:
        """Key and pack records one by one.

        :raises CallbackError: `key_event` failed or returned an unusable value, and the job does not write dead letters
        """
        key_event = _at(now, self._key_event) if self._is_table else self._key_event
        with callbacks_of(self._of):
            if self._letters is None:
                return self._packed(*self._keyed(records, key_event, now))
            failed = _Failed()
            by_group, newest = self._keyed(records, key_event, now, failed)
            try:
                keyed = self._packed(by_group, newest)
            except CallbackError:  # only packing detects a value that msgpack cannot encode
                keyed = self._packed(*self._keyed(self._which_pack(failed), lambda events: events, now))
            return failed.of(keyed) if failed.found else keyed

    def tally(self, keyed: KeyedRecords, records: int, partition: str, seconds: float) -> BatchTally:
        """Return what was done since the last call of this method.

        :param keyed: the result of `pack`
        :param records: number of the records
        :param partition: the partition of the records
        :param seconds: the seconds that keying took
        """
        return BatchTally(
            {DEAD_LETTERS: keyed.letters} if keyed.letters else {},
            Counts(records={self._source: records} if records else {}, vectorized_fallbacks=keyed.fallbacks),
            {"keying": seconds},
            self.stopwatch.take(),
            {"key_event": records} if records else {},
            {} if keyed.newest is None else {self._source: {partition: keyed.newest}},
            {} if keyed.oldest is None else {self._source: keyed.oldest},
            {} if self._letters is None else self._letters.take_failures(),
            self._samples.take(),
        )

    def _which_pack(self, failed: "_Failed") -> Iterator[Any]:
        """Yield what `key_event` returned for the records whose events can be packed. The others have failed."""
        for at, (record, returned) in failed.placed():
            try:
                self._pack_groups({0: [part for event in returned for part in event]} if type(returned) is list else {})
            except CallbackError as error:
                failed.found.append((at, record, self._letter(record, error)))
                continue
            yield returned

    def _letter(self, record: Any, error: CallbackError) -> Any:
        assert self._letters is not None
        if self._fed is None or not isinstance(record, FedRecord):
            return self._letters.of_record(self._source, record, error)
        value = fed_value(self._fed, record)
        return self._letters.of_record(self._source, value, error, timestamp=record.timestamp, encoded=record.encoded)

    def _keyed(
        self, records: Iterable[Any], key_event: Callable[[Any], Any], now: int, failed: "_Failed | None" = None
    ) -> tuple[dict[int, list[Any]], int | None]:
        """Key records. Return the keys, times and values of their events by key group, and the newest time.

        :param failed: takes the records that fail; `None` to raise the first failure
        """
        groups = self._groups
        limit = self._limit(now)
        newest = FIRST_TIME
        by_group: defaultdict[int, list[Any]] = defaultdict(list)
        by_key: dict[Any, list[Any]] = {}
        spares = failed is not None  # a dead letter has the record as it was read
        self.stopwatch.turn("key_event")
        for record in records:
            events: Any = None
            event: Any = None
            returned: Any = None
            try:
                if spares and type(record) not in _CONSTANT:
                    events = returned = key_event(copied_if_possible(record))
                else:
                    events = returned = key_event(record)
                if type(events) is KeyedEvent:
                    events = [events]
                elif events is None:
                    continue
                elif type(events) is Filtered:
                    newest = max(newest, _filtered_time(events, limit))
                    if failed is not None:
                        failed.others.append((record, events))
                    continue
                elif failed is not None:
                    events = list(events)
                before = newest
                for event in events:
                    key, timestamp, _ = event
                    if type(key) is not str:
                        check_key(key)
                    packed = by_key.get(key)
                    if packed is None:
                        packed = by_key[key] = by_group[key_group(key, groups)]
                    if timestamp > newest:
                        if timestamp > limit:
                            raise _too_far_ahead(timestamp, limit)
                        # in UTC: within one time zone, Python compares local times, which repeat an hour in autumn
                        newest = timestamp if timestamp.tzinfo is timezone.utc else timestamp.astimezone(timezone.utc)
                    elif timestamp < FIRST_TIME:
                        raise TimestampRangeError(timestamp)
                    packed += event
            except Exception as error:
                why = self._failed(record, event, error, returned)
                if failed is None:
                    raise why
                failed.add(record, self._letter(record, why))
                if type(events) is list:  # process all of a record's events or none
                    newest = before
                    done = next(at for at, other in enumerate(events) if other is event)
                    for other in reversed(events[:done]):
                        del by_key[other.key][-3:]
            else:
                if failed is not None:
                    failed.others.append((record, events))
        self.stopwatch.turn()
        return by_group, None if newest is FIRST_TIME else to_micros(newest)

    def _pack_all(self, keys: list[Any], timestamps: list[datetime], values: list[Any], now: int) -> KeyedRecords:
        """Pack events that were keyed in one call.

        :raises Exception: a key, timestamp or value is unusable
        """
        if not keys:
            return KeyedRecords({}, None, None, [])
        groups = self._groups
        if set(map(type, keys)) != {str}:
            for key in keys:
                check_key(key)
        by_key = {key: key_group(key, groups) for key in set(keys)}
        zones = {timestamp.tzinfo for timestamp in timestamps}
        if None in zones:
            raise NaiveTimestampError(min(timestamps))
        if zones != {timezone.utc}:
            timestamps = [timestamp.astimezone(timezone.utc) for timestamp in timestamps]
        newest = max(timestamps)
        if newest > self._limit(now):
            raise _too_far_ahead(newest, self._limit(now))
        by_group: defaultdict[int, list[Any]] = defaultdict(list)
        for event in zip(keys, timestamps, values, strict=True):
            by_group[by_key[event[0]]] += event
        return self._packed(by_group, to_micros(newest))

    def _packed(self, by_group: Mapping[int, list[Any]], newest: int | None) -> KeyedRecords:
        by_group, combined = self._combined(by_group)
        packed, oldest = self._pack_groups(by_group), None
        if self._is_dependent:
            oldest = min((to_micros(at) for events in by_group.values() for at in events[1::3]), default=None)
        return KeyedRecords(packed, newest, oldest, [], combined=combined)

    def _combined(self, by_group: Mapping[int, list[Any]]) -> tuple[Mapping[int, list[Any]], dict[int, bytes]]:
        """Return the events that have to be sent, and the others in combined form, both by key group."""
        if self._combiner is None or self._combines is False:
            return by_group, {}
        divided = {
            group: self._combiner.combine(events, self._combines) for group, events in by_group.items() if events
        }
        rest = {group: events for group, (events, _) in divided.items()}
        return rest, {group: packed for group, (_, packed) in divided.items() if packed is not None}

    def _limit(self, now: int) -> datetime:
        """Return the latest event time that `max_ahead` allows."""
        try:
            return LAST_TIME if self._max_ahead is None else from_micros(now) + self._max_ahead
        except OverflowError:
            return LAST_TIME

    def _pack_groups(self, by_group: Mapping[int, list[Any]]) -> dict[int, bytes]:
        packed = {}
        for group, events in by_group.items():
            try:
                if events:
                    packed[group] = pack_events(events)
            except AmadouError:
                for event in zip(events[0::3], events[1::3], events[2::3], strict=True):
                    try:
                        pack(event)
                    except AmadouError as error:
                        raise self._failed(KeyedEvent(*event), KeyedEvent(*event), error)
                raise
        return packed

    def _failed(self, record: Any, event: Any, error: Exception, returned: Any = None) -> CallbackError:
        """
        :param record: the record; or the event, if msgpack cannot encode it
        :param event: the event that `key_event` returned last
        :param returned: everything that `key_event` returned
        """
        if self._fed is not None:
            event = without_turn(event) if type(event) is KeyedEvent else event
            record = event if type(record) is KeyedEvent else fed_value(self._fed, record)
        if error.__traceback__ is not None and error.__traceback__.tb_next is None:
            error = self._explained(event, error, returned)
        return callback_error(
            error,
            handler=self._handler,
            callback="key_event",
            source=self._source,
            record=record,
            key=event.key if isinstance(event, KeyedEvent) else None,
        )

    def _explained(self, event: Any, error: Exception, returned: Any) -> Exception:
        """Return an error that explains why the return value of `key_event` is unusable, or the original error."""
        if not isinstance(returned, GeneratorType):  # `key_event` is the only callback that may `yield`
            try:
                check_ran("key_event", returned)
            except NotRunError as not_run:
                return not_run
        plain = next((each for each in (returned, event) if _is_plain_event(each)), None)
        if plain is not None or not isinstance(event, KeyedEvent):
            if plain is not returned and isinstance(event, tuple) and len(event) == 3:
                return error
            what = f"a value of type {type(returned).__name__}" if event is None else f"an iterable with {event!r}"
            why = (
                f"{what} ({error})"
                if plain is None
                else f"the plain tuple {plain!r}: write KeyedEvent(key, timestamp, value)"
            )
            return EventTypeError(
                f"key_event must return a KeyedEvent, an iterable of them, Filtered(time) or None, not {why}"
            )
        return _time_error(event) or error


def _time_error(given: KeyedEvent[Any] | Filtered) -> Exception | None:
    """Return an error if the time of an event or of a filtered record is not an aware datetime."""
    timestamp: Any = given.timestamp
    if not isinstance(timestamp, datetime):
        return EventTypeError(f"the timestamp of {given!r} is not a datetime: use an aware datetime")
    return NaiveTimestampError(timestamp) if timestamp.utcoffset() is None else None


def _filtered_time(filtered: Filtered, limit: datetime) -> datetime:
    """Return the time of a record that is no event, in UTC.

    :raises Exception: the time is unusable
    """
    error = _time_error(filtered)
    if error is not None:
        raise error
    timestamp = filtered.timestamp
    if timestamp > limit:
        raise _too_far_ahead(timestamp, limit)
    if timestamp < FIRST_TIME:
        raise TimestampRangeError(timestamp)
    return timestamp.astimezone(timezone.utc)


def _is_plain_event(value: Any) -> bool:
    return type(value) is tuple and len(value) in (2, 3) and isinstance(value[1], datetime)


def _too_far_ahead(timestamp: datetime, limit: datetime) -> EventError:
    return TimestampRangeError(timestamp) if limit == LAST_TIME else TooFarAheadError(timestamp, limit)
