"""Text for people from any value: making it never fails, and it can be written anywhere."""

from typing import Any

from amadou._secret import redacted


def valid(text: str) -> str:
    """Return a text with halves of surrogate pairs as escapes, since UTF-8 cannot carry them."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def shown_value(value: Any, limit: int | None = None) -> str:
    """Return the `repr` of a value, or its type where that fails.

    :param limit: the number of characters after which the text is cut, with its secrets hidden
    """
    try:
        text = valid(repr(value))
    except Exception as error:  # of the user's class, or nested too deeply
        text = f"<{type(value).__name__}, whose repr failed: {type(error).__name__}>"
    return text if limit is None else shortened(text, limit)


def shortened(text: str, limit: int) -> str:
    """Return a text with its secrets hidden, cut after a number of characters."""
    text = redacted(text)  # before the cut, which may leave a part of a secret
    return text if len(text) <= limit else f"{text[:limit]}…"


def shown_error(error: BaseException) -> str:
    """Return the type and the message of an error."""
    try:
        told = str(error)
    except Exception as failed:
        told = f"<its message failed: {type(failed).__name__}>"
    return valid(f"{type(error).__name__}: {told}")


def error_type(shown: str) -> str:
    """Return the type's name from a text of `shown_error`."""
    return shown.partition(":")[0]
