"""The state of a key group while a batch is processed."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from amadou import Key, KeyedEvent
from amadou.components import Component, KeyGroupState
from amadou.engine import Envelope, StateTable, Timers, pack, unpack
from amadou.errors import SpecError, StateDecodeError
from amadou_runtime.core.dependencies import Held
from amadou_runtime.core.stored import GroupChanges, StoredGroup
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.jobs.state_schema import check_structures, misfits, not_a_component

OTHER_RELEASE: Final = "use the release of amadou that stored the state, or start with a new checkpoint directory"


class RetiredNameError(SpecError):
    """The handler created a component under a retired name. This error ends the run, regardless of `on_error`."""


class HeldChunk(NamedTuple):
    """Held events from one source that arrived in the same batch or soon after, in the order of arrival.

    :param number: number of events
    :param oldest: the oldest event time, in microseconds
    :param packed: the packed events; see `pack_events`. `None` if the store has not loaded the events yet
    :param id: identifies the events in the store; `None` for events that are not stored yet
    """

    number: int
    oldest: int
    packed: bytes | None
    id: int | None = None


class HeldEvents(NamedTuple):
    """Held events from one source, in the order in which the source delivered them."""

    chunks: list[HeldChunk]

    @property
    def number(self) -> int:
        return sum(chunk.number for chunk in self.chunks)

    @property
    def oldest(self) -> int:
        return min(chunk.oldest for chunk in self.chunks)


class NotStored:
    """A key group without stored state; see `StoredGroup`. It is not stored, so it has no changes."""

    def begin(self, group: "KeyGroup") -> None: ...

    def load(self, group: "KeyGroup", keys: Collection[Key], by: int | None) -> None: ...

    def load_all(self, group: "KeyGroup") -> None: ...

    def load_watching(self, group: "KeyGroup", name: str) -> None: ...

    def has_loaded(self, key: Key) -> bool:
        return True

    def held_events(self, chunk: HeldChunk) -> bytes:
        raise NotImplementedError

    def others(self, name: str) -> int:
        return 0

    def changes(self, group: "KeyGroup") -> GroupChanges:
        raise NotImplementedError


class KeyGroup:
    """The state and the timers of a key group while a batch is processed. Only the keys that `load` was called for, and
    keys with due timers, are certain to be in `tables` and `timers`. A subject's state stays packed until it is
    accessed.

    :param stored: the stored state
    :param run: the id of the run that reads the group; in-memory state that other runs stored is lost. `None` to read
        all state
    :param retired: `"keep"` or `"drop"` for the state of specs that the job no longer has, by name
    """

    __slots__ = (
        "columnar",
        "dropped",
        "group_states",
        "held",
        "in_memory",
        "kept",
        "kept_states",
        "lives",
        "lost",
        "retired",
        "run",
        "stored",
        "structures",
        "tables",
        "timers",
    )

    def __init__(
        self,
        stored: StoredGroup,
        run: str | None = None,
        retired: Mapping[str, Literal["keep", "drop"]] = MappingProxyType({}),
    ) -> None:
        self.stored = stored
        self.run = run
        self.retired = retired
        self.lives: dict[str, int] = {}
        """The time to live of each known spec that has one, in microseconds, by spec name."""
        self.kept: dict[str, StateTable] = {}
        """State that is retained but not read, because the job no longer has specs with these names."""
        self.kept_states: dict[str, KeyGroupState] = {}
        """Key-group state that is retained but not read; see `kept`."""
        self.structures: dict[str, list[bytes]] = {}
        """The packed structures with which state was stored, by name, oldest first."""
        self.dropped: dict[str, int] = {}
        """Number of subjects whose state was dropped, by spec name."""
        self.in_memory: frozenset[str] = frozenset()
        """The components whose state is valid only in the run that stored it."""
        self.lost: dict[str, int] = {}
        """Number of subjects that lost their in-memory state, by component."""
        self.tables: dict[str, StateTable] = {}
        self.timers = Timers({}, {})
        self.group_states: dict[str, KeyGroupState] = {}
        """Key-group state by component. These components have no entry in `tables`."""
        self.columnar: dict[str, Component] = {}
        """The components that `as_columns` converted to key-group state, by name."""
        self.held: dict[str, HeldEvents] = {}
        """Held events by source."""
        stored.begin(self)

    def load(self, keys: Collection[Key], by: int | None) -> None:
        """Load the state and timers of keys; see `StoredGroup.load`."""
        self.stored.load(self, keys, by)

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
            values = table.unpacked(table.packed, component.name)
            if not component.is_plain or Envelope in map(type, values.values()):
                values = {key: component.opened(key, stored, None).value for key, stored in values.items()}
            for key, value in values.items():
                component.check_form(key, value)
            group_state = component.to_columns(values, min(table.next_timers.values(), default=None))
            if group_state is None:
                return None
            group_state.layout = layout
            self.tables.pop(component.name, None)
            self.group_states[component.name] = group_state
        self.columnar[component.name] = component
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

    def take_structures(self, stored: Mapping[str, list[bytes]]) -> None:
        """Take over the structures that are stored with the group.

        :raises StateDecodeError: one of them is damaged
        """
        for packed in stored.values():
            for each in packed:
                _check_structure(each)
        self.structures |= stored

    def take(self, component: Component, key: Key | None = None) -> None:
        """Check that a component can read the state stored under its name, and record the component's structure.
        The run checked declared components when it started. For other components, only the structures stored with
        their state are known.

        :param key: the current key, for the error
        :raises StateDecodeError: the component cannot read the state
        :raises RetiredNameError: the job has retired the name
        """
        name, now = component.name, component.packed_structure
        if name in self.retired:
            way = f"remove the name from retired, or give the {component.noun} a different name"
            raise RetiredNameError(f"retired contains {name!r}, but the handler creates this {component.noun}: {way}")
        known = self.structures.get(name)
        if known is not None and known[-1] == now:
            return
        keys = self._keys_of(name)
        if not keys and not self.stored.others(name):
            self.structures[name] = [now]
            return
        shown = key if key in keys or not keys else keys[0]
        if known is None:
            raise not_a_component(component.structure(), name, shown)
        for misfit in misfits({name: list(map(unpack, known))}, {name: component.structure()}):
            raise misfit.decode_error(shown)
        self.structures[name] = [*(each for each in known if each != now), now]

    def left_otherwise(self, components: Iterable[Component]) -> list[Component]:
        """Return the components whose state was stored with a different structure."""
        known = self.structures
        return [each for each in components if each.name in known and known[each.name][-1] != each.packed_structure]

    def noun_of(self, name: str) -> str:
        """Return the noun that messages use for the component whose state is stored under a name."""
        known = self.structures.get(name)
        return Component.noun if known is None else str(unpack(known[-1]).get("noun", Component.noun))

    def _keys_of(self, name: str) -> list[Key]:
        """Return the loaded keys that have state under a name. For stored key-group state, only one key is known."""
        if name in self.group_states:
            return list(self.group_states[name].keys)
        return (self.tables.get(name) or StateTable({})).keys()

    def waiting(self) -> Held:
        """Return the number of held events and their oldest event time, by source."""
        return {source: (held.number, held.oldest) for source, held in self.held.items()}

    def held_events(self, source: str) -> list[KeyedEvent[Any]]:
        """Return the held events from a source."""
        packed = map(self.packed_events, self.held[source].chunks if source in self.held else ())
        return [event for events in packed for event in map(KeyedEvent, *map(unpack, unpack(events)))]

    def packed_events(self, chunk: HeldChunk) -> bytes:
        """Return the packed events of a chunk, and load the events if necessary."""
        return self.stored.held_events(chunk) if chunk.packed is None else chunk.packed

    def keys(self) -> list[Key]:
        """Return the loaded keys that have state or timers. For stored key-group state, only one key is known."""
        return list(dict.fromkeys(chain(*self.holders())))

    def holders(self) -> Iterator[Iterable[Key]]:
        """Yield collections of the loaded keys that have state or timers."""
        yield from (table.packed for table in self.tables.values())
        yield from self.timers.plain.values()
        yield from self.timers.tagged.values()
        yield from (group_state.keys for group_state in self.group_states.values())


@lru_cache(1000)
def _check_structure(packed: bytes) -> None:
    try:
        check_structures([unpack(packed)])
    except UNREADABLE as error:
        why = f"a structure is damaged ({type(error).__name__}: {error})"
        raise StateDecodeError(packed, dict, why, advice="use a savepoint from before the damage") from error
