"""The operator, which processes batches of key groups on both engines."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import attrs

from amadou import Job, Key, ReferenceChange, Subject
from amadou.components import Component, EventColumns, check_ran, in_key_order
from amadou.engine import (
    Batch,
    BeforeEnd,
    FeedingPort,
    KeylessSubject,
    Port,
    callbacks_of,
    keyed_events,
    sum_counts,
)
from amadou.errors import StateDecodeError
from amadou.event_time import from_micros
from amadou.plugins import Counts
from amadou_runtime.core.callbacks import DOWN, RECOVERED, Callbacks
from amadou_runtime.core.dependencies import Decision, evaluate, held_counts
from amadou_runtime.core.group_batch import GroupBatch, GroupResult, GroupWork, ProcessedGroup
from amadou_runtime.core.held_events import release_or_hold
from amadou_runtime.core.in_place import InPlaceObserver
from amadou_runtime.core.key_group import KeyGroup, NotStored
from amadou_runtime.core.late_events import LateEvents
from amadou_runtime.core.lookups import Lookups, Needed
from amadou_runtime.core.observer import Observer
from amadou_runtime.core.references import ReferenceTable
from amadou_runtime.core.steps import STEPS, divide_combined, load, take_events
from amadou_runtime.core.tally import BatchTally, together
from amadou_runtime.core.vectorized import Fallbacks, vectorized_component
from amadou_runtime.formats.failure import callback_error
from amadou_runtime.jobs.ports import port_codec

LOST = ".lost"
"""Suffix of the counters for keys that lost their in-memory state."""
DROPPED = ".dropped"
"""Suffix of the counters for keys whose state the job dropped (`Job(retired=…)`)."""


_NO_RESULT = GroupResult({}, Counts(), {})


class Evaluation(NamedTuple):
    """The result of evaluating a job's dependencies in a batch."""

    decision: Decision
    result: GroupResult = _NO_RESULT
    """What the handler did for changes, without a key group."""


class Operator:
    """Processes key groups with a job's handler.

    :param job: a job without unresolved parameters
    :param observer: the observer of the callbacks, if any
    :param run: the run's id; in-memory state from other runs is lost
    """

    def __init__(self, job: Job, observer: Observer | None = None, run: str = "") -> None:
        self.run = run
        self.retired = job.retired
        """`"keep"` or `"drop"` for the state of specs that the handler no longer declares, by spec name."""
        self._job = job
        self.watched_names = {name: spec.watching.name for name, spec in job.references.items()}
        """The names under which keys watch references, by reference."""
        self._codecs = {name: port_codec(job, name) for name in job.ports if name in job.sinks}
        self._feed_codecs = {name: job.ports[name].feed_codec() for name in sorted(job.feeds)}
        self._specs = job.specs
        self._has_timers = job.has_timers
        if observer is None and job.check_in_place and type(job.handler).check_in_place:
            observer = InPlaceObserver()
        self.callbacks = Callbacks(job, observer)
        self.late = None if job.late_events == "deliver" else LateEvents(job, self.callbacks)
        self.vectorized_component = vectorized_component(job)
        """The component that processes the events of all subjects of a key group in columnar form, if any."""
        self._fallbacks = Fallbacks(job.name)
        self.stopwatch = self.callbacks.stopwatch
        self.samples = self.callbacks.samples
        self.lookups = Lookups(job, self.stopwatch)
        self.references: Mapping[str, ReferenceTable] = {}
        """The job's references in the current batch, by name."""
        self.changed_references: list[ReferenceChange] = []
        """The updates of references in the current batch, if the handler is notified of them."""
        self.before_end: BeforeEnd | None = None
        """See `Watermark.before_end`."""

    def begin(self, references: Mapping[str, ReferenceTable], now: int, before_end: BeforeEnd | None = None) -> None:
        """Begin a part of a batch. What an earlier part did, if it failed, is forgotten.

        :param references: the job's references in the batch, by name; the same object in all parts of a batch
        :param now: the clock time in microseconds
        :param before_end: see `Watermark.before_end`
        """
        self.tally(())
        self.before_end, self.lookups.now = before_end, now
        if references is self.references:
            return
        self.references = references
        is_notified = self.callbacks.on_reference_changed is not None
        self.changed_references = [
            ReferenceChange(name, tuple(in_key_order(table.changes)), from_micros(table.newest))
            for name, table in references.items()
            if is_notified and table.newest is not None and table.changes
        ]

    def open(self) -> None:
        """Call the handler's `open`."""
        self.callbacks.open()

    def close(self) -> None:
        """Call the handler's `close`."""
        self.callbacks.close()

    def tally(self, results: Iterable["GroupResult"]) -> BatchTally:
        """Return what was done since `begin`, or since the last call of this method.

        :param results: the results of the key groups that were processed, and that of `evaluate`
        """
        of_lookups = GroupResult({}, Counts(counters=self.lookups.take_counters()), self.lookups.take_calls())
        given, letters = [*results, of_lookups], self.callbacks.letters
        return BatchTally(
            together(result.outputs for result in given),
            Counts.total([result.counts for result in given]),
            callback_seconds=self.stopwatch.take(),
            callback_calls=sum_counts(result.calls for result in given),
            failures={} if letters is None else letters.take_failures(),
            samples=self.samples.take(),
        )

    def evaluate(
        self,
        dependency_state: bytes | None,
        newest: Mapping[str, int],
        oldest: Mapping[str, int],
        number: int,
        watermark: int | None,
        *,
        notifies: bool = True,
    ) -> Evaluation:
        """Decide which sources are down.

        :param dependency_state: the `Decision.state` of the previous batch; for `newest`, `oldest` and `number`, see
            `evaluate` in `core.dependencies`
        :param notifies: `True` to call the handler for each change, in one part of the batch
        :raises CallbackError: a callback failed; the entire batch is discarded
        """
        decision = evaluate(self._job, dependency_state, newest, oldest, number)
        if not decision.changes or not notifies:
            return Evaluation(decision)
        batch = self.batch_of(KeyGroup(NotStored()), watermark, ())
        calls: dict[str, int] = {}
        with callbacks_of(self._job.handler):
            for change in decision.changes:
                callback = DOWN if change.is_down else RECOVERED
                subject = KeylessSubject(batch, callback)
                subject.source = change.source
                subject.timestamp = change.reached if change.is_down else change.newest
                calls[callback] = calls.get(callback, 0) + 1
                self.stopwatch.turn(callback)
                try:
                    check_ran(callback, self.callbacks.changes[callback](attrs.evolve(change, subject=subject)))
                except Exception as error:
                    raise self.callbacks.failed(error, callback, batch, change.source, None, change)
                self.stopwatch.turn()
        return Evaluation(decision, GroupResult(_outputs(batch), Counts(), calls))

    def fetch(self, groups: Iterable[GroupBatch]) -> None:
        """Fetch the answers of lookups that the events of key groups need, before the groups are processed.

        :raises LookupFailedError: answers cannot be fetched
        """
        if not self.lookups:
            return
        self.lookups.begin()
        needed: Needed = {}
        for given in groups:
            group = self._group(given)
            batch = self.batch_of(group, given.watermark, ())
            runs = release_or_hold(group, given.events, given.limits, batch.watermark, None)
            if self.lookups.kept:
                batch.touched = set[Key]().union(*(run.keys for run in runs))
                group.load(set(batch.touched), given.watermark)
            subject = Subject(batch)
            dropped_before = self.dropped_before(given, batch)
            for run in runs:
                for event in keyed_events(run.keys, run.timestamps, run.values):
                    if dropped_before is None or event.timestamp >= dropped_before:
                        subject.key, subject.timestamp = event.key, event.timestamp
                        self.lookups.add_needed(event, subject, needed)
        self.lookups.fetch(needed)

    def process(self, given: GroupBatch) -> ProcessedGroup:
        """Process one batch of one key group: due timers, then events (`semantics.md` 5).

        If the handler delegates all events to a vectorised component, the operator processes the batch in columnar
        form. If columnar processing fails, the operator processes the batch event by event, and counts a fallback.

        :raises CallbackError: a callback failed; the entire batch is discarded
        """
        component = self.vectorized_component
        if component is None or given.again is not None:
            return self.per_event(given)
        processed, fallbacks = self._fallbacks.result(
            component.name, lambda: self.vectorized(component, given), lambda: self.per_event(given)
        )
        return processed.with_counts(vectorized_fallbacks=fallbacks) if fallbacks else processed

    def vectorized(self, component: Component, given: GroupBatch) -> ProcessedGroup | None:
        """Process one batch with a component that processes the events of all subjects in columnar form.

        :returns: the same result as `per_event`; `None` if the state or the handler requires `per_event`
        """
        watermark = given.watermark
        with callbacks_of(self._job.handler):
            work = self._begun(given)
            group, subject = work.group, work.subject
            for step in (take_events, divide_combined, load):
                step(self, work)
            group_state = group.as_columns(component)
            if group_state is None:
                return None
            if watermark is not None and group_state.next_timer is not None and group_state.next_timer <= watermark:
                self.stopwatch.turn(component.name)
                work.fired = component.on_timers(subject, group_state, watermark)
                work.count_calls(component.name, work.fired)
            if work.runs or work.combined:
                self.stopwatch.turn("on_event")
            for part in given.combined:
                component.add_combined(subject, group_state, part)
            work.count_calls("on_event", sum(number for *_, number in work.combined))
            for run in work.runs:
                micros = run.micros
                if watermark is not None and min(micros) < watermark:
                    work.late += sum(map(watermark.__gt__, micros))
                subject.source = run.source
                work.count_calls("on_event", len(run.keys))
                component.add_columns(subject, group_state, EventColumns(run.keys, run.values, micros))
            self.stopwatch.turn()
        if group.tables:  # the handler used state other than the component's
            return None
        return self._processed(work, len(work.touched) + work.fired)

    def per_event(self, given: GroupBatch) -> ProcessedGroup:
        """Process one batch, callback by callback.

        :raises CallbackError: a callback failed; the entire batch is discarded
        """
        try:
            with callbacks_of(self._job.handler):
                return self._per_event(given)
        except StateDecodeError as error:  # raised outside of a callback, by a component's state or by expired state
            if error.spec is None:
                raise
            reached = None if given.watermark is None else from_micros(given.watermark)
            name = self.callbacks.name
            raise callback_error(error, handler=name, callback=error.spec, key=error.key, watermark=reached)

    def _per_event(self, given: GroupBatch) -> ProcessedGroup:
        work = self._begun(given)
        for step in STEPS:
            step(self, work)
        return self._processed(work, len(work.touched))

    def _begun(self, given: GroupBatch) -> GroupWork:
        """Return the work on a key group, before its first step."""
        group, touched = self._group(given), set[Key]()
        batch = self.batch_of(group, given.watermark, touched)
        batch.is_replay = given.again is not None
        return GroupWork(given, group, batch, Subject(batch), touched)

    def _group(self, given: GroupBatch) -> KeyGroup:
        group = KeyGroup(given.stored, self.run, self._job.retired)
        group.lives = self._lives()
        return group

    def _lives(self) -> dict[str, int]:
        """Return the time to live of each spec that has one, in microseconds."""
        return {spec.name: spec.life for spec in self.with_ttl()}

    def dropped_before(self, given: GroupBatch, batch: Batch) -> datetime | None:
        """Return the watermark, if late events are dropped or diverted; otherwise `None`."""
        return None if self.late is None or given.again is not None else batch.watermark

    def with_ttl(self) -> list[Any]:
        """Return the specs with a time to live."""
        return [spec for spec in {**self._specs, **self.callbacks.components}.values() if spec.ttl is not None]

    def _processed(self, work: GroupWork, touched: int) -> ProcessedGroup:
        """Return the group after the last step."""
        group, batch = work.group, work.batch
        for end, losses in ((LOST, group.lost), (DROPPED, group.dropped)):
            for name, subjects in losses.items():
                batch.counts[f"{name}{end}"] = batch.counts.get(f"{name}{end}", 0) + subjects
        self.samples.add_late(batch.late_events)
        held = group.waiting()
        group.in_memory |= {name for name, component in self.callbacks.components.items() if component.in_memory}
        group.lives = self._lives()  # a callback may have created a component
        changes = group.stored.changes(group)
        counts = Counts(
            events=work.events,
            late=work.late,
            dropped=batch.dropped,
            timers_set=group.timers.added,
            timers_fired=work.fired,
            counters=batch.counts,
            keys=changes.keys,
            timers_pending=changes.pending,
            held=held_counts(held),
        )
        return ProcessedGroup(group, touched, changes, _outputs(batch), counts, work.calls, held)

    def batch_of(self, group: KeyGroup, watermark: int | None, touched: Collection[Key]) -> Batch:
        batch = Batch(
            self._job.handler,
            self._has_timers,
            self._ports(),
            watermark,
            group.tables,
            group.timers,
            touched,
            self.callbacks.components,
            self._job.name,
            group,
        )
        batch.references = self.references
        batch.before_end = self.before_end
        return batch

    def _ports(self) -> dict[str, Port]:
        ports = {name: Port(codec) for name, codec in self._codecs.items()}
        for name, codec in self._feed_codecs.items():
            ports[name] = FeedingPort(codec, ports.get(name))
        return ports


def _outputs(batch: Batch) -> dict[str, list[Any]]:
    return {name: port.encoded_values for name, port in batch.outputs.items() if port.encoded_values}
