"""Registers handlers for async iterables, and calls the handlers with the messages, all in one process."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias, TypeVar

from amadou_plugins.dependencies._checkpoint import Checkpoint, answer, checkpoints_of
from amadou_plugins.dependencies._errors import DependencyError

Sink: TypeAlias = Callable[[Any], Any | Awaitable[Any]]
F = TypeVar("F", bound=Callable[[Any], Any])
_logger = logging.getLogger("amadou")


class _Stream(NamedTuple):
    iterable: AsyncIterable[Any]
    handlers: list[tuple[Callable[[Any], Any], tuple[Sink, ...]]]


_streams: dict[int, _Stream] = {}
"""The streams for `stream` to process, by the `id` of their iterables."""


def handle(*iterables: AsyncIterable[Any], sink: Sink | tuple[Sink, ...] = ()) -> Callable[[F], F]:
    """Return a decorator that registers a function, which `stream` calls with each message from the given streams.

    The function can be synchronous or async, and can be a generator. The sinks receive the values that a generator
    yields, or the result of any other function, unless this result is `None`.

    :param iterables: the streams
    :param sink: a sink, or a tuple of sinks. A sink is a function, synchronous or async, that is called with each value
    :raises DependencyError: a stream is not an async iterable
    """
    for iterable in iterables:
        if not isinstance(iterable, AsyncIterable):
            raise DependencyError(f"streams must be async iterables, such as async generators, not {iterable!r:.100}")
    sinks = sink if isinstance(sink, tuple) else (sink,)

    def register(function: F) -> F:
        for iterable in iterables:
            _streams.setdefault(id(iterable), _Stream(iterable, [])).handlers.append((function, sinks))
        return function

    return register


async def stream() -> None:
    """Process all streams that have handlers, until the streams end. The streams are processed concurrently, and the
    messages of each stream in order.

    A stream whose `Checkpoint` is paused waits before its next message is handled. If a handler fails, `stream` cancels
    the other streams and raises the handler's error.
    """
    processing = _Processing(list(_streams.values()))
    _streams.clear()
    tasks = [asyncio.ensure_future(processing.process(each)) for each in processing.streams]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Processing:
    def __init__(self, streams: list[_Stream]) -> None:
        self.streams = streams
        self._left = len(streams)
        self._paused: dict[int, Checkpoint] = {}

    async def process(self, stream: _Stream) -> None:
        async for item in stream.iterable:
            while paused := [each for each in checkpoints_of(stream.iterable) if each.is_paused]:
                await self._resumed(stream, paused[0])
            for function, sinks in stream.handlers:
                async for value in _values(function(item)):
                    for sink in sinks:
                        await answer(sink(value))
        self._left -= 1
        self._look()

    async def _resumed(self, stream: _Stream, checkpoint: Checkpoint) -> None:
        self._paused[id(stream.iterable)] = checkpoint
        self._look()
        await checkpoint.resumed()
        del self._paused[id(stream.iterable)]

    def _look(self) -> None:
        paused = [checkpoint.name for checkpoint in self._paused.values() if checkpoint.is_paused]
        if paused and len(paused) == self._left:
            message = "all remaining streams are paused (checkpoints: %s): call heartbeat in another task to resume"
            _logger.warning(message, ", ".join(paused))


async def _values(given: Any) -> AsyncIterator[Any]:
    """Yield the values that a handler yields, or the single value that the handler returns, unless it is `None`."""
    if isinstance(given, AsyncIterable):
        async for value in given:
            yield value
    elif inspect.isgenerator(given):
        for value in given:
            yield value
    else:
        value = await answer(given)
        if value is not None:
            yield value
