"""Readable text for any value, and names. Creating the text of a value never fails, and the text can always be encoded
as UTF-8.
"""

from typing import Any

from amadou._connectors.secret import redacted as redacted


def valid(text: str) -> str:
    """Return a string with lone surrogates escaped, since UTF-8 cannot encode them."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def shown_value(value: Any, limit: int | None = None) -> str:
    """Return the `repr` of a value, or the name of its type if `repr` fails.

    :param limit: maximum number of characters; a limit also hides secrets. `None` to return the entire `repr`,
        including any secrets
    """
    try:
        text = valid(repr(value))
    except Exception as error:  # a class's repr can raise any error, and deep nesting a RecursionError
        text = f"<{type(value).__name__}, whose repr failed: {type(error).__name__}>"
    return text if limit is None else shortened(text, limit)


def shortened(text: str, limit: int) -> str:
    """Return a string with secrets hidden, cut to a maximum number of characters."""
    text = redacted(text)  # before cutting, which could leave part of a secret visible
    return text if len(text) <= limit else f"{text[:limit]}…"


def shown_error(error: BaseException) -> str:
    """Return the type and the message of an error, as text."""
    try:
        message = str(error)
    except Exception as failed:
        message = f"<its message failed: {type(failed).__name__}>"
    return valid(f"{type(error).__name__}: {message}")


def error_type(shown: str) -> str:
    """Return the name of the error's type from the result of `shown_error`."""
    return shown.partition(":")[0]


def qualified(stage: str, name: str) -> str:
    """Return the name of a source, port, spec or counter among those of all stages, such as ``views.clicks``.

    :param stage: the stage's name; empty in a job with one handler
    """
    return f"{stage}.{name}" if stage else name


def unqualified(name: str) -> str:
    """Return the name that `qualified` got."""
    return name.rpartition(".")[2]
