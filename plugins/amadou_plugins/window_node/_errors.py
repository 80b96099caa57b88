"""Errors in messages."""

from amadou import AmadouError


class MessageError(AmadouError):
    """A message cannot be processed. The node replies with this error, and no window changes.

    :param code: name of the error, for programs; docs/window-node.md lists all codes
    :param text: explanation of the error, for people
    """

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{code}: {text}")
