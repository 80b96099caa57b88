"""The host names under which a server of this process is asked. A page of another server in a browser can only reach it
under a name of that server (DNS rebinding).
"""

import re
import socket
from collections.abc import Iterable
from typing import Final

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_NUMERIC: Final = re.compile(r"([0-9.]+|\[[0-9a-f:.]+\])(:[0-9]+)?")


def is_loopback(host: str) -> bool:
    """Return `True` if only this machine can connect to a server that listens on an address."""
    return host in _LOOPBACK


def in_url(host: str) -> str:
    """Return a host as it is written in a URL."""
    return f"[{host}]" if ":" in host else host


class Hosts:
    """The values of the header `Host` that a server answers: the names of this machine. If other machines can connect,
    also any numeric address.

    :param host: the address or host name that the server listens on
    :param others: other names of this machine
    """

    def __init__(self, host: str, port: int, others: Iterable[str] = ()) -> None:
        self._is_open = not is_loopback(host)
        own = (socket.gethostname(), socket.getfqdn()) if self._is_open else ()
        names = {f"{in_url(name)}:{port}" for name in (*_LOOPBACK, host, *own, *others)}
        self._names = frozenset(name.lower() for name in (*names, *others))

    def __contains__(self, header: str) -> bool:
        header = header.lower()
        return header in self._names or (self._is_open and _NUMERIC.fullmatch(header) is not None)
