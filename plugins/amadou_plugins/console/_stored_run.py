"""A run as its checkpoint has a record of it, for a console of its own."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from amadou.plugins import BatchReport, FailedBatch
from amadou_plugins.console._documents import shown
from amadou_plugins.console._facts import RunFacts
from amadou_plugins.console._history import RunHistory

_REFRESH_SECONDS: Final = 2.0


class StoredRun:
    """A run as its checkpoint has a record of it. A process may still add batches to the record.

    :param facts: what is known about the run
    :param read: function that returns the batches with numbers higher than the given one, oldest first
    :param is_running: function that returns `True` while the run continues
    """

    def __init__(
        self,
        facts: RunFacts,
        read: Callable[[int], Sequence[BatchReport | FailedBatch]],
        is_running: Callable[[], bool],
    ) -> None:
        self._history = RunHistory(facts)
        self._read, self._is_running = read, is_running
        self._lock = threading.Lock()
        self._last: BatchReport | FailedBatch | None = None
        self._looked = float("-inf")

    def history(self) -> RunHistory:
        """Return what the run did. Reads the record again if the last time is two seconds ago.

        :raises AmadouError: the checkpoint cannot be read
        """
        with self._lock:
            if time.monotonic() - self._looked > _REFRESH_SECONDS:
                self._look()
                self._looked = time.monotonic()
        return self._history

    def overview(self) -> dict[str, Any]:
        """Return the run's overview as a document of the API."""
        return shown("overview", self.history().overview(datetime.now(timezone.utc)))

    def charts(self) -> dict[str, Any]:
        """Return the run's charts as a document of the API."""
        return shown("charts", self.history().charts(datetime.now(timezone.utc)))

    def _look(self) -> None:
        last, is_running = self._last, self._is_running()
        # a failed batch is followed by another one with the same number
        for batch in self._read(-1 if last is None else last.number - 1):
            if last is None or _at(batch) > _at(last):
                self._history.add(batch)
                self._last = batch
        error = self._last.details if isinstance(self._last, FailedBatch) else None
        self._history.set_status("running" if is_running else "ended" if error is None else "failed", error)


def serve(run: StoredRun, host: str = "127.0.0.1", port: int = 0) -> None:
    """Serve a console for a stored run until the process is interrupted.

    :raises AmadouError: the console cannot listen, or the checkpoint cannot be read
    """
    from amadou_plugins.console._server import Server

    run.history()
    server = Server(host, port, lambda: [run.history()])
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()


def _at(batch: BatchReport | FailedBatch) -> float:
    return (batch.failed if isinstance(batch, FailedBatch) else batch.completed).timestamp()
