"""Holds events that wait for other sources, and releases them (`DependsOn`)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Final

from amadou.engine import unpack
from amadou.event_time import to_micros
from amadou_runtime.core.events import Chunk, Run, in_order, pack_events
from amadou_runtime.core.key_group import HeldChunk, HeldEvents, KeyGroup
from amadou_runtime.core.observer import HELD, Observer

_SMALL: Final = 100
"""Number of events below which a chunk takes in the next held events. Otherwise, there would be a chunk per batch."""


def release_or_hold(
    group: KeyGroup,
    chunks: Sequence[Chunk],
    limits: Mapping[str, int],
    watermark: datetime | None,
    observer: Observer | None,
) -> list[Run]:
    """Return the events to process, including released events, in the order of `semantics.md` 7. The key group stores
    the held events.

    :param chunks: the batch's events
    :param limits: see `Decision.limits`
    :param watermark: the batch's watermark
    :param observer: the observer to notify of newly held events
    """
    if not limits and not group.held:
        return in_order(chunks)
    processed: list[Chunk] = []
    arrived: dict[str, list[bytes]] = {source: [] for source in group.held}
    for chunk in sorted(chunks):
        if chunk.source in limits or chunk.source in arrived:
            arrived.setdefault(chunk.source, []).append(chunk.events)
        else:
            processed.append(chunk)
    for source, packed in arrived.items():
        held = group.held.pop(source, HeldEvents([])).chunks
        limit = limits.get(source)
        if limit is None:
            processed += _chunks(source, [*map(group.packed_events, held), *packed])
            continue
        released, waiting, fresh = _divided(group, source, held, packed, limit)
        processed += _chunks(source, [pack_events(released)] if released else [])
        if waiting:
            group.held[source] = HeldEvents(waiting)
        if observer is not None:
            for event in fresh:
                observer.not_delivered(HELD, source, event, watermark)
    return in_order(processed)


def _divided(
    group: KeyGroup, source: str, held: list[HeldChunk], arrived: list[bytes], limit: int
) -> tuple[list[Any], list[HeldChunk], list[tuple[Any, ...]]]:
    """Return the events to process, the events to hold, and the newly held events; see `_split`. Chunks in which all
    events wait, and which no chunk with an event to process follows, are not loaded.
    """
    new = in_order(_chunks(source, arrived))
    oldest = [*(chunk.oldest for chunk in held), *(min(run.micros) for run in new)]
    loaded = max((at + 1 for at, micros in enumerate(oldest) if micros <= limit), default=0)
    includes_new = loaded > len(held)
    packed = [*map(group.packed_events, held[:loaded]), *(arrived if includes_new else ())]
    released: list[Any] = []
    waiting: list[HeldChunk] = []
    fresh: list[tuple[Any, ...]] = []
    if packed:
        (run,) = in_order(_chunks(source, packed))
        released, wait, fresh = _split(run, limit, sum(chunk.number for chunk in held[:loaded]))
        waiting += _chunk_of(wait)
    waiting += held[loaded:]
    if new and not includes_new:
        fresh = list(zip(new[0].keys, new[0].timestamps, new[0].values, strict=True))
        events = [part for event in fresh for part in event]
        if waiting and waiting[-1].number < _SMALL:
            last = map(unpack, unpack(group.packed_events(waiting.pop())))
            events = [*chain(*zip(*last, strict=True)), *events]
        waiting += _chunk_of(events)
    return released, waiting, fresh


def _chunk_of(events: list[Any]) -> list[HeldChunk]:
    """Return events as a chunk, in a list; an empty list if there are no events.

    :param events: see `pack_events`
    """
    if not events:
        return []
    return [HeldChunk(len(events) // 3, min(map(to_micros, events[1::3])), pack_events(events))]


def _chunks(source: str, packed: list[bytes]) -> list[Chunk]:
    return [Chunk(source, position.to_bytes(8, "big"), events) for position, events in enumerate(packed)]


def _split(run: Run, limit: int, known: int) -> tuple[list[Any], list[Any], list[tuple[Any, ...]]]:
    """Return the events to process, the events to hold, and the newly held events. The first two are in the form that
    `pack_events` expects. Events newer than the limit are held, and so are all following events of the same key.

    :param known: number of previously held events, which are the first events of the run
    """
    process: list[Any] = []
    wait: list[Any] = []
    fresh = []
    waiting = set()
    events = zip(run.keys, run.timestamps, run.values, strict=True)
    for position, (event, micros) in enumerate(zip(events, run.micros, strict=True)):
        if micros <= limit and event[0] not in waiting:
            process += event
            continue
        waiting.add(event[0])
        wait += event
        if position >= known:
            fresh.append(event)
    return process, wait, fresh
