"""A few of a batch's dead letters and late events in readable form, for plugins."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import attrs

from amadou import DeadLetter
from amadou.plugins import DeadLetterReport, LateEventReport
from amadou.text import error_type, redacted, shortened, shown_value

MOST: Final = 20
"""Maximum number of dead letters, and of late events."""
_MOST_OF_KIND: Final = 5
_MOST_TIMERS: Final = 100
_MOST_SPECS: Final = 20
_TEXT: Final = 2_000
_TRACEBACK: Final = 10_000
_PACKED: Final = 16_384
Report = TypeVar("Report", DeadLetterReport, LateEventReport)


@attrs.define
class Samples:
    """A few of a batch's dead letters and late events. At most five are of the same kind, so that one kind does not
    hide others.
    """

    dead_letters: list[DeadLetterReport] = attrs.field(factory=list)
    late_events: list[LateEventReport] = attrs.field(factory=list)

    def add_letter(self, letter: DeadLetter) -> None:
        """Add a dead letter if there is room for its kind."""
        if _has_room(self.dead_letters, (letter.callback, error_type(letter.error)), _kind_of_letter):
            self.dead_letters.append(_report(letter))

    def add_late(self, events: Iterable[LateEventReport]) -> None:
        """Add late events if there is room for their kind."""
        for event in events:
            if _has_room(self.late_events, _kind_of_late(event), _kind_of_late):
                self.late_events.append(event)

    def merge(self, other: "Samples") -> None:
        """Add other samples of the same batch."""
        for letter in other.dead_letters:
            if _has_room(self.dead_letters, _kind_of_letter(letter), _kind_of_letter):
                self.dead_letters.append(letter)
        self.add_late(other.late_events)

    def take(self) -> "Samples":
        """Return the samples since the last call of this method, and reset them."""
        taken = Samples(self.dead_letters, self.late_events)
        self.dead_letters, self.late_events = [], []
        return taken

    def without_secrets(self) -> "Samples":
        """Return the samples with the secrets of this process hidden. A worker may not know all secrets of a job."""
        return Samples([_redacted(each) for each in self.dead_letters], [_redacted(each) for each in self.late_events])

    def __bool__(self) -> bool:
        return bool(self.dead_letters or self.late_events)

    def to_rows(self) -> list[list[Any]]:
        """Return the samples in a form that msgpack can pack."""
        return [
            [attrs.astuple(each, recurse=False) for each in self.dead_letters],
            [attrs.astuple(each, recurse=False) for each in self.late_events],
        ]

    @classmethod
    def from_rows(cls, rows: list[list[Any]]) -> "Samples":
        """Return the samples from the result of `to_rows`."""
        letters, events = rows
        return cls([DeadLetterReport(*each) for each in letters], [LateEventReport(*each) for each in events])


_NAMES: Final = frozenset({"outcome", "callback", "source", "stage", "by"})
"""Fields of reports with words of amadou and names in the job's code."""


def _redacted(report: Report) -> Report:
    shown: dict[str, Any] = {}
    for name, value in attrs.asdict(report, recurse=False).items():
        if name in _NAMES:
            continue
        if name == "timers":
            shown[name] = [(time, redacted(tag)) for time, tag in value]
        elif isinstance(value, str):
            shown[name] = redacted(value)
        elif isinstance(value, dict):
            shown[name] = {spec: redacted(text) for spec, text in value.items()}
    return attrs.evolve(report, **shown)


def _has_room(among: list[Report], kind: tuple[Any, ...], kind_of: Callable[[Report], tuple[Any, ...]]) -> bool:
    return len(among) < MOST and sum(kind_of(each) == kind for each in among) < _MOST_OF_KIND


def _kind_of_letter(letter: DeadLetterReport) -> tuple[Any, ...]:
    return letter.callback, error_type(letter.error)


def _kind_of_late(event: LateEventReport) -> tuple[Any, ...]:
    return event.outcome, event.source, event.by


def _report(letter: DeadLetter) -> DeadLetterReport:
    return DeadLetterReport(
        callback=letter.callback,
        error=shortened(letter.error, _TEXT),
        traceback=shortened(letter.traceback, _TRACEBACK),
        shown=shortened(letter.shown, _TEXT),
        source=letter.source,
        key=None if letter.callback == "key_event" else shown_value(letter.key, _TEXT),
        timestamp=letter.timestamp,
        tag=letter.tag,
        watermark=letter.watermark,
        state={name: shown_value(letter.state[name], _TEXT) for name in list(letter.state)[:_MOST_SPECS]},
        timers=letter.timers[:_MOST_TIMERS],
        packed=letter.packed if len(letter.packed) <= _PACKED else None,
    )
