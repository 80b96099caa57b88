"""What can be wrong with a message."""

from amadou import AmadouError


class MessageError(AmadouError):
    """A message that gets an error for its reply, and changes nothing.

    :param code: names the mistake for programs; docs/window-node.md lists them all
    :param text: tells people what to do about it
    """

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        self.text = text
        super().__init__(f"{code}: {text}")
