"""The base class of all joins: settings, the sides of events, and the handler's callbacks."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict

from typing_extensions import Required

from amadou import Key, KeyedEvent, Subject
from amadou.components import Invoke, copied
from amadou.errors import SpecError
from amadou.event_time import from_micros
from amadou_plugins._calling import CallingComponent, H, OnLate, X
from amadou_plugins.joins._errors import JoinSourceError

Kept: TypeAlias = tuple[int, Any]
"""A subject's event in the form that a join stores: the event's time in microseconds, and the event's value."""
OnMatch: TypeAlias = Callable[[Subject, Any, Any], Any]
MatchMethod: TypeAlias = Callable[[H, Subject, Any, Any], X]


class JoinSettings(TypedDict, total=False):
    """The settings that all joins share; see `JoinSpec`."""

    left: Required[str]
    right: Required[str]
    allowed_lateness: timedelta
    late: Literal["drop", "divert"]
    ttl: timedelta | None
    name: str | None
    on_match: OnMatch | None
    on_late: OnLate | None


class JoinSpec(CallingComponent):
    """The base class of all joins.

    :param left: name of the left source in the job
    :param right: name of the right source in the job
    :param how: sides whose unmatched events are emitted, with `None` in place of the partner; `"inner"` emits no
        unmatched events
    :param allowed_lateness: extra event time for which the join waits for out-of-order events. Results that such events
        could change are delayed by this time
    :param late: `"drop"` drops late events; `"divert"` sends them to the `late_events` sink. Either way, `on_late`
        receives them
    :param ttl: for joins that the watermark does not limit: event time without an event for a key after which the join
        drops the key's stored events, counted as ``<name>.expired``. For others, a `ttl` under the time that a result
        needs is an error, and a longer one has no effect (`semantics.md` 16)
    :param name: name that the state is stored under; defaults to the attribute's name, and is required for a join
        created at run time
    :param on_match: function to call with each result, in place of a method decorated with `on_match`:
        ``(subject, left, right)``
    :param on_late: function that receives late events: ``(subject, event)``
    :raises SpecError: a setting is invalid
    """

    noun = "join"
    hows: ClassVar[tuple[str, ...]] = ("left", "inner")
    """Valid values of `how`."""

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
            raise SpecError(f"left and right must be two different sources, not both {left!r}")
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
        """Mark the handler method that receives results: ``(self, subject, left, right)``. Every join needs such a
        method, or a function passed as `on_match`.
        """
        return self.mark("on_match", function)

    def add(self, subject: Subject, event: KeyedEvent[Any]) -> None:
        """Add an event for a subject; `subject.source` is the name of the event's source.

        :raises JoinSourceError: the event's source is neither the left nor the right source of the join
        """
        raise NotImplementedError

    def check(self) -> None:
        super().check()
        self.require("on_match")

    def _is_left(self, subject: Subject) -> bool:
        """Return `True` if the current event is from the left source, and `False` if it is from the right source.

        :raises JoinSourceError: the event is from neither source
        """
        source = subject.source
        if source != self._left and source != self._right:
            raise JoinSourceError(self.name, source, (self._left, self._right))
        return source == self._left

    def _give(self, subject: Subject, call: Invoke, left: Kept | None, right: Kept | None) -> None:
        """Pass a result to the `on_match` function."""
        function = self.function("on_match", subject.handler)
        if function is None:  # only a join created at run time can lack a function
            self.require("on_match")
        call(subject, function, _event(subject.key, left), _event(subject.key, right))

    def sides(self, value: Any) -> tuple[list[Kept], list[Kept]]:
        """Return the left and the right events in a key's state."""
        raise NotImplementedError

    def shown_value(self, key: Key, value: Any) -> dict[str, list[KeyedEvent[Any] | None]]:
        """Return the stored events of a key, by source."""
        lefts, rights = ([], []) if value is None else self.sides(value)
        return {
            self._left: [_event(key, kept) for kept in lefts],
            self._right: [_event(key, kept) for kept in rights],
        }

    def _fixed(self) -> dict[str, Any]:
        return {"left": self._left, "right": self._right, "how": self._how}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={setting}' for name, setting in self._settings().items())})"


def _event(key: Key, kept: Kept | None) -> KeyedEvent[Any] | None:
    return None if kept is None else KeyedEvent(key, from_micros(kept[0]), copied(kept[1]))
