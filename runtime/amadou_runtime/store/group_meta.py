"""The part of a key group that does not belong to individual keys, as one entry: names, structures and counts.

The counts are kept up to date from the keys that a batch loads, so that nobody has to count what is stored.
"""

import attrs

from amadou import Key
from amadou.engine import pack, unpack
from amadou.errors import StateDecodeError
from amadou_runtime.core.key_group import OTHER_RELEASE

_VERSION = 1


@attrs.define
class Slot:
    """A name under which keys have state.

    :param keys: number of keys with state under the name
    :param in_memory: `True` if the state is stored in in-memory entries
    :param has_ttl: `True` if the entries' times take into account when the state expires
    :param kept: `True` if the state is retained but not read, because the job no longer has a spec with the name
    :param structures: positions of the name's structures in `GroupMeta.structures`
    """

    name: str
    keys: int = 0
    in_memory: bool = False
    has_ttl: bool = False
    kept: bool = False
    structures: list[int] = attrs.field(factory=list)


@attrs.define
class GroupMeta:
    """The part of a key group that does not belong to individual keys.

    :param keys: number of keys with state or timers
    :param pending: number of pending timers
    :param in_memory_keys: number of keys with nothing but in-memory state
    :param in_memory_pending: number of pending timers of in-memory state
    :param epoch: the `Entries.epoch` of the in-memory entries
    :param slots: the names by slot number
    :param structures: the packed structures of components
    :param held: the chunks of held events by source, as lists of number, oldest time and id
    :param next_chunk: id of the next chunk of held events
    """

    keys: int = 0
    pending: int = 0
    in_memory_keys: int = 0
    in_memory_pending: int = 0
    epoch: str = ""
    slots: list[Slot] = attrs.field(factory=list)
    structures: list[bytes] = attrs.field(factory=list)
    held: dict[str, list[list[int]]] = attrs.field(factory=dict)
    next_chunk: int = 0

    @classmethod
    def unpack(cls, packed: bytes | None) -> "GroupMeta":
        if packed is None:
            return cls()
        version, *fields = unpack(packed)
        if version != _VERSION:
            why = f"this release reads only version {_VERSION} of a key group's entries"
            raise StateDecodeError(version, int, why, advice=OTHER_RELEASE)
        meta = cls(*fields)
        meta.slots = [Slot(*slot) for slot in fields[5]]
        return meta

    def pack(self) -> bytes:
        fields = attrs.astuple(self, recurse=False)
        return pack([_VERSION, *fields[:5], [list(attrs.astuple(slot)) for slot in self.slots], *fields[6:]])

    @property
    def is_empty(self) -> bool:
        return not self.keys and not self.held and not any(slot.keys for slot in self.slots)

    def lose_in_memory(self, epoch: str) -> None:
        """Subtract the figures of in-memory state, which has been lost."""
        self.keys -= self.in_memory_keys
        self.pending -= self.in_memory_pending
        self.in_memory_keys = self.in_memory_pending = 0
        for slot in self.slots:
            if slot.in_memory:
                slot.keys = 0
        self.epoch = epoch


class Figures:
    """Figures of the loaded keys.

    :ivar pending: number of pending timers, without those of in-memory state
    :ivar slots: number of keys with state under a name, by slot number
    """

    def __init__(self) -> None:
        self.logged_keys: set[Key] = set()
        self.in_memory_keys: set[Key] = set()
        self.pending = self.in_memory_pending = 0
        self.slots: dict[int, int] = {}

    def add_to(self, meta: GroupMeta, sign: int) -> None:
        """Add the figures to those of the group, or subtract them."""
        only_in_memory = len(self.in_memory_keys - self.logged_keys)
        meta.keys += sign * (len(self.logged_keys) + only_in_memory)
        meta.in_memory_keys += sign * only_in_memory
        meta.pending += sign * (self.pending + self.in_memory_pending)
        meta.in_memory_pending += sign * self.in_memory_pending
        for at, keys in self.slots.items():
            meta.slots[at].keys += sign * keys
