"""Turns Spark errors into readable messages."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError, Py4JNetworkError

from amadou import errors
from amadou.errors import AmadouError, RunError
from amadou.remote_files import java_message
from amadou.spark_versions import spark_version
from amadou_runtime.spark.worker_setup import last_error

JAVA_ENDED: Final = (ConnectionError, Py4JNetworkError)
"""Errors of calls to Java after its process has ended."""
ENDED: Final = "Spark's Java process has ended. It was killed, or ran out of memory: see the system log"

_CAUSED_BY: Final = "\n  caused by: "
_SAYS_NOTHING: Final = re.compile(
    r"\s|$|WARNING|Picked up |Exception in thread|Error: (Could not create the Java|A fatal exc)"
)
_START_ADVICE: Final = (
    (r"bin/spark-submit'", "unset SPARK_HOME, or set it to the directory of a Spark"),
    (r"local dir", "set SPARK_LOCAL_DIRS or spark.local.dir to a directory that can be written"),
    (
        r"HADOOP_CONF_DIR",
        "set HADOOP_CONF_DIR to the directory with the cluster's files core-site.xml and yarn-site.xml",
    ),
    (
        r"Master must |[Mm]aster URL",
        "correct the master, such as local[*], spark://HOST:7077, yarn or k8s://https://HOST:443",
    ),
    (r"heap size|heap space|JNI error|maximum heap|driver memory", "set spark.driver.memory to a size such as 1g"),
    (
        r"unresolved dependency",
        "correct spark.jars.packages, and check that this machine can download from the repository",
    ),
    (
        r"Connection refused|UnknownHost|[Tt]imed out",
        "check the master's address, and that this machine can connect to it",
    ),
)
"""What to do, by a pattern of the cause."""


def own_error(message: str) -> AmadouError | None:
    """Return the amadou error that a Spark error message contains; `None` if there is none. Such an error comes from a
    Python process that Spark started, for example to ask a source for offsets.
    """
    found = re.search(r"^amadou\.errors\.(SourceError|SinkError|RunError): (.*)", message, re.MULTILINE)
    return None if found is None else getattr(errors, found[1])(found[2])


def start_problem(error: Any, end: Callable[[], Sequence[str]] = list) -> str:
    """Return why Spark cannot start, and what to do about it.

    :param end: function that ends Java, and returns the lines that Java has written
    """
    message, causes = str(error), root_cause(error).split(_CAUSED_BY)
    lines = end()
    if "Cannot call methods on a stopped SparkContext" in message:  # Spark itself logs only that it has given up
        version = ".".join(map(str, spark_version()))
        return (
            f"the Spark master does not answer, or does not run Spark {version}, the version of this driver. Check the "
            "master's URL and that this machine can connect to it, and install the pyspark of the cluster's version"
        )
    cause = ": ".join(each.rstrip(".") for each in causes)
    if cause == ENDED or "[JAVA_GATEWAY_EXITED]" in cause:
        cause = _cause_in(lines) or ENDED
    advice = next((advice for pattern, advice in _START_ADVICE if re.search(pattern, cause)), None)
    return cause if advice is None else f"{cause.rstrip('.')}: {advice}"


def _cause_in(lines: Sequence[str]) -> str | None:
    """Return why Java or its launcher has ended, according to the lines that it has written."""
    for pattern in (r'Exception in thread "main" (?:[\w.$]+: )?(.+)', r"(?:\S+ \S+ )?ERROR \S+: (.+)"):
        found = [match[1].strip() for match in (re.match(pattern, line) for line in lines) if match]
        if found:
            return found[-1]
    said = [line for line in lines if not _SAYS_NOTHING.match(line)]
    return ": ".join(said[:2]) or None


def without_plans(error: Any) -> str:
    """Return the message of a Spark error, without the query plans that follow it."""
    text: str = re.split(r"=== Streaming Query ===|\n\nJVM stacktrace:|;\s*\n'?[A-Z]\w+ ", str(error))[0]
    return text.strip()


def message_with_cause(error: Any) -> str:
    """Return the message of a Spark error without query plans, and the root cause if the message lacks it."""
    message, cause = without_plans(error), root_cause(error).rpartition(_CAUSED_BY)[2]
    missing = re.match(r"java\.lang\.ClassNotFoundException: (\S+)", cause)
    if missing is not None:
        advice = "correct the setting that names the class, or add its package with spark.jars.packages"
        return f"Spark does not have the class {missing[1]}: {advice}"
    return message if cause in message or cause in last_error(message) else f"{message} (caused by: {cause})"


@contextmanager
def start_errors(what: str) -> Iterator[None]:
    """Convert an error from Spark into a `RunError`, without Spark's query plans.

    :param what: description of what Spark starts, for the error message
    """
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
            raise
        # the text of py4j's errors contains Java's stack trace
        message = java_message(error) if isinstance(error, Py4JJavaError) else message_with_cause(error)
        raise RunError(f"Spark cannot start {what}: {message}") from None


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
    while getattr(error, "_origin", None) is None and getattr(error, "_cause", None) is not None:
        error = error._cause
    messages: list[str] = []
    java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while java is not None:
        text = last_error(str(java.getMessage() or ""))
        if " " not in text:  # such as the name of a class that was not found
            text = last_error(str(java.toString()))
        if not any(text in before for before in messages):
            messages.append(text)
        java = java.getCause()
    return _CAUSED_BY.join(messages) or last_error(str(error)) or type(error).__name__
