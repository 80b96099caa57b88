"""Dead letters and late events of a batch in readable form, for plugins."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import attrs


def _timers(value: Sequence[Any]) -> tuple[tuple[datetime, str], ...]:
    return tuple((time, tag) for time, tag in value)


@attrs.frozen
class DeadLetterReport:
    """A dead letter in readable form. Secrets are hidden, and long texts are cut.

    :param callback: the failed callback; see `DeadLetter.callback`
    :param error: the type and message of the exception
    :param traceback: the formatted traceback, reduced to the frames of the user's code
    :param shown: the record, event or timer, or the arguments with which a window or join called a function
    :param source: the name of the source of the record or event; `None` for a timer, window or join
    :param key: the subject's key, as Python would show it; `None` for `key_event`
    :param timestamp: the time of the event or timer, or the time at which the window or join was due. For `key_event`,
        see `DeadLetter.timestamp`
    :param tag: the timer's tag
    :param watermark: the watermark of the batch; `None` before the first watermark, and for `key_event`
    :param state: the key's state before the callback by spec name, as Python would show it, of 20 specs at most
    :param timers: the key's pending timers before the callback, at most 100
    :param packed: the data that `Run.reproduce` needs; `None` if it exceeds 16 KiB
    :param stage: the name of the stage; empty in a job with one handler
    """

    callback: str
    error: str
    traceback: str
    shown: str
    source: str | None
    key: str | None
    timestamp: datetime | None
    tag: str
    watermark: datetime | None
    state: Mapping[str, str] = attrs.field(factory=dict)
    timers: Sequence[tuple[datetime, str]] = attrs.field(default=(), converter=_timers)
    packed: bytes | None = attrs.field(default=None, repr=False)
    stage: str = ""


@attrs.frozen
class LateEventReport:
    """A late event that was dropped or diverted, in readable form. Secrets are hidden, and long texts are cut.

    :param outcome: `"dropped"`, or `"diverted"` to the port `late_events`
    :param source: the name of the event's source; empty for an event that a timer callback added to a component
    :param key: the event's key, as Python would show it
    :param timestamp: the event's time
    :param value: the event's value, as Python would show it
    :param watermark: the watermark of the batch
    :param by: the name of the window or join for which the event was too late; empty if the job itself dropped or
        diverted the event
    :param stage: the name of the stage; empty in a job with one handler
    """

    outcome: Literal["dropped", "diverted"]
    source: str
    key: str
    timestamp: datetime
    value: str
    watermark: datetime
    by: str = ""
    stage: str = ""
