from datetime import datetime

from amadou.errors import AmadouError, error_class


@error_class
class WindowEventError(AmadouError):
    """A window cannot accept an event.

    :param window: the window's name
    :param timestamp: the event's time
    :param why: the problem, and advice
    """

    window: str
    timestamp: datetime
    why: str

    def _message(self) -> str:
        return f"the window {self.window!r} cannot accept the event at {self.timestamp.isoformat()}: {self.why}"
