"""Checks vectorised handlers in test runs: compares the vectorised path, which real runs use, with the per-event path.

The per-event path is the reference, and provides the results and traces. A difference between the paths is a bug in
amadou or in the component: the test run raises a `VectorizedPathError`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from amadou import Component, Job
from amadou.errors import VectorizedPathError
from amadou.text import shown_error
from amadou_runtime.core.failure import shown_traceback
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import KeyedRecords, Keying, key_event_of
from amadou_runtime.core.observer import Observer
from amadou_runtime.core.operator import GroupBatch, Operator, ProcessedGroup
from amadou_runtime.core.vectorized import batch_keying
from amadou_runtime.testing.difference import first_difference
from amadou_runtime.testing.scripted import ScriptedEvent, scripted

T = TypeVar("T")


class CheckedKeying(Keying):
    """Keys records one by one, and checks that keying them in one call, as in a real run, yields the same events."""

    def __init__(self, job: Job, source: str, groups: int) -> None:
        key_event = key_event_of(job, source)
        super().__init__(job, source, scripted(key_event), groups)
        self._in_runs = None if batch_keying(job, key_event) is None else Keying(job, source, key_event, groups)

    def pack(self, records: list[Any], now: int) -> KeyedRecords:
        in_runs = self._in_runs
        if in_runs is None or any(type(record) is ScriptedEvent for record in records):  # only in test runs
            return self.per_record(records, now)
        reference = _outcome(lambda: self.per_record(records, now))
        vectorized = _outcome(lambda: in_runs.vectorized(records, now))
        _compare("key_event", vectorized, reference, KeyedRecords._asdict)
        return _result(reference)


class CheckedOperator(Operator):
    """Processes events one by one, and checks that the vectorised path, if there is one, yields the same results."""

    def __init__(self, job: Job, observer: Observer) -> None:
        super().__init__(job, observer)
        self._in_runs = None if self.vectorized_component is None else Operator(job)
        self._left: tuple[bytes | None, bytes | None] = None, None
        """State after the last batch, on the per-event path and on the vectorised path."""

    def process(self, given: GroupBatch) -> ProcessedGroup:
        in_runs, component = self._in_runs, self.vectorized_component
        if in_runs is None or component is None or given.again is not None:
            return self.per_event(given)
        in_runs.run = self.run
        before = given._replace(state=self._left[1]) if given.state == self._left[0] else given
        reference = _outcome(lambda: self.per_event(given))
        vectorized = _outcome(lambda: in_runs.vectorized(component, before))
        _compare(component.name, vectorized, reference, lambda processed: _fields(processed, component))
        processed = _result(reference)
        left = vectorized if isinstance(vectorized, ProcessedGroup) else processed
        self._left = processed.state, left.state
        return processed


def _fields(processed: ProcessedGroup, component: Component) -> dict[str, Any]:
    """Return a batch's results by name. State is returned in readable form, since equal state, such as an exact sum,
    can be stored in different forms.
    """
    group = KeyGroup(processed.state)
    group.by_subject(component)
    state = {
        f"{name} of {key!r}": [component.shown_value(key, value), table.next_timers.get(key)]
        for name, table in group.tables.items()
        for key, value in zip(table.packed, table.unpacked(), strict=True)
    }
    return processed._asdict() | {"state": state}


def _outcome(call: Callable[[], T]) -> T | Exception:
    try:
        return call()
    except Exception as error:
        return error


def _result(outcome: T | Exception) -> T:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _compare(name: str, vectorized: Any, reference: Any, fields: Callable[[Any], Mapping[str, Any]]) -> None:
    """Compare the outcomes of both paths.

    :param name: name of the component, or ``key_event``
    :param vectorized: a result, an error, or `None` if real runs also use the per-event path
    :param reference: a result or an error
    :param fields: function that returns the parts of a result, by name
    :raises VectorizedPathError: the outcomes differ
    """
    if vectorized is None:
        return
    has_failed, is_refused = isinstance(vectorized, Exception), isinstance(reference, Exception)
    if has_failed and is_refused:
        return  # both paths reject a record or an event
    if has_failed or is_refused:
        where = f"\n{shown_traceback(vectorized)}" if has_failed else ""
        raise VectorizedPathError(name, "outcome", _shown(vectorized), _shown(reference), where)
    expected = fields(reference)
    for part, found in fields(vectorized).items():
        differing = first_difference(found, expected[part], "entries: {:,} vectorised, {:,} per event")
        if differing is not None:
            where, ours, theirs = differing
            raise VectorizedPathError(name, part, ours, theirs, where)


def _shown(outcome: Any) -> str:
    return shown_error(outcome) if isinstance(outcome, Exception) else "no error"
