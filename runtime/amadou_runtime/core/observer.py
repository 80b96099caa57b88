"""The interface for observing an operator while it processes a batch. The operator itself does not record anything."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeAlias

from amadou import Subject

HELD: Final = "held"
"""The outcome for an event that waits for another source."""


Call: TypeAlias = tuple[Subject, str, datetime | None, Any]
"""A call of a callback: the subject, the callback's name, and the time and value of the event or timer."""


class Observer:
    """Observes the callbacks of an operator, for example to record the trace of a test run. By default, nothing is
    recorded.
    """

    def observed(self, function: Callable[..., Any], call: Callable[..., Call]) -> Callable[..., Any]:
        """Return the callback, wrapped so that its calls are observed.

        :param call: function that converts the callback's arguments into a `Call`
        """
        return function

    def failed(self, error: str, outputs: list[tuple[str, Any]]) -> None:
        """Record that the last callback raised an error.

        :param outputs: the outputs that remain after the failure, as pairs of port and encoded value
        """

    def not_delivered(
        self, outcome: str, source: str, event: tuple[Any, ...], watermark: datetime | None, encoded: Any = None
    ) -> None:
        """Record an event that does not reach `on_event`.

        :param outcome: ``dropped`` or ``diverted`` for a late event, ``held`` if the event waits for another source
        :param event: key, timestamp and value
        :param encoded: the encoded value for the port of late events, if the event is diverted
        """
