"""Ends Spark's Python processes silently.

Spark closes the connection of a process that it no longer needs: one that was idle for a minute, and all processes when
a program ends. pyspark treats the closed connection as an error, which it cannot report any more, and writes the
traceback of a broken pipe to the console.
"""

import os
import signal
import sys
from typing import Any

_LOOKUP = "pyspark.sql.worker.lookup_data_sources"


def end_with_spark() -> None:
    """Let this process end silently when Spark closes its connection, if tasks run in this process."""
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
    """Let this process end silently when it writes to a closed connection, as programs in a pipe do. For processes that
    only answer Spark's questions about a data source.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def end_lookup(spark: Any) -> None:
    """End the process in which Spark has looked for installed data sources: Spark asks only once."""
    for child in spark._jvm.java.lang.ProcessHandle.current().children().toList():
        if _LOOKUP in child.info().commandLine().orElse(""):
            child.destroy()
