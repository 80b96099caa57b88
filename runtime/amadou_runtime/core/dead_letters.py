"""Undoes failed callbacks and writes dead letters, for jobs with `on_error="dead_letter"` (`semantics.md` 19)."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

import attrs

from amadou import DeadLetter, Job, KeyedEvent, Subject, Timer
from amadou.components import Invoke, check_ran
from amadou.engine import DEAD_LETTERS, batch_of, pack, type_reference
from amadou.errors import AmadouError, CallbackError, StateDecodeError
from amadou.event_time import from_micros
from amadou.text import shown_value
from amadou_runtime.core.dead_letter_limit import Failures, note_failure
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.key_group import RetiredNameError
from amadou_runtime.core.observer import Observer
from amadou_runtime.core.samples import Samples
from amadou_runtime.formats.failure import callback_error, called, shown_state
from amadou_runtime.jobs.ports import port_codec

ComponentTimer: TypeAlias = Callable[[str, Subject, datetime, Invoke], None]
"""Function that fires the timer of the component with the given name."""


class DeadLetters:
    """Undoes failed callbacks, and writes a dead letter for each failed callback.

    :param job: the job, with a sink for dead letters
    :param observer: the observer of the callbacks, if any
    """

    def __init__(self, job: Job, observer: Observer | None = None) -> None:
        self._job = job.name
        self._handler = type_reference(type(job.handler))
        self._name = type(job.handler).__name__
        self._specs = job.specs
        self._encode = port_codec(job, DEAD_LETTERS).encode
        self._observer = observer
        self.samples = Samples()
        self._failures: Failures = {}

    def take_failures(self) -> Failures:
        """Return the failures since the last call of this method, and reset them."""
        failures, self._failures = self._failures, {}
        return failures

    def guarded(self, callback: str, function: Callable[[Subject, Any], Any]) -> Callable[[Subject, Any], None]:
        """Return a callback of the handler, wrapped so that a failing call is undone and becomes a dead letter. A timer
        whose callback fails still counts as fired.
        """

        def guarded(subject: Subject, given: Any) -> None:
            before = _Before(subject)
            try:
                check_ran(callback, function(subject, given))
                before.store()
            except Exception as error:
                _raise_unreadable(error)
                event = None if isinstance(given, datetime) else given
                failed = self._failed(callback, error, subject, event or Timer(subject.timestamp, subject.timer_tag))
                self._bury(before, failed, record=event)
                note_failure(self._failures, callback, failed.error)

        return guarded

    def guarded_component(self, fire: ComponentTimer, again: FailedCall | None = None) -> ComponentTimer:
        """Return `fire`, wrapped so that a failing call of a user-defined function is undone and becomes a dead letter.
        The component's timer still counts as fired.

        :param again: the failed call to replay, if any
        """

        def guarded(name: str, subject: Subject, timestamp: datetime, _: Invoke) -> None:
            at_first = _Before(subject)
            if again is not None:
                at_first.had(again)

            def call(subject: Subject, function: Callable[..., Any], *arguments: Any) -> None:
                before = _Before(subject)
                before.store()
                try:
                    check_ran(called(function), function(subject, *arguments))
                    before.store()
                except Exception as error:
                    _raise_unreadable(error)
                    failed = self._failed(called(function), error, subject, arguments)
                    watermark = subject.watermark_micros if again is None else again.watermark
                    call = [name, list(arguments), watermark]
                    before.take(name, at_first)
                    self._bury(before, failed, record=None, call=call)
                    note_failure(self._failures, name, failed.error)

            fire(name, subject, timestamp, call)
            at_first.store()

        return guarded

    def of_record(
        self,
        source: str,
        record: Any,
        failed: CallbackError,
        *,
        timestamp: datetime | None = None,
        encoded: Any = None,
    ) -> Any:
        """Return the encoded dead letter for a record on which `key_event` failed.

        :param record: the record, or the value of a port that feeds the job
        :param timestamp: the time of the callback that collected the value
        :param encoded: the encoded value
        """
        note_failure(self._failures, "key_event", failed.error)
        stored = record if encoded is None else encoded
        packed = {"key": None, "record": stored, "state": {}, "timers": [], "next_timers": {}}
        letter = self._letter(failed, source, record, packed)
        return self._encoded(attrs.evolve(letter, timestamp=timestamp))

    def of_late(self, source: str, event: KeyedEvent[Any], watermark: datetime, failed: CallbackError) -> Any:
        """Return the encoded dead letter for a late event that the `late_events` sink cannot encode."""
        packed: dict[str, Any] = {"key": event.key, "record": event, "state": {}, "timers": [], "next_timers": {}}
        letter = self._letter(failed, source, event, packed)
        letter = attrs.evolve(letter, key=event.key, timestamp=event.timestamp, watermark=watermark)
        return self._encoded(letter)

    def _failed(self, callback: str, error: Exception, subject: Subject, record: Any) -> CallbackError:
        return callback_error(
            error, handler=self._name, callback=callback, source=subject.source, key=subject.key, record=record
        )

    def _bury(
        self,
        before: "_Before",
        failed: CallbackError,
        record: Any,
        call: list[Any] | None = None,
    ) -> None:
        """Undo all changes since `before`, and write a dead letter with the state before.

        :param call: for a component's failed call: the component's name, the arguments and the watermark. `None` for
            the handler's callbacks
        """
        subject, key, state = before.subject, before.subject.key, before.packed
        before.restore()
        timers = before.timers()
        packed = {
            "key": key,
            "record": record,
            "state": state,
            "timers": timers,
            "next_timers": before.next_timers,
            "call": call,
        }
        letter = attrs.evolve(
            self._letter(failed, subject.source, record, packed),
            key=key,
            timestamp=subject.timestamp,
            tag=subject.timer_tag,
            watermark=subject.watermark,
            state={name: shown_state(self._specs.get(name), key, part, subject) for name, part in state.items()},
            timers=[(from_micros(micros), tag) for micros, tag in timers],
        )
        encoded = self._encoded(letter)
        batch_of(subject).ports[DEAD_LETTERS].encoded_values.append(encoded)
        if self._observer is not None:
            self._observer.failed(failed.error, [(DEAD_LETTERS, encoded)])

    def _letter(self, failed: CallbackError, source: str | None, record: Any, packed: dict[str, Any]) -> DeadLetter:
        """Return a dead letter whose fields about the subject are empty."""
        return DeadLetter(
            job=self._job,
            handler=self._handler,
            callback=failed.callback,
            error=failed.error,
            traceback=failed.user_traceback,
            shown=failed.record or "",
            source=source,
            record=record,
            key=None,
            timestamp=None,
            tag="",
            watermark=None,
            state={},
            timers=[],
            packed=_packed(packed),
        )

    def _encoded(self, letter: DeadLetter) -> Any:
        shown = {name: shown_value(value) for name, value in letter.state.items()}
        as_text = attrs.evolve(letter, record=shown_value(letter.record), state=shown)
        for each in (letter, as_text, attrs.evolve(as_text, key=shown_value(letter.key))):
            try:
                encoded = self._encode(each)
                pack(encoded)
            except Exception as error:  # a value that the sink cannot encode is written as a string
                failed = error
            else:
                self.samples.add_letter(letter)
                return encoded
        raise failed


def _raise_unreadable(error: BaseException) -> None:
    """Raise an error, or one of its causes, if it is a `RetiredNameError` or a spec's `StateDecodeError`. Such an error
    is the fault of the deployment, not of the callback.
    """
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        is_unreadable = isinstance(found, StateDecodeError) and found.spec is not None
        if is_unreadable or isinstance(found, RetiredNameError):
            raise found
        seen.add(id(found))
        found = found.__cause__ or found.__context__


class _Before:
    """Snapshot of a subject before a callback."""

    __slots__ = (
        "_changes",
        "_collected",
        "_counts",
        "_dropped",
        "_late_events",
        "_removed",
        "next_timers",
        "packed",
        "subject",
    )

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        key, tables = subject.key, batch_of(subject).tables
        self.packed = {name: table.packed[key] for name, table in tables.items() if key in table.packed}
        self.next_timers = {name: table.next_timers[key] for name, table in tables.items() if key in table.next_timers}
        self._counts, self._dropped = dict(batch_of(subject).counts), batch_of(subject).dropped
        timers = batch_of(subject).timers
        if timers.changes is None:
            timers.changes = []
        self._changes = len(timers.changes)
        self._removed = timers.removed
        self._late_events = len(batch_of(subject).late_events)
        self._collected = [len(port.encoded_values) for port in batch_of(subject).outputs.values()]

    def had(self, call: FailedCall) -> None:
        """Replace the component's state in this snapshot with the state that is stored in the failed call."""
        self.packed[call.component] = call.state
        if call.next_timer is not None:
            self.next_timers[call.component] = call.next_timer

    def take(self, component: str, at_first: "_Before") -> None:
        """Replace the component's state in this snapshot with the state before its timer, whose calls are not done."""
        self.packed.pop(component, None)
        self.next_timers.pop(component, None)
        if component in at_first.packed:
            self.packed[component] = at_first.packed[component]
        if component in at_first.next_timers:
            self.next_timers[component] = at_first.next_timers[component]

    def store(self) -> None:
        """Store all state that the callback changed, in packed form. If packing fails, store none of it."""
        key = self.subject.key
        tables = batch_of(self.subject).tables.values()
        packed = [(table, table.packed_now(key)) for table in tables if table.is_changed(key)]
        for table, part in packed:
            table.put(key, part)

    def timers(self) -> list[tuple[int, str]]:
        """Return the timers that the subject had before the callback, ordered by time and tag. Call this method only if
        the callback failed: for a key with many timers, the call is slow.
        """
        had = dict.fromkeys(batch_of(self.subject).timers.of(self.subject.key))
        for micros, tag, was_set in self._undone():
            if was_set:
                had.pop((micros, tag), None)
            else:
                had[micros, tag] = None
        return sorted(had)

    def _undone(self) -> list[tuple[int, str, bool]]:
        """Return the callback's changes to the subject's timers, newest first. A change consists of the timer's
        time, its tag, and a flag: `True` if the timer was set, `False` if the timer was deleted.
        """
        changes = batch_of(self.subject).timers.changes
        assert changes is not None
        return [change[1:] for change in reversed(changes[self._changes :]) if change[0] == self.subject.key]

    def restore(self) -> None:
        """Undo the callback's changes."""
        subject, batch = self.subject, batch_of(self.subject)
        batch.counts, batch.dropped = self._counts, self._dropped
        del batch.late_events[self._late_events :]
        for table in batch.tables.values():
            table.undo(subject.key)
        timers, changes = batch.timers, self._undone()
        for micros, tag, was_set in changes:
            if was_set:
                timers.discard(subject.key, micros, tag)
            else:
                timers.add(subject.key, micros, tag)
        timers.removed = self._removed
        for port, collected in zip(batch.outputs.values(), self._collected, strict=True):
            del port.encoded_values[collected:]


def _packed(parts: dict[str, Any]) -> bytes:
    try:
        return pack(parts)
    except AmadouError:  # some records and arguments cannot be packed
        return pack({**parts, "record": None, "call": None})
