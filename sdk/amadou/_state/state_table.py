"""The state of a key group's subjects under one spec, while a batch is processed."""

from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Any

from amadou._handler.event import Key
from amadou._state.encoding import Envelope, pack, unpack, unpack_all
from amadou._state.spec import MISSING
from amadou.errors import StateDecodeError


class StateTable:
    """The state of a key group's subjects under one spec.

    State stays packed until a callback uses the spec. Then a single call unpacks the state of all subjects that the
    batch touches, which takes a third of the time of one call per subject.
    """

    __slots__ = ("batch_local", "component", "encoded_values", "expires", "has_ttl", "next_timers", "packed", "states")

    def __init__(self, packed: dict[Key, bytes]) -> None:
        self.packed = packed
        """Packed state in its stored form, by key."""
        self.has_ttl = False
        """`True` if the spec of `states` has a `ttl`."""
        self.expires: dict[Key, int] = {}
        """Event time at which the oldest part of each key's state expires, in microseconds; empty without a `ttl`."""
        self.next_timers: dict[Key, int] = {}
        """Event time of each key's next timer, in microseconds; empty unless the spec is a component."""
        self.encoded_values: dict[Key, Any] = {}
        """Unpacked state of the subjects that the batch touches, by key, without the batch's changes."""
        self.states: dict[Key, Any] = {}
        """State objects that callbacks have used, by key, including the callbacks' changes."""
        self.component: Any = None
        """The component that used the table last."""
        self.batch_local: dict[Key, Any] = {}
        """Values that a component stores until the end of the batch, by key."""

    def unpacked(self, keys: Collection[Key], spec: str) -> dict[Key, Any]:
        """Return the stored state of some subjects, all of which have state, by key.

        :param keys: the subjects' keys
        :param spec: the spec's name, for errors
        :raises StateDecodeError: the state of one of the subjects cannot be unpacked
        """
        packed = self.packed
        with suppress(StateDecodeError):
            found = unpack_all(b"".join([packed[key] for key in keys]))
            if len(found) == len(keys):
                return dict(zip(keys, found, strict=True))
        return {key: self._unpacked(key, spec) for key in keys}  # the error names the key

    def load(self, keys: Iterable[Key], spec: str) -> None:
        """Unpack the state of some subjects.

        :param keys: the subjects' keys
        :param spec: the spec's name, for errors
        :raises StateDecodeError: the state of one of the subjects cannot be unpacked
        """
        packed = self.packed
        self.encoded_values = self.unpacked([key for key in keys if key in packed], spec)

    def _unpacked(self, key: Key, spec: str) -> Any:
        try:
            return unpack(self.packed[key])
        except StateDecodeError as error:
            raise StateDecodeError(error.stored, error.type, error.why, spec, key) from error

    def store(self) -> None:
        """Pack the changed state.

        :raises EncodeError: msgpack cannot encode the state of a key; this key is then the first in `unstored`
        """
        for key, state in self.states.items():
            if state._changed:
                self.put(key, packed_state(state))

    def put(self, key: Key, packed: bytes | None) -> None:
        """Store a subject's packed state. A subject without state is removed from the table (`semantics.md` 15)."""
        state = self.states[key]
        if packed is not None:
            self.packed[key] = packed
        elif key in self.packed:
            del self.packed[key]
        if packed is not None and state.has_ttl:
            self.expires[key] = state._oldest() + state._spec.life
        elif self.expires:
            self.expires.pop(key, None)
        if packed is not None and state._spec.has_timers and state.next_timer is not None:
            self.next_timers[key] = state.next_timer
        elif self.next_timers:
            self.next_timers.pop(key, None)
        state._changed = False

    def is_changed(self, key: Key) -> bool:
        """Return `True` if callbacks changed a subject's state since it was last packed."""
        state = self.states.get(key)
        return state is not None and state._changed

    def mark_changed(self, key: Key) -> None:
        """Mark a subject's state as changed so that it is packed again, for example after parts have expired."""
        self.states[key]._changed = True

    def packed_now(self, key: Key) -> bytes | None:
        """Return a subject's packed state, including the changes of callbacks; `None` if there is no state.

        :raises EncodeError: msgpack cannot encode the state
        """
        return packed_state(self.states[key]) if self.is_changed(key) else self.packed.get(key)

    def keys(self) -> list[Key]:
        """Return the keys of the subjects that currently have state."""
        had = [key for key in self.packed if key not in self.states]
        return [*had, *(key for key, state in self.states.items() if state._stored() is not MISSING)]

    def undo(self, key: Key) -> None:
        """Undo the changes that callbacks made to a subject's state since it was last packed."""
        if self.states.pop(key, None) is not None:
            self.encoded_values.pop(key, None)
            if key in self.packed:
                self.encoded_values[key] = unpack(self.packed[key])

    def unstored(self) -> list[Key]:
        """Return the keys whose state has changed but is not packed yet."""
        return [key for key, state in self.states.items() if state._changed]


def packed_state(state: Any) -> bytes | None:
    """Return the packed form of a state object; `None` if it contains no state.

    :raises EncodeError: msgpack cannot encode the state
    """
    encoded, spec = state._stored(), state._spec
    if encoded is MISSING:
        return None
    return pack(encoded if spec.is_plain else Envelope(spec.version, state.has_ttl, encoded))
