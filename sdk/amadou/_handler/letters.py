from datetime import datetime
from typing import Any, Final

import attrs

LATE_EVENTS: Final = "late_events"
"""The port for late events that the job or one of its components diverts. The port's values are `LateEvent`s."""
DEAD_LETTERS: Final = "dead_letters"
"""The port for dead letters of a job with `on_error="dead_letter"`. The port's values are `DeadLetter`s."""


@attrs.frozen
class LateEvent:
    """A late event that the job or one of its components diverted.

    :param job: the job's name; ``<job>.<stage>`` in a job with several stages
    :param source: the name of the event's source; empty for an event that a timer callback added to a component
    :param key: the event's key
    :param timestamp: the event's time
    :param value: the event's value
    :param watermark: the watermark of the batch in which the event was late; `None` before the first watermark, for an
        event of a window that `max_active` has evicted
    :param by: the name of the window or join for which the event was too late; `None` if the job itself diverted the
        event
    """

    job: str
    source: str
    key: Any
    timestamp: datetime
    value: Any
    watermark: datetime | None
    by: str | None = None


@attrs.frozen
class DeadLetter:
    """A failed callback whose changes were undone, or a late event that its sink could not encode. Only jobs with
    `on_error="dead_letter"` write dead letters (`semantics.md` 19, 31).

    :param job: the job's name; ``<job>.<stage>`` in a job with several stages
    :param handler: the handler's class, as `MODULE:NAME`
    :param callback: ``key_event``, ``on_event``, ``on_timer_expired`` or the name of a function that a window or join
        called; ``late_events`` for a late event
    :param error: the type and message of the exception
    :param traceback: the formatted traceback, reduced to the frames of the user's code
    :param shown: a readable form of the record, event or timer, or of the arguments with which a window or join called
        a function
    :param source: the name of the source of the record or event; `None` for a timer, window or join
    :param record: the raw record, or the value of a port, for `key_event`, the `KeyedEvent` for `on_event` or a late
        event, `None` for a timer, window or join; the `repr` of the record or event if the sink does not support its
        type
    :param key: the subject's key; `None` for `key_event`
    :param timestamp: the callback's time: that of the event or timer, the time at which the window or join was due,
        or the `subject.timestamp` of `on_reference_changed`. For `key_event`, the time of the callback that collected
        the value, if the source is a port of another stage, otherwise `None`
    :param tag: the timer's tag; empty if the callback was not `on_timer_expired`
    :param watermark: the watermark of the batch; `None` before the first watermark, and for `key_event`
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
