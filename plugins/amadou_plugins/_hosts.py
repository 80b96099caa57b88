"""The host names under which a server of this process is asked. A page of another server in a browser can only reach it
under a name of that server (DNS rebinding).
"""

import ipaddress
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_HEADER: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^:]*)(?::([0-9]+))?")
_PRIVATE: Final = (".svc", ".cluster.local", ".local", ".internal", ".localhost")
"""Ends of host names that nobody can register on the internet."""


def is_loopback(host: str) -> bool:
    """Return `True` if only this machine can connect to a server that listens on an address."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def in_url(host: str) -> str:
    """Return a host as it is written in a URL."""
    return f"[{host}]" if ":" in host else host


class Hosts:
    """The values of the header `Host` that a server answers: the names of this machine. If other machines can connect,
    also numeric addresses, and names that nobody can register on the internet, such as those of services in a cluster.

    :param host: the address or host name that the server listens on
    :param others: other names of this machine
    :param port: the only port that is answered; by default any, since a port can be forwarded
    """

    def __init__(self, host: str, others: Iterable[str] = (), *, port: int | None = None) -> None:
        self._is_open = not is_loopback(host)
        own = (socket.gethostname(), socket.getfqdn()) if self._is_open else ()
        self._names = frozenset(in_url(name).lower() for name in (*_LOOPBACK, host, *own, *others))
        self._port = port

    def __contains__(self, header: str) -> bool:
        found = _HEADER.fullmatch(header.lower())
        if found is None or (self._port is not None and found[2] != str(self._port)):
            return False
        return found[1] in self._names or (self._is_open and _is_private(found[1]))


def _is_private(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name.strip("[]")))
    return name != "" and ("." not in name or name.endswith(_PRIVATE))
