from datetime import datetime

from amadou import AmadouError


class WindowEventError(AmadouError):
    """A window cannot accept an event.

    :param window: the window's name
    :param timestamp: the event's time
    :param why: the problem, and advice
    """

    def __init__(self, window: str, timestamp: datetime, why: str) -> None:
        self.window = window
        self.timestamp = timestamp
        self.why = why
        super().__init__(f"the window {window!r} cannot accept the event at {timestamp.isoformat()}: {why}")
