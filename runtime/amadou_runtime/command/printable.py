"""Makes text from data safe for a terminal."""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return a string with each character replaced that cannot be printed, such as control characters: a terminal obeys
    these, and others change the order in which the text is read.
    """
    return "".join(each if each.isprintable() else _REPLACEMENT for each in text)
