"""The plugin that shows runs in a browser."""

import logging
import secrets
import socket
import sys
import threading
from datetime import UTC, datetime
from typing import Any, Final

from amadou import AmadouError, BatchReport, FailedBatch, Run, RunSummary, hookimpl
from amadou_plugins.console._facts import RunFacts
from amadou_plugins.console._history import RunHistory

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_MOST_ENDED: Final = 20
"""Number of runs that have ended and are kept."""
_STOP_SECONDS: Final = 5.0
_logger = logging.getLogger("amadou")


class Console:
    """A plugin that serves web pages and a JSON API about a job's run while the job is running.

    The console prints its address to standard error when the run starts. The address contains a random token, without
    which the console does not answer. Multiple jobs can share a console.

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
        self._server: Any = None
        self._thread: threading.Thread | None = None

    @hookimpl
    def amadou_run_started(self, run: Run) -> None:
        history = RunHistory(RunFacts.of(run, datetime.now(UTC)))
        history.add_earlier(run.history())
        self._show(history)

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

    def _show(self, history: RunHistory) -> None:
        """Show a run, in place of an earlier run of the same checkpoint."""
        with self._lock:
            if not self._running:
                self._open()
            id_ = history.facts.id
            self._running.add(id_)
            self._histories.pop(id_, None)
            self._histories[id_] = history
            ended = [each for each in self._histories if each not in self._running]
            for each in ended[:-_MOST_ENDED]:
                del self._histories[each]

    def _open(self) -> None:
        try:
            import uvicorn

            from amadou_plugins.console._access import Access
            from amadou_plugins.console._application import ACTIONS, application
        except ImportError as error:
            raise AmadouError("the console needs more packages: run pip install 'amadou[console]'") from error
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((self._host, self._port))
            listening.listen()
        except OSError as error:
            listening.close()
            where = f"{self._host}:{self._port}: use a different port or address"
            raise AmadouError(f"the console cannot listen on {where} ({error.strerror or error})") from error
        port = listening.getsockname()[1]
        token = secrets.token_urlsafe(24)
        is_local = self._host in _LOOPBACK
        names = (
            {*_LOOPBACK, self._host} if is_local else {*_LOOPBACK, self._host, socket.gethostname(), socket.getfqdn()}
        )
        app = Access(
            application(lambda: list(self._histories.values()), acts=self._acts),
            token,
            {f"{_in_url(name)}:{port}" for name in names},
            f"amadou-console-{port}",
            actions=ACTIONS if self._acts else (),
            any_address=not is_local,
        )
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            limit_concurrency=64,
            ws="none",
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="amadou-console", daemon=True
        )
        self._thread.start()
        self.url = f"http://{_in_url(self._host)}:{port}/?token={token}"
        print(f"console: {self.url}", file=sys.stderr, flush=True)
        if not is_local:
            _logger.warning(
                "the console listens on %s: other machines can connect, and the connection is not encrypted", self._host
            )

    def _end(self, run: Run, outcome: RunSummary | Exception) -> None:
        with self._lock:
            if run.id not in self._running:  # the run ended because the console could not start
                return
            self._histories[run.id].end(outcome)
            self._running.discard(run.id)
            if not self._running:
                self._server.should_exit = True
                assert self._thread is not None
                self._thread.join(_STOP_SECONDS)
                self.url = None


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
