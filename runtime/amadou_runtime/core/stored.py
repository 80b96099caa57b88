"""What a store does for a batch. Each form in which state is stored implements these protocols."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import attrs

from amadou import Key

if TYPE_CHECKING:
    from amadou_runtime.core.group_batch import ProcessedGroup
    from amadou_runtime.core.key_group import HeldChunk, KeyGroup
    from amadou_runtime.core.key_range import StoreResult
    from amadou_runtime.core.operator import Operator


@attrs.define(kw_only=True)
class GroupChanges:
    """A batch's changes to a key group. Each store has a subclass with the changes in its own form.

    :param keys: number of keys with state or timers after the batch
    :param pending: number of pending timers of the handler and its components after the batch
    :param retired: the names of state that is retained but not read, because the job no longer has specs with these
        names
    :param has_in_memory: `True` if the group has in-memory state, which is valid only in the current run
    :param watched: the names under which keys watch a reference
    """

    keys: int
    pending: int
    retired: list[str]
    has_in_memory: bool
    watched: list[str]


class StoredGroup(Protocol):
    """The state of a key group in a store. This is the interface between the operator and the place where state lives.

    The operator reads the state into a `KeyGroup`, processes the batch, and takes the changes from the `KeyGroup`. The
    stored state itself does not change: the engine stores the changes when the batch has succeeded.
    """

    def begin(self, group: "KeyGroup") -> None:
        """Set the group's attributes that do not belong to individual keys, such as `held` and `lost`."""

    def load(self, group: "KeyGroup", keys: Collection[Key], by: int | None) -> None:
        """Load state and timers into `group.tables` and `group.timers`: those of the given keys, and those of all keys
        with a timer that is due, or with state that expires.

        :param by: the event time, in microseconds, by which timers are due and state expires; `None` to load only keys
        """

    def load_all(self, group: "KeyGroup") -> None:
        """Load the state and timers of all keys, for work that concerns all keys, such as dropping retired state."""

    def load_watching(self, group: "KeyGroup", name: str) -> None:
        """Load the state and timers of the keys with state under a name with which keys watch a reference."""

    def has_loaded(self, key: Key) -> bool:
        """Return `True` if a key's state has been loaded, or if the key has no state."""

    def held_events(self, chunk: "HeldChunk") -> bytes:
        """Return the packed events of a chunk that is stored but not loaded."""

    def others(self, name: str) -> int:
        """Return the number of keys that have state under a name but are not loaded."""

    def changes(self, group: "KeyGroup") -> GroupChanges:
        """Return the batch's changes. Call this method once, after the batch.

        :raises EncodeError: a key cannot be packed
        """


class StoredRange(Protocol):
    """The key groups of a range during a batch. The driver of the batch calls it."""

    def called(self, operator: "Operator", watermark: int | None, limits: Mapping[str, int]) -> Iterable[int]:
        """Return the numbers of the groups that must be processed even without events."""

    def group(self, number: int) -> StoredGroup:
        """Return a key group's state, including the changes that the range has taken."""

    def take(self, number: int, processed: "ProcessedGroup") -> None:
        """Take the changes of a processed group."""


class RangeState(Protocol):
    """The state of a key range between batches. The engine calls it: `load` begins a batch, and `store` ends it. A
    batch that fails is not stored.
    """

    def load(self, run: str) -> StoredRange:
        """Return the range that is stored.

        :param run: the id of the current run
        """

    def fill(self, groups: Iterable[tuple[int, "KeyGroup"]], run: str) -> "StoreResult":
        """Store the first state of the range.

        :param groups: completely loaded groups by number, without in-memory state
        """

    def store(self) -> "StoreResult":
        """Store the changes that the range from `load` has taken."""
