"""Turns Spark errors into readable messages."""

import re
from typing import Any, Final

from py4j.protocol import Py4JNetworkError

from amadou import errors
from amadou.errors import AmadouError
from amadou.spark_versions import spark_version
from amadou_runtime.spark.worker_setup import last_error

JAVA_ENDED: Final = (OSError, Py4JNetworkError)
"""Errors of calls to Java after its process has ended."""
ENDED: Final = "Spark's Java process has ended. It was killed, or ran out of memory: see the system log"


def own_error(message: str) -> AmadouError | None:
    """Return the amadou error that a Spark error message contains; `None` if there is none. Such an error comes from a
    Python process that Spark started, for example to ask a source for offsets.
    """
    found = re.search(r"^amadou\.errors\.(SourceError|SinkError|RunError): (.*)", message, re.MULTILINE)
    return None if found is None else getattr(errors, found[1])(found[2])


def start_problem(error: Any) -> str:
    """Return why Spark cannot start, and what to do about it."""
    if "Cannot call methods on a stopped SparkContext" in str(error):  # Spark itself logs only that it has given up
        version = ".".join(map(str, spark_version()))
        return (
            f"the Spark master does not answer, or does not run Spark {version}, the version of this driver. Check the "
            "master's URL and that this machine can connect to it, and install the pyspark of the cluster's version"
        )
    return root_cause(error)


def without_plans(error: Any) -> str:
    """Return the message of a Spark error, without the query plans that follow it."""
    text: str = re.split(r"=== Streaming Query ===|;\s*\n'?[A-Z]\w+ ", str(error))[0]
    return text.strip()


def size_problem(message: str) -> str | None:
    """Return what to do if the results of a batch are too large for the driver; `None` for other failures.

    :param message: Spark's error message
    """
    # the results of all tasks, or that of one
    if "is bigger than spark.driver.maxResultSize" not in message and "TaskResultLost" not in message:
        return None
    return (
        "the driver could not receive its results, which must be smaller than spark.driver.maxResultSize. Sinks for "
        "tables and on remote paths send the outputs of a batch through the driver: raise this setting and "
        "spark.driver.memory, or limit what the sources read in a batch"
    )


def root_cause(error: Any) -> str:
    """Return the messages of a Spark error and its causes, from the outermost error to the root cause."""
    if isinstance(error, JAVA_ENDED):
        return ENDED
    messages: list[str] = []
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while java is not None:
        text = last_error(str(java.getMessage() or java.getClass().getName()))
        if not any(text in before for before in messages):
            messages.append(text)
        java = java.getCause()
    return "\n  caused by: ".join(messages) or last_error(str(error)) or type(error).__name__
