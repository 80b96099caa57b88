"""The values of ports that feed other stages, on their way to these stages (`semantics.md` 36)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from amadou import Job, Key, KeyedEvent
from amadou.components import in_key_order
from amadou.engine import FedSource, fed_output
from amadou.event_time import to_micros

Turn: TypeAlias = tuple[int, Key | None, int]
"""The place of a value among those that a port collects in a batch: the newest time, in microseconds, of the value and
those that its key collected before; the key of the callback, `None` if it has no key; and the number of the value among
those of its key. So values are sorted by time, then by key, and the values of one key stay in their order.
"""


class FedRecord(NamedTuple):
    """A record of a `FromPort` source.

    :param timestamp: the time of the callback that collected the value; `None` if a test does not know it
    :param encoded: the value, encoded by `SinkSpec.feed_codec`
    """

    turn: Turn
    timestamp: datetime | None
    encoded: Any


def fed_records(collected: Iterable[Sequence[Any]]) -> list[FedRecord]:
    """Return the records of a `FromPort` source in order.

    :param collected: values that a `FeedingPort` collected, in the order in which each key collected them
    """
    newest: dict[Key | None, int] = {}
    records = []
    for number, (key, timestamp, encoded) in enumerate(collected):
        micros = to_micros(timestamp)
        micros = newest[key] = max(micros, newest.get(key, micros))
        records.append(FedRecord((micros, key, number), timestamp, encoded))
    return in_key_order(records, itemgetter(0))


def replayed_record(timestamp: datetime | None, encoded: Any) -> FedRecord:
    """Return a record of a dead letter."""
    return FedRecord((0, None, 0), timestamp, encoded)


def fed_by(job: Job, outputs: Mapping[str, Mapping[str, list[Any]]]) -> dict[str, list[FedRecord]]:
    """Return the records of a job's `FromPort` sources, by source.

    :param outputs: the outputs of the stages in this batch, by stage
    """
    return {
        name: fed_records(outputs[source.stage].get(fed_output(source.port), ()))
        for name, source in job.fed_sources.items()
    }


def fed_key_event(source: FedSource, key_event: Callable[[Any], Any]) -> Callable[[FedRecord], Any]:
    """Return the function that turns the records of a `FromPort` source into events. The values of these events also
    contain the record's turn; see `turn_order`.

    :param key_event: function that turns the port's values into events
    """
    decode = source.spec.feed_codec().decode

    def events_of(record: FedRecord) -> Any:
        return changed_events(key_event(decode(record.encoded)), lambda event: _placed(event, record))

    return events_of


def changed_events(returned: Any, change: Callable[[KeyedEvent[Any]], KeyedEvent[Any]]) -> Any:
    """Return what a `key_event` function returned, with its events changed.

    :param returned: an event, several events, or `None`. Anything else stays as it is: the error of the caller
        explains why it is unusable
    """
    if type(returned) is KeyedEvent:
        return change(returned)
    if returned is None or isinstance(returned, tuple) or not isinstance(returned, Iterable):
        return returned
    return [change(event) if type(event) is KeyedEvent else event for event in returned]


def fed_value(source: FedSource, record: Any) -> Any:
    """Return the value of a record of a `FromPort` source; in encoded form if the value cannot be decoded."""
    if not isinstance(record, FedRecord):  # a scripted event
        return record
    try:
        return source.spec.feed_codec().decode(record.encoded)
    except Exception:  # the user's codec can fail; this failure may be the very error to report
        return record.encoded


def _placed(event: KeyedEvent[Any], record: FedRecord) -> KeyedEvent[Any]:
    timestamp: Any = event.timestamp or record.timestamp
    return KeyedEvent(event.key, timestamp, [*record.turn, event.value])


def without_turn(event: KeyedEvent[Any]) -> KeyedEvent[Any]:
    """Return an event that `fed_key_event` returned, with its value alone."""
    return event._replace(value=event.value[-1])


def turn_order(values: Iterable[Sequence[Any]]) -> list[int]:
    """Return the order of events of a `FromPort` source, as their positions.

    :param values: the values of the events, which `fed_key_event` returned
    """
    turns = [(micros, key, number) for micros, key, number, _ in values]
    return in_key_order(range(len(turns)), turns.__getitem__)
