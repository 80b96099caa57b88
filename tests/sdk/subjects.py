"""A subject as the operator core makes it, for tests of state and timers."""

from datetime import UTC, datetime
from typing import Any

from amadou import Handler, Subject
from amadou.engine import Batch, StateTable, Timers, pack, unpack
from amadou.event_time import to_micros

START = datetime(2025, 1, 1, tzinfo=UTC)


class MyHandler(Handler):
    """Does nothing."""


def new_subject(
    key: Any = "k", *, watermark: datetime | None = None, has_timer_callback: bool = True, wires: Any = None
) -> Subject:
    """A subject without timers.

    :param wires: its state in wire form by spec name
    """
    micros = None if watermark is None else to_micros(watermark)
    columns = {spec: StateTable({key: pack(wire)}) for spec, wire in (wires or {}).items()}
    subject = Subject(Batch(MyHandler(), has_timer_callback, {}, micros, columns, Timers({}, {}), [key]))
    subject.key = key
    subject.timestamp = START
    return subject


def stored(subject: Subject) -> dict[str, Any]:
    """What the batch leaves of the subject's state, in wire form by spec name."""
    left = {}
    for spec, column in subject._batch.columns.items():
        column.store()
        if column.packed:
            left[spec] = unpack(column.packed[subject.key])
    return left


def reloaded(subject: Subject) -> Subject:
    """The subject as the next batch finds it."""
    return new_subject(subject.key, wires=stored(subject))
