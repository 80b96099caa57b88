"""The state of a key group between batches, and its stored form."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain, count
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from amadou import Component, Key, KeyedEvent, KeyGroupState
from amadou.engine import Envelope, StateTable, Timers, pack, unpack
from amadou.errors import SpecError, StateDecodeError
from amadou_runtime.core.dependencies import Held
from amadou_runtime.core.state_schema import misfits, not_a_component

_VERSION = 5
OTHER_RELEASE: Final = "use the release of amadou that stored the state, or start with a new checkpoint directory"


class RetiredNameError(SpecError):
    """The handler created a component under a retired name. This error ends the run, regardless of `on_error`."""


class HeldEvents(NamedTuple):
    """Held events from one source, in the order in which the source delivered them.

    :param number: number of events
    :param oldest: the oldest event time, in microseconds
    :param packed: the packed events; see `pack_events`
    """

    number: int
    oldest: int
    packed: list[bytes]

    def events(self) -> list[KeyedEvent[Any]]:
        """Return the unpacked events."""
        return [event for packed in self.packed for event in map(KeyedEvent, *map(unpack, unpack(packed)))]


class KeyGroup:
    """The state and the timers of one key group. A subject's state stays packed until it is accessed.

    The stored form is a list. It starts with the version, followed by ``{spec: [keys, packed states]}`` and three lists
    of timers: timers without tags at times with one key, timers without tags at times with multiple keys, and timers
    with tags. Timers without tags are stored as ``[times, key or keys for each time]``. Timers with tags are stored as
    ``[times, [keys, tags for each key] for each time]``. Lists are used because msgpack takes four times as long to
    read the same keys from a map. A spec with a time to live adds a list of expiry times to its keys and states. A
    component adds the times of its next timers as a fourth list. The other elements are:

    - key-group state, as ``{component: [value, next timer, number of keys, one of the keys, layout]}``;
    - the components with in-memory state, as ``[run, components]``, or an empty list;
    - held events (`DependsOn`), as ``{source: [number, oldest time, packed events]}``;
    - the structures of components, as ``[structures, positions of each name's structures]``. For components created at
      run time, structures are stored nowhere else. The positions for the names of specs come first, followed by those
      for the names of key-group state.

    :param run: the id of the run that reads the group; in-memory state that other runs stored is lost. `None` to read
        all state
    :param retired: `"keep"` or `"drop"` for the state of specs that the job no longer has, by name
    """

    __slots__ = (
        "_kept",
        "_retired",
        "_structures",
        "dropped",
        "group_states",
        "held",
        "in_memory",
        "lost",
        "run",
        "tables",
        "timers",
    )

    def __init__(
        self,
        stored: bytes | None,
        run: str | None = None,
        retired: Mapping[str, Literal["keep", "drop"]] = MappingProxyType({}),
    ) -> None:
        self._kept: tuple[dict[str, Any], dict[str, Any]] = {}, {}
        self._retired = retired
        self._structures: dict[str, list[bytes]] = {}
        self.dropped: dict[str, int] = {}
        """Number of subjects whose state was dropped, by spec name."""
        self.run = run
        self.in_memory: frozenset[str] = frozenset()
        """The components whose stored state is valid only in the run that stored it."""
        self.lost: dict[str, int] = {}
        """Number of subjects that lost their in-memory state, by component."""
        self.tables: dict[str, StateTable] = {}
        self.timers = Timers({}, {})
        self.group_states: dict[str, KeyGroupState] = {}
        """Key-group state by component. These components have no entry in `tables`."""
        self.held: dict[str, HeldEvents] = {}
        """Held events by source."""
        if stored is not None:
            version, *rest = unpack(stored)
            if version != _VERSION:
                why = f"this release reads only version {_VERSION} of a key group's state"
                raise StateDecodeError(version, int, why, advice=OTHER_RELEASE)
            tables, alone, shared, tagged, group_states, in_memory, held, (structures, places) = rest
            for name, at in zip(dict.fromkeys(chain(tables, group_states)), places, strict=True):
                if at:
                    self._structures[name] = [structures[place] for place in at]
            stored_by, names = in_memory or (run, ())
            if run is None or run == stored_by:
                self.run, self.in_memory = stored_by, frozenset(names)
            else:
                self.lost = {name: _subjects(tables.pop(name, None), group_states.pop(name, None)) for name in names}
            for name, fate in retired.items():
                table, group_state = tables.pop(name, None), group_states.pop(name, None)
                if fate == "drop":
                    number = _subjects(table, group_state)
                    self.dropped |= {name: number} if number else {}
                    continue
                for kept, part in zip(self._kept, (table, group_state), strict=True):
                    kept |= {name: part} if part else {}
            self.held = {source: HeldEvents(*of) for source, of in held.items()}
            self.tables = {spec: _table(*table) for spec, table in tables.items()}
            self.timers = Timers(
                {micros: {key: None} for micros, key in zip(*alone, strict=True)}
                | {micros: dict.fromkeys(keys) for micros, keys in zip(*shared, strict=True)},
                {
                    micros: {key: set(tags) for key, tags in _dict(at).items()}
                    for micros, at in zip(*tagged, strict=True)
                },
            )
            self.group_states = {
                name: KeyGroupState(value, next_timer, _StoredKeys(one, number), layout)
                for name, (value, next_timer, number, one, layout) in group_states.items()
            }

    @property
    def retired(self) -> list[str]:
        """The names of state that is retained but not read, because the job no longer has specs with these names."""
        return list(dict.fromkeys(chain(*self._kept)))

    def as_columns(self, component: Component) -> KeyGroupState | None:
        """Return a component's state in columnar form; `None` if the state has no columnar form, or if the group
        contains other state or timers.
        """
        group_state, layout = self.group_states.get(component.name), component.layout
        if self.timers.pending or not {*self.tables, *self.group_states} <= {component.name}:
            return None
        self.take(component)
        if group_state is not None and group_state.layout != layout:
            self.by_subject(component)
            group_state = None
        if group_state is None:
            table = self.tables.get(component.name) or StateTable({})
            values = dict(zip(table.packed, table.unpacked(), strict=True))
            if not component.is_plain or Envelope in map(type, values.values()):
                values = {key: component.opened(key, stored, None).value for key, stored in values.items()}
            group_state = component.to_columns(values, min(table.next_timers.values(), default=None))
            if group_state is None:
                return None
            group_state.layout = layout
            self.tables.pop(component.name, None)
            self.group_states[component.name] = group_state
        return group_state

    def by_subject(self, component: Component) -> None:
        """Convert a component's key-group state back to per-key state."""
        if component.name in self.group_states:
            self.take(component)
        group_state = self.group_states.pop(component.name, None)
        if group_state is not None and group_state.value is not None:
            assert group_state.next_timer is not None
            table = self.tables[component.name] = StateTable({})
            for key, value, next_timer in component.from_columns(
                group_state.value, group_state.next_timer, group_state.layout
            ):
                table.packed[key] = pack(Envelope(component.version, False, value) if component.version else value)
                table.next_timers[key] = next_timer

    def take(self, component: Component, key: Key | None = None) -> None:
        """Check that a component can read the state stored under its name, and record the component's structure.
        The run checked declared components when it started. For other components, only the structures stored with
        their state are known.

        :param key: the current key, for the error
        :raises StateDecodeError: the component cannot read the state
        :raises RetiredNameError: the job has retired the name
        """
        name, now = component.name, component.packed_structure
        if name in self._retired:
            way = f"remove the name from retired, or give the {component.noun} a different name"
            raise RetiredNameError(f"retired contains {name!r}, but the handler creates this {component.noun}: {way}")
        known = self._structures.get(name)
        if known is not None and known[-1] == now:
            return
        keys = self._keys_of(name)
        if not keys:
            self._structures[name] = [now]
            return
        if known is None:
            raise not_a_component(component.structure(), name, key if key in keys else keys[0])
        for misfit in misfits({name: list(map(unpack, known))}, {name: component.structure()}):
            raise misfit.decode_error(key if key in keys else keys[0])
        self._structures[name] = [*(each for each in known if each != now), now]

    def left_otherwise(self, components: Iterable[Component]) -> list[Component]:
        """Return the components whose state was stored with a different structure."""
        known = self._structures
        return [each for each in components if each.name in known and known[each.name][-1] != each.packed_structure]

    def noun_of(self, name: str) -> str:
        """Return the noun that messages use for the component whose state is stored under a name."""
        known = self._structures.get(name)
        return Component.noun if known is None else str(unpack(known[-1]).get("noun", Component.noun))

    def _keys_of(self, name: str) -> list[Key]:
        """Return the keys that have state under a name. For stored key-group state, only one key is known."""
        if name in self.group_states:
            return list(self.group_states[name].keys)
        return (self.tables.get(name) or StateTable({})).keys()

    def waiting(self) -> Held:
        """Return the number of held events and their oldest event time, by source."""
        return {source: (held.number, held.oldest) for source, held in self.held.items()}

    def keys(self) -> list[Key]:
        """Return the keys that have state or timers. For stored key-group state, only one key is known."""
        return list(dict.fromkeys(chain(*self._holders())))

    def __len__(self) -> int:
        """Return the number of keys that have state or timers."""
        several = sum(
            len(group_state.keys) - 1
            for group_state in self.group_states.values()
            if type(group_state.keys) is _StoredKeys
        )
        return len(set[Key]().union(*self._holders())) + several

    def _holders(self) -> Iterator[Iterable[Key]]:
        yield from (table.packed for table in self.tables.values())
        yield from self.timers.plain.values()
        yield from self.timers.tagged.values()
        yield from (group_state.keys for group_state in self.group_states.values())

    @property
    def pending(self) -> int:
        """Number of pending timers of the handler and its components."""
        next_timers = sum(len(table.next_timers) for table in self.tables.values())
        return (
            self.timers.pending + next_timers + sum(len(group_state.keys) for group_state in self.group_states.values())
        )

    def next_time(self) -> int | None:
        """Return the time of the next timer of the handler or a component; `None` if no timer is pending."""
        next_timers = (min(table.next_timers.values()) for table in self.tables.values() if table.next_timers)
        group_states = (group_state.next_timer for group_state in self.group_states.values())
        return min(
            (time for time in (self.timers.next_time(), *next_timers, *group_states) if time is not None), default=None
        )

    def pack(self) -> bytes | None:
        """Return the stored form of the group; `None` if the group is empty."""
        timers = self.timers
        tables = _tables_lists(self.tables) | self._kept[0]
        group_states = _group_state_lists(self.group_states) | self._kept[1]
        if not (tables or timers.pending or group_states or self.held):
            return None
        alone = {micros: next(iter(keys)) for micros, keys in timers.plain.items() if len(keys) == 1}
        shared = {micros: list(keys) for micros, keys in timers.plain.items() if len(keys) > 1}
        tagged = {
            micros: [list(keys), [sorted(tags) for tags in keys.values()]] for micros, keys in timers.tagged.items()
        }
        held = {source: list(of) for source, of in self.held.items()}
        names = dict.fromkeys(chain(tables, group_states))
        self.in_memory &= names.keys()
        of_names = [self._structures.get(name, []) for name in names]
        places = dict(zip(dict.fromkeys(chain(*of_names)), count()))
        structures = [list(places), [[places[each] for each in of_name] for of_name in of_names]]
        times = _lists(alone), _lists(shared), _lists(tagged)
        in_memory = [self.run, sorted(self.in_memory)] if self.in_memory else []
        return pack([_VERSION, tables, *times, group_states, in_memory, held, structures])


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


def _tables_lists(tables: dict[str, StateTable]) -> dict[str, list[Any]]:
    return {spec: _table_lists(table) for spec, table in tables.items() if table.packed}


def _group_state_lists(group_states: dict[str, KeyGroupState]) -> dict[str, list[Any]]:
    return {
        name: [
            group_state.value,
            group_state.next_timer,
            len(group_state.keys),
            next(iter(group_state.keys)),
            group_state.layout,
        ]
        for name, group_state in group_states.items()
        if group_state.value is not None
    }


def _table_lists(table: StateTable) -> list[list[Any]]:
    lists: list[Any] = _lists(table.packed)
    if table.expires or table.next_timers:
        lists.append(list(map(table.expires.get, table.packed)) if table.expires else None)
    if table.next_timers:
        lists.append(list(map(table.next_timers.get, table.packed)))
    return lists


def _dict(lists: list[list[Any]]) -> dict[Any, Any]:
    return dict(zip(*lists, strict=True))


def _lists(mapping: dict[Any, Any]) -> list[list[Any]]:
    return [list(mapping), list(mapping.values())]
