"""A subject as the operator core makes it, for tests of state and timers."""

from datetime import UTC, datetime
from typing import Any

from amadou import Subject
from amadou._subject import Batch
from amadou._time import to_micros
from amadou._wire import pack, unpack

START = datetime(2025, 1, 1, tzinfo=UTC)


def new_subject(
    key: Any = "k", *, watermark: datetime | None = None, has_timer_callback: bool = True, wires: Any = None
) -> Subject:
    """A subject without timers."""
    micros = None if watermark is None else to_micros(watermark)
    subject = Subject(key, Batch("MyHandler", has_timer_callback, {}, micros), wires or {}, {})
    subject.timestamp = START
    return subject


def reloaded(subject: Subject) -> Subject:
    """The subject as the next batch finds it."""
    return new_subject(subject.key, wires=unpack(pack(subject._wires)))
