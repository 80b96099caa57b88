"""Calls a lookup's function for many keys: in batches, several at the same time, with timeouts and retries."""

import asyncio
import concurrent.futures
import inspect
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, TypeAlias

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

    :param function: the function that fetches answers; one without ``async`` is called in threads
    :param grace: seconds by which the event loop may exceed the time that its calls can take
    """
    size, timeout, answers = lookup.batch_size, lookup.timeout.total_seconds(), dict[Any, Any]()
    batches = [list(keys[at : at + size]) for at in range(0, len(keys), size)]
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        vars(type(function)).get("__call__")
    )
    call = function if is_async else partial(_in_thread, function)

    async def one(keys: list[Any], allowed: asyncio.Semaphore) -> None:
        for tries in range(lookup.retries + 1):
            try:
                async with allowed:
                    answers.update(_checked(await asyncio.wait_for(call(list(keys)), timeout), keys))
                return
            except asyncio.TimeoutError:
                failure: Exception = TimeoutError(f"no answer within {timeout:g} s")
            except Exception as error:
                failure = error.__cause__ if isinstance(error, _InThreadError) else error  # type: ignore[assignment]
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


class _InThreadError(Exception):
    """A function failed in a thread. The cause is its error, which a coroutine cannot always raise."""


async def _in_thread(function: Fetch, keys: list[Any]) -> Any:
    """Call a function in a thread of its own: one of a pool would be waited for at the end of the process, even if it
    never returns.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def end(result: Any, error: BaseException | None) -> None:
        if not done.done():  # otherwise it is too late
            done.set_result((result, error))

    def run() -> None:
        try:
            loop.call_soon_threadsafe(end, function(keys), None)
        except BaseException as error:
            loop.call_soon_threadsafe(end, None, error)

    threading.Thread(target=run, name="amadou-lookup", daemon=True).start()
    result, error = await done
    if error is not None:
        raise _InThreadError from error
    return result


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


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process for asynchronous functions. It runs in a thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="amadou-lookups", daemon=True).start()
    return loop
