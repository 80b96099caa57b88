"""The state of some keys in a form that does not depend on the store, on the engine or on the number of key groups."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import attrs
import msgpack

from amadou import Key
from amadou.components import Component, KeyGroupState
from amadou.engine import StateTable, pack, unpack, unpack_stored, unpack_times
from amadou.errors import SavepointError, StateDecodeError
from amadou.event_time import from_micros
from amadou_runtime.core.key_group import HeldChunk, HeldEvents, KeyGroup
from amadou_runtime.core.keying import group_interval, key_group, key_position
from amadou_runtime.formats.documents import UNREADABLE, check_column, check_keys
from amadou_runtime.jobs.state_schema import Known, Structure, check_structures
from amadou_runtime.store.packed_group import PackedGroup, group_state_fields, group_state_of

_BYTES, _KEYS = 1 << 17, 1 << 11
"""Size of a block's state, and number of its keys, at which the next block begins. Larger blocks compress better, but
finding a single key takes longer.
"""


class HeldColumns(NamedTuple):
    """Held events from one source. The events of a key are in the order in which they arrived.

    :param times: the timestamps in microseconds
    :param values: the packed values
    """

    keys: list[Key]
    times: list[int]
    values: list[bytes]


@attrs.define
class Block:
    """The state of the keys with positions in an interval; see `key_position`.

    :param first: first position
    :param last: last position
    :param keys: number of keys with state, timers or held events
    :param tables: the keys' state, by spec name
    :param timers: the pending timers of the handler: keys, times in microseconds, and tags
    :param held: held events by source
    :param group_states: the state of components in the form for whole key groups, by name. Only the component can read
        it. A block has such state of at most one key group, and then no other state
    :param structures: packed structures with which the state was stored, by name, oldest first; see
        `KeyGroup.structures`
    """

    first: int
    last: int
    keys: int
    tables: dict[str, StateTable] = attrs.field(factory=dict)
    timers: tuple[list[Key], list[int], list[str]] = attrs.field(factory=lambda: ([], [], []))
    held: dict[str, HeldColumns] = attrs.field(factory=dict)
    group_states: dict[str, KeyGroupState] = attrs.field(factory=dict)
    structures: dict[str, list[bytes]] = attrs.field(factory=dict)

    def pack(self) -> bytes:
        """Return the block's content in packed form, without `first`, `last` and `keys`."""
        return pack(
            [
                {name: _columns(table) for name, table in self.tables.items()},
                list(self.timers),
                {source: list(held) for source, held in self.held.items()},
                {name: group_state_fields(state) for name, state in self.group_states.items()},
                self.structures,
            ]
        )

    @classmethod
    def unpack(cls, first: int, last: int, keys: int, packed: bytes) -> "Block":
        """Return the block from its packed content.

        :raises ValueError: the content is not that of a block
        """
        try:
            tables, timers, held, group_states, structures = unpack_stored(packed)
            block = cls(
                first,
                last,
                keys,
                {name: _table(*columns) for name, columns in tables.items()},
                tuple(timers),
                {source: HeldColumns(*columns) for source, columns in held.items()},
                {name: group_state_of(*fields) for name, fields in group_states.items()},
                structures,
            )
            block._check()
        except UNREADABLE as error:
            raise ValueError(f"it is no block ({type(error).__name__}: {error})") from error
        return block

    def _check(self) -> None:
        """Check that the parts have their types, for a block that may come from somebody else.

        :raises Exception: they do not
        """
        columns: list[tuple[Iterable[Any], type]] = [(self.timers[1], int), (self.timers[2], str)]
        sizes = {len(column) for column in self.timers}
        keyed: list[Iterable[Any]] = [self.timers[0]]
        for table in self.tables.values():
            keyed += [table.packed, table.expires, table.next_timers]
            columns += [(table.packed.values(), bytes)]
            columns += [(times.values(), int) for times in (table.expires, table.next_timers)]
        for held in self.held.values():
            keyed.append(held.keys)
            columns += [(held.times, int), (held.values, bytes)]
            if len({len(held.keys), len(held.times), len(held.values)}) != 1:
                raise ValueError("columns of held events have different lengths")
        for state in self.group_states.values():
            keyed.append(state.keys)
            len(state.keys)  # raises an exception if the stored number is no length
        for names in (self.tables, self.held, self.group_states, self.structures):
            check_column(names, str)
        for structures in self.structures.values():
            check_structures(list(map(unpack, structures)))
        if len(self.timers) != 3 or len(sizes) != 1:
            raise ValueError("the columns of timers have different lengths")
        for values, type_ in columns:
            check_column(values, type_)
        for found in keyed:
            check_keys(found)

    def all_keys(self) -> list[Key]:
        """Return the keys with state, timers or held events. For key-group state, only some keys may be known."""
        found: dict[Key, None] = {}
        for table in self.tables.values():
            found |= dict.fromkeys(table.packed)
        found |= dict.fromkeys(self.timers[0])
        for held in self.held.values():
            found |= dict.fromkeys(held.keys)
        for state in self.group_states.values():
            found |= dict.fromkeys(state.keys)
        return list(found)

    @property
    def pending(self) -> int:
        """Number of pending timers of the handler and its components."""
        of_components = sum(len(table.next_timers) for table in self.tables.values())
        return len(self.timers[0]) + of_components + sum(len(state.keys) for state in self.group_states.values())

    def of_key(self, key: Key) -> "Block | None":
        """Return the part of this block that belongs to a key; `None` if there is none. Key-group state is left out."""
        (part,) = self.divided([[key]])
        return part if part.tables or part.timers[0] or part.held else None

    def divided(self, parts: Sequence[Sequence[Key]]) -> list["Block"]:
        """Return the parts of this block that belong to some keys each. Key-group state is left out."""
        blocks = [Block(self.first, self.last, len(keys)) for keys in parts]
        for name, table in self.tables.items():
            for block, keys in zip(blocks, parts, strict=True):
                part = _part(table, keys)
                if part.packed:
                    block.tables[name] = part
                    block.structures |= {name: self.structures[name]} if name in self.structures else {}
        if self.timers[0] or self.held:
            owners = {key: block for block, keys in zip(blocks, parts, strict=True) for key in keys}
            for key, *timer in zip(*self.timers, strict=True):
                if key in owners:
                    _append(owners[key].timers, key, *timer)
            for source, held in self.held.items():
                for key, *event in zip(*held, strict=True):
                    if key in owners:
                        columns = owners[key].held.setdefault(source, HeldColumns([], [], []))
                        _append(columns, key, *event)
        return blocks


def _append(columns: tuple[list[Any], ...], *row: Any) -> None:
    for column, cell in zip(columns, row, strict=True):
        column.append(cell)


def structures_of(name: str, structures: Known, block: Block) -> list[Structure]:
    """Return all structures that a spec has had, the last one last; none if they are not known."""
    return structures[name] if name in structures else list(map(unpack, block.structures.get(name, ())))


def block_of_key(group: KeyGroup, key: Key) -> list[Block]:
    """Return blocks with the state of one key of a key group, and with key-group state, which may contain the key.

    :param group: the group, in which the key is loaded
    """
    position = key_position(key)
    of_group, whole = _whole(group, position, position, left_out=())
    return [block for block in (of_group, whole.of_key(key)) if block is not None]


def blocks_of(group: KeyGroup, first: int, last: int) -> Iterator[Block]:
    """Yield the state of a completely loaded key group as blocks, ordered by position. In-memory state is left out.

    :param first: the group's first position
    :param last: the group's last position
    """
    of_group, whole = _whole(group, first, last, left_out=group.in_memory)
    if of_group is not None:
        yield of_group
    yield from _small(whole)


def _whole(group: KeyGroup, first: int, last: int, left_out: Collection[str]) -> tuple[Block | None, Block]:
    """Return the key-group state of a group as a block, if there is any, and everything else as another.

    :param left_out: names of state to leave out
    """
    states = {**group.group_states, **group.kept_states}
    states = {name: state for name, state in states.items() if name not in left_out and state.value is not None}
    tables = {**group.tables, **group.kept}
    tables = {name: table for name, table in tables.items() if name not in left_out and table.packed}
    structures = [{name: of for name, of in group.structures.items() if name in part} for part in (states, tables)]
    keys = max((len(state.keys) for state in states.values()), default=0)
    of_group = Block(first, last, keys, group_states=states, structures=structures[0]) if states else None
    timers, held = _timer_columns(group), _held_columns(group)
    return of_group, Block(first, last, 0, tables, timers, held, structures=structures[1])


def _small(block: Block) -> Iterator[Block]:
    """Divide a block into smaller ones, ordered by position."""
    sizes = _sizes(block)
    positions = dict(zip(sizes, map(key_position, sizes), strict=True))
    parts = list(_parts(sizes, sorted(sizes, key=positions.__getitem__)))
    for part, keys in zip(block.divided(parts), parts, strict=True):
        part.first, part.last = positions[keys[0]], positions[keys[-1]]
        yield part


def _sizes(block: Block) -> dict[Key, int]:
    """Return the approximate size of each key's state, in bytes."""
    sizes: dict[Key, int] = dict.fromkeys(block.timers[0], 0)
    for table in block.tables.values():
        for key, packed in table.packed.items():
            sizes[key] = sizes.get(key, 0) + len(packed)
    for held in block.held.values():
        for key, value in zip(held.keys, held.values, strict=True):
            sizes[key] = sizes.get(key, 0) + len(value)
    for key in block.timers[0]:
        sizes[key] += 16
    return sizes


def _parts(sizes: Mapping[Key, int], keys: list[Key]) -> Iterator[list[Key]]:
    start = size = 0
    for end, key in enumerate(keys, 1):
        size += sizes[key]
        if size >= _BYTES or end - start >= _KEYS or end == len(keys):
            yield keys[start:end]
            start, size = end, 0


def _timer_columns(group: KeyGroup) -> tuple[list[Key], list[int], list[str]]:
    keys: list[Key] = []
    times: list[int] = []
    for micros in sorted(group.timers.plain):
        at = group.timers.plain[micros]
        keys += at
        times += [micros] * len(at)
    tags = [""] * len(keys)
    for micros in sorted(group.timers.tagged):
        for key, of_key in group.timers.tagged[micros].items():
            keys += [key] * len(of_key)
            times += [micros] * len(of_key)
            tags += sorted(of_key)
    return keys, times, tags


def _held_columns(group: KeyGroup) -> dict[str, HeldColumns]:
    found = {}
    for source, held in group.held.items():
        columns = found[source] = HeldColumns([], [], [])
        for chunk in held.chunks:
            keys, times, values = unpack(group.packed_events(chunk))
            columns.keys.extend(unpack(keys))
            columns.times.extend(unpack_times(times))
            columns.values.extend(_packed_items(values))
    return found


def _packed_items(packed: bytes) -> Iterator[bytes]:
    """Yield the packed elements of a packed list. They are not unpacked, as they may need classes of the job.

    :raises StateDecodeError: the bytes are no packed list
    """
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(packed)
    try:
        number = unpacker.read_array_header()
        start = unpacker.tell()
        for _ in range(number):
            unpacker.skip()
            end = unpacker.tell()
            yield packed[start:end]
            start = end
    except (msgpack.UnpackException, ValueError) as error:
        raise StateDecodeError(packed, list, f"it is no packed list ({error!r})") from error


def _packed_list(packed: Sequence[bytes]) -> bytes:
    """Return a packed list with elements that are already packed."""
    header: bytes = msgpack.Packer().pack_array_header(len(packed))
    return header + b"".join(packed)


def _columns(table: StateTable) -> list[Any]:
    packed = table.packed
    times = [list(map(of.get, packed)) if of else None for of in (table.expires, table.next_timers)]
    return [list(packed), list(packed.values()), *times]


def _table(keys: list[Key], values: list[bytes], expires: Any, next_timers: Any) -> StateTable:
    table = StateTable(dict(zip(keys, values, strict=True)))
    table.expires, table.next_timers = (
        {} if times is None else {key: time for key, time in zip(keys, times, strict=True) if time is not None}
        for times in (expires, next_timers)
    )
    return table


def _part(table: StateTable, keys: Sequence[Key]) -> StateTable:
    packed, expires, next_timers = table.packed, table.expires, table.next_timers
    part = StateTable({key: packed[key] for key in keys if key in packed})
    part.expires = {key: expires[key] for key in keys if key in expires} if expires else {}
    part.next_timers = {key: next_timers[key] for key in keys if key in next_timers} if next_timers else {}
    return part


class GroupBuilder:
    """Puts blocks together to key groups.

    :param groups: number of key groups
    :param components: the job's declared components by name. They convert key-group state if the intervals of the key
        groups have changed
    :param lives: see `KeyGroup.lives`; `None` if the job is not known
    :param savepoint: the savepoint's directory, for errors
    :param by_key: `True` to convert all key-group state to per-key state
    """

    def __init__(
        self,
        groups: int,
        components: Mapping[str, Component],
        lives: Mapping[str, int] | None,
        savepoint: str,
        *,
        by_key: bool,
    ) -> None:
        self._by_key = by_key
        self._groups = groups
        self._savepoint = savepoint
        self._components = components
        self._lives = lives
        self._open: dict[int, _Building] = {}

    def groups_of(self, blocks: Iterable[Block], numbers: range) -> Iterator[tuple[int, KeyGroup]]:
        """Yield the key groups with some numbers, in ascending order. Groups without state are left out.

        :param blocks: the blocks with the groups' positions, ordered by their first position
        """
        for block in blocks:
            yield from self._finished(self._number(block.first))
            self._add(block, numbers)
        yield from self._finished(numbers.stop)

    def _finished(self, until: int) -> Iterator[tuple[int, KeyGroup]]:
        for number in sorted(number for number in self._open if number < until):
            yield number, self._open.pop(number).group()

    def _number(self, position: int) -> int:
        return position * self._groups >> 32

    def _add(self, block: Block, numbers: range) -> None:
        first, last = self._number(block.first), self._number(block.last)
        is_same = (block.first, block.last) == group_interval(first, self._groups)
        if block.group_states and (self._by_key or not is_same):
            block = by_subject(block, self._components, self._savepoint)
        if first == last:
            if first in numbers:
                self._building(first).add(block)
            return
        by_group: dict[int, list[Key]] = {}
        for key in block.all_keys():
            by_group.setdefault(key_group(key, self._groups), []).append(key)
        wanted = [number for number in by_group if number in numbers]
        for number, part in zip(wanted, block.divided([by_group[number] for number in wanted]), strict=True):
            self._building(number).add(part)

    def _building(self, number: int) -> "_Building":
        if number not in self._open:
            self._open[number] = _Building(self._lives)
        return self._open[number]


def by_subject(block: Block, components: Mapping[str, Component], savepoint: str) -> Block:
    """Return a block with key-group state, converted to per-key state.

    :param components: the job's declared components by name
    :param savepoint: the savepoint's directory, for the error
    :raises SavepointError: the job does not declare the component, which alone can read the state
    """
    group = KeyGroup(PackedGroup(None))
    group.structures, group.group_states = block.structures, dict(block.group_states)
    for name in block.group_states:
        component = components.get(name)
        if component is None:
            raise SavepointError(
                savepoint,
                f"the job no longer declares {name!r}, whose state is stored for whole key groups: start on Spark "
                "with the same key_groups, or declare it until the job has run from this savepoint once",
            )
        try:
            group.by_subject(component)
        except UNREADABLE as error:
            raise SavepointError(
                savepoint, f"the state of {name} is damaged ({type(error).__name__}: {error})"
            ) from error
    return Block(block.first, block.last, block.keys, group.tables, structures=group.structures)


class _Building:
    """A key group while blocks are added to it."""

    def __init__(self, lives: Mapping[str, int] | None) -> None:
        self._group = KeyGroup(PackedGroup(None))
        self._lives = lives
        self._held: dict[str, HeldColumns] = {}

    def add(self, block: Block) -> None:
        group = self._group
        for name, table in block.tables.items():
            into = group.tables.setdefault(name, StateTable({}))
            into.packed.update(table.packed)
            into.expires.update(table.expires)
            into.next_timers.update(table.next_timers)
        for key, micros, tag in zip(*block.timers, strict=True):
            group.timers.add(key, micros, tag)
        for source, held in block.held.items():
            columns = self._held.setdefault(source, HeldColumns([], [], []))
            columns.keys.extend(held.keys)
            columns.times.extend(held.times)
            columns.values.extend(held.values)
        group.group_states |= block.group_states
        for name, structures in block.structures.items():
            known = group.structures.setdefault(name, [])
            known += [each for each in structures if each not in known]

    def group(self) -> KeyGroup:
        if self._lives is None:  # the group is called as soon as state expires
            self._group.lives = {name: 1 for name, table in self._group.tables.items() if table.expires}
        else:
            self._group.lives = dict(self._lives)
        for source, held in self._held.items():
            packed = pack([pack(held.keys), pack(list(map(from_micros, held.times))), _packed_list(held.values)])
            self._group.held[source] = HeldEvents([HeldChunk(len(held.keys), min(held.times), packed)])
        return self._group
