"""Prints stored state: `amadou state keys`, `show` and `history`."""

import heapq
import json
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from amadou import Job, Key
from amadou.engine import shown_bytes
from amadou_runtime.command.printable import printable_lines
from amadou_runtime.savepoint.stored_keys import (
    KeySize,
    KeyState,
    StoredState,
    begins_with,
    biggest_keys,
    find_key,
    key_sizes,
    key_state,
    keys_named,
)
from amadou_runtime.savepoint.tagged import time_text, to_tagged


def _print(text: str) -> None:
    print(printable_lines(text))


def print_keys(
    state: StoredState,
    prefix: str | None,
    limit: int | None,
    *,
    count: bool,
    biggest: int | None,
    oldest: int | None,
    as_json: bool,
) -> None:
    """Print the keys with state or timers; see the options of `amadou state keys`."""
    found: Iterator[KeySize] = (each for each in key_sizes(state.blocks()) if begins_with(each.key, prefix))
    if count:
        print(sum(1 for _ in found))
        return
    if biggest is not None:
        found = iter(biggest_keys(found, biggest))
    elif oldest is not None:
        with_time = (each for each in found if each.next is not None)
        found = iter(heapq.nsmallest(oldest, with_time, key=lambda each: each.next or 0))
    found = islice(found, limit)
    if as_json:
        for each in found:
            print(json.dumps(_size_to_json(each)))
    else:
        _print_sizes(found)


def _size_to_json(each: KeySize) -> dict[str, Any]:
    next_ = None if each.next is None else time_text(each.next)
    return {"key": to_tagged(each.key), "bytes": each.bytes, "timers": each.timers, "next": next_}


def _print_sizes(found: Iterator[KeySize]) -> None:
    """Print lines as they are found: there may be millions."""
    _print(f"{'size':>10} {'timers':>8}  {'next due':<32} key")
    for each in found:
        next_ = "" if each.next is None else time_text(each.next)
        _print(f"{shown_bytes(each.bytes):>10} {each.timers:>8,}  {next_:<32} {each.key!r}")


def print_key(state: StoredState, text: str, job: Job | None, *, as_json: bool) -> bool:
    """Print the state of a key. Return `False` if the key has no state.

    :param text: the key, as on the command line
    """
    found = find_key(state, text, job)
    if found is None:
        return False
    if as_json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        _print_key(found, state)
    return True


def _print_key(found: KeyState, state: StoredState) -> None:
    current = state.clock["watermark"]["current"]
    watermark = "none" if current is None else time_text(current)
    batch = "no batch" if state.batch is None else f"batch {state.batch}"
    _print(f"{found.key!r} in job {state.job}, {batch}, watermark {watermark}")
    width = max(map(len, found.state), default=0)
    for name, each in found.state.items():
        notes = [each.type] if each.type else []
        notes += [f"timer {each.next_timer.isoformat()}"] if each.next_timer else []
        notes += [f"expires {each.expires.isoformat()}"] if each.expires else []
        _print(f"  {name:<{width}}  {each.text}" + (f"  ({', '.join(notes)})" if notes else ""))
    for time, tag in found.timers:
        _print(f"  {_shown_timer(time, tag)}")
    for source, events in found.held.items():
        for time, value in events:
            _print(f"  held from {source}: {time.isoformat()} {value}")
    for name in found.hidden:
        _print(f"  {name}: stored for whole key groups. To see it, name the job: --job TARGET")


def print_history(state: Any, text: str, job: Job | None, *, as_json: bool) -> bool:
    """Print how the state of a key changed. Return `False` if the key has no state.

    :param state: a `CheckpointState`
    :param text: the key, as on the command line
    """
    for key in keys_named(text):
        versions = [(batch, key_state(key, blocks, state.structures, job)) for batch, blocks in state.history(key)]
        if any(not version.is_empty or version.hidden for _, version in versions):
            _print_history(key, versions, as_json=as_json)
            return True
    return False


def _print_history(key: Key, versions: list[tuple[int, KeyState]], *, as_json: bool) -> None:
    before: KeyState | None = None
    if not as_json:
        _print(f"{key!r}")
    for batch, version in versions:
        changes = _changes(before, version)
        if changes and as_json:
            print(json.dumps({"batch": batch, **version.to_json()}))
        elif changes:
            _print(f"batch {batch}{' (the oldest that is retained)' if before is None else ''}")
            _print("\n".join(f"  {change}" for change in changes))
        before = version


def _changes(before: KeyState | None, after: KeyState) -> list[str]:
    """Return what has changed, as lines with ``+``, ``-`` and ``~``."""
    before = before or KeyState(after.key, {}, [], {}, [])
    old, new = ({name: each.text for name, each in of.state.items()} for of in (before, after))
    lines = [f"+ {name} {text}" for name, text in new.items() if name not in old]
    lines += [f"- {name} {text}" for name, text in old.items() if name not in new]
    lines += [f"~ {name} {old[name]} → {text}" for name, text in new.items() if old.get(name, text) != text]
    timers = set(before.timers), set(after.timers)
    for sign, changed in (("+", timers[1] - timers[0]), ("-", timers[0] - timers[1])):
        lines += [f"{sign} {_shown_timer(*timer)}" for timer in sorted(changed)]
    for source in {**before.held, **after.held}:
        counts = [len(of.held.get(source, [])) for of in (before, after)]
        if counts[0] != counts[1]:
            lines.append(f"~ held from {source}: {counts[0]} → {counts[1]} events")
    return lines


def _shown_timer(time: datetime, tag: str) -> str:
    return f"timer {time.isoformat()}{f' {tag!r}' if tag else ''}"
