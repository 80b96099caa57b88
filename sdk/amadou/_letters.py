from datetime import datetime
from typing import Any, Final

import attrs

LATE_EVENTS: Final = "late_events"
"""The port of a job with `late_events="divert"`; its values are `LateEvent`s."""
DEAD_LETTERS: Final = "dead_letters"
"""The port of a job with `on_error="dead_letter"`; its values are `DeadLetter`s."""


@attrs.frozen
class LateEvent:
    """An event behind the watermark of its batch, in a job that diverts such events.

    :param job: the job's name
    :param source: the name of the event's source
    :param key: the event's key
    :param timestamp: the event's time
    :param value: the event's value
    :param watermark: the watermark of its batch
    :param by: the window for which it is too late; `None` if the job itself diverts events behind the watermark
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
    """A callback that failed and was undone, in a job that goes on after the failure (`semantics.md` 19).

    :param job: the job's name
    :param handler: the handler's class, as `MODULE:NAME`
    :param callback: ``key_event``, ``on_event``, ``on_timer_expired`` or the name of a window's callback
    :param error: the type and message of the exception
    :param traceback: the formatted traceback, cut down to the user's own frames
    :param shown: the text of the record, event or timer, for people
    :param source: the name of the source; `None` for a timer
    :param record: the raw record in `key_event`, the `KeyedEvent` in `on_event`, `None` for a timer; its `repr` if the
        sink cannot carry it
    :param key: the subject's key; `None` in `key_event`
    :param timestamp: the time of the event or timer, or the time at which the window was due; `None` in `key_event`
    :param tag: the timer's tag
    :param watermark: the watermark of the batch; `None` before the first, and in `key_event`
    :param state: the key's state before the callback, by spec
    :param timers: the key's pending timers before the callback, as pairs of timestamp and tag
    :param packed: everything that `amadou reproduce` and `amadou replay` need to replay the callback
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
