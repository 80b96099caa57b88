"""The rows between Spark's stages: each has a number and bytes.

Rows with the same number reach the same task. The rows of a key range have its number, and all others have negative
numbers. The first byte says what a row contains: one of the classes below.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from amadou.engine import pack, unpack
from amadou_runtime.formats.compressed import pack_compressed, unpack_compressed

KEYED: Final = "range int, event_time timestamp, chunk binary"
"""Columns of the rows for the stateful stage. Only Spark uses the event time; see `timeouts`."""
RESULT: Final = "range int, result binary"
"""Columns of the rows for the output stage and the driver."""
REPORTS: Final = -1
"""Number of the rows with reports."""
_PASSED: Final = -2
"""Numbers from this one downwards are those of rows that are passed on. There is a number for each range, so that the
rows are spread over the tasks.
"""


class Events(NamedTuple):
    """Events of a key range: those of a block of records, packed by key group."""

    source: str
    order: bytes
    by_group: Mapping[int, bytes]


class Combined(NamedTuple):
    """Events of a key range in combined form by key group; see `core.combining`."""

    source: str
    by_group: Mapping[int, bytes]


class Update(NamedTuple):
    """Packed updates of a reference. Each key range gets them."""

    source: str
    order: bytes
    events: bytes


class Mark(NamedTuple):
    """The newest and the oldest event time of a source that is part of a dependency. Each key range gets it."""

    source: str
    newest: int
    oldest: int | None


class Replay(NamedTuple):
    """The dead letters to replay in a key range, by key group: the fields of a `ReplayedGroup`."""

    by_group: Mapping[int, Sequence[Any]]


class Call(NamedTuple):
    """Makes Spark call the stateful stage for a key range."""


RangeRow: TypeAlias = Events | Combined | Update | Mark | Replay | Call
_TAGS: Final[Mapping[type[RangeRow], bytes]] = {
    Events: b"e",
    Combined: b"c",
    Update: b"u",
    Mark: b"m",
    Replay: b"r",
    Call: b"w",
}
_OF_TAG: Final = {tag: kind for kind, tag in _TAGS.items()}
_PASSED_ON, _REPORT, _DONE = b"p", b"s", b"d"


def packed(row: RangeRow) -> bytes:
    """Pack the content of a row of a key range."""
    return _TAGS[type(row)] + (pack_compressed([*row]) if row else b"")


def unpacked(content: bytes) -> RangeRow:
    """Unpack the content of a row of a key range."""
    kind: Any = _OF_TAG[content[:1]]
    return kind(*unpack_compressed(content[1:])) if len(content) > 1 else kind()  # type: ignore[no-any-return]


def report_row(summary: bytes) -> tuple[int, bytes]:
    """Return a row with a packed `Summary` for the output stage of the stage that the row goes to."""
    return REPORTS, _REPORT + summary


def done_row(summary: bytes) -> tuple[int, bytes]:
    """Return a row for the driver, with a packed `Summary` whose outputs have been written. All stages pass it on."""
    return REPORTS, _DONE + summary


def passed_row(stage: str, number: int, content: bytes) -> tuple[int, bytes]:
    """Return a row for a later stage, with which it has another number. The stages in between pass it on."""
    return _PASSED - abs(number), _PASSED_ON + pack([stage, number, content])


def report_in(content: bytes) -> bytes | None:
    """Return the packed `Summary` of a report; `None` for another row."""
    return content[1:] if content[:1] == _REPORT else None


def done_in(content: bytes) -> bytes:
    """Return the packed `Summary` of a row for the driver."""
    return content[1:]


def row_for(stage: str, number: int, content: bytes) -> tuple[int, bytes]:
    """Return a row for the next stage: as it is there if it was passed on to this stage, otherwise unchanged."""
    if content[:1] != _PASSED_ON:
        return number, content
    target, there, inner = unpack(content[1:])
    return (there, inner) if target == stage else (number, content)
