"""Connections of urllib3 whose timeout limits the time until the head of a response is complete."""

import socket
import threading
from contextlib import suppress
from functools import cache
from typing import Any


def limited_pool(**options: Any) -> Any:
    """Return a `urllib3.PoolManager`. The timeout of a request also limits how long the head of its response takes:
    urllib3 only limits the time between two of its bytes.
    """
    import urllib3

    manager = urllib3.PoolManager(**options)
    manager.pool_classes_by_scheme = _pool_classes()
    return manager


@cache
def _pool_classes() -> dict[str, Any]:
    import urllib3

    pools = {"http": urllib3.HTTPConnectionPool, "https": urllib3.HTTPSConnectionPool}
    return {scheme: type(pool.__name__, (pool,), {"ConnectionCls": _limited(pool)}) for scheme, pool in pools.items()}


def _limited(pool: Any) -> Any:
    class Connection(pool.ConnectionCls):  # type: ignore[misc]
        def getresponse(self) -> Any:
            is_late = threading.Event()

            def end() -> None:
                is_late.set()
                with suppress(OSError):
                    connected.shutdown(socket.SHUT_RDWR)  # the thread that reads sees the end of the response

            connected, timer = self.sock, threading.Timer(self.timeout, end)
            timer.daemon = True
            timer.start()
            try:
                response = super().getresponse()
            except Exception as error:
                if is_late.is_set():
                    raise TimeoutError from error
                raise
            finally:
                timer.cancel()
            if is_late.is_set():  # its head may be cut
                response.close()
                raise TimeoutError
            return response

    return Connection
