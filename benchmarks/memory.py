"""Measures the memory of a Spark driver and its Python workers, from `/proc`."""

import os
import signal
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen
from processes import family

_SECONDS = 0.5
_MARK = "AMADOU_BENCHMARK_RUN"
_KIB = 1024


@frozen
class MemoryUse:
    """Memory of a run, in bytes; zero where the system has no `/proc`.

    :param jvm: peak resident memory of the driver's JVM, which is also Spark's executor. It includes memory that the
        JVM took for earlier queries of the session and has not returned
    :param python: peak of the private memory of all Python workers, sampled twice a second
    :param mapped: file pages that the Python workers had mapped at the end, such as libraries and local state; pages
        that several workers share count once. The system can drop these pages
    """

    jvm: int = 0
    python: int = 0
    mapped: int = 0


class MemoryWatch:
    """Context manager that measures the memory of the JVM of a Spark session, and of the Python workers of the queries
    that start within the context.

    These queries get new Python workers, which end with the context: a worker of an earlier query would keep that
    query's memory.

    :ivar use: the result, after the end of the context
    """

    def __init__(self, spark: Any) -> None:
        self.use = MemoryUse()
        self._java = spark._jvm.java.lang
        self._jvm = int(self._java.ProcessHandle.current().pid())
        self._environment = spark.sparkContext.environment
        self._mark = uuid.uuid4().hex
        self._peak = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "MemoryWatch":
        self._environment[_MARK] = self._mark  # Spark starts separate workers for each environment
        self._java.System.gc()  # also returns memory that earlier runs needed
        with suppress(OSError):
            Path(f"/proc/{self._jvm}/clear_refs").write_text("5")  # resets the peak
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        workers = self._workers()
        mapped = sum(_fields(worker, "smaps_rollup").get("Pss_File", 0) for worker in workers)
        self.use = MemoryUse(_fields(self._jvm, "status").get("VmHWM", 0), self._peak, mapped)
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGTERM)

    def _watch(self) -> None:
        while True:
            ended = self._end.wait(_SECONDS)
            self._peak = max(self._peak, sum(_fields(worker, "status").get("RssAnon", 0) for worker in self._workers()))
            if ended:
                return

    def _workers(self) -> list[int]:
        """Return the process ids of the Python workers, and of the daemons that start them."""
        parents = {number: process.parent for number, process in family(self._jvm).items()}
        mark = f"{_MARK}={self._mark}".encode()
        daemons = [child for child, parent in parents.items() if parent == self._jvm and mark in _environ(child)]
        return daemons + [child for child, parent in parents.items() if parent in daemons]


def _environ(process: int) -> list[bytes]:
    try:
        return Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _fields(process: int, file: str) -> dict[str, int]:
    """Return the sizes in a file of a process, in bytes."""
    sizes = {}
    with suppress(OSError):
        for line in Path(f"/proc/{process}/{file}").read_text().splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                sizes[name] = int(value.split()[0]) * _KIB
    return sizes
