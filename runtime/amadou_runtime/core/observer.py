"""The interface for watching an operator while it processes a batch. The operator itself records nothing."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol

from amadou import KeyedEvent, Subject

HELD: Final = "held"
"""The outcome of an event that waits for another source."""


class Observer(Protocol):
    """Watches the callbacks of an operator, as the trace of a test run does."""

    def observed_event(
        self, on_event: Callable[[Subject, KeyedEvent[Any]], Any]
    ) -> Callable[[Subject, KeyedEvent[Any]], Any]:
        """Return `on_event`, watched."""

    def observed_timer(
        self, on_timer_expired: Callable[[Subject, datetime], Any]
    ) -> Callable[[Subject, datetime], Any]:
        """Return `on_timer_expired`, watched."""

    def observed_component(self, fire: Callable[..., None]) -> Callable[..., None]:
        """Return the function that fires a component's timers, watched."""

    def observed_change(self, callback: str, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a callback for changed dependencies, watched."""

    def failed(self, error: str, outputs: list[tuple[str, Any]]) -> None:
        """Note that the last callback raised an error.

        :param outputs: the outputs that it left, as pairs of port and encoded value
        """

    def not_delivered(
        self, outcome: str, source: str, event: tuple[Any, ...], watermark: datetime | None, encoded: Any = None
    ) -> None:
        """Note an event that does not reach `on_event`.

        :param outcome: ``dropped`` or ``diverted`` for a late event, ``held`` for one that waits
        :param event: key, timestamp and value
        :param encoded: the encoded value for the port of late events, or `None`
        """
