"""Turns Spark errors into readable messages."""

import re
from typing import Any

from amadou import errors
from amadou.errors import AmadouError


def own_error(message: str) -> AmadouError | None:
    """Return the amadou error that a Spark error message contains; `None` if there is none. Such an error comes from a
    Python process that Spark started, for example to ask a source for offsets.
    """
    found = re.search(r"^amadou\.errors\.(SourceError|SinkError|RunError): (.*)", message, re.MULTILINE)
    return None if found is None else getattr(errors, found[1])(found[2])


def without_plans(error: Any) -> str:
    """Return the message of a Spark error, without the query plans that follow it."""
    text: str = re.split(r"=== Streaming Query ===|;\s*\n'?[A-Z]\w+ ", str(error))[0]
    return text.strip()


def root_cause(error: Any) -> str:
    """Return the messages of a Spark error and its causes, from the outermost error to the root cause."""
    messages: list[str] = []
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while java is not None:
        text = str(java.getMessage() or java.getClass().getName()).strip().splitlines()[0]
        if not any(text in before for before in messages):
            messages.append(text)
        java = java.getCause()
    return "\n  caused by: ".join(messages) or str(error)
