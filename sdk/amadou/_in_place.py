"""Finds values that a callback reads from state or assigns, and then changes in place: such a change is not stored
(`semantics.md` 14).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

import attrs

from amadou._codec import LEAVES
from amadou._encoding import pack
from amadou.errors import InPlaceChangeError

_watch: ContextVar["Watch | None"] = ContextVar("watch", default=None)

IMMUTABLE: Final = frozenset(LEAVES)
"""Types whose values cannot be changed in place: for speed, they are not noted."""


class PartsState(Protocol):
    """A subject's state, whose parts have values: one value, the values of a map or the items of a list."""

    _spec: Any

    def _holds(self, at: Any, part: Any) -> bool:
        """Return `True` if an encoded part is still in the state.

        :param at: where the part was: the encoded key of a map, the `id` of a list's part, or `None`
        """

    def _assignment(self, at: Any) -> str:
        """Return the code that assigns a part, up to the equals sign."""


@attrs.frozen(eq=False)
class _Seen:
    """A value that a callback has read or assigned.

    :param part: its encoded part of the state
    :param packed: the value at that time
    """

    state: PartsState
    at: Any
    part: Any
    value: Any
    packed: bytes

    def has_changed(self) -> bool:
        """Return `True` if the value has been changed, and the change is not stored."""
        return _packed(self.state, self.value) != self.packed and self.state._holds(self.at, self.part)


class Watch:
    """The values that a callback has read from state or assigned, and that can be changed in place."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, Any], list[_Seen]] = {}

    def add_read(self, state: PartsState, at: Any, part: Any, value: Any) -> None:
        packed = _packed(state, value)
        if packed is not None:
            self._seen.setdefault((id(state), at), []).append(_Seen(state, at, part, value, packed))

    def add_assigned(self, state: PartsState, at: Any, part: Any, value: Any) -> None:
        self.forget(state, at)
        self.add_read(state, at, part, value)

    def forget(self, state: PartsState, at: Any) -> None:
        self._seen.pop((id(state), at), None)

    def check(self) -> None:
        """Check that the values are as they are stored.

        :raises InPlaceChangeError: a value has been changed in place
        """
        for values in self._seen.values():
            for seen in values:
                if seen.has_changed():
                    raise InPlaceChangeError(seen.state._spec.name, seen.state._assignment(seen.at))


def _packed(state: PartsState, value: Any) -> bytes | None:
    """Return a value in packed form; `None` if it does not fit the state."""
    try:
        return pack(state._spec.encode_part(value))
    except Exception:  # also of a codec of the user
        return None


@contextmanager
def watched() -> Iterator[Watch]:
    """Within the context, record which values are read from state or assigned."""
    watch = Watch()
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


def note_read(state: PartsState, at: Any, part: Any, value: Any) -> None:
    """Note that a callback reads a value from state that is not `IMMUTABLE`."""
    watch = _watch.get()
    if watch is not None and state._spec.is_watched:
        watch.add_read(state, at, part, value)


def note_assigned(state: PartsState, at: Any, part: Any, value: Any) -> None:
    """Note that a callback assigns a value that is not `IMMUTABLE`."""
    watch = _watch.get()
    if watch is not None and state._spec.is_watched:
        watch.add_assigned(state, at, part, value)


def note_cleared(state: PartsState, at: Any) -> None:
    """Note that a callback clears a value."""
    watch = _watch.get()
    if watch is not None:
        watch.forget(state, at)
