"""Passes on the signals that the Java process of a Spark driver receives.

Java ends at the first signal: Spark then stops in the middle of a batch. This process receives signals that are meant
for the run if `spark-submit` started it, or if a signal is sent to all processes of a group or service.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from amadou_runtime.spark.spark_errors import JAVA_ENDED

_NAMES = ("INT", "TERM")


@contextmanager
def java_signals(spark: Any, stop: Callable[[], None]) -> Iterator[None]:
    """Within the context, call a function when Java receives SIGINT or SIGTERM for the first time. A second signal has
    its default effect.

    :param stop: the function, which is called in a thread of its own
    """
    from pyspark.java_gateway import ensure_callback_server_started

    gateway = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)
    handler = _Handler(gateway.jvm.sun.misc.Signal, stop)
    try:
        yield
    finally:
        with suppress(*JAVA_ENDED):
            handler.restore()


class _Handler:
    """The handler that Java calls.

    :param signals: the Java class `Signal`
    """

    class Java:
        implements = ("sun.misc.SignalHandler",)

    def __init__(self, signals: Any, stop: Callable[[], None]) -> None:
        self._signals = signals
        self._stop = stop
        self._before = {name: signals.handle(signals(name), self) for name in _NAMES}

    def handle(self, _: Any) -> None:
        self._stop()
        self.restore()

    def restore(self) -> None:
        """Let the signals have the effect that they had before."""
        while self._before:
            name, before = self._before.popitem()
            self._signals.handle(self._signals(name), before)
