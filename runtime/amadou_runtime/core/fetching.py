"""Calls a lookup's function for many keys: in batches, several at the same time, with timeouts and retries."""

import asyncio
import concurrent.futures
import inspect
import itertools
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeAlias

import attrs

from amadou import Lookup
from amadou.errors import LookupAnswerError
from amadou.text import shown_value

Fetch: TypeAlias = Callable[[list[Any]], Any]
_PAUSE: Final = 0.05
"""Seconds before the first retry; each further retry waits twice as long."""
_SHOWN: Final = 200
_MOST_COMPARED: Final = 1_000
"""Maximum number of answers whose keys are compared with the key of a missing answer."""
_GRACE: Final = 5.0
"""Default for `grace`; see `fetched`."""


def fetched(lookup: Lookup[Any, Any], function: Fetch, keys: Sequence[Any], *, grace: float = _GRACE) -> dict[Any, Any]:
    """Return the answers for keys: `None` for a key without an answer, an exception for a key that failed.

    :param function: the function that fetches answers
    :param grace: seconds by which the event loop may exceed the time that its calls can take
    """
    size = lookup.batch_size
    batches = [list(keys[at : at + size]) for at in range(0, len(keys), size)]
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        vars(type(function)).get("__call__")
    )
    return _on_loop(lookup, function, batches, grace) if is_async else _in_threads(lookup, function, batches)


def _checked(answer: Any, keys: list[Any]) -> dict[Any, Any]:
    """Return the answers for keys.

    :raises LookupAnswerError: the function did not return a mapping with these keys
    """
    if inspect.iscoroutine(answer):
        answer.close()  # otherwise Python warns that it was never awaited
    if not isinstance(answer, Mapping):
        shown = shown_value(answer, _SHOWN)
        raise LookupAnswerError(f"the function must return a mapping from keys to answers, not {shown}")
    answers = {key: answer.get(key) for key in keys}
    types = {type(None), *map(type, keys)}
    missing = next((key for key in keys if key not in answer), None)
    for other in () if missing is None else itertools.islice(answer, _MOST_COMPARED):
        if type(other) not in types:
            asked, named = (f"{shown_value(key, _SHOWN)} ({type(key).__name__})" for key in (missing, other))
            why = f"the function was asked for {asked}, and answered for {named}"
            raise LookupAnswerError(f"{why}: return the keys as they were passed")
    return answers


def _failed(keys: list[Any], error: BaseException) -> dict[Any, Any]:
    failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
    return dict.fromkeys(keys, failure)


def _late(timeout: float) -> TimeoutError:
    return TimeoutError(f"no answer within {timeout:g} s")


def _on_loop(lookup: Lookup[Any, Any], function: Fetch, batches: list[list[Any]], grace: float) -> dict[Any, Any]:
    """Call an asynchronous function on the event loop of this process."""
    timeout = lookup.timeout.total_seconds()
    answers: dict[Any, Any] = {}

    async def one(keys: list[Any], allowed: asyncio.Semaphore) -> None:
        for tries in range(lookup.retries + 1):
            try:
                async with allowed:
                    answers.update(_checked(await asyncio.wait_for(function(list(keys)), timeout), keys))
                return
            except asyncio.TimeoutError:
                failure: Exception = _late(timeout)
            except Exception as error:
                failure = error
            answers.update(_failed(keys, failure))
            if tries == lookup.retries or isinstance(failure, LookupAnswerError):
                return
            await asyncio.sleep(_PAUSE * 2**tries)

    async def every() -> None:
        allowed = asyncio.Semaphore(lookup.concurrency)
        await asyncio.gather(*(one(keys, allowed) for keys in batches))

    rounds = -(-len(batches) // lookup.concurrency)
    limit = (rounds * timeout + _PAUSE * 2**lookup.retries) * (lookup.retries + 1) + grace
    future = asyncio.run_coroutine_threadsafe(every(), _loop())
    try:
        future.result(limit)
    except concurrent.futures.TimeoutError:  # the function blocks the event loop
        _loop.cache_clear()
        why = "the function blocks the event loop: await what it waits for, or use a function without async"
        missing = [key for keys in batches for key in keys if key not in answers]
        return {**answers, **_failed(missing, TimeoutError(why))}
    return answers


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process for asynchronous functions. It runs in a thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="amadou-lookups", daemon=True).start()
    return loop


@attrs.frozen(eq=False)
class _Call:
    """A call for some keys.

    :param tries: number of times that it has failed
    """

    keys: list[Any]
    tries: int = 0


def _in_threads(lookup: Lookup[Any, Any], function: Fetch, batches: list[list[Any]]) -> dict[Any, Any]:
    """Call a function in threads."""
    calls = _Calls(lookup, function, batches)
    while calls.are_left:
        calls.start()
        calls.wait()
    return calls.answers


class _Calls:
    """Calls in threads. Times are those of `time.monotonic`.

    :ivar answers: the answers so far; see `fetched`
    """

    def __init__(self, lookup: Lookup[Any, Any], function: Fetch, batches: list[list[Any]]) -> None:
        self._lookup, self._function = lookup, function
        self._timeout = lookup.timeout.total_seconds()
        self._ready = deque(map(_Call, batches))
        self._paused: deque[tuple[float, _Call]] = deque()
        """Failed calls, with the time at which they are repeated."""
        self._running: OrderedDict[_Call, float] = OrderedDict()
        """Calls, with the time at which they fail: the first one first."""
        self._ended: SimpleQueue[tuple[_Call, Any, BaseException | None]] = SimpleQueue()
        """Calls with their result or error."""
        self.answers: dict[Any, Any] = {}

    @property
    def are_left(self) -> bool:
        """`True` if there are calls without a result."""
        return bool(self._ready or self._paused or self._running)

    def start(self) -> None:
        """Start as many calls as may run."""
        now = time.monotonic()
        for _ in range(len(self._paused)):
            at, call = self._paused.popleft()
            if at <= now:
                self._ready.append(call)
            else:
                self._paused.append((at, call))
        while self._ready and len(self._running) < self._lookup.concurrency:
            call = self._ready.popleft()
            self._running[call] = now + self._timeout
            # A thread of a pool would be waited for at the end of the process, even if it never returns.
            threading.Thread(target=self._run, args=(call,), name="amadou-lookup", daemon=True).start()

    def wait(self) -> None:
        """Wait until a call has ended or must be repeated, and take its result."""
        moments = [*list(self._running.values())[:1], *(at for at, _ in self._paused)]
        pause = min(moments) - time.monotonic()
        try:
            call, result, error = self._ended.get(timeout=max(pause, 0.001))
        except Empty:
            self._fail_late()
            return
        if self._running.pop(call, None) is None:
            return  # too late
        try:
            if error is not None:
                raise error
            self.answers.update(_checked(result, call.keys))
        except BaseException as failed:
            self._fail(call, failed)

    def _run(self, call: _Call) -> None:
        try:
            self._ended.put((call, self._function(list(call.keys)), None))
        except BaseException as error:
            self._ended.put((call, None, error))

    def _fail_late(self) -> None:
        now = time.monotonic()
        for call, end in list(self._running.items()):
            if now >= end:
                del self._running[call]
                self._fail(call, _late(self._timeout))

    def _fail(self, call: _Call, error: BaseException) -> None:
        if call.tries < self._lookup.retries and not isinstance(error, LookupAnswerError):
            self._paused.append((time.monotonic() + _PAUSE * 2**call.tries, _Call(call.keys, call.tries + 1)))
        else:
            self.answers.update(_failed(call.keys, error))
