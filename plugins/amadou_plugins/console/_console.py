"""The plugin that shows runs in a browser."""

import threading
from datetime import datetime, timezone
from typing import Final

from amadou.plugins import BatchReport, FailedBatch, Run, RunSummary, hookimpl
from amadou_plugins.console._facts import RunFacts
from amadou_plugins.console._history import RunHistory
from amadou_plugins.console._server import Server

_MOST_ENDED: Final = 20
"""Number of runs that have ended and are kept."""


class Console:
    """A plugin that serves web pages and a JSON API about a job's run while the job is running.

    The console shows its address on standard error when the run starts. The address contains a random token, without
    which the console does not answer. The environment variable `AMADOU_CONSOLE_TOKEN` sets a token, which is not shown.
    Multiple jobs can share a console.

    :param port: port to listen on; `0` to listen on any free port
    :param host: address or host name of this machine to listen on. Any other than a loopback address lets other
        machines connect: whoever knows the token then sees the job's data, and the connection is not encrypted
    :param actions: `True` to let whoever knows the token stop the run and take savepoints
    :ivar url: the address with the token, while a job with this plugin is running; otherwise `None`
    :raises ValueError: the port is not between 0 and 65535
    """

    def __init__(self, port: int = 0, host: str = "127.0.0.1", *, actions: bool = False) -> None:
        if not 0 <= port <= 65535:
            raise ValueError(f"port must be between 0 and 65535, not {port}")
        self.url: str | None = None
        self._port, self._host, self._acts = port, host, actions
        self._lock = threading.Lock()
        self._histories: dict[str, RunHistory] = {}
        self._running: set[str] = set()
        self._server: Server | None = None

    @hookimpl
    def amadou_run_started(self, run: Run) -> None:
        history = RunHistory(RunFacts.of(run, datetime.now(timezone.utc)))
        history.add_earlier(run.history())
        with self._lock:
            if not self._running:
                runs = self._histories.values
                self._server = Server(self._host, self._port, lambda: list(runs()), acts=self._acts)
                self.url = self._server.url
            self._running.add(run.id)
            self._histories.pop(run.id, None)  # so that it becomes the newest
            self._histories[run.id] = history
            ended = [each for each in self._histories if each not in self._running]
            for each in ended[:-_MOST_ENDED]:
                del self._histories[each]

    @hookimpl
    def amadou_batch_completed(self, run: Run, batch: BatchReport) -> None:
        self._histories[run.id].add(batch)

    @hookimpl
    def amadou_batch_failed(self, run: Run, batch: FailedBatch) -> None:
        self._histories[run.id].add(batch)

    @hookimpl
    def amadou_run_ended(self, run: Run, summary: RunSummary) -> None:
        self._end(run, summary)

    @hookimpl
    def amadou_run_failed(self, run: Run, error: Exception) -> None:
        self._end(run, error)

    def _end(self, run: Run, outcome: RunSummary | Exception) -> None:
        with self._lock:
            if run.id not in self._running:  # the run ended because the console could not start
                return
            self._histories[run.id].end(outcome)
            self._running.discard(run.id)
            if not self._running and self._server is not None:
                self._server.stop()
                self._server = self.url = None
