"""Events of a script that bypass `key_event`."""

from collections.abc import Callable
from typing import Any

from amadou import KeyedEvent


class ScriptedEvent:
    """An event of a script that bypasses `key_event`."""

    def __init__(self, event: KeyedEvent[Any]) -> None:
        self.event = event

    def __repr__(self) -> str:
        return repr(self.event)


def scripted(key_event: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a `key_event` that returns scripted events unchanged."""
    return lambda record: record.event if type(record) is ScriptedEvent else key_event(record)
