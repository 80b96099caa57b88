"""Closes connections whose client does not send a complete request."""

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol


class HeadLimit(H11Protocol):
    """A connection that is closed if the head of a request is not complete in time. Otherwise, clients that send half a
    request would take up all connections.
    """

    seconds: ClassVar[float] = 10.0
    """Time in which a client has to send the head of a request."""
    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        is_in_request = self.cycle is not None and not self.cycle.response_complete
        if is_in_request and self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        elif not is_in_request and self._waiting is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.seconds, self._close)

    def _close(self) -> None:
        self._waiting = None
        self.transport.abort()
