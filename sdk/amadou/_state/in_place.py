"""Finds values that a callback reads from state or assigns, and then changes in place: such a change is not stored
(`semantics.md` 14).
"""

from collections.abc import Callable
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from amadou._connectors.codec import LEAVES
from amadou._state.encoding import pack
from amadou._state.unchanged import Comparison, comparison_for, is_unknown
from amadou.errors import InPlaceChangeError

_watch: ContextVar["Watch | None"] = ContextVar("watch", default=None)

IMMUTABLE: Final = frozenset(LEAVES)
"""Types whose values cannot be changed in place: for speed, they are not noted."""


class PartsState(Protocol):
    """A subject's state, whose parts have values: one value, the values of a map or the items of a list."""

    _spec: Any

    def _holds(self, at: Any, part: Any) -> bool:
        """Return `True` if a part is still in the state.

        :param at: where the part was: the encoded key of a map, the `id` of a list's part, or `None`
        """

    def _content(self, part: Any) -> Any:
        """Return the encoded value of a part."""

    def _read(self, part: Any) -> Any:
        """Return the value of a part."""

    def _assignment(self, at: Any) -> str:
        """Return the code that assigns a part, up to the equals sign."""


class _Seen(NamedTuple):
    """A value that a callback has read or assigned, and its part of the state."""

    state: PartsState
    at: Any
    part: Any
    value: Any
    is_assigned: bool

    def has_changed(self) -> bool:
        """Return `True` if the value has been changed, and the change is not stored."""
        try:
            now = self.state._spec.encode_part(self.value)
        except Exception:  # also of a codec of the user
            now = _Unfit
        if now == self.state._content(self.part):
            return False
        return self._was(now) is False and self.state._holds(self.at, self.part)

    def _was(self, now: Any) -> bool | None:
        """Return `True` if the value had this encoded form when it was read or assigned; `None` if that is not known,
        because the form is different each time.
        """
        encode = self.state._spec.encode_part
        if self.is_assigned:
            return None if now is not _Unfit and encode(self.value) != now else False
        try:
            first, second = (pack(encode(self.state._read(self.part))) for _ in range(2))
        except Exception:
            return None
        return (now is not _Unfit and pack(now) == first) if first == second else None


class _Unfit:
    """Stands for the encoded form of a value that does not fit the state."""


class Watch:
    """The values that a callback has read from state or assigned, and that can be changed in place: those from when the
    context is entered until it is left.
    """

    __slots__ = ("_last", "_token", "notes")

    def __init__(self) -> None:
        self.notes: list[tuple[PartsState, Any, Any, Any, bool]] = []
        """The fields of a `_Seen` for each value, as plain tuples for speed."""
        self._last: dict[tuple[int, Any], int] = {}
        """By part that was assigned or cleared, the number of notes that no longer matter."""

    def __enter__(self) -> "Watch":
        self._token = _watch.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _watch.reset(self._token)

    def add_assigned(self, state: PartsState, at: Any, part: Any, value: Any) -> None:
        self.forget(state, at)
        self.notes.append((state, at, part, value, True))

    def forget(self, state: PartsState, at: Any) -> None:
        self._last[id(state), at] = len(self.notes)

    def check(self) -> None:
        """Check that the values are as they are stored.

        :raises InPlaceChangeError: a value has been changed in place
        """
        last, of = self._last, None
        is_same: Comparison
        content_of: Callable[[Any], Any]
        for position, (state, at, part, value, is_assigned) in enumerate(self.notes):
            if last and last.get((id(state), at), 0) > position:
                continue
            if state is not of:
                of, is_same, content_of = state, _comparison(state._spec), state._content
            try:
                if is_same(value, content_of(part)):
                    continue
            except Exception:  # the value may no longer fit the type
                pass
            if _Seen(state, at, part, value, is_assigned).has_changed():
                raise InPlaceChangeError(state._spec.name, state._assignment(at))


@lru_cache(maxsize=1024)
def _comparison(spec: Any) -> Comparison:
    """Return the comparison for the parts of a spec; see `comparison_for`. By spec, since hashing a union is slow."""
    try:
        return is_unknown if spec._codec is not None else comparison_for(spec._shown_part())
    except Exception:  # such as a type that cannot be hashed
        return is_unknown


def note_read(state: PartsState, at: Any, part: Any, value: Any) -> None:
    """Note that a callback reads a value from state that is not `IMMUTABLE`."""
    watch = _watch.get()
    if watch is not None and state._spec.is_watched:
        watch.notes.append((state, at, part, value, False))  # not in a method, since there can be many values


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
