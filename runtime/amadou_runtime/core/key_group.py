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
OTHER_RELEASE: Final = "take the release of amadou that stored it, or begin anew with another checkpoint"


class RetiredNameError(SpecError):
    """The handler makes a component under a name that the job has retired. It ends a run, whatever `on_error` is."""


class HeldEvents(NamedTuple):
    """Held events of a source, in their order.

    :param number: number of events
    :param oldest: the oldest event time, in microseconds
    :param packed: see `pack_events`
    """

    number: int
    oldest: int
    packed: list[bytes]

    def events(self) -> list[KeyedEvent[Any]]:
        """Return the events, unpacked."""
        return [event for packed in self.packed for event in map(KeyedEvent, *map(unpack, unpack(packed)))]


class KeyGroup:
    """The state and the timers of one key group. A subject's state stays packed until it is touched.

    The stored form is a list: the version; ``{spec: [keys, packed]}``; timers of one key; timers of several keys;
    timers with tags; and the parts below. Timers are ``[times, key or keys of each]`` and ``[times, [keys, tags of
    each] of each]``: lists, since msgpack takes four times as long to read the keys of a map. A spec with a time to
    live adds the expiries as a third list, and a component adds its next timers as a fourth. Then come:

    - key-group state, as ``{component: [value, next timer, number of subjects, one of them, layout]}``;
    - the components with in-memory state, as ``[run, components]``, or an empty list;
    - held events (`DependsOn`), as ``{source: [number, oldest time, packed events]}``;
    - components' structures, as ``[structures, positions of those of each name]``: no other place knows the components
      that are made at run time. The names are those of specs and then of key-group state, in their order.

    :param run: the run that reads the group: the in-memory state of another run is lost. `None` reads all state
    :param retired: the fate of state under names that the job no longer has a spec for: `"keep"` or `"drop"`, by name
    """

    __slots__ = (
        "_kept",
        "_retired",
        "_structures",
        "dropped",
        "held",
        "in_memory",
        "lost",
        "run",
        "tables",
        "timers",
        "wholes",
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
        """Number of subjects whose state was dropped, by name."""
        self.run = run
        self.in_memory: frozenset[str] = frozenset()
        """The components whose stored state only the same run reads."""
        self.lost: dict[str, int] = {}
        """Number of subjects that lost their in-memory state, by component."""
        self.tables: dict[str, StateTable] = {}
        self.timers = Timers({}, {})
        self.wholes: dict[str, KeyGroupState] = {}
        """Key-group state by component; these components have nothing in `tables`."""
        self.held: dict[str, HeldEvents] = {}
        """Held events by source."""
        if stored is not None:
            version, *rest = unpack(stored)
            if version != _VERSION:
                why = f"this release reads version {_VERSION} of a key group's state"
                raise StateDecodeError(version, int, why, advice=OTHER_RELEASE)
            tables, alone, shared, tagged, wholes, in_memory, held, (structures, places) = rest
            for name, at in zip(dict.fromkeys(chain(tables, wholes)), places, strict=True):
                if at:
                    self._structures[name] = [structures[place] for place in at]
            stored_by, names = in_memory or (run, ())
            if run is None or run == stored_by:
                self.run, self.in_memory = stored_by, frozenset(names)
            else:
                self.lost = {name: _subjects(tables.pop(name, None), wholes.pop(name, None)) for name in names}
            for name, fate in retired.items():
                table, whole = tables.pop(name, None), wholes.pop(name, None)
                if fate == "drop":
                    number = _subjects(table, whole)
                    self.dropped |= {name: number} if number else {}
                    continue
                for kept, part in zip(self._kept, (table, whole), strict=True):
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
            self.wholes = {
                name: KeyGroupState(value, next_timer, _Several(one, number), layout)
                for name, (value, next_timer, number, one, layout) in wholes.items()
            }

    @property
    def retired(self) -> list[str]:
        """The names of state that is kept unread, since the job no longer has a spec of that name."""
        return list(dict.fromkeys(chain(*self._kept)))

    def as_columns(self, component: Component) -> KeyGroupState | None:
        """Return a component's state as columns; `None` if it has no such form, or the group holds anything else."""
        whole, layout = self.wholes.get(component.name), component.layout
        if self.timers.pending or not {*self.tables, *self.wholes} <= {component.name}:
            return None
        self.take(component)
        if whole is not None and whole.layout != layout:
            self.by_subject(component)
            whole = None
        if whole is None:
            table = self.tables.get(component.name) or StateTable({})
            values = dict(zip(table.packed, table.unpacked(), strict=True))
            if not component.is_plain or Envelope in map(type, values.values()):
                values = {key: component.opened(key, stored, None).value for key, stored in values.items()}
            whole = component.to_columns(values, min(table.next_timers.values(), default=None))
            if whole is None:
                return None
            whole.layout = layout
            self.tables.pop(component.name, None)
            self.wholes[component.name] = whole
        return whole

    def by_subject(self, component: Component) -> None:
        """Convert a component's key-group state back to per-key state."""
        if component.name in self.wholes:
            self.take(component)
        whole = self.wholes.pop(component.name, None)
        if whole is not None and whole.value is not None:
            assert whole.next_timer is not None
            table = self.tables[component.name] = StateTable({})
            for key, value, next_timer in component.from_columns(whole.value, whole.next_timer, whole.layout):
                table.packed[key] = pack(Envelope(component.version, False, value) if component.version else value)
                table.next_timers[key] = next_timer

    def take(self, component: Component, key: Key | None = None) -> None:
        """Check that a component can read the state under its name, and note its structure. Declared components were
        checked as the run began; for others, only the structures stored beside their state are known.

        :param key: the current key
        :raises StateDecodeError: the component cannot read the state
        :raises RetiredNameError: the job has retired the name
        """
        name, now = component.name, component.packed_structure
        if name in self._retired:
            way = f"take it out, or give the {component.noun} another name"
            raise RetiredNameError(f"retired names {name!r}, which the handler makes: {way}")
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
        """Return the components whose stored state has another structure than theirs."""
        known = self._structures
        return [each for each in components if each.name in known and known[each.name][-1] != each.packed_structure]

    def noun_of(self, name: str) -> str:
        """Return the noun in messages for the component that stored state under a name."""
        known = self._structures.get(name)
        return Component.noun if known is None else str(unpack(known[-1]).get("noun", Component.noun))

    def _keys_of(self, name: str) -> list[Key]:
        """Return the subjects that have state under a name."""
        if name in self.wholes:
            return list(self.wholes[name].keys)
        return (self.tables.get(name) or StateTable({})).keys()

    def waiting(self) -> Held:
        """Return the numbers and oldest times of held events."""
        return {source: (held.number, held.oldest) for source, held in self.held.items()}

    def keys(self) -> list[Key]:
        """Return the keys that have state or timers."""
        return list(dict.fromkeys(chain(*self._holders())))

    def __len__(self) -> int:
        """Return the number of keys that have state or timers."""
        several = sum(len(whole.keys) - 1 for whole in self.wholes.values() if type(whole.keys) is _Several)
        return len(set[Key]().union(*self._holders())) + several

    def _holders(self) -> Iterator[Iterable[Key]]:
        yield from (table.packed for table in self.tables.values())
        yield from self.timers.plain.values()
        yield from self.timers.tagged.values()
        yield from (whole.keys for whole in self.wholes.values())

    @property
    def pending(self) -> int:
        """Number of pending timers, of the handler and of components."""
        next_timers = sum(len(table.next_timers) for table in self.tables.values())
        return self.timers.pending + next_timers + sum(len(whole.keys) for whole in self.wholes.values())

    def next_time(self) -> int | None:
        """Return when the next timer is due, of the handler or of a component; `None` without one."""
        next_timers = (min(table.next_timers.values()) for table in self.tables.values() if table.next_timers)
        wholes = (whole.next_timer for whole in self.wholes.values())
        return min(
            (time for time in (self.timers.next_time(), *next_timers, *wholes) if time is not None), default=None
        )

    def pack(self) -> bytes | None:
        """Return the stored form of the group; `None` if it is empty."""
        timers = self.timers
        tables = _tables_lists(self.tables) | self._kept[0]
        wholes = _wholes_lists(self.wholes) | self._kept[1]
        if not (tables or timers.pending or wholes or self.held):
            return None
        alone = {micros: next(iter(keys)) for micros, keys in timers.plain.items() if len(keys) == 1}
        shared = {micros: list(keys) for micros, keys in timers.plain.items() if len(keys) > 1}
        tagged = {
            micros: [list(keys), [sorted(tags) for tags in keys.values()]] for micros, keys in timers.tagged.items()
        }
        held = {source: list(of) for source, of in self.held.items()}
        names = dict.fromkeys(chain(tables, wholes))
        self.in_memory &= names.keys()
        of_names = [self._structures.get(name, []) for name in names]
        places = dict(zip(dict.fromkeys(chain(*of_names)), count()))
        structures = [list(places), [[places[each] for each in of_name] for of_name in of_names]]
        times = _lists(alone), _lists(shared), _lists(tagged)
        in_memory = [self.run, sorted(self.in_memory)] if self.in_memory else []
        return pack([_VERSION, tables, *times, wholes, in_memory, held, structures])


class _Several(Collection[Key]):
    """Stands for the subjects of stored key-group state: one of them is known, and their number."""

    def __init__(self, one: Key, number: int) -> None:
        self._one = one
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[Key]:
        yield self._one

    def __contains__(self, key: object) -> bool:
        raise NotImplementedError


def _subjects(table: list[Any] | None, whole: list[Any] | None) -> int:
    """Return the number of subjects in stored per-key and key-group state."""
    return (len(table[0]) if table else 0) + (whole[2] if whole else 0)


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


def _wholes_lists(wholes: dict[str, KeyGroupState]) -> dict[str, list[Any]]:
    return {
        name: [whole.value, whole.next_timer, len(whole.keys), next(iter(whole.keys)), whole.layout]
        for name, whole in wholes.items()
        if whole.value is not None
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
