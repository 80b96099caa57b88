"""The error for messages that the window node cannot process."""

from amadou.errors import AmadouError, error_class


@error_class
class MessageError(AmadouError):
    """The window node cannot process a message. The node replies with this error, and does not change any window.

    :param code: name of the error, for programs; docs/window-node.md lists all codes
    :param text: explanation of the error, for people
    """

    code: str
    text: str

    def _message(self) -> str:
        return f"{self.code}: {self.text}"
