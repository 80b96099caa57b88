"""Asks a run's console for documents. The token is sent to the console alone: as a header, past proxies, and not to
where an answer redirects.
"""

import re
import threading
from collections.abc import Mapping
from http.client import HTTPException
from queue import Empty, SimpleQueue
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
)

import orjson

from amadou import AmadouError, Secret
from amadou.text import shortened
from amadou_runtime.command.printable import printable

_TIMEOUT = 5.0
"""Seconds to wait for the server each time."""
_LONGEST = 10.0
"""Seconds to wait for a complete answer: a server can send it byte by byte."""
_MOST_BYTES = 2_000_000
"""Maximum length of an answer. The objects in it can take 70 times as much memory."""
_CAUSE_LENGTH = 200
_TOKEN = re.compile("[!-~]+")
_RIGHT_ADDRESS = "use the address that a run with --console printed"


class ConsoleClient:
    """The documents of a run's console. The methods raise an `AmadouError` if the console does not answer.

    :param address: the address that the run printed, with its token
    :raises ValueError: the address does not have this form
    """

    def __init__(self, address: str) -> None:
        self._origin, self._token = _parted(address)
        self._opener = OpenerDirector()
        for handler in (HTTPHandler(), HTTPSHandler(), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
            self._opener.add_handler(handler)

    def overview(self) -> Mapping[str, Any]:
        """Return the run's status, totals and current figures."""
        return self._document("overview")

    def charts(self) -> Mapping[str, Any]:
        """Return the figures of the last hour."""
        return self._document("charts")

    def _document(self, name: str) -> Mapping[str, Any]:
        try:
            document = orjson.loads(self._get(f"/api/v1/{name}"))
        except orjson.JSONDecodeError as error:
            raise self._other_server("its answer is not JSON") from error
        if not isinstance(document, dict):
            raise self._other_server("its answer is not a JSON object")
        return document

    def _get(self, path: str) -> bytes:
        answers: SimpleQueue[bytes | Exception] = SimpleQueue()
        threading.Thread(target=self._ask, args=(path, answers), name="amadou-console-client", daemon=True).start()
        try:
            answer = answers.get(timeout=_LONGEST)
            if isinstance(answer, Exception):
                raise answer
        except HTTPError as error:
            raise self._refused(error.code) from error
        except Empty:
            raise self._silent(f"no complete answer within {_LONGEST:g} s") from None
        except (OSError, HTTPException, UnicodeError) as error:
            raise self._silent(_cause(error)) from error
        return answer

    def _ask(self, path: str, answers: "SimpleQueue[bytes | Exception]") -> None:
        request = Request(f"{self._origin}{path}", headers={"Authorization": f"Bearer {self._token.reveal()}"})
        try:
            with self._opener.open(request, timeout=_TIMEOUT) as answer:
                answers.put(answer.read(_MOST_BYTES))
        except Exception as error:
            if isinstance(error, HTTPError):
                error.close()
            answers.put(error)

    def _silent(self, why: str) -> AmadouError:
        return AmadouError(
            f"the console at {self._origin} does not answer: the run may have ended; if not, check the address ({why})"
        )

    def _refused(self, status: int) -> AmadouError:
        if status == 401:
            return AmadouError(
                f"the console at {self._origin} does not accept the token: use the address that the run printed when "
                "it started, since each run has a new token"
            )
        if status == 421:
            return AmadouError(
                f"the console at {self._origin} does not answer to this host name and port: use the address that the "
                "run printed, and the same port on both sides of a tunnel"
            )
        if status >= 500:
            return AmadouError(f"the console at {self._origin} cannot answer now: try again (HTTP status {status})")
        return self._other_server(f"HTTP status {status}")

    def _other_server(self, why: str) -> AmadouError:
        return AmadouError(f"{self._origin} is not the address of a console: {_RIGHT_ADDRESS} ({why})")


def _parted(address: str) -> tuple[str, Secret]:
    """Return the part of an address before the path, and the token."""
    try:
        parts = urlsplit(address)
        is_server = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_server = False
    if not is_server or "@" in parts.netloc or not parts.netloc.isprintable():
        raise ValueError(
            f"this is not an address of a console: {_RIGHT_ADDRESS}, such as http://127.0.0.1:40123/?token=…"
        )
    token = parse_qs(parts.query).get("token", [""])[0]
    if not _TOKEN.fullmatch(token):
        raise ValueError(
            f"the address has no token: {_RIGHT_ADDRESS}, in quotes, such as 'http://127.0.0.1:40123/?token=…'"
        )
    return f"{parts.scheme}://{parts.netloc}", Secret(token)


def _cause(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return shortened(printable(text), _CAUSE_LENGTH)
