"""The state of a key group as one value. The state of all keys is loaded and stored together."""

from collections.abc import Collection, Iterable, Iterator
from itertools import chain, count
from typing import Any, Final

import attrs

from amadou import Key
from amadou.components import KeyGroupState
from amadou.engine import StateTable, Timers, is_watching, pack, unpack
from amadou.errors import AmadouError, StateDecodeError
from amadou.event_time import END_OF_TIME
from amadou_runtime.core.key_group import OTHER_RELEASE, HeldChunk, HeldEvents, KeyGroup
from amadou_runtime.core.stored import GroupChanges
from amadou_runtime.formats.documents import UNREADABLE

_VERSION = 6
_SWEEPS: Final = 8
"""Maximum number of clean-ups per `ttl`. State is removed at most an eighth of its `ttl` after it expires."""


@attrs.define(kw_only=True)
class PackedChanges(GroupChanges):
    """A key group after a batch, as one value.

    :param packed: the value; `None` if the group is empty
    :param next_time: event time in microseconds at which the group must be processed again even if no events arrive;
        `None` if there is none
    """

    packed: bytes | None
    next_time: int | None


class PackedGroup:
    """A key group that is stored as one value; see `StoredGroup`.

    The value consists of two packed parts: the part that survives the run, and the in-memory state as ``[{spec: [keys,
    packed states]}, key-group state]``, or `None`. The first part is a list. It starts with the version, followed by
    ``{spec: [keys, packed states]}`` and three lists of timers: timers without tags at times with one key, timers
    without tags at times with multiple keys, and timers with tags. Timers without tags are stored as ``[times, key or
    keys for each time]``. Timers with tags are stored as ``[times, [keys, tags for each key] for each time]``. Lists
    are used because msgpack takes four times as long to read the same keys from a map. A spec with a time to live adds
    a list of expiry times to its keys and states. A component adds the times of its next timers as a fourth list. The
    other elements are:

    - key-group state, as ``{component: [value, next timer, number of keys, one of the keys, layout]}``;
    - the components with in-memory state, as ``[run, {component: number of keys}]``, or an empty list;
    - held events (`DependsOn`), as ``{source: [[number, oldest time, packed events], …]}``;
    - the structures of components, as ``[structures, {name: positions of the name's structures}]``. For components
      created at run time, structures are stored nowhere else.

    :param packed: the value; `None` for a group without state
    """

    def __init__(self, packed: bytes | None) -> None:
        self._packed = packed

    def begin(self, group: KeyGroup) -> None:
        if self._packed is None:
            return
        try:
            self._load_from(self._packed, group)
        except AmadouError:
            raise
        except UNREADABLE as error:
            why = f"the state of a key group is damaged ({type(error).__name__}: {error})"
            raise StateDecodeError(self._packed, list, why, advice="use a savepoint from before the damage") from error

    def _load_from(self, stored: bytes, group: KeyGroup) -> None:
        packed, packed_in_memory = divided(stored)
        version, *rest = unpack(packed)
        if version != _VERSION:
            why = f"this release reads only version {_VERSION} of a key group's state"
            raise StateDecodeError(version, int, why, advice=OTHER_RELEASE)
        tables, alone, shared, tagged, group_states, in_memory, held, (structures, places) = rest
        group.take_structures({name: [structures[place] for place in at] for name, at in places.items()})
        stored_by, keys = in_memory or (group.run, {})
        if packed_in_memory is not None and group.run in (None, stored_by):
            group.run, group.in_memory = stored_by, frozenset(keys)
            in_memory_tables, in_memory_states = unpack(packed_in_memory)
            tables, group_states = tables | in_memory_tables, group_states | in_memory_states
        else:
            group.lost = keys
        _retire(group, tables, group_states)
        group.held = {source: HeldEvents([HeldChunk(*chunk) for chunk in chunks]) for source, chunks in held.items()}
        group.tables = {spec: _table(*table) for spec, table in tables.items()}
        group.timers = _timers_in(alone, shared, tagged)
        group.group_states = {name: group_state_of(*group_state) for name, group_state in group_states.items()}

    def load(self, group: KeyGroup, keys: Collection[Key], by: int | None) -> None:
        """Do nothing: `begin` has loaded all keys."""

    def load_all(self, group: KeyGroup) -> None:
        """Do nothing: `begin` has loaded all keys."""

    def load_watching(self, group: KeyGroup, name: str) -> None:
        """Do nothing: `begin` has loaded all keys."""

    def has_loaded(self, key: Key) -> bool:
        return True

    def held_events(self, chunk: HeldChunk) -> bytes:
        raise AssertionError("begin has loaded all held events")

    def others(self, name: str) -> int:
        return 0

    def changes(self, group: KeyGroup) -> PackedChanges:
        packed = packed_group(group)
        retired = list(dict.fromkeys(chain(group.kept, group.kept_states)))
        watched = [name for name, table in group.tables.items() if is_watching(name) and table.packed]
        return PackedChanges(
            packed=packed,
            next_time=_next_time(group),
            keys=_keys(group),
            pending=_pending(group),
            retired=retired,
            has_in_memory=bool(group.in_memory),
            watched=watched,
        )


def _retire(group: KeyGroup, tables: dict[str, Any], group_states: dict[str, Any]) -> None:
    """Take the state of specs that the job has retired out of stored state: it is dropped, or retained unread."""
    for name, fate in group.retired.items():
        table, group_state = tables.pop(name, None), group_states.pop(name, None)
        if fate == "drop":
            number = _subjects(table, group_state)
            group.dropped |= {name: number} if number else {}
            continue
        group.kept |= {name: _table(*table)} if table else {}
        group.kept_states |= {name: group_state_of(*group_state)} if group_state else {}


def packed_group(group: KeyGroup) -> bytes | None:
    """Return a fully loaded group as one value; `None` if the group is empty. Names without state are removed from
    `group.in_memory`.
    """
    tables = {
        spec: _table_lists(table) for spec, table in chain(group.tables.items(), group.kept.items()) if table.packed
    }
    group_states = {
        name: group_state_fields(group_state)
        for name, group_state in chain(group.group_states.items(), group.kept_states.items())
        if group_state.value is not None
    }
    if not (tables or group.timers.pending or group_states or group.held):
        group.in_memory = frozenset()
        return None
    names = dict.fromkeys(chain(tables, group_states))
    group.in_memory &= names.keys()
    keys = {name: _subjects(tables.get(name), group_states.get(name)) for name in sorted(group.in_memory)}
    memory = [{name: part.pop(name) for name in keys if name in part} for part in (tables, group_states)]
    times, held, structures = _timer_lists(group.timers), _held_lists(group), _structure_lists(group, names)
    packed = pack([_VERSION, tables, *times, group_states, [group.run, keys] if keys else [], held, structures])
    return joined(packed, pack(memory) if keys else None)


def _timer_lists(timers: Timers) -> tuple[list[Any], list[Any], list[Any]]:
    """Return timers in the form in which they are packed; see `PackedGroup`."""
    alone = {micros: next(iter(keys)) for micros, keys in timers.plain.items() if len(keys) == 1}
    shared = {micros: list(keys) for micros, keys in timers.plain.items() if len(keys) > 1}
    tagged = {micros: [list(keys), [sorted(tags) for tags in keys.values()]] for micros, keys in timers.tagged.items()}
    return _lists(alone), _lists(shared), _lists(tagged)


def _timers_in(alone: Any, shared: Any, tagged: Any) -> Timers:
    """Return the timers that `_timer_lists` has packed."""
    return Timers(
        {micros: {key: None} for micros, key in zip(*alone, strict=True)}
        | {micros: dict.fromkeys(keys) for micros, keys in zip(*shared, strict=True)},
        {micros: {key: set(tags) for key, tags in _dict(at).items()} for micros, at in zip(*tagged, strict=True)},
    )


def _held_lists(group: KeyGroup) -> dict[str, list[Any]]:
    return {
        source: [[chunk.number, chunk.oldest, group.packed_events(chunk)] for chunk in of.chunks]
        for source, of in group.held.items()
    }


def _structure_lists(group: KeyGroup, names: Iterable[str]) -> list[Any]:
    """Return the structures of names, and the positions of each name's structures among them."""
    of_names = {name: group.structures[name] for name in names if name in group.structures}
    places = dict(zip(dict.fromkeys(chain(*of_names.values())), count()))
    return [list(places), {name: [places[each] for each in known] for name, known in of_names.items()}]


def divided(packed: bytes) -> tuple[bytes, bytes | None]:
    """Return the two parts of a packed group; see `PackedGroup`."""
    survives, in_memory = unpack(packed)
    return survives, in_memory


def joined(survives: bytes, in_memory: bytes | None) -> bytes:
    """Return a packed group, given its two parts."""
    return pack([survives, in_memory])


class _StoredKeys(Collection[Key]):
    """Collection of the keys in stored key-group state. Only the number of keys and one of the keys are known."""

    def __init__(self, one: Key, number: int) -> None:
        self._one = one
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Key]:
        yield self._one

    def __contains__(self, key: object) -> bool:
        raise NotImplementedError


def _keys(group: KeyGroup) -> int:
    """Return the number of keys that have state or timers."""
    stored = (len(each.keys) - 1 for each in group.group_states.values() if type(each.keys) is _StoredKeys)
    return len(set[Key]().union(*group.holders())) + sum(stored)


def _pending(group: KeyGroup) -> int:
    """Return the number of pending timers of the handler and its components."""
    next_timers = sum(len(table.next_timers) for table in group.tables.values())
    return group.timers.pending + next_timers + sum(len(each.keys) for each in group.group_states.values())


def _next_time(group: KeyGroup) -> int | None:
    """Return the time of the next timer of the handler or a component, or of the next clean-up; `None` if there is
    neither.
    """
    times = [group.timers.next_time(), *(each.next_timer for each in group.group_states.values())]
    times += (min(table.next_timers.values()) for table in group.tables.values() if table.next_timers)
    for name, life in group.lives.items():
        expires = group.tables[name].expires if name in group.tables else {}
        if expires:
            step = max(life // _SWEEPS, 1)
            times.append(-(-min(expires.values()) // step) * step)
    known = [time for time in times if time is not None]
    # a group with retained state is also processed once a job has the spec again
    return min(known) if known else END_OF_TIME if group.kept or group.kept_states else None


def _subjects(table: list[Any] | None, group_state: list[Any] | None) -> int:
    """Return the number of subjects in stored per-key and key-group state."""
    return (len(table[0]) if table else 0) + (group_state[2] if group_state else 0)


def _table(
    keys: list[Key],
    packed: list[bytes],
    expires: list[int | None] | None = None,
    next_timers: list[int | None] | None = None,
) -> StateTable:
    table = StateTable(dict(zip(keys, packed, strict=True)))
    if expires is not None:
        table.expires = {key: at for key, at in zip(keys, expires, strict=True) if at is not None}
    if next_timers is not None:
        table.next_timers = {key: at for key, at in zip(keys, next_timers, strict=True) if at is not None}
    return table


def _table_lists(table: StateTable) -> list[list[Any]]:
    lists: list[Any] = _lists(table.packed)
    if table.expires or table.next_timers:
        lists.append(list(map(table.expires.get, table.packed)) if table.expires else None)
    if table.next_timers:
        lists.append(list(map(table.next_timers.get, table.packed)))
    return lists


def group_state_of(value: Any, next_timer: int, number: int, one: Key, layout: Any) -> KeyGroupState:
    """Return stored key-group state.

    :param number: number of keys with state in the value
    :param one: one of the keys
    """
    return KeyGroupState(value, next_timer, _StoredKeys(one, number), layout)


def group_state_fields(group_state: KeyGroupState) -> list[Any]:
    """Return key-group state as the list of the parameters of `group_state_of`."""
    keys = group_state.keys
    return [group_state.value, group_state.next_timer, len(keys), next(iter(keys)), group_state.layout]


def _dict(lists: list[list[Any]]) -> dict[Any, Any]:
    return dict(zip(*lists, strict=True))


def _lists(mapping: dict[Any, Any]) -> list[list[Any]]:
    return [list(mapping), list(mapping.values())]
