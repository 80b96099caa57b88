"""Calls a handler's callbacks for the operator, and turns a failing call into a dead letter or an error."""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from amadou import DependencyChange, Job, Key, KeyedEvent, ReferenceChange, Subject
from amadou.components import Component, Invoke, check_ran, in_key_order
from amadou.dependencies import DependencyCallbacks
from amadou.engine import ON_CHANGE, Batch, batch_of, keyed_events, known_components
from amadou.errors import AmadouError, RecoverError
from amadou.event_time import LAST_TIME, from_micros
from amadou.text import shown_error
from amadou_runtime.core.dead_letters import ComponentTimer, DeadLetters
from amadou_runtime.core.events import Run
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.observer import Call, Observer
from amadou_runtime.core.samples import Samples
from amadou_runtime.core.stopwatch import Stopwatch
from amadou_runtime.formats.failure import callback_error, called

DOWN, RECOVERED = "on_dependency_down", "on_dependency_recovered"


class Callbacks:
    """The callbacks of a handler and its components.

    :param job: a job without unresolved parameters
    :param observer: the observer of the callbacks, if any
    """

    def __init__(self, job: Job, observer: Observer | None) -> None:
        handler = self.handler = job.handler
        self.name = type(handler).__name__
        self.observer = observer
        self.components = job.components
        """Components by name, including those created at run time."""
        self.declared = tuple(self.components.values())
        self._positions = {name: position for position, name in enumerate(job.component_order)}
        self.stopwatch = Stopwatch()
        """Measures the time that callbacks take, for `BatchReport.callback_seconds`."""
        self.fire: ComponentTimer = self._fire_component
        self._recover_window = getattr(handler, "on_recover_window", lambda name, subject: None)
        unless = DependencyCallbacks()
        self.changes = {name: getattr(handler, name, getattr(unless, name)) for name in (DOWN, RECOVERED)}
        self.on_reference_changed: Callable[[Subject, ReferenceChange], Any] | None = getattr(handler, ON_CHANGE, None)
        self.on_event: Callable[[Subject, KeyedEvent[Any]], Any] = handler.on_event
        self.on_timer_expired: Callable[[Subject, datetime], Any] = handler.on_timer_expired
        if observer is not None:
            self.on_event = observer.observed(self.on_event, _event_call)
            self.on_timer_expired = observer.observed(self.on_timer_expired, _timer_call)
            self.fire = observer.observed(self.fire, _component_call)
            if self.on_reference_changed is not None:
                self.on_reference_changed = observer.observed(self.on_reference_changed, _reference_call)
            self.changes = {name: observer.observed(call, _change_call) for name, call in self.changes.items()}
        self.letters = DeadLetters(job, observer) if job.on_error == "dead_letter" else None
        self.samples = Samples() if self.letters is None else self.letters.samples
        if self.letters is not None:
            self.on_event = self.letters.guarded("on_event", self.on_event)
            self.on_timer_expired = self.letters.guarded("on_timer_expired", self.on_timer_expired)
            self.fire = self.letters.guarded_component(self.fire)
            if self.on_reference_changed is not None:
                self.on_reference_changed = self.letters.guarded(ON_CHANGE, self.on_reference_changed)

    def open(self) -> None:
        """Call the handler's `open`."""
        with known_components(self.components):
            self._guarded("open", self.handler.open)

    def close(self) -> None:
        """Call the handler's `close`."""
        self._guarded("close", self.handler.close)

    def notify(self, change: ReferenceChange, keys: Iterable[Key], subject: Subject) -> None:
        """Call `on_reference_changed` for keys that watch a reference.

        :raises CallbackError: the callback failed
        """
        assert self.on_reference_changed is not None
        batch = batch_of(subject)
        reached = batch.last_watermark
        subject.timestamp = change.timestamp if reached is None else max(change.timestamp, from_micros(reached))
        batch.at_watermark = True
        self.stopwatch.turn(ON_CHANGE)
        for subject.key in in_key_order(keys):
            try:
                check_ran(ON_CHANGE, self.on_reference_changed(subject, change))
            except Exception as error:
                raise self.failed(error, ON_CHANGE, batch, None, subject.key, change)
        batch.at_watermark = False

    def process_events(self, run: Run, subject: Subject) -> int:
        """Call `on_event` for consecutive events from one source, in the given order.

        :returns: number of these events that are late
        """
        late = 0
        on_event = self.on_event
        watermark, dropped = batch_of(subject).watermark, batch_of(subject).dropped_events
        subject.source = run.source
        events = keyed_events(run.keys, run.timestamps, run.values)
        for subject.key, timestamp, event in zip(run.keys, run.timestamps, events, strict=True):
            subject.timestamp = timestamp
            if watermark is not None:
                subject.is_late = is_late = timestamp < watermark
                late += is_late
            try:
                returned = on_event(subject, event)
                if returned is not None:
                    check_ran("on_event", returned)
            except Exception as error:
                raise self.failed(error, "on_event", batch_of(subject), run.source, event.key, event)
            if dropped:
                dropped.clear()
        return late

    def _fire_component(self, name: str, subject: Subject, timestamp: datetime, call: Invoke) -> None:
        component = self.components.get(name) or self.recovered(name, subject)
        component.on_timer(subject, timestamp, call)

    def call(self, subject: Subject, function: Callable[..., Any], *arguments: Any) -> None:
        """Call a user-defined function on behalf of a component.

        :raises CallbackError: the function failed
        """
        try:
            check_ran(called(function), function(subject, *arguments))
        except Exception as error:
            raise self.failed(error, called(function), batch_of(subject), None, subject.key, arguments)

    def call_again(self, failed: FailedCall, subject: Subject, separate: Batch) -> None:
        """Repeat a component's failed call. The watermark may have advanced since the failure. If the call adds an
        event to a window that has closed in the meantime, the event is late.

        :param separate: a batch of an empty key group, with the watermark of the failed call
        """
        subject.key, subject.timestamp = failed.key, from_micros(failed.micros)
        component = self.components.get(failed.component) or self.recovered(failed.component, subject)
        again = failed.again(component, separate)

        def fire(name: str, subject: Subject, timestamp: datetime, call: Invoke) -> None:
            call(subject, again, *failed.arguments)

        watched: ComponentTimer = fire if self.observer is None else self.observer.observed(fire, _component_call)
        if self.letters is not None:
            watched = self.letters.guarded_component(watched, failed)
        self.stopwatch.turn(failed.component)
        watched(failed.component, subject, subject.timestamp, self.call)

    def recovered(self, name: str, subject: Subject) -> Component:
        """Call `on_recover_window` to recreate a component that does not exist in this process: either the run was
        restarted, or the key has moved to another worker.

        :returns: the component
        :raises CallbackError: `on_recover_window` failed
        :raises RecoverError: `on_recover_window` did not recreate the component
        """
        with known_components(self.components):
            try:
                made = self._recover_window(name, subject)
                check_ran("on_recover_window", made)
                if isinstance(made, Component):
                    made.check()
            except Exception as error:
                advice = RecoverError.where_removed(name)
                raise self.failed(error, "on_recover_window", batch_of(subject), None, subject.key, name, advice)
        keeper = batch_of(subject).keeper
        assert keeper is not None
        noun = keeper.noun_of(name)
        if isinstance(made, Component) and made.given_name != name:
            raise RecoverError(self.name, name, subject.key, f"returned a {made.noun} named {made.given_name!r}", noun)
        if isinstance(made, Component):
            self.components[name] = made
        if name not in self.components:
            raise RecoverError(self.name, name, subject.key, noun=noun)
        return self.components[name]

    def position(self, name: str) -> tuple[int, str]:
        """Return a component's sort key, which orders a subject's component timers due at the same time."""
        return self._positions.get(name, len(self._positions)), name

    def _guarded(self, callback: str, function: Callable[[], Any]) -> None:
        try:
            check_ran(callback, function())
        except Exception as error:
            raise callback_error(error, handler=self.name, callback=callback)

    def failed(
        self,
        error: Exception,
        callback: str,
        batch: Batch,
        source: str | None,
        key: Key | None,
        record: Any,
        advice: str | None = None,
    ) -> AmadouError:
        if self.observer is not None:
            self.observer.failed(shown_error(error), [])
        if isinstance(error, OverflowError) and batch.watermark == LAST_TIME and advice is None:
            advice = "in a flush, subject.watermark is the last time there is: add to subject.timestamp instead"
        return callback_error(
            error,
            handler=self.name,
            callback=callback,
            source=source,
            key=key,
            record=record,
            watermark=batch.watermark,
            advice=advice,
        )


def _event_call(subject: Subject, event: KeyedEvent[Any]) -> Call:
    return subject, "on_event", event.timestamp, event.value


def _timer_call(subject: Subject, timestamp: datetime) -> Call:
    return subject, "on_timer_expired", timestamp, None


def _component_call(name: str, subject: Subject, timestamp: datetime, _: Invoke) -> Call:
    return subject, name, timestamp, None


def _reference_call(subject: Subject, change: ReferenceChange) -> Call:
    return subject, ON_CHANGE, subject.timestamp, change


def _change_call(change: DependencyChange) -> Call:
    progress = {change.dependent: change.reached, change.source: change.newest}
    return change.subject, DOWN if change.is_down else RECOVERED, None, progress
