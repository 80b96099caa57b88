"""Streams in one process: handlers of async iterables, and the loop that runs them."""

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
"""Streams that `stream` processes, by the identity of their iterables."""


def handle(*iterables: AsyncIterable[Any], sink: Sink | tuple[Sink, ...] = ()) -> Callable[[F], F]:
    """Register a function that handles the messages of streams, once `stream` processes them.

    The function may be plain, async, or a generator of either kind. The values that it returns or yields, except
    `None`, go to the sinks.

    :param iterables: the streams
    :param sink: a function, or several, plain or async
    :raises DependencyError: a stream is not an async iterable
    """
    for iterable in iterables:
        if not isinstance(iterable, AsyncIterable):
            raise DependencyError(f"a stream is an async iterable, such as an async generator, not {iterable!r:.100}")
    sinks = sink if isinstance(sink, tuple) else (sink,)

    def register(function: F) -> F:
        for iterable in iterables:
            _streams.setdefault(id(iterable), _Stream(iterable, [])).handlers.append((function, sinks))
        return function

    return register


async def stream() -> None:
    """Process all streams that have handlers concurrently, each in its order, until they end.

    A stream whose `Checkpoint` is paused waits before its next message is handled. An error of a handler ends all
    streams.
    """
    playing = _Playing(list(_streams.values()))
    _streams.clear()
    tasks = [asyncio.ensure_future(playing.play(each)) for each in playing.streams]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Playing:
    def __init__(self, streams: list[_Stream]) -> None:
        self.streams = streams
        self._left = len(streams)
        self._paused: dict[int, Checkpoint] = {}

    async def play(self, stream: _Stream) -> None:
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
            told = "all streams that are left wait for their dependencies (%s): only a heartbeat from elsewhere helps"
            _logger.warning(told, ", ".join(paused))


async def _values(given: Any) -> AsyncIterator[Any]:
    """Yield the values that a function of either kind returned or yields."""
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
