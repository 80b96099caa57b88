from datetime import datetime
from typing import Any, Final

import attrs

LATE_EVENTS: Final = "late_events"
"""The port for late events that the job or one of its components diverts. Its values are `LateEvent`s."""
DEAD_LETTERS: Final = "dead_letters"
"""The port for dead letters of a job with `on_error="dead_letter"`. Its values are `DeadLetter`s."""


@attrs.frozen
class LateEvent:
    """A late event that the job or one of its components diverted.

    :param job: the job's name
    :param source: the name of the event's source
    :param key: the event's key
    :param timestamp: the event's time
    :param value: the event's value
    :param watermark: the watermark of the event's batch
    :param by: the name of the window for which the event was too late; `None` if the job itself diverted the event
    """

    job: str
    source: str
    key: Any
    timestamp: datetime
    value: Any
    watermark: datetime
    by: str | None = None


@attrs.frozen
class DeadLetter:
    """A failed callback whose changes were undone, in a job that continues after failures (`semantics.md` 19).

    :param job: the job's name
    :param handler: the handler's class, as `MODULE:NAME`
    :param callback: ``key_event``, ``on_event``, ``on_timer_expired`` or the name of a window's callback
    :param error: the type and message of the exception
    :param traceback: the formatted traceback, reduced to the frames of the user's code
    :param shown: a readable form of the record, event or timer
    :param source: the name of the source; `None` for a timer
    :param record: the raw record in `key_event`, the `KeyedEvent` in `on_event`, `None` for a timer; the
        `repr` of this value if the sink does not support the value
    :param key: the subject's key; `None` in `key_event`
    :param timestamp: the time of the event or timer, or the time at which the window was due; `None` in `key_event`
    :param tag: the timer's tag
    :param watermark: the watermark of the batch; `None` before the first watermark, and in `key_event`
    :param state: the key's state before the callback, by spec name
    :param timers: the key's pending timers before the callback, as pairs of timestamp and tag
    :param packed: the data that `amadou reproduce` and `amadou replay` need to run the callback again
    """

    job: str
    handler: str
    callback: str
    error: str
    traceback: str
    shown: str
    source: str | None
    record: Any
    key: Any
    timestamp: datetime | None
    tag: str
    watermark: datetime | None
    state: dict[str, Any]
    timers: list[tuple[datetime, str]]
    packed: bytes
