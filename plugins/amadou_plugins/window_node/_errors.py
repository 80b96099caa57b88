"""Errors of messages."""

from amadou import AmadouError


class MessageError(AmadouError):
    """A message that gets an error as its reply, and changes nothing.

    :param code: name of the mistake, for programs; docs/window-node.md lists all codes
    :param text: advice for people
    """

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{code}: {text}")
