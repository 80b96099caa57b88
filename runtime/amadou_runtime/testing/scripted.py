"""Events that a test adds directly, without `key_event`."""

from collections.abc import Callable
from typing import Any

from amadou import KeyedEvent
from amadou.components import copied_if_possible


class ScriptedEvent:
    """An event that a test adds directly, without `key_event`."""

    def __init__(self, event: KeyedEvent[Any]) -> None:
        self.event = event

    def __repr__(self) -> str:
        return repr(self.event)


def scripted(key_event: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a `key_event` function: it receives a copy of each record, and is not called for a `ScriptedEvent`."""
    return lambda record: record.event if type(record) is ScriptedEvent else key_event(copied_if_possible(record))
