"""Calls of a lookup's function: many at the same time, with timeouts and retries."""

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from amadou import Lookup
from amadou.errors import LookupAnswerError, SpecError
from amadou_runtime.core.fetching import fetched


def lookup(**settings: Any) -> Lookup[Any, Any]:
    return Lookup(lambda keys: {}, key=lambda event: event.value, **settings)


def doubled(keys: list[int]) -> dict[int, int]:
    return {key: 2 * key for key in keys}


class Service:
    """A service that counts its calls and its concurrent calls.

    :param together: number of concurrent calls for which calls wait
    """

    def __init__(self, together: int = 1, failures: int = 0) -> None:
        self.together, self.failures = together, failures
        self.calls: list[list[int]] = []
        self.most = self._now = 0
        self._changed = threading.Condition()

    def __call__(self, keys: list[int]) -> dict[int, int]:
        with self._changed:
            self.calls.append(keys)
            self._now += 1
            self.most = max(self.most, self._now)
            fails = len(self.calls) <= self.failures
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self.together, 20)
            self._changed.wait_for(lambda: self.most > self.together, 0.02)  # another call would begin meanwhile
            self._now -= 1
        if fails:
            raise ConnectionError("reset")
        return doubled(keys)


def test_keys_are_looked_up_in_concurrent_batches() -> None:
    service = Service(together=4)
    keys = list(range(100))
    assert fetched(lookup(batch_size=10, concurrency=4), service, keys) == doubled(keys)
    assert sorted(map(len, service.calls)) == [10] * 10
    assert service.most == 4


def test_async_functions_look_up_batches_of_keys_concurrently() -> None:
    running, most = 0, 0
    are_together = asyncio.Event()

    async def fetch(keys: list[int]) -> dict[int, int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 4:
            are_together.set()
        await are_together.wait()
        await asyncio.sleep(0.02)  # another call would begin meanwhile
        running -= 1
        return doubled(keys)

    keys = list(range(100))
    assert fetched(lookup(batch_size=10, concurrency=4), fetch, keys) == doubled(keys)
    assert most == 4


def test_a_failed_call_of_a_lookup_is_repeated() -> None:
    service = Service(failures=2)
    assert fetched(lookup(retries=2), service, [1, 2]) == {1: 2, 2: 4}
    assert service.calls == [[1, 2]] * 3
    service = Service(failures=2)
    failed = fetched(lookup(retries=1), service, [1, 2])
    assert [str(failed[key]) for key in (1, 2)] == ["reset", "reset"]
    assert len(service.calls) == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_lookup_fails_for_the_keys_of_a_call_that_exceeds_the_timeout(is_async: bool) -> None:
    released = threading.Event()

    def hang(keys: list[int]) -> dict[int, int]:
        if 7 in keys:
            released.wait(20)
        return doubled(keys)

    async def hang_async(keys: list[int]) -> dict[int, int]:
        if 7 in keys:
            await asyncio.sleep(20)
        return doubled(keys)

    began = time.monotonic()
    answers = fetched(
        lookup(batch_size=1, concurrency=2, timeout=0.2, retries=1), hang_async if is_async else hang, list(range(10))
    )
    released.set()
    assert time.monotonic() - began < 10
    assert isinstance(answers.pop(7), TimeoutError)
    assert answers == doubled([each for each in range(10) if each != 7])


@pytest.mark.parametrize("answer", [None, [1, 2], "garbage", {1, 2}])
def test_a_call_whose_result_is_not_a_mapping_fails_without_being_repeated(answer: Any) -> None:
    calls = []

    def fetch(keys: list[int]) -> Any:
        calls.append(keys)
        return answer

    answers = fetched(lookup(), fetch, [1, 2])
    assert isinstance(answers[1], LookupAnswerError)
    assert "must return a mapping from keys to answers" in str(answers[1])
    assert len(calls) == 1


def test_a_plain_function_that_returns_a_coroutine_is_an_error() -> None:
    async def fetch(keys: list[int]) -> dict[int, int]:
        return doubled(keys)

    answers = fetched(lookup(), lambda keys: fetch(keys), [1])
    assert isinstance(answers[1], LookupAnswerError)


def test_a_key_without_an_answer_is_none_and_answers_for_other_keys_are_ignored() -> None:
    assert fetched(lookup(), lambda keys: {1: "a", 9: "b"}, [1, 2]) == {1: "a", 2: None}


def test_a_lookup_without_keys_calls_nothing() -> None:
    service = Service()
    assert fetched(lookup(), service, []) == {}
    assert service.calls == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"batch_size": 0}, "batch_size must be an integer of at least 1, not 0"),
        ({"concurrency": 1.5}, "concurrency must be an integer of at least 1"),
        ({"retries": -1}, "retries must be an integer of at least 0"),
        ({"cache_size": None}, "cache_size must be an integer of at least 0"),
        ({"timeout": 0}, "timeout must be a positive timedelta or number of seconds, not 0"),
        ({"ttl": timedelta(0)}, "ttl must be a positive timedelta"),
        ({"key": "customer"}, "key must be a function, not 'customer'"),
        ({"fetch": {}}, "fetch must be a function, not {}"),
    ],
)
def test_a_lookup_refuses_settings_that_make_no_sense(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecError, match=why):
        Lookup(**{"fetch": doubled, "key": lambda event: event.value, **settings})


def test_a_lookup_with_two_functions_is_refused() -> None:
    named = Lookup(doubled, key=lambda event: event.value)
    with pytest.raises(SpecError, match="a lookup has two functions: remove one"):
        named.fetched_by(doubled)


def test_an_async_function_that_blocks_the_event_loop_is_an_error() -> None:
    released = threading.Event()

    async def block(keys: list[int]) -> dict[int, int]:
        released.wait(20)
        return doubled(keys)

    async def fetch(keys: list[int]) -> dict[int, int]:
        return doubled(keys)

    answers = fetched(lookup(timeout=0.1, retries=0), block, [1], grace=0.1)
    assert "the function blocks the event loop" in str(answers[1])
    began = time.monotonic()
    assert fetched(lookup(), fetch, [1]) == {1: 2}
    assert time.monotonic() - began < 10
    released.set()


class LateService:
    """A service whose first call ends after the timeout, while the second call runs."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self._threads: list[threading.Thread] = []
        self._second_began = threading.Event()

    def __call__(self, keys: list[int]) -> dict[int, str]:
        self.calls.append(keys)
        self._threads.append(threading.current_thread())
        if len(self.calls) == 1:
            self._second_began.wait(20)
            return dict.fromkeys(keys, "late")
        self._second_began.set()
        self._threads[0].join(20)
        return dict.fromkeys(keys, "on time")


def test_the_answer_of_a_call_that_exceeds_the_timeout_is_not_used() -> None:
    service = LateService()
    assert fetched(lookup(timeout=0.5, retries=1), service, [1]) == {1: "on time"}
    assert service.calls == [[1], [1]]
    answers = fetched(lookup(timeout=0.5, retries=0, concurrency=1, batch_size=1), LateService(), [1, 2])
    assert isinstance(answers[1], TimeoutError)  # its call ended while the second one ran
    assert answers[2] == "on time"
