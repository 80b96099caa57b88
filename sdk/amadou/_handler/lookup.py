"""Lookups: answers of a service that a batch's events need."""

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from typing_extensions import Self, TypeForm

from amadou._engine.time import seconds_or_time
from amadou._handler.event import KeyedEvent
from amadou._handler.subject import Subject
from amadou._state.copying import copied
from amadou._state.map import MapSpec
from amadou._state.spec import MISSING, Spec, shown
from amadou.errors import AmadouError, LookupAnswerError, LookupFailedError, LookupKeyError, SpecError
from amadou.text import shown_error, shown_value

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
V = TypeVar("V")

_SHOWN: Final = 200


class Lookup(Spec, Generic[K, V]):
    """Answers of a service for the keys that a batch's events need, such as the rows of customers in a database
    (`semantics.md` 35).

    Before the events of a batch are processed, a worker fetches the answers for all distinct keys that its events
    need, in a few calls at the same time. Callbacks then read the answers without waiting::

        class Enriched(Handler):
            customers = Lookup(fetch_customers, key=lambda event: event.value["customer"])

            def on_event(self, subject, event):
                customer = self.customers.get(subject, event.value["customer"])

    :param fetch: function that returns the answers for a list of keys, as a mapping. A key without an answer may be
        missing; the answer for a key can be an exception, if only this key failed. The function is called on the
        workers, by several threads at the same time. It can be an ``async`` function. To use a method of the handler,
        mark the method with `fetched_by`
    :param key: function that returns the key that an event needs; a list or a set if the event needs several keys,
        `None` if it needs none
    :param batch_size: maximum number of keys in a call; by default 500, or the attribute `batch_size` of `fetch`
    :param concurrency: maximum number of calls of a worker at the same time
    :param timeout: time after which a call fails: a `timedelta` or a number of seconds. A thread that does not return
        is abandoned
    :param retries: number of times that a failed call is repeated
    :param ttl: time for which a worker caches an answer: a `timedelta` or a number of seconds, in processing time. By
        default, an answer is used for one batch. With `keep`, the time in event time for which an answer is kept; by
        default, answers are kept as long as other state of the subject
    :param cache_size: maximum number of answers that a worker caches
    :param on_failure: `"fail"` ends the run if a key cannot be fetched. With `"dead_letter"`, `get` raises the error in
        the callback, so that the event becomes a dead letter; the job needs ``on_error="dead_letter"``. Any other value
        is used as the answer, and the counter ``<name>.failed`` counts the keys
    :param keep: `True` to store the answers in the state of the subject. Later events of the subject use the stored
        answers, and a replay of dead letters does not depend on the service
    :param type: the type of the answers; needed with `keep`
    :param key_type: the type of the keys; needed with `keep` if it is not `str`
    :param name: the lookup's name; by default the attribute's name
    :raises SpecError: a setting is invalid
    """

    _usage = _removal = "get(subject, …)"

    def __init__(
        self,
        fetch: Callable[[list[K]], Any] | None = None,
        *,
        key: Callable[[KeyedEvent[Any]], Any],
        batch_size: int | None = None,
        concurrency: int = 8,
        timeout: timedelta | float = 10,
        retries: int = 3,
        ttl: timedelta | float | None = None,
        cache_size: int = 100_000,
        on_failure: Any = "fail",
        keep: bool = False,
        type: TypeForm[V] = Any,
        key_type: Any = str,
        name: str | None = None,
    ) -> None:
        if batch_size is None:
            batch_size = getattr(fetch, "batch_size", 500)
        for setting, value, least in (
            ("batch_size", batch_size, 1),
            ("concurrency", concurrency, 1),
            ("retries", retries, 0),
            ("cache_size", cache_size, 0),
        ):
            if not isinstance(value, int) or value < least:
                raise SpecError(f"{setting} must be an integer of at least {least}, not {value!r}")
        for setting, function in (("key", key), ("fetch", fetch)):
            if function is not None and not callable(function):
                raise SpecError(f"{setting} must be a function, not {function!r}")
        self.batch_size, self.concurrency, self.retries, self.cache_size = batch_size, concurrency, retries, cache_size
        self.timeout = _positive("timeout", timeout)
        self.ttl = None if ttl is None else _positive("ttl", ttl)
        self.on_failure = on_failure
        self.key = key
        self.type: Any = type
        self.fetch: Any = fetch
        """The function that was passed; `None` if a method of the handler fetches the answers."""
        self._method: str | None = None
        self._name = name
        self.kept: MapSpec[Any, Any] | None = None
        """The state with the answers that are kept; `None` without `keep`."""
        if keep:
            value_type: Any = type
            self.kept = MapSpec(key_type, value_type | None, ttl=self.ttl, name=name)
            self.kept.is_watched = False  # answers are copies that callbacks may change

    def __set_name__(self, owner: type, name: str) -> None:
        super().__set_name__(owner, name)
        if self.kept is not None and self.kept.given_name is None:
            self.kept._name = self._name

    def fetched_by(self, method: F) -> F:
        """Mark the handler method that fetches the answers: ``(self, keys)``."""
        if self.fetch is not None or self._method is not None:
            raise SpecError("a lookup has two functions: remove one")
        self._method = method.__name__
        return method

    def function(self, handler: Any) -> Callable[[list[K]], Any]:
        """Return the function that fetches the answers.

        :raises SpecError: there is none
        """
        if self._method is not None:
            return getattr(handler, self._method)  # type: ignore[no-any-return]
        if self.fetch is None:
            raise SpecError("no function fetches the answers: pass one, or mark a method with fetched_by")
        return self.fetch  # type: ignore[no-any-return]

    def get(self, subject: Subject, key: K) -> V | None:
        """Return the answer for a key; `None` if the service has no answer. Each call returns a copy, so that callbacks
        may change answers.

        :raises LookupKeyError: no answer was fetched, because no event of the batch needs the key. In a test run, also
            if only events of other keys need it: in a run, a different worker may process them
        :raises LookupFailedError: the answer could not be fetched, with ``on_failure="dead_letter"``, or is of another
            type than `type`, with `keep`
        :raises LookupAnswerError: the answer cannot be copied
        """
        if self.kept is not None:
            found = self.kept.state_for(subject).get(key, MISSING)
            if found is not MISSING:
                return found  # type: ignore[no-any-return]
        batch = subject._batch
        try:
            answer = batch.lookups.get(self.name, {})[key]
        except KeyError:
            raise LookupKeyError(self.name, key, error=batch.lookup_errors.get(self.name)) from None
        if batch.needed_by is not None and subject.key not in batch.needed_by[self.name][key]:
            raise LookupKeyError(self.name, key, key_of_event=subject.key)
        if isinstance(answer, Exception):
            raise LookupFailedError(self.name, [key], answer)
        try:
            return copied(answer)  # type: ignore[no-any-return]
        except Exception as error:
            why = f"cannot be copied ({shown_error(error)})"
            advice = "return a value that can be copied, such as a dict or a named tuple"
            raise LookupAnswerError(f"the answer for the key {shown_value(key, _SHOWN)} {why}: {advice}") from error

    def keys_of(self, event: KeyedEvent[Any]) -> Iterable[K]:
        """Return the keys that an event needs."""
        needed = self.key(event)
        if needed is None:
            return ()
        return needed if isinstance(needed, list | set | frozenset) else (needed,)

    def with_fetch(self, fetch: Callable[[list[K]], Any]) -> Self:
        """Return a lookup with another function."""
        made = copy(self)
        made.fetch, made._method = fetch, None
        return made

    def answering(self, answers: Mapping[K, Any] | Callable[[K], Any]) -> Self:
        """Return a lookup that takes its answers from a mapping or from a function of the key, for tests. An answer can
        be an exception.

        :raises SpecError: `answers` is neither
        """
        if not isinstance(answers, Mapping) and not callable(answers):
            raise SpecError(
                "the answers must be a mapping from keys to answers, or a function that returns the answer for a key, "
                f"not {answers!r}"
            )
        return self.with_fetch(_Answers(answers))

    def check(self) -> None:
        if self.fetch is None and self._method is None:
            raise SpecError("no function fetches the answers: pass one, or mark a method with fetched_by")
        if self.kept is None:
            return
        self.kept.check()
        if not isinstance(self.on_failure, str) or self.on_failure not in ("fail", "dead_letter"):
            try:
                self.kept.encode_value(self.on_failure)
            except AmadouError as error:
                raise SpecError(f"on_failure={self.on_failure!r} is kept as an answer: {error}") from error

    def shown_type(self) -> str:
        return shown(self.type)

    def __repr__(self) -> str:
        function = self._method or getattr(self.fetch, "__name__", type(self.fetch).__name__)
        return f"Lookup({function})"


class _Answers:
    """Fetches answers from a mapping or a function."""

    def __init__(self, answers: Mapping[Any, Any] | Callable[[Any], Any]) -> None:
        self._answers = dict(answers) if isinstance(answers, Mapping) else answers

    def __call__(self, keys: list[Any]) -> dict[Any, Any]:
        answers = self._answers
        if not isinstance(answers, dict):
            return {key: self._answer(answers, key) for key in keys}
        return {key: answers[key] for key in keys if key in answers}

    def _answer(self, function: Callable[[Any], Any], key: Any) -> Any:
        try:
            return function(key)
        except Exception as error:  # only this key cannot be fetched
            return error


def _positive(setting: str, value: Any) -> timedelta:
    time = seconds_or_time(value)
    if not isinstance(time, timedelta) or time <= timedelta(0):
        raise SpecError(f"{setting} must be a positive timedelta or number of seconds, not {value!r}")
    return time
