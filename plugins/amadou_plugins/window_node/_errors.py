"""The error for messages that the window node cannot process."""

from amadou import AmadouError


class MessageError(AmadouError):
    """The window node cannot process a message. The node replies with this error, and does not change any window.

    :param code: name of the error, for programs; docs/window-node.md lists all codes
    :param text: explanation of the error, for people
    """

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{code}: {text}")
