"""The base of all kinds of joins: their settings, the side of an event, the handler's callbacks."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, Literal, Required, TypeAlias, TypedDict

from amadou import Invoke, Key, KeyedEvent, Subject, from_micros
from amadou.errors import SpecError
from amadou.event_time import MICROSECOND
from amadou_plugins._calling import CallingComponent, H, LateMethod, OnLate, X
from amadou_plugins.joins._errors import JoinSourceError

Kept: TypeAlias = tuple[int, Any]
"""An event of a subject, as a join keeps it: its time in microseconds and its value."""
OnMatch: TypeAlias = Callable[[Subject, Any, Any], Any]
MatchMethod: TypeAlias = Callable[[H, Subject, Any, Any], X]


class JoinSettings(TypedDict, total=False):
    """The settings of every join; see `JoinSpec`."""

    left: Required[str]
    right: Required[str]
    allowed_lateness: timedelta
    late: Literal["drop", "divert"]
    ttl: timedelta | None
    name: str | None
    on_match: OnMatch | None
    on_late: OnLate | None


class JoinSpec(CallingComponent):
    """The base of all kinds of joins.

    :param left: name of the left source, as the job has it
    :param right: name of the right source
    :param how: the sides whose unmatched events are given, with `None` for the missing event; `"inner"` for neither
    :param allowed_lateness: event time for which events are still taken, and waited for, behind the watermark
    :param late: treatment of late events, besides `on_late`
    :param ttl: event time without a write after which a key's events expire, without a result
    :param name: as for every spec; required for a join made at run time
    :param on_match: function for results instead of a marked method: ``(subject, left, right)``
    :param on_late: likewise, for late events: ``(subject, event)``
    :raises SpecError: a setting makes no sense
    """

    noun = "join"
    hows: ClassVar[tuple[str, ...]] = ("left", "inner")
    """Values that `how` may have."""

    def __init__(
        self,
        *,
        left: str,
        right: str,
        how: str,
        allowed_lateness: timedelta = timedelta(0),
        late: Literal["drop", "divert"] = "drop",
        ttl: timedelta | None = None,
        name: str | None = None,
        on_match: OnMatch | None = None,
        on_late: OnLate | None = None,
    ) -> None:
        for side, source in (("left", left), ("right", right)):
            if type(source) is not str or not source:
                raise SpecError(f"{side} must be the name of a source, not {source!r}")
        if left == right:
            raise SpecError(f"left and right must be two sources, not {left!r} both: a join of a source with itself")
        if how not in self.hows:
            raise SpecError(f"how must be one of {', '.join(map(repr, self.hows))}, not {how!r}")
        self._left = left
        self._right = right
        self._how = how
        self.needs_sources = (left, right)
        super().__init__(
            {"on_match": on_match, "on_late": on_late},
            allowed_lateness=allowed_lateness,
            late=late,
            ttl=ttl,
            name=name,
        )

    def on_match(self, function: MatchMethod[H, X]) -> MatchMethod[H, X]:
        """Mark the handler's method for results: ``(self, subject, left, right)``. Every join needs one."""
        return self.mark("on_match", function)

    def on_late(self, function: LateMethod[H, X]) -> LateMethod[H, X]:
        """Mark the handler's method for late events: ``(self, subject, event)``. Every late event is counted as
        ``<name>.late``.
        """
        return self.mark("on_late", function)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        """Add an event of the subject, from the source that `subject.source` names.

        :raises JoinSourceError: the source is neither of the join's two
        """
        raise NotImplementedError

    def check(self) -> None:
        super().check()
        self.require("on_match")

    def _is_left(self, subject: Subject) -> bool:
        """Return true if the current event is of the left source."""
        source = subject.source
        if source != self._left and source != self._right:
            raise JoinSourceError(self.name, source, (self._left, self._right))
        return source == self._left

    def _give(self, subject: Subject, call: Invoke, left: Kept | None, right: Kept | None) -> None:
        """Give a result to the handler."""
        function = self.function("on_match", subject.handler)
        if function is None:  # of a join made at run time
            self.require("on_match")
        call(subject, function, _event(subject.key, left), _event(subject.key, right))

    def sides(self, value: Any) -> tuple[list[Kept], list[Kept]]:
        """Return the left and the right events in a key's state."""
        raise NotImplementedError

    def shown_value(self, key: Key, value: Any) -> dict[str, list[KeyedEvent[Any] | None]]:
        """Return the kept events of a key, by source."""
        lefts, rights = ([], []) if value is None else self.sides(value)
        return {
            self._left: [_event(key, kept) for kept in lefts],
            self._right: [_event(key, kept) for kept in rights],
        }

    def structure(self) -> dict[str, Any]:
        return {**super().structure(), "settings": self._settings()}

    def _fixed(self) -> dict[str, str | timedelta | None]:
        """Return the settings of the kind by name, `None` for one that is not set."""
        return {}

    def _settings(self) -> dict[str, str]:
        """Return the settings that decide which events match, and for how long events wait, as texts."""
        lateness = self._lateness * MICROSECOND if self._lateness else None
        told = {"left": self._left, "right": self._right, "how": self._how, **self._fixed()}
        given = {**told, "allowed_lateness": lateness}.items()
        return {
            name: repr(setting) if isinstance(setting, str) else str(setting)
            for name, setting in given
            if setting is not None
        }

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={told}' for name, told in self._settings().items())})"


def _event(key: Key, kept: Kept | None) -> KeyedEvent[Any] | None:
    return None if kept is None else KeyedEvent(key, from_micros(kept[0]), kept[1])
