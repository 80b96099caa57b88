"""How Spark's Python processes end.

Spark closes the connection of a process that it no longer needs: of one that had nothing to do for a minute, and of all
when a program ends. pyspark takes that for an error, which it cannot report any more, and writes the traceback of a
broken pipe to the console.
"""

import os
import signal
import sys
from typing import Any

_LOOKUP = "pyspark.sql.worker.lookup_data_sources"


def end_with_spark() -> None:
    """Let this process end silently when Spark closes its connection, where it is one that tasks run in."""
    worker: Any = sys.modules.get("pyspark.worker")
    if worker is None:
        return
    report = worker.handle_worker_exception

    def report_or_end(error: BaseException, *rest: Any) -> None:
        if isinstance(error, EOFError):
            os._exit(0)
        report(error, *rest)

    worker.handle_worker_exception = report_or_end


def end_like_a_filter() -> None:
    """Let this process end silently when it writes to a connection that was closed, as programs in a pipe do. For
    processes that only answer Spark's questions about a data source.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def end_lookup(spark: Any) -> None:
    """End the process in which Spark has looked for data sources that are installed: it asks only once."""
    for child in spark._jvm.java.lang.ProcessHandle.current().children().toList():
        if _LOOKUP in child.info().commandLine().orElse(""):
            child.destroy()
