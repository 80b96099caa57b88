"""The keys of a job's stored state, in readable form."""

import ast
import heapq
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Protocol

import attrs

from amadou import Job, Key
from amadou.components import Component
from amadou.engine import check_key, pack, unpack, unpack_stored
from amadou.errors import AmadouError
from amadou.event_time import from_micros
from amadou.text import shortened
from amadou_runtime.jobs.state_schema import Known, shown_structure
from amadou_runtime.savepoint.block import Block, by_subject, structures_of
from amadou_runtime.savepoint.readable import StateFormat
from amadou_runtime.savepoint.tagged import to_tagged

_TEXT_LENGTH: Final = 20_000
_MOST_SHOWN: Final = 1_000


class StoredState(Protocol):
    """The state in a savepoint or in a checkpoint."""

    @property
    def job(self) -> str:
        """The job's name."""

    @property
    def batch(self) -> int | None:
        """Number of the last batch; `None` if there is none."""

    @property
    def structures(self) -> Known:
        """All structures that each declared spec has had."""

    @property
    def clock(self) -> Mapping[str, Any]:
        """The state of the job's clock; see `Manifest.clock`."""

    def blocks(self) -> Iterator[Block]:
        """Yield the state."""

    def find(self, key: Key) -> list[Block]:
        """Return the blocks with a key's state; see `Savepoint.find`."""


@attrs.frozen
class KeySize:
    """A key and figures of its state.

    :param bytes: size of the state
    :param timers: number of pending timers, with those of components
    :param next: the earliest time at which something is due for the key, in microseconds; `None` if there is none
    """

    key: Key
    bytes: int
    timers: int
    next: int | None


def key_sizes(blocks: Iterable[Block]) -> Iterator[KeySize]:
    """Yield the keys of blocks, with figures."""
    for block in blocks:
        sizes: dict[Key, int] = {}
        timers: dict[Key, int] = {}
        next_times: dict[Key, int] = {}

        def due(key: Key, micros: int, next_times: dict[Key, int] = next_times) -> None:
            next_times[key] = min(micros, next_times.get(key, micros))

        for table in block.tables.values():
            for key, packed in table.packed.items():
                sizes[key] = sizes.get(key, 0) + len(packed)
            for key, micros in table.expires.items():
                due(key, micros)
            for key, micros in table.next_timers.items():
                timers[key] = timers.get(key, 0) + 1
                due(key, micros)
        for key, micros, _ in zip(*block.timers, strict=True):
            timers[key] = timers.get(key, 0) + 1
            due(key, micros)
        for held in block.held.values():
            for key, micros, value in zip(*held, strict=True):
                sizes[key] = sizes.get(key, 0) + len(value)
                due(key, micros)
        for key in dict.fromkeys((*sizes, *timers)):
            yield KeySize(key, sizes.get(key, 0), timers.get(key, 0), next_times.get(key))


def biggest_keys(sizes: Iterable[KeySize], limit: int) -> list[KeySize]:
    """Return the keys with the most state, biggest first."""
    return heapq.nlargest(limit, sizes, key=lambda each: each.bytes)


@attrs.frozen
class SpecState:
    """The state of a key under a spec.

    :param type: the spec with its type
    :param text: the state as Python would show it
    :param row: the state as JSON; see `StateFormat.to_json`
    """

    type: str
    text: str
    row: Mapping[str, Any]
    next_timer: datetime | None
    expires: datetime | None


@attrs.frozen
class KeyState:
    """All that is stored for a key.

    :param state: state by spec name
    :param timers: the handler's timers: times and tags
    :param held: held events by source: times and values as Python would show them
    :param hidden: the names of components whose state cannot be shown without the job
    """

    key: Key
    state: Mapping[str, SpecState]
    timers: list[tuple[datetime, str]]
    held: Mapping[str, list[tuple[datetime, str]]]
    hidden: list[str]

    @property
    def is_empty(self) -> bool:
        """`True` if nothing is stored for the key."""
        return not (self.state or self.timers or self.held)

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON."""
        state = {
            name: {
                **each.row,
                **({"next_timer": each.next_timer.isoformat()} if each.next_timer else {}),
                **({"expires": each.expires.isoformat()} if each.expires else {}),
            }
            for name, each in self.state.items()
        }
        timers = [[time.isoformat(), tag] for time, tag in self.timers]
        held = {source: [[time.isoformat(), value] for time, value in of] for source, of in self.held.items()}
        return {"key": to_tagged(self.key), "state": state, "timers": timers, "held": held}


def key_state(key: Key, blocks: Iterable[Block], structures: Known, job: Job | None) -> KeyState:
    """Return the state of a key.

    :param blocks: the blocks that contain the key; see `Savepoint.find`
    :param structures: the structures of declared specs
    :param job: the job, whose types the values then have; `None` to show values as they are stored
    """
    specs = {} if job is None else job.specs
    components = {name: spec for name, spec in specs.items() if isinstance(spec, Component)}
    state: dict[str, SpecState] = {}
    timers: list[tuple[datetime, str]] = []
    held: dict[str, list[tuple[datetime, str]]] = {}
    hidden: list[str] = []
    for block in blocks:
        if block.group_states and not block.group_states.keys() <= components.keys():
            hidden += block.group_states
            continue
        part = by_subject(block, components, "").of_key(key) if block.group_states else block
        if part is None:
            continue
        for name, table in part.tables.items():
            known = structures_of(name, structures, part)
            form = StateFormat(known)
            packed = table.packed[key]
            next_timer, expires = table.next_timers.get(key), table.expires.get(key)
            state[name] = SpecState(
                shown_structure(known[-1]) if known else "",
                _shown_by(specs.get(name), key, packed, form),
                form.to_json(packed),
                None if next_timer is None else from_micros(next_timer),
                None if expires is None else from_micros(expires),
            )
        timers += [(from_micros(micros), tag) for _, micros, tag in zip(*part.timers, strict=True)]
        for source, columns in part.held.items():
            times = map(from_micros, columns.times)
            held[source] = list(zip(times, map(_shown_value, columns.values), strict=True))
    return KeyState(key, state, sorted(timers), held, hidden)


def key_document(found: KeyState, state: StoredState) -> dict[str, Any]:
    """Return the state of a key in the form of `StateReader.find`."""
    return {
        "key": shortened(repr(found.key), _TEXT_LENGTH),
        "batch": state.batch,
        "state": {
            name: {
                "type": each.type,
                "text": shortened(each.text, _TEXT_LENGTH),
                "expires": each.expires and each.expires.isoformat(),
                "next_timer": each.next_timer and each.next_timer.isoformat(),
            }
            for name, each in found.state.items()
        },
        "timers": [[time.isoformat(), tag] for time, tag in found.timers[:_MOST_SHOWN]],
        "held": {
            source: [[time.isoformat(), shortened(value, _TEXT_LENGTH)] for time, value in of[:_MOST_SHOWN]]
            for source, of in found.held.items()
        },
        "hidden": found.hidden,
    }


def keys_named(text: str) -> Iterator[Key]:
    """Yield the keys that a text can mean: the text itself, and the Python literal."""
    found: list[Any] = [text]
    with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found.append(ast.literal_eval(text))
    yield from filter(_can_be_key, found)


def _can_be_key(literal: Any) -> bool:
    try:
        check_key(literal)
        pack(literal)
    except (AmadouError, UnicodeError):
        return False
    return True


def find_key(state: StoredState, text: str, job: Job | None) -> KeyState | None:
    """Return the state of the key that a text means; `None` if nothing is stored."""
    for key in keys_named(text):
        found = key_state(key, state.find(key), state.structures, job)
        if not found.is_empty or found.hidden:
            return found
    return None


def _shown_by(spec: Any, key: Key, packed: bytes, form: StateFormat) -> str:
    """Return packed state as its spec shows it, or as it is stored if the spec cannot read it or is not known."""
    with suppress(Exception):  # the job lacks a class, or the user's codec fails
        if spec is not None:
            return repr(spec.shown_stored(key, unpack(packed)))
    return form.shown(packed)


def _shown_value(packed: bytes) -> str:
    try:
        return repr(unpack_stored(packed))
    except AmadouError:
        return repr(packed)


def begins_with(key: Key, prefix: str | None) -> bool:
    """Return `True` if a key is a string that begins with a prefix, or if there is no prefix."""
    return prefix is None or (isinstance(key, str) and key.startswith(prefix))
