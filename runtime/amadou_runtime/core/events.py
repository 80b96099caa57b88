"""Packs and sorts the events of key groups in bulk, as columns of keys, timestamps and values."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

from amadou import Key
from amadou.engine import pack, unpack, unpack_times
from amadou.event_time import to_micros
from amadou_runtime.core.feeding import turn_order


class Chunk(NamedTuple):
    """Packed events from one source for one key group."""

    source: str
    order: bytes
    """Sort key that keeps the chunks from the same source in order."""
    events: bytes


FED: Final = b"fed"
"""The order of chunks from a `FromPort` source: their events have to be sorted one by one; see `feeding.Turn`."""


class Run:
    """Consecutive events from one source, in order."""

    def __init__(self, source: str, keys: list[Key], values: list[Any], times: list[bytes]) -> None:
        self.source = source
        self.keys = keys
        self.values = values
        self.times = times
        """The packed timestamps."""

    @classmethod
    def of(cls, source: str, events: Iterable[tuple[Key, datetime, Any]]) -> "Run":
        """Return a `Run` of the given events."""
        keys, timestamps, values = map(list, zip(*events, strict=True))
        run = cls(source, keys, values, [])
        run.timestamps = timestamps
        return run

    def in_turns(self) -> "Run":
        """Return the events of a `FromPort` source in order, with their values alone."""
        order, timestamps = turn_order(self.values), self.timestamps
        run = Run(self.source, [self.keys[at] for at in order], [self.values[at][-1] for at in order], [])
        run.timestamps = [timestamps[at] for at in order]
        return run

    @cached_property
    def timestamps(self) -> list[datetime]:
        return [timestamp for packed in self.times for timestamp in unpack(packed)]

    @cached_property
    def micros(self) -> list[int]:
        """The timestamps in microseconds."""
        if self.times:
            return [micros for packed in self.times for micros in unpack_times(packed)]
        return list(map(to_micros, self.timestamps))


def pack_events(events: list[Any]) -> bytes:
    """Pack events.

    :param events: a flat list with the key, timestamp and value of each event
    :raises EncodeError: msgpack cannot encode one of the events
    """
    return pack([pack(events[0::3]), pack(events[1::3]), pack(events[2::3])])


def without_turns(events: bytes) -> bytes:
    """Return packed events from a `FromPort` source with their values alone; see `feeding.Turn`."""
    (run,) = in_order([Chunk("", FED, events)])
    return pack_events([part for event in zip(run.keys, run.timestamps, run.values, strict=True) for part in event])


def in_order(chunks: Sequence[Chunk]) -> list[Run]:
    """Return a batch's events in the order of `semantics.md` 7, as runs of consecutive events from the same source."""
    by_source: dict[str, Run] = {}
    fed = set[str]()
    for chunk in sorted(chunks):
        keys, times, values = unpack(chunk.events)
        if chunk.order == FED:
            fed.add(chunk.source)
        run = by_source.get(chunk.source)
        if run is None:
            by_source[chunk.source] = Run(chunk.source, unpack(keys), unpack(values), [times])
            continue
        run.keys += unpack(keys)
        run.values += unpack(values)
        run.times.append(times)
    for source in fed:
        run = by_source[source]
        by_source[source] = run.in_turns()
    return list(by_source.values()) if len(by_source) < 2 else _merged(by_source)


def _merged(by_source: dict[str, Run]) -> list[Run]:
    # The merge sorts an event by the newest timestamp among this event and the earlier events with the same key and
    # source, so these events stay in order. The order of a key's events does not depend on other keys in the group.
    turns: list[tuple[Any, ...]] = []
    for source, run in by_source.items():
        newest: dict[Key, datetime] = {}
        for position, (key, timestamp, value) in enumerate(zip(run.keys, run.timestamps, run.values, strict=True)):
            turn = newest[key] = max(newest.get(key, timestamp), timestamp)
            turns.append((turn, source, position, key, timestamp, value))
    turns.sort(key=itemgetter(0, 1, 2))
    return [Run.of(source, (event[3:] for event in events)) for source, events in groupby(turns, key=itemgetter(1))]
