"""What Spark says of its errors, for people."""

import re
from typing import Any

from amadou import errors
from amadou.errors import AmadouError


def own_error(message: str) -> AmadouError | None:
    """The error of ours that a process of Spark's ended with: where a source is asked for its offsets, say."""
    found = re.search(r"^amadou\.errors\.(SourceError|SinkError|RunError): (.*)", message, re.MULTILINE)
    return None if found is None else getattr(errors, found[1])(found[2])


def without_plans(error: Any) -> str:
    """What an error of Spark says, without the query's plans that come after it."""
    text: str = re.split(r"=== Streaming Query ===|;\s*\n'?[A-Z]\w+ ", str(error))[0]
    return text.strip()


def root_cause(error: Any) -> str:
    """What is behind an error of Spark, from the outermost to what it began with."""
    messages: list[str] = []
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while java is not None:
        text = str(java.getMessage() or java.getClass().getName()).strip().splitlines()[0]
        if not any(text in before for before in messages):
            messages.append(text)
        java = java.getCause()
    return "\n  because: ".join(messages) or str(error)
