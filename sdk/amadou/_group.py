"""What the subjects of a key group have while a batch is processed: state by spec, and timers."""

from collections.abc import Iterable
from typing import Any

from amadou._event import Key
from amadou._spec import MISSING
from amadou._wire import Envelope, pack, unpack, unpack_all
from amadou.errors import StateDecodeError
from amadou.event_time import MICROSECOND


class Column:
    """What the subjects have under one spec.

    A subject's part stays packed until a callback asks for the spec; then those of all subjects that the batch touches
    are unpacked in one call, which takes a third of unpacking each alone.
    """

    __slots__ = ("ages", "component", "expires", "noted", "packed", "states", "wakes", "wires")

    def __init__(self, packed: dict[Key, bytes]) -> None:
        self.packed = packed
        """As it is stored, by key."""
        self.ages = False
        """Whether the spec of `states` has a time to live."""
        self.expires: dict[Key, int] = {}
        """When the oldest part of it is gone, by key, in microseconds; of a spec with a time to live."""
        self.wakes: dict[Key, int] = {}
        """When the component of that name is to be woken, by key, in microseconds."""
        self.wires: dict[Key, Any] = {}
        """Unpacked, of the subjects that the batch touches; as the batch found it."""
        self.states: dict[Key, Any] = {}
        """What callbacks asked for, as they left it."""
        self.component: Any = None
        """The component that asked for it last, of those of that name."""
        self.noted: dict[Key, Any] = {}
        """What a component notes for the rest of the batch."""

    def unpacked(self) -> list[Any]:
        """What all subjects have, as it is stored, in the order of `packed`."""
        return unpack_all(b"".join(self.packed.values()))

    def load(self, keys: Iterable[Key], spec: str) -> None:
        """Unpack what some subjects have.

        :param spec: the spec's name, for errors
        :raises StateDecodeError: what one of them has cannot be unpacked
        """
        packed = self.packed
        known = [key for key in keys if key in packed]
        try:
            self.wires = dict(zip(known, unpack_all(b"".join([packed[key] for key in known])), strict=True))
        except StateDecodeError:
            self.wires = {key: self._unpacked(key, spec) for key in known}  # tells whose it is

    def _unpacked(self, key: Key, spec: str) -> Any:
        try:
            return unpack(self.packed[key])
        except StateDecodeError as error:
            raise StateDecodeError(error.stored, error.type, error.why, spec, key) from error

    def store(self) -> None:
        """Pack what changed.

        :raises EncodeError: msgpack cannot carry what the first of `unstored` has
        """
        for key, state in self.states.items():
            if state._changed:
                self.put(key, packed_state(state))

    def put(self, key: Key, packed: bytes | None) -> None:
        """Note a subject's part as packed; nothing stays of a subject that has nothing (`semantics.md` 15)."""
        state = self.states[key]
        if packed is not None:
            self.packed[key] = packed
        elif key in self.packed:
            del self.packed[key]
        if packed is not None and state.ages:
            self.expires[key] = state._oldest() + state._spec.ttl // MICROSECOND
        elif self.expires:
            self.expires.pop(key, None)
        if packed is not None and state._spec.wakes and state.wake_at is not None:
            self.wakes[key] = state.wake_at
        elif self.wakes:
            self.wakes.pop(key, None)
        state._changed = False

    def undo(self, key: Key) -> None:
        """Forget what callbacks did to a subject's part since it was last packed."""
        if self.states.pop(key, None) is not None:
            self.wires.pop(key, None)
            if key in self.packed:
                self.wires[key] = unpack(self.packed[key])

    def unstored(self) -> list[Key]:
        """The keys whose state changed and is not packed yet."""
        return [key for key, state in self.states.items() if state._changed]


def packed_state(state: Any) -> bytes | None:
    """What a state object is stored as; `None` for nothing.

    :raises EncodeError: msgpack cannot carry it
    """
    wire, spec = state._stored(), state._spec
    if wire is MISSING:
        return None
    return pack(wire if spec.is_plain else Envelope(spec.version, state.ages, wire))


class Timers:
    """The pending timers of the subjects, by time: windows of many subjects end together. Times are in microseconds."""

    __slots__ = ("_before", "_times", "changes", "pending", "plain", "removed", "tagged")

    def __init__(self, plain: dict[int, dict[Key, None]], tagged: dict[int, dict[Key, set[str]]]) -> None:
        self.plain = plain
        """Whose timers without a tag are due at a time: the keys of a dict, which stay in their order."""
        self.tagged = tagged
        """The tags of the others, by time and key."""
        self.pending = sum(map(len, plain.values()))
        """How many timers there are."""
        self.pending += sum(len(tags) for keys in tagged.values() for tags in keys.values())
        self.removed = 0
        """How many were removed since."""
        self.changes: list[tuple[Key, int, str, bool]] | None = None
        """What was added (true) and discarded (false), for whoever may want to undo it; `None` where nobody does."""
        self._before = self.pending
        # By key, from when a callback first asks; times that are gone stay here, and have no tags.
        self._times: dict[Key, set[int]] | None = None

    @property
    def added(self) -> int:
        """How many were added since: counted this way, since most events add one."""
        return self.pending - self._before + self.removed

    def add(self, key: Key, micros: int, tag: str) -> None:
        """Add a timer; one that is there already stays (`semantics.md` 10)."""
        if tag:
            tags = self.tagged.setdefault(micros, {}).setdefault(key, set())
            if tag in tags:
                return
            tags.add(tag)
        else:
            keys = self.plain.get(micros)
            if keys is None:
                keys = self.plain[micros] = {}
            elif key in keys:
                return
            keys[key] = None
        self.pending += 1
        if self.changes is not None:
            self.changes.append((key, micros, tag, True))
        if self._times is not None:
            self._times.setdefault(key, set()).add(micros)

    def discard(self, key: Key, micros: int, tag: str) -> bool:
        """Remove a timer. Returns whether there was one."""
        times: dict[int, dict[Key, Any]] = self.tagged if tag else self.plain
        keys = times.get(micros)
        if keys is None or key not in keys:
            return False
        if tag:
            tags = keys[key]
            if tag not in tags:
                return False
            tags.remove(tag)
        if not tag or not tags:
            del keys[key]
            if not keys:
                del times[micros]
        self.pending -= 1
        self.removed += 1
        if self.changes is not None:
            self.changes.append((key, micros, tag, False))
        return True

    def take(self, micros: int) -> dict[Key, None]:
        """Remove the timers without a tag at a time. Returns whose they were."""
        keys = self.plain.pop(micros, {})
        self.pending -= len(keys)
        self.removed += len(keys)
        return keys

    def due(self, watermark: int | None) -> list[int]:
        """The times that a watermark has reached, in their order."""
        if watermark is None:
            return []
        return sorted(micros for micros in {*self.plain, *self.tagged} if micros <= watermark)

    def at(self, micros: int) -> dict[Key, Any]:
        """The keys that have timers at a time."""
        plain, tagged = self.plain.get(micros, {}), self.tagged.get(micros)
        return {**plain, **tagged} if tagged else plain

    def tags(self, key: Key, micros: int) -> list[str]:
        """The tags of a key's timers at a time, in their order; that of a timer without one is empty."""
        plain = [""] if key in self.plain.get(micros, ()) else []
        tagged = self.tagged.get(micros)
        return [*plain, *sorted(tagged.get(key, ()))] if tagged else plain

    def of(self, key: Key) -> list[tuple[int, str]]:
        """A subject's timers, by time and tag."""
        if self._times is None:
            self._times = {}
            for times in (self.plain, self.tagged):
                for micros, keys in times.items():
                    for other in keys:
                        self._times.setdefault(other, set()).add(micros)
        return [(micros, tag) for micros in sorted(self._times.get(key, ())) for tag in self.tags(key, micros)]

    def next_time(self) -> int | None:
        """When the next timer is due."""
        return min((*self.plain, *self.tagged), default=None)
