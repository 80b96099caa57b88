"""Fetches the answers that a batch's events need, before the events are processed (`semantics.md` 35)."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from amadou import Job, Key, KeyedEvent, Lookup, Subject
from amadou.errors import AmadouError, LookupFailedError
from amadou.event_time import MICROSECOND
from amadou.text import shown_error
from amadou_runtime.core.events import Run
from amadou_runtime.core.fetching import fetched
from amadou_runtime.core.stopwatch import Stopwatch

Needed: TypeAlias = dict[str, dict[Any, None]]
"""The keys that events need, in their order, by lookup."""


class Lookups:
    """The lookups of a job in a worker.

    :ivar answers: the answers for the events that are processed next, by lookup and key
    :ivar errors: by lookup, the error of its function `key` on one of these events
    :ivar needed_by: see `Batch.needed_by`
    :ivar now: the clock time in microseconds
    """

    def __init__(self, job: Job, stopwatch: Stopwatch) -> None:
        self._handler = job.handler
        self._lookups = job.lookups
        self._stopwatch = stopwatch
        self._caches = {name: _Cache(lookup) for name, lookup in self._lookups.items()}
        self._counters: dict[str, int] = {}
        self._calls: dict[str, int] = {}
        self.answers: dict[str, dict[Any, Any]] = {}
        self.errors: dict[str, str] = {}
        self.needed_by: dict[str, dict[Any, set[Key]]] | None = None
        self.now = 0

    def __bool__(self) -> bool:
        return bool(self._lookups)

    @property
    def kept(self) -> list[Lookup[Any, Any]]:
        """The lookups whose answers are kept in state."""
        return [lookup for lookup in self._lookups.values() if lookup.kept is not None]

    def begin(self) -> None:
        """Forget which answers the last events needed."""
        self.answers, self.errors = {}, {}
        if self.needed_by is not None:
            self.needed_by = {name: {} for name in self._lookups}

    def add_needed(self, event: KeyedEvent[Any], subject: Subject, needed: Needed) -> None:
        """Add the keys that an event needs and whose answers are not kept.

        :param subject: the event's subject, with its state
        """
        for name, lookup in self._lookups.items():
            for key in self.keys_of(lookup, event):
                if not _is_kept(lookup, key, subject):
                    needed.setdefault(name, {})[key] = None
                if self.needed_by is not None:
                    self.needed_by[name].setdefault(key, set()).add(event.key)

    def keys_of(self, lookup: Lookup[Any, Any], event: KeyedEvent[Any]) -> Iterable[Any]:
        """Return the keys that an event needs of a lookup; none if its function `key` fails. `Lookup.get` reports the
        error.
        """
        try:
            keys = list(lookup.keys_of(event))
            hash(tuple(keys))
        except Exception as error:
            self.errors.setdefault(lookup.name, shown_error(error))
            return ()
        return keys

    def fetch(self, needed: Needed) -> None:
        """Fetch answers, and add them to `answers`.

        :raises LookupFailedError: a key cannot be fetched, and the lookup has ``on_failure="fail"``
        """
        for name, keys in needed.items():
            lookup, cache = self._lookups[name], self._caches[name]
            answers = self.answers.setdefault(name, {})
            cached = cache.get(keys, self.now)
            answers.update(cached)
            missing = [key for key in keys if key not in answers]
            if cached:
                self._count(f"{name}.cached", len(cached))
            if not missing:
                continue
            self._stopwatch.turn(name)
            found = fetched(lookup, lookup.function(self._handler), missing)
            self._stopwatch.turn()
            self._calls[name] = self._calls.get(name, 0) + -(-len(missing) // lookup.batch_size)
            self._count(f"{name}.fetched", len(missing))
            failed = {key: error for key, error in found.items() if isinstance(error, Exception)}
            cache.put({key: answer for key, answer in found.items() if key not in failed}, self.now)
            answers.update(found)
            if failed:
                self._handle(lookup, failed, answers)

    def _handle(self, lookup: Lookup[Any, Any], failed: Mapping[Any, Exception], answers: dict[Any, Any]) -> None:
        """Handle keys that could not be fetched."""
        self._count(f"{lookup.name}.failed", len(failed))
        if lookup.on_failure == "fail":
            raise LookupFailedError(lookup.name, list(failed), next(iter(failed.values())))
        if lookup.on_failure != "dead_letter":
            answers.update(dict.fromkeys(failed, lookup.on_failure))

    def keep(self, runs: Iterable[Run], subject: Subject) -> None:
        """Store answers in the state of the subjects whose events need them.

        :param subject: the subject, whose key and time are set
        """
        for run in runs:
            subject.source = run.source
            for event in map(KeyedEvent, run.keys, run.timestamps, run.values):
                subject.key, subject.timestamp = event.key, event.timestamp
                for lookup in self.kept:
                    self._keep(lookup, event, subject)

    def _keep(self, lookup: Lookup[Any, Any], event: KeyedEvent[Any], subject: Subject) -> None:
        assert lookup.kept is not None
        state, answers = lookup.kept.state_for(subject), self.answers.get(lookup.name, {})
        for key in self.keys_of(lookup, event):
            if key in answers and not isinstance(answers[key], Exception) and not _is_kept(lookup, key, subject):
                try:
                    state[key] = answers[key]
                except AmadouError as error:
                    answers[key] = error

    def take_counters(self) -> dict[str, int]:
        """Return the counters since the last call of this method, and reset them."""
        counters, self._counters = self._counters, {}
        return counters

    def take_calls(self) -> dict[str, int]:
        """Return the number of calls of each lookup's function since the last call of this method, and reset them."""
        calls, self._calls = self._calls, {}
        return calls

    def _count(self, counter: str, by: int) -> None:
        self._counters[counter] = self._counters.get(counter, 0) + by


def _is_kept(lookup: Lookup[Any, Any], key: Any, subject: Subject) -> bool:
    """Return `True` if the answer for a key is in the state of a subject. `False` for a key of another type than the
    lookup's: `Lookup.get` reports it.
    """
    if lookup.kept is None:
        return False
    with suppress(AmadouError):
        return key in lookup.kept.state_for(subject)
    return False


class _Cache:
    """The answers that a worker caches, the last used last. Times are those of the clock, in microseconds."""

    def __init__(self, lookup: Lookup[Any, Any]) -> None:
        self._life = None if lookup.ttl is None or lookup.kept is not None else lookup.ttl // MICROSECOND
        self._most = lookup.cache_size
        self._answers: OrderedDict[Any, tuple[Any, int]] = OrderedDict()

    def get(self, keys: Iterable[Any], now: int) -> dict[Any, Any]:
        """Return the cached answers for keys."""
        if self._life is None:
            return {}
        found = {}
        for key in keys:
            cached = self._answers.get(key)
            if cached is not None and 0 <= now - cached[1] < self._life:  # the clock can be set back
                self._answers.move_to_end(key)
                found[key] = cached[0]
        return found

    def put(self, answers: Mapping[Any, Any], now: int) -> None:
        """Cache answers."""
        if self._life is None:
            return
        for key, answer in answers.items():
            self._answers[key] = answer, now
            self._answers.move_to_end(key)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)
