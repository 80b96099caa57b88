"""Spark sessions, each in a process of its own, and the settings that are fastest for a peer."""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from attrs import evolve
from peers import Batch, new_session
from processes import CpuWatch

WARM_UP_KEYS, WARM_UP_EVENTS, WARM_UP_BATCHES = 1000, 50_000, 3
"""Size of the query that each session processes first: it loads and compiles code."""
TRIED = {
    "spark.sql.codegen.wholeStage": {"true": "codegen", "false": "no codegen"},
    "spark.driver.extraJavaOptions": {"-XX:TieredStopAtLevel=4": "C2", "-XX:TieredStopAtLevel=1": "C1"},
}
"""Values of settings that make some peers faster and others slower. C2 is Java's default compiler."""
T = TypeVar("T")
_session: Any = None


class OwnSession:
    """Context manager with a Spark session in a new process, which has its own JVM and ends with the context.

    Scripts call their `main` by the name of their module, since the new process, and the Python workers of Spark,
    import the functions that they run by this name.
    """

    def __init__(self, master: str, settings: Mapping[str, str]) -> None:
        self._start = master, dict(settings)
        self._process = ProcessPoolExecutor(1, mp_context=get_context("spawn"))

    def __enter__(self) -> "OwnSession":
        self._cpu = CpuWatch(self._process.submit(_start_session, *self._start).result())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._process.submit(_stop_session).result()
        finally:
            self._cpu.stop()
            self._process.shutdown()

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function in the process, with the session as its first argument."""
        return self._process.submit(_call, function, *arguments).result()

    def with_cpu(self, batches: list[Batch]) -> list[Batch]:
        """Return the batches with the CPU time of the process and all of its descendants: JVM and Python workers."""
        self._cpu.look()
        return [evolve(batch, cpu=self._cpu.seconds(batch.started, batch.started + batch.seconds)) for batch in batches]


def fastest_settings(conf: Mapping[str, str], seconds_of: Callable[[dict[str, str]], float]) -> dict[str, str]:
    """Return the settings with which a peer is faster, of those in `TRIED`, together with the user's settings.

    :param conf: the user's settings, which are not tried
    :param seconds_of: runs the peer with settings, and returns the time of a batch
    """
    tried = {name: list(values) for name, values in TRIED.items() if name not in conf}
    chosen = {name: values[0] for name, values in tried.items()} | dict(conf)
    if tried:
        best = seconds_of(chosen)
    for name, values in tried.items():
        other = chosen | {name: values[1]}
        seconds = seconds_of(other)
        if seconds < best:
            chosen, best = other, seconds
    return chosen


def label_of(settings: Mapping[str, str]) -> str:
    """Return the short names of the values of the settings in `TRIED`."""
    return ", ".join(values.get(settings[name], settings[name]) for name, values in TRIED.items())


def _start_session(master: str, settings: dict[str, str]) -> int:
    global _session
    _session = new_session(master, settings)
    return os.getpid()


def _call(function: Callable[..., T], *arguments: object) -> T:
    return function(_session, *arguments)


def _stop_session() -> None:
    """Stop the session, and wait until its JVM has ended and has deleted its files.

    :raises RuntimeError: the JVM failed, so that the figures of its runs mean nothing
    """
    java = _session.sparkContext._gateway.proc
    _session.stop()
    java.stdin.close()
    if java.wait():
        raise RuntimeError(f"the JVM of a session ended with status {java.returncode}: see its output above")
