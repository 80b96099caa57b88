"""Holds events that wait for other sources, and releases them (`DependsOn`)."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from amadou.event_time import to_micros
from amadou_runtime.core.dependencies import HOLD_ALL
from amadou_runtime.core.events import Chunk, Run, in_order, pack_events
from amadou_runtime.core.key_group import HeldEvents, KeyGroup
from amadou_runtime.core.observer import HELD, Observer


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
    waiting: dict[str, list[bytes]] = {source: [] for source in group.held}
    for chunk in sorted(chunks):
        if chunk.source in limits or chunk.source in waiting:
            waiting.setdefault(chunk.source, []).append(chunk.events)
        else:
            processed.append(chunk)
    for source, packed in waiting.items():
        held = group.held.pop(source, HeldEvents(0, 0, []))
        limit, known = limits.get(source), 0
        if limit != HOLD_ALL:
            known, packed, held = held.number, held.packed + packed, HeldEvents(0, 0, [])
        if limit is not None and packed:
            (run,) = in_order(_chunks(source, packed))
            process, wait, fresh = _split(run, limit, known)
            packed = [pack_events(process)] if process else []
            if wait:
                oldest = min([*([held.oldest] if held.number else []), *map(to_micros, wait[1::3])])
                held = HeldEvents(held.number + len(wait) // 3, oldest, [*held.packed, pack_events(wait)])
            if observer is not None:
                for event in fresh:
                    observer.not_delivered(HELD, source, event, watermark)
        if held.number:
            group.held[source] = held
        processed += _chunks(source, packed)
    return in_order(processed)


def _chunks(source: str, packed: list[bytes]) -> list[Chunk]:
    return [Chunk(source, position.to_bytes(8), events) for position, events in enumerate(packed)]


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
