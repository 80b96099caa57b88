"""Ends Spark's Python processes silently.

Spark closes its connection to a Python process that is no longer needed: after the process has been idle for a minute,
or when the program ends. pyspark treats the closed connection as an error. Unable to report this error to Spark,
pyspark prints a broken-pipe traceback on the console.
"""

import os
import signal
import sys
from typing import Any

from amadou.spark_versions import prints_broken_pipes

_LOOKUP = "pyspark.sql.worker.lookup_data_sources"


def end_with_spark() -> None:
    """If this process runs tasks, make it end silently when Spark closes the connection."""
    worker: Any = sys.modules.get("pyspark.worker")
    if worker is None or not prints_broken_pipes():
        return
    report = worker.handle_worker_exception

    def report_or_end(error: BaseException, *rest: Any) -> None:
        if isinstance(error, EOFError):
            os._exit(0)
        report(error, *rest)

    worker.handle_worker_exception = report_or_end


def end_like_a_filter() -> None:
    """Make this process end silently when it writes to a closed connection, as programs in a pipeline do. Call this
    function only in processes that answer Spark's requests about a data source.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def end_lookup(spark: Any) -> None:
    """End the process in which Spark looked up the installed data sources. Spark needs it only once per program."""
    for child in spark._jvm.java.lang.ProcessHandle.current().children().toList():
        if _LOOKUP in child.info().commandLine().orElse(""):
            child.destroy()
