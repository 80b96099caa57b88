"""The operator, which processes batches of key groups on both engines."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs

from amadou import Job, Key, ReferenceChange, Subject
from amadou.components import Component, EventColumns, check_ran, in_key_order
from amadou.engine import (
    ON_CHANGE,
    Batch,
    BeforeEnd,
    FeedingPort,
    KeylessSubject,
    Port,
    batch_of,
    callbacks_of,
    keyed_events,
    sum_counts,
    unpack,
)
from amadou.errors import AmadouError, StateDecodeError
from amadou.event_time import from_micros
from amadou.plugins import Counts
from amadou_runtime.core.callbacks import DOWN, RECOVERED, Callbacks
from amadou_runtime.core.combining import COMBINED
from amadou_runtime.core.dependencies import Decision, Held, evaluate, held_counts
from amadou_runtime.core.events import Chunk, Run
from amadou_runtime.core.expiry import expired_keys, remove_expired
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.firing import Firing, due_components
from amadou_runtime.core.held_events import release_or_hold
from amadou_runtime.core.in_place import InPlaceObserver
from amadou_runtime.core.key_group import KeyGroup, NotStored, StoredGroup
from amadou_runtime.core.late_events import LateEvents
from amadou_runtime.core.lookups import Lookups, Needed
from amadou_runtime.core.observer import Observer
from amadou_runtime.core.references import ReferenceTable
from amadou_runtime.core.tally import BatchTally, together
from amadou_runtime.core.vectorized import Fallbacks, vectorized_component
from amadou_runtime.formats.failure import callback_error
from amadou_runtime.jobs.ports import port_codec

LOST = ".lost"
"""Suffix of the counters for keys that lost their in-memory state."""
DROPPED = ".dropped"
"""Suffix of the counters for keys whose state the job dropped (`Job(retired=…)`)."""


class ProcessedGroup(NamedTuple):
    """A key group after a batch."""

    group: KeyGroup
    """The group as it was loaded, with the batch's changes."""
    touched: int
    """Number of keys with events or due timers, approximately."""
    changes: Any
    """The changes to the group's state; see `StoredGroup.changes`."""
    outputs: dict[str, list[Any]]
    """The encoded values collected during the batch, by port."""
    counts: Counts
    """All counts except those of records, outputs and state bytes, which the engine counts."""
    calls: dict[str, int]
    """Number of calls to each callback, for `BatchReport.callback_calls`."""
    held: Held
    """The number of held events and their oldest event time in microseconds, by source."""

    def with_counts(self, **changed: Any) -> "ProcessedGroup":
        """Return this group with changed counts."""
        return self._replace(counts=attrs.evolve(self.counts, **changed))


class GroupResult(NamedTuple):
    """What a batch has produced for a key group, without the group's state; see `ProcessedGroup`."""

    outputs: dict[str, list[Any]]
    counts: Counts
    calls: dict[str, int]


class ReplayedGroup(NamedTuple):
    """The dead letters that a batch replays in one key group."""

    chunks: list[Chunk]
    timers: list[tuple[Key, int, str]]
    """Timers to fire again, as tuples of key, time in microseconds, and tag."""
    calls: list[FailedCall]
    """Components' failed calls, to be repeated."""


_NOTHING = ReplayedGroup([], [], [])


class GroupBatch(NamedTuple):
    """One batch of one key group.

    :param stored: the group's state after the previous batch
    :param chunks: chunks of the batch's events, in any order
    :param watermark: the batch's watermark in microseconds; `None` before the first watermark
    :param limits: the maximum event time to process, by source; see `Decision.limits`
    :param again: the dead letters to replay, if any. Replayed events are never dropped or diverted as late
    """

    stored: StoredGroup
    chunks: Sequence[Chunk]
    watermark: int | None
    limits: Mapping[str, int] = MappingProxyType({})
    again: ReplayedGroup | None = None

    @property
    def events(self) -> list[Chunk]:
        """The chunks with events."""
        return [chunk for chunk in self.chunks if chunk.order != COMBINED]

    @property
    def combined(self) -> list[Any]:
        """Events in combined form; see `combining`."""
        return [unpack(chunk.events) for chunk in self.chunks if chunk.order == COMBINED]


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
        self._codecs = {name: port_codec(job, name) for name in job.ports if name in job.sinks}
        self._feed_codecs = {name: job.ports[name].feed_codec() for name in sorted(job.feeds)}
        self._specs = job.specs
        self._has_timers = job.has_timers
        if observer is None and job.check_in_place and type(job.handler).check_in_place:
            observer = InPlaceObserver()
        self._callbacks = Callbacks(job, observer)
        self._late = None if job.late_events == "deliver" else LateEvents(job, self._callbacks)
        self.vectorized_component = vectorized_component(job)
        """The component that processes the events of all subjects of a key group in columnar form, if any."""
        self._fallbacks = Fallbacks(job.name)
        self.stopwatch = self._callbacks.stopwatch
        self.samples = self._callbacks.samples
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
        is_notified = self._callbacks.on_reference_changed is not None
        self.changed_references = [
            ReferenceChange(name, tuple(in_key_order(table.changes)), from_micros(table.newest))
            for name, table in references.items()
            if is_notified and table.newest is not None and table.changes
        ]

    def open(self) -> None:
        """Call the handler's `open`."""
        self._callbacks.open()

    def close(self) -> None:
        """Call the handler's `close`."""
        self._callbacks.close()

    def tally(self, results: Iterable["GroupResult"]) -> BatchTally:
        """Return what was done since `begin`, or since the last call of this method.

        :param results: the results of the key groups that were processed, and that of `evaluate`
        """
        of_lookups = GroupResult({}, Counts(counters=self.lookups.take_counters()), self.lookups.take_calls())
        given, letters = [*results, of_lookups], self._callbacks.letters
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
        batch = self._batch(KeyGroup(NotStored()), watermark, ())
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
                    check_ran(callback, self._callbacks.changes[callback](attrs.evolve(change, subject=subject)))
                except Exception as error:
                    raise self._callbacks.failed(error, callback, batch, change.source, None, change)
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
            batch = self._batch(group, given.watermark, ())
            runs = release_or_hold(group, given.events, given.limits, batch.watermark, None)
            if self.lookups.kept:
                batch.touched = set[Key]().union(*(run.keys for run in runs))
                group.load(set(batch.touched), given.watermark)
            subject = Subject(batch)
            dropped_before = self._dropped_before(given, batch)
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
        group = self._group(given)
        with callbacks_of(self._job.handler):
            batch = self._batch(group, watermark, ())
            subject = Subject(batch)
            runs, count, late = self._events_to_process(group, given, batch)
            combined = given.combined
            keys: set[Key] = set().union(*(run.keys for run in runs))
            keys.update(key for part in combined for key, *_ in component.divide_combined(part))
            self._load(group, keys, watermark)
            group_state = group.as_columns(component)
            if group_state is None:
                return None
            fired = 0
            if watermark is not None and group_state.next_timer is not None and group_state.next_timer <= watermark:
                self.stopwatch.turn(component.name)
                fired = component.on_timers(subject, group_state, watermark)
            calls = {component.name: fired} if fired else {}
            if runs or combined:
                self.stopwatch.turn("on_event")
                count += sum(component.add_combined(subject, group_state, part) for part in combined)
                calls["on_event"] = count - late
            for run in runs:
                micros = run.micros
                if watermark is not None and min(micros) < watermark:
                    late += sum(map(watermark.__gt__, micros))
                subject.source = run.source
                component.add_columns(subject, group_state, EventColumns(run.keys, run.values, micros))
            self.stopwatch.turn()
        if group.tables:  # the handler used state other than the component's
            return None
        return self._processed(group, batch, count, late, fired, calls, len(keys) + fired)

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
            name = self._callbacks.name
            raise callback_error(error, handler=name, callback=error.spec, key=error.key, watermark=reached)

    def _per_event(self, given: GroupBatch) -> ProcessedGroup:
        group, callbacks = self._group(given), self._callbacks
        watermark, again = given.watermark, given.again or _NOTHING
        touched: set[Key] = set()
        batch = self._batch(group, watermark, touched)
        batch.is_replay = given.again is not None
        runs, count, late = self._events_to_process(group, given, batch)
        failed, timers = again.calls, group.timers
        touched.update(*(run.keys for run in runs), (call.key for call in failed), (key for key, *_ in again.timers))
        component = self.vectorized_component
        divided = [each for part in given.combined for each in component.divide_combined(part)] if component else []
        touched.update(key for key, _, _ in divided)
        left = self._load(group, touched, watermark)
        self._load_watching(group)
        touched.update(*(keys for _, keys in self._watching(group)))
        for timer in again.timers:
            timers.add(*timer)
        due = timers.due(watermark)
        self._to_per_key_state(group, Subject(batch))
        component_timers = due_components(group, watermark)
        expired = expired_keys(self._with_ttl(), group, watermark)
        touched.update(*map(timers.at, due), *expired.values(), *component_timers.values())
        started = () if batch.last_watermark is None else (batch.last_watermark,)
        batch.since = min((*due, *component_timers, *started), default=None)
        subject = Subject(batch)
        self._renew(left, group, subject, touched)
        batch.lookups, batch.lookup_errors = self.lookups.answers, self.lookups.errors
        batch.needed_by = self.lookups.needed_by
        for call in failed:
            separate = self._batch(KeyGroup(NotStored()), call.watermark, (call.key,))
            separate.keeper = None
            callbacks.call_again(call, subject, separate)
        notified = 0
        for change, keys in self._watching(group):  # a call can watch the next reference, or stop watching it
            callbacks.notify(change, keys, subject)
            notified += len(keys)
        firing = Firing(callbacks, subject, due, component_timers)
        fired, calls = firing.fire() if due or component_timers else 0, firing.calls
        if notified:
            calls[ON_CHANGE] = notified
        for call in failed:
            fired += 1
            calls[call.component] = calls.get(call.component, 0) + 1
        if self.lookups.kept:
            self._keep_answers(runs, subject)
        batch.since = watermark
        if runs:
            self.stopwatch.turn("on_event")
            calls["on_event"] = count - late
        for run in runs:
            late += callbacks.process_events(run, subject)
        for key, part, number in divided:
            self._add_combined(subject, key, part)
            count += number
            calls["on_event"] = calls.get("on_event", 0) + number
        self.stopwatch.turn()
        remove_expired(self._with_ttl(), group, subject)  # a callback may have created a component
        self._store(group, runs, batch)
        late = 0 if batch.is_replay else late
        return self._processed(group, batch, count, late, fired, calls, len(touched))

    def _add_combined(self, subject: Subject, key: Key, combined: Any) -> None:
        assert self.vectorized_component is not None
        subject.key = key
        try:
            self.vectorized_component.add_combined_for(subject, combined)
        except Exception as error:
            raise self._callbacks.failed(error, "on_event", batch_of(subject), None, key, None)

    def _group(self, given: GroupBatch) -> KeyGroup:
        group = KeyGroup(given.stored, self.run, self._job.retired)
        group.lives = self._lives()
        return group

    def _load(self, group: KeyGroup, keys: set[Key], watermark: int | None) -> list[Component]:
        """Load the state that a batch needs: for a declared component with a new structure, the state of all keys.

        :returns: the declared components with a new structure
        """
        group.load(keys, watermark)
        left = group.left_otherwise(self._callbacks.declared)
        if left:
            group.stored.load_all(group)
        return left

    def _load_watching(self, group: KeyGroup) -> None:
        """Load the keys of a group that watch references that are updated in this batch."""
        for change in self.changed_references:
            group.stored.load_watching(group, self._job.references[change.reference].watching.name)

    def _watching(self, group: KeyGroup) -> Iterator[tuple[ReferenceChange, list[Key]]]:
        """Yield the updates of references in this batch, each with the keys of a group that watch the reference now."""
        for change in self.changed_references:
            table = group.tables.get(self._job.references[change.reference].watching.name)
            if table is not None and (keys := table.keys()):
                yield change, keys

    def _lives(self) -> dict[str, int]:
        """Return the time to live of each spec that has one, in microseconds."""
        return {spec.name: spec.life for spec in self._with_ttl()}

    def _events_to_process(self, group: KeyGroup, given: GroupBatch, batch: Batch) -> tuple[list[Run], int, int]:
        """Return the events to process, the number of all events, and the number of late events dropped or diverted."""
        runs = release_or_hold(group, given.events, given.limits, batch.watermark, self._callbacks.observer)
        count, late = sum(len(run.keys) for run in runs), 0
        if self._late is not None and (watermark := self._dropped_before(given, batch)) is not None:
            runs, late = self._late.taken_out(runs, watermark, batch)
        return runs, count, late

    def _dropped_before(self, given: GroupBatch, batch: Batch) -> datetime | None:
        """Return the watermark, if late events are dropped or diverted; otherwise `None`."""
        return None if self._late is None or given.again is not None else batch.watermark

    def _with_ttl(self) -> list[Any]:
        """Return the specs with a time to live."""
        return [spec for spec in {**self._specs, **self._callbacks.components}.values() if spec.ttl is not None]

    def _processed(
        self,
        group: KeyGroup,
        batch: Batch,
        events: int,
        late: int,
        fired: int,
        calls: dict[str, int],
        touched: int,
    ) -> ProcessedGroup:
        for end, losses in ((LOST, group.lost), (DROPPED, group.dropped)):
            for name, subjects in losses.items():
                batch.counts[f"{name}{end}"] = batch.counts.get(f"{name}{end}", 0) + subjects
        self.samples.add_late(batch.late_events)
        held = group.waiting()
        group.in_memory |= {name for name, component in self._callbacks.components.items() if component.in_memory}
        group.lives = self._lives()  # a callback may have created a component
        changes = group.stored.changes(group)
        counts = Counts(
            events=events,
            late=late,
            dropped=batch.dropped,
            timers_set=group.timers.added,
            timers_fired=fired,
            counters=batch.counts,
            keys=changes.keys,
            timers_pending=changes.pending,
            held=held_counts(held),
        )
        return ProcessedGroup(group, touched, changes, _outputs(batch), counts, calls, held)

    def _keep_answers(self, runs: list[Run], subject: Subject) -> None:
        """Store the answers that lookups keep. They stay if the callback of their event fails."""
        batch_of(subject).at_watermark = True
        self.lookups.keep(runs, subject)
        batch_of(subject).at_watermark = False
        for lookup in self.lookups.kept:
            table = batch_of(subject).tables.get(lookup.name)
            if table is not None:
                table.store()

    def _to_per_key_state(self, group: KeyGroup, subject: Subject) -> None:
        """Convert key-group state back to per-key state, except for unknown components that are not due."""
        watermark = subject.watermark_micros
        for name, group_state in list(group.group_states.items()):
            component = self._callbacks.components.get(name)
            next_timer = group_state.next_timer
            if component is None and watermark is not None and next_timer is not None and next_timer <= watermark:
                subject.key, subject.timestamp = next(iter(group_state.keys)), from_micros(next_timer)
                component = self._callbacks.recovered(name, subject)
            if component is not None:
                group.by_subject(component)

    def _renew(self, left: list[Component], group: KeyGroup, subject: Subject, touched: set[Key]) -> None:
        """Convert declared components' state from older code to the current structure, for all subjects. So per-event
        and vectorised processing store the same state.
        """
        tables = {component: group.tables[component.name] for component in left if component.name in group.tables}
        touched.update(*(table.packed for table in tables.values()))
        subject.timestamp = subject.watermark or from_micros(0)
        for component, table in tables.items():
            for subject.key in list(table.packed):
                component.state_for(subject)
            table.store()

    def _batch(self, group: KeyGroup, watermark: int | None, touched: Collection[Key]) -> Batch:
        batch = Batch(
            self._job.handler,
            self._has_timers,
            self._ports(),
            watermark,
            group.tables,
            group.timers,
            touched,
            self._callbacks.components,
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

    def _store(self, group: KeyGroup, runs: list[Run], batch: Batch) -> None:
        for table in group.tables.values():
            try:
                table.store()
            except AmadouError as error:  # msgpack finds some errors only now, such as strings with invalid Unicode
                key = table.unstored()[0]
                source = next((run.source for run in runs if key in run.keys), None)
                raise callback_error(
                    error,
                    handler=self._callbacks.name,
                    callback="on_timer_expired" if source is None else "on_event",
                    source=source,
                    key=key,
                    watermark=batch.watermark,
                )


def _outputs(batch: Batch) -> dict[str, list[Any]]:
    return {name: port.encoded_values for name, port in batch.outputs.items() if port.encoded_values}
