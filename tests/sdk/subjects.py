"""Makes subjects like those of the operator core, for tests of state and timers."""

from datetime import datetime, timezone
from typing import Any

from amadou import Handler, Subject
from amadou.engine import Batch, StateTable, Timers, pack, unpack
from amadou.event_time import to_micros

START = datetime(2025, 1, 1, tzinfo=timezone.utc)


class MyHandler(Handler):
    """Does nothing."""


def new_subject(
    key: Any = "k", *, watermark: datetime | None = None, has_timer_callback: bool = True, encoded_values: Any = None
) -> Subject:
    """Make a subject without timers.

    :param encoded_values: encoded state of the subject by spec name
    """
    micros = None if watermark is None else to_micros(watermark)
    tables = {spec: StateTable({key: pack(encoded)}) for spec, encoded in (encoded_values or {}).items()}
    subject = Subject(Batch(MyHandler(), has_timer_callback, {}, micros, tables, Timers({}, {}), [key]))
    subject.key = key
    subject.timestamp = START
    return subject


def stored(subject: Subject) -> dict[str, Any]:
    """Return the encoded state that a batch stores for the subject, by spec name."""
    left = {}
    for spec, table in subject._batch.tables.items():
        table.store()
        if table.packed:
            left[spec] = unpack(table.packed[subject.key])
    return left


def reloaded(subject: Subject) -> Subject:
    """Return the subject with the state that the next batch reads."""
    return new_subject(subject.key, encoded_values=stored(subject))
