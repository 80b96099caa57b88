"""The web server of a console."""

import logging
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from amadou import AmadouError
from amadou_plugins._hosts import Hosts, in_url, is_loopback
from amadou_plugins.console._history import RunHistory

TOKEN: Final = "AMADOU_CONSOLE_TOKEN"
"""Environment variable with the token, for addresses that stay the same. It is not shown."""
_STOP_SECONDS: Final = 5.0
_logger = logging.getLogger("amadou")


class Server:
    """Serves a console's pages and API in a thread. Shows its address, with the token unless `TOKEN` sets it.

    :param host: address or host name of this machine to listen on
    :param port: port to listen on; `0` for any free port
    :param runs: function that returns the runs to show, the newest last
    :param acts: `True` to offer actions
    :param time_limit: number of seconds after which a request fails
    :param head_limit: number of seconds in which a client has to send the head of a request
    :ivar url: the address with the token
    :raises AmadouError: the server cannot listen, or its packages are not installed
    """

    def __init__(
        self,
        host: str,
        port: int,
        runs: Callable[[], Sequence[RunHistory]],
        *,
        acts: bool = False,
        time_limit: float = 20.0,
        head_limit: float = 10.0,
    ) -> None:
        try:
            import uvicorn

            from amadou_plugins.console._access import Access
            from amadou_plugins.console._application import ACTIONS, application
            from amadou_plugins.console._head_limit import HeadLimit
        except ImportError as error:
            raise AmadouError("the console needs more packages: run pip install 'amadou[console]'") from error
        given = os.environ.get(TOKEN, "")
        if given and not re.fullmatch(r"[A-Za-z0-9_.~-]{16,}", given):
            raise AmadouError(f"{TOKEN} must have at least 16 letters, digits or characters of _.~-")
        token = given or secrets.token_urlsafe(24)
        listening = _listening(host, port)
        port = listening.getsockname()[1]
        app = Access(
            application(runs, acts=acts, time_limit=time_limit),
            token,
            Hosts(host, port=port),
            port,
            actions=ACTIONS if acts else (),
        )
        config = uvicorn.Config(
            app,
            http=type("Limited", (HeadLimit,), {"seconds": head_limit}),
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            limit_concurrency=64,
            ws="none",
            proxy_headers=False,
        )
        self._server: Any = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listening]}, name="amadou-console", daemon=True
        )
        self._thread.start()
        address = f"http://{in_url(host)}:{port}/"
        self.url = f"{address}?token={token}"
        _announce(address if given else self.url)
        if not is_loopback(host):
            _logger.warning(
                "the console listens on %s: other machines can connect, and the connection is not encrypted", host
            )

    def stop(self) -> None:
        """Stop the server."""
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)


def _announce(address: str) -> None:
    """Show the address: as a line of the log if this process logs such lines, as with JSON; otherwise as text."""
    if _logger.isEnabledFor(logging.INFO):
        _logger.info("console: %s", address)
    else:
        print(f"console: {address}", file=sys.stderr, flush=True)


def _listening(host: str, port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        where = f"{host}:{port}: use a different port or address"
        raise AmadouError(f"the console cannot listen on {where} ({error.strerror or error})") from error
    return listening
