"""Checks vectorised handlers in test runs: compares the vectorised path, which real runs use, with the per-event path.

The per-event path is the reference, and provides the results and traces. A difference between the paths is a bug in
amadou or in the component: the test run raises a `VectorizedPathError`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs

from amadou import Job, Key
from amadou.components import Component, copied_if_possible
from amadou.engine import StateTable
from amadou.errors import VectorizedPathError
from amadou.text import shown_error
from amadou_runtime.core.group_batch import GroupBatch, ProcessedGroup
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import KeyedRecords, Keying, key_event_of
from amadou_runtime.core.operator import Operator
from amadou_runtime.core.vectorized import batch_keying
from amadou_runtime.formats.failure import callback_error, shown_traceback
from amadou_runtime.store.packed_group import PackedGroup, packed_group
from amadou_runtime.testing.difference import first_difference
from amadou_runtime.testing.in_place import class_attributes_checked, class_attributes_unchecked
from amadou_runtime.testing.scripted import ScriptedEvent, scripted
from amadou_runtime.testing.trace import Trace

T = TypeVar("T")


class CheckedKeying(Keying):
    """Keys records one by one, and checks that keying them in one call, as in a real run, yields the same events. A
    `key_event` that changes its record changes a copy: a run that is repeated reads the record again.
    """

    def __init__(self, job: Job, source: str, groups: int) -> None:
        key_event = key_event_of(job, source)
        super().__init__(job, source, scripted(key_event), groups)
        self._in_runs = None if batch_keying(job, key_event) is None else Keying(job, source, key_event, groups)

    def pack(self, records: list[Any], now: int) -> KeyedRecords:
        with class_attributes_checked(self._of):
            return self._checked(records, now)

    def _checked(self, records: list[Any], now: int) -> KeyedRecords:
        in_runs = self._in_runs
        if in_runs is None or any(type(record) is ScriptedEvent for record in records):  # only in test runs
            return self.per_record(records, now)
        reference = _outcome(lambda: self.per_record(records, now))
        vectorized = _outcome(lambda: in_runs.vectorized([*map(copied_if_possible, records)], now))
        _compare("key_event", vectorized, reference, KeyedRecords._asdict)
        return _result(reference)


class CheckedOperator(Operator):
    """Processes events one by one, and checks that the vectorised path, if there is one, yields the same results."""

    def __init__(self, job: Job, trace: Trace) -> None:
        super().__init__(job, trace)
        self._trace = trace
        self.lookups.needed_by = {}
        self._in_runs = None if self.vectorized_component is None else Operator(job)
        self._left: tuple[_State, bytes | None] | None = None
        """State after the last batch: the state that the per-event path left, and the packed group that the vectorised
        path left.
        """

    def fetch(self, groups: Iterable[GroupBatch]) -> None:
        """Fetch the answers of lookups, whose functions may change class attributes, such as a count of calls."""
        if self.lookups:
            with class_attributes_unchecked(self._job.handler):
                super().fetch(groups)

    def process(self, given: GroupBatch) -> ProcessedGroup:
        """Process one batch, and check what callbacks have changed in place.

        :raises CallbackError: a callback changed a value of state in place
        :raises HandlerAttributeError: a callback changed a class attribute
        """
        self._trace.in_place = None
        with class_attributes_checked(self._job.handler):
            processed = self._compared(given)
        if self._trace.in_place is None:
            return processed
        entry, error = self._trace.in_place
        raise callback_error(
            error,
            handler=self.callbacks.name,
            callback=entry.callback,
            source=entry.source,
            key=entry.key,
            record=entry.value,
            watermark=entry.watermark,
        )

    def _compared(self, given: GroupBatch) -> ProcessedGroup:
        in_runs, component = self._in_runs, self.vectorized_component
        if in_runs is None or component is None or given.again is not None:
            return self.per_event(given)
        in_runs.run = self.run
        in_runs.begin(self.references, self.lookups.now, self.before_end)
        before, stored = self._state_before(given, component)
        reference = _outcome(lambda: self.per_event(given))
        vectorized = _outcome(lambda: in_runs.vectorized(component, given._replace(stored=stored)))
        left = before if isinstance(reference, Exception) else before.updated(reference.group)

        def fields(processed: ProcessedGroup) -> dict[str, Any]:
            state = left if processed is reference else _State.of(processed.group, component)
            return _fields(processed, component, state)

        _compare(component.name, vectorized, reference, fields)
        processed = _result(reference)
        self._left = (left, vectorized.changes.packed) if isinstance(vectorized, ProcessedGroup) else None
        return processed

    def _state_before(self, given: GroupBatch, component: Component) -> tuple["_State", "_StoredBefore"]:
        """Return the stored state, and the group from which the vectorised path continues: the group that it left
        itself, unless the stored state is not the state that the per-event path left.
        """
        group = KeyGroup(given.stored, self.run)
        given.stored.load_all(group)
        lost = group.lost
        before = _State.of(group, component)
        if self._left is not None and self._left[0] == before:
            return before, _StoredBefore(self._left[1], lost)
        return before, _StoredBefore(packed_group(group), lost)


class _StoredBefore(PackedGroup):
    """A packed group that has lost the in-memory state of an earlier run.

    :param lost: see `KeyGroup.lost`
    """

    def __init__(self, packed: bytes | None, lost: dict[str, int]) -> None:
        super().__init__(packed)
        self._lost = lost

    def begin(self, group: KeyGroup) -> None:
        super().begin(group)
        group.lost = self._lost


@attrs.frozen
class _State:
    """A component's state and timers, by key, and the held events, by source."""

    packed: dict[Key, bytes]
    next_timers: dict[Key, int]
    held: dict[str, list[Any]]

    @classmethod
    def of(cls, group: KeyGroup, component: Component) -> "_State":
        """Return the state of a group that is loaded completely."""
        group.by_subject(component)
        table = group.tables.get(component.name) or StateTable({})
        held = {source: group.held_events(source) for source in group.held}
        return cls(dict(table.packed), dict(table.next_timers), held)

    def updated(self, group: KeyGroup) -> "_State":
        """Return the state after a batch.

        :param group: the group after the batch, with the state of the keys that the batch loaded
        """
        after = _State({}, {}, {source: group.held_events(source) for source in group.held})
        for key in self.packed.keys() - set(filter(group.stored.has_loaded, self.packed)):
            after.packed[key] = self.packed[key]
            if key in self.next_timers:
                after.next_timers[key] = self.next_timers[key]
        for table in group.tables.values():
            after.packed.update(table.packed)
            after.next_timers.update(table.next_timers)
        return after


def _fields(processed: ProcessedGroup, component: Component, state: _State) -> dict[str, Any]:
    """Return a batch's results by name. State is returned in readable form, since equal state, such as an exact sum,
    can be stored in different forms.
    """
    fields = processed._asdict()
    del fields["group"], fields["changes"], fields["touched"]
    values = StateTable(state.packed).unpacked(state.packed, component.name)
    shown = {
        f"{component.name} of {key!r}": [component.shown_value(key, value), state.next_timers.get(key)]
        for key, value in values.items()
    }
    return fields | {"state": shown}


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
