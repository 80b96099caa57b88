"""The operator core: processing one batch of a key group. Both engines call this and nothing else."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import attrs

from amadou import Component, Counts, EventColumns, Job, Key, Subject, check_ran
from amadou.engine import Batch, KeylessSubject, Port, callbacks_of
from amadou.errors import AmadouError, StateDecodeError
from amadou.event_time import END_OF_TIME, from_micros
from amadou_runtime.core.callbacks import DOWN, RECOVERED, Callbacks
from amadou_runtime.core.dead_letter_limit import Failures
from amadou_runtime.core.dependencies import Decision, Held, evaluate, held_counts
from amadou_runtime.core.events import Chunk, Run
from amadou_runtime.core.expiry import clean_up, clean_up_times, expire, expired_keys
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.failure import callback_error
from amadou_runtime.core.firing import Firing, due_components
from amadou_runtime.core.held_events import release_or_hold
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.late_events import LateEvents
from amadou_runtime.core.observer import Observer
from amadou_runtime.core.ports import port_codec
from amadou_runtime.core.vectorized import Fallbacks, vectorized_component

LOST = ".lost"
"""Suffix of the counters of keys whose in-memory state a component lost."""
DROPPED = ".dropped"
"""Suffix of the counters of keys whose state the job dropped (`Job(retired=…)`)."""


class ProcessedGroup(NamedTuple):
    """A key group after a batch."""

    state: bytes | None
    in_memory: bool
    """True if any other run loses some of the state."""
    next_timer: int | None
    """Event time in microseconds by which the group must be called again."""
    outputs: dict[str, list[Any]]
    """The collected values of each port, encoded."""
    counts: Counts
    """The counts, except for records, outputs and bytes of state, which the engine counts."""
    calls: dict[str, int]
    """Number of calls of each callback, as `BatchReport.callback_calls`."""
    held: Held
    """Held events."""
    retired: list[str]
    """The names of state that is kept unread, for a job that has a spec of that name again."""

    def with_counts(self, **changed: Any) -> "ProcessedGroup":
        """Return this group with changed counts."""
        return self._replace(counts=attrs.evolve(self.counts, **changed))


class ReplayedGroup(NamedTuple):
    """The replayed part of a key group."""

    chunks: list[Chunk]
    timers: list[tuple[Key, int, str]]
    """Timers that fire again: key, time in microseconds, tag."""
    calls: list[FailedCall]
    """Failed calls of components."""


class Evaluation(NamedTuple):
    """The evaluation of a batch's dependencies, with the callbacks' outputs and calls; see `ProcessedGroup`."""

    decision: Decision
    outputs: dict[str, list[Any]]
    calls: dict[str, int]


class Operator:
    """A job's handler, ready to process key groups.

    :param job: a job without unresolved parameters
    :param observer: the observer that watches callbacks
    :param run: the run's id: the run loses the in-memory state of other runs
    """

    def __init__(self, job: Job, observer: Observer | None = None, run: str = "") -> None:
        self.run = run
        self.retired = job.retired
        """The fate of state under names that the job no longer has a spec for."""
        self._job = job
        self._codecs = {name: port_codec(job, name) for name in job.ports}
        self._specs = job.specs
        self._has_timers = job.has_timers
        self._callbacks = Callbacks(job, observer)
        self._late = None if job.late_events == "deliver" else LateEvents(job, self._callbacks)
        self.vectorized_component = vectorized_component(job)
        """The component that takes the events of all subjects of a key group as columns."""
        self._fallbacks = Fallbacks(job.name)
        self.stopwatch = self._callbacks.stopwatch

    def open(self) -> None:
        """Let the handler prepare itself."""
        self._callbacks.open()

    def close(self) -> None:
        """Let the handler clean up."""
        self._callbacks.close()

    def take_failures(self) -> Failures:
        """Return the failures since the last call of this method, and reset them."""
        letters = self._callbacks.letters
        return {} if letters is None else letters.take_failures()

    def evaluate(
        self,
        dependency_state: bytes | None,
        newest: Mapping[str, int],
        oldest: Mapping[str, int],
        number: int,
        watermark: int | None,
    ) -> Evaluation:
        """Evaluate which sources are down, and call the handler for each change. Called once for a batch, in one place.

        :param dependency_state: see `core.dependencies.evaluate`, with `newest`, `oldest` and `number`
        :raises CallbackError: a callback failed; nothing of the batch counts
        """
        batch = self._batch(KeyGroup(None), watermark, ())
        calls: dict[str, int] = {}

        with callbacks_of(self._job.handler):
            decision = evaluate(self._job, dependency_state, newest, oldest, number)
            for change in decision.changes:
                callback = DOWN if change.is_down else RECOVERED
                subject = KeylessSubject(batch, callback)
                subject.source = change.source
                calls[callback] = calls.get(callback, 0) + 1
                self.stopwatch.turn(callback)
                try:
                    check_ran(callback, self._callbacks.changes[callback](attrs.evolve(change, subject=subject)))
                except Exception as error:
                    raise self._callbacks.failed(error, callback, batch, change.source, None, change)
                self.stopwatch.turn()
        return Evaluation(
            decision, {name: port.encoded_values for name, port in batch.ports.items() if port.encoded_values}, calls
        )

    def process(
        self,
        state: bytes | None,
        chunks: Sequence[Chunk],
        watermark: int | None,
        limits: Mapping[str, int] = MappingProxyType({}),
    ) -> ProcessedGroup:
        """Process one batch of one key group: due timers, then events (`semantics.md` 5).

        If the handler delegates all events to a component that takes columns, the batch is processed by columns. If
        that fails, the batch is processed event by event, which counts as a fallback.

        :param state: the last `ProcessedGroup.state`
        :param chunks: the batch's events, in any order
        :param watermark: the batch's watermark in microseconds, `None` before the first
        :param limits: the limits beyond which events wait; see `Decision`
        :raises CallbackError: a callback failed; nothing of the batch counts
        """
        component = self.vectorized_component
        if component is None:
            return self.per_event(state, chunks, watermark, limits)
        processed, fallbacks = self._fallbacks.result(
            component.name,
            lambda: self.vectorized(component, state, chunks, watermark, limits),
            lambda: self.per_event(state, chunks, watermark, limits),
        )
        return processed.with_counts(vectorized_fallbacks=fallbacks) if fallbacks else processed

    def replay(
        self,
        state: bytes | None,
        again: ReplayedGroup,
        watermark: int | None,
        limits: Mapping[str, int],
    ) -> ProcessedGroup:
        """Call callbacks again that failed in earlier batches. None of their events is dropped or diverted as late.

        :param again: the replayed part of the group
        :raises CallbackError: a callback failed; nothing of the batch counts
        """
        return self.per_event(state, again.chunks, watermark, limits, again).with_counts(late=0)

    def vectorized(
        self,
        component: Component,
        state: bytes | None,
        chunks: Sequence[Chunk],
        watermark: int | None,
        limits: Mapping[str, int] = MappingProxyType({}),
    ) -> ProcessedGroup | None:
        """Process one batch through a component that takes the events of all subjects as columns.

        :returns: the result that `per_event` would return; `None` if this state or handler needs `per_event`
        """
        group = KeyGroup(state, self.run, self._job.retired)
        with callbacks_of(self._job.handler):
            whole = group.as_columns(component)
            if whole is None:
                return None
            batch = self._batch(group, watermark, ())
            subject = Subject(batch)
            runs, count, late = self._admitted(group, chunks, limits, batch)
            fired = 0
            if watermark is not None and whole.next_timer is not None and whole.next_timer <= watermark:
                self.stopwatch.turn(component.name)
                fired = component.on_timers(subject, whole, watermark)
            calls = {component.name: fired} if fired else {}
            if runs:
                self.stopwatch.turn("on_event")
                calls["on_event"] = count - late
            for run in runs:
                micros = run.micros
                if watermark is not None and min(micros) < watermark:
                    late += sum(map(watermark.__gt__, micros))
                subject.source = run.source
                component.add_columns(subject, whole, EventColumns(run.keys, run.values, micros))
            self.stopwatch.turn()
        if group.tables:  # the handler did more than it delegates
            return None
        return self._processed(group, batch, count, late, fired, calls, whole.next_timer)

    def per_event(
        self,
        state: bytes | None,
        chunks: Sequence[Chunk],
        watermark: int | None,
        limits: Mapping[str, int] = MappingProxyType({}),
        again: ReplayedGroup | None = None,
    ) -> ProcessedGroup:
        """Process one batch, callback by callback.

        :param again: the replayed part of the group
        :raises CallbackError: a callback failed; nothing of the batch counts
        """
        try:
            with callbacks_of(self._job.handler):
                return self._per_event(state, chunks, watermark, limits, again)
        except StateDecodeError as error:  # outside of callbacks: a component's state, or expired state
            if error.spec is None:
                raise
            reached = None if watermark is None else from_micros(watermark)
            name = self._callbacks.name
            raise callback_error(error, handler=name, callback=error.spec, key=error.key, watermark=reached)

    def _per_event(
        self,
        state: bytes | None,
        chunks: Sequence[Chunk],
        watermark: int | None,
        limits: Mapping[str, int],
        again: ReplayedGroup | None,
    ) -> ProcessedGroup:
        group, callbacks = KeyGroup(state, self.run, self._job.retired), self._callbacks
        timers = group.timers
        for timer in () if again is None else again.timers:
            timers.add(*timer)
        failed = [] if again is None else again.calls
        due = timers.due(watermark)
        touched: set[Key] = set()
        batch = self._batch(group, watermark, touched)
        batch.is_replay = again is not None
        runs, count, late = self._admitted(group, chunks, limits, batch)
        left = group.left_otherwise(callbacks.declared)
        self._spread(group, Subject(batch))
        component_timers = due_components(group, watermark)
        with_ttl = self._with_ttl()
        expired = expired_keys(with_ttl, group, watermark) if with_ttl else {}
        touched.update(*map(timers.at, due), *(run.keys for run in runs), *expired.values())
        touched.update(*component_timers.values(), (call.key for call in failed))
        subject = Subject(batch)
        self._renew(left, group, subject, touched)
        for call in failed:
            apart = self._batch(KeyGroup(None), call.watermark, (call.key,))
            apart.keeper = None
            callbacks.call_again(call, subject, apart)
        firing = Firing(callbacks, subject, due, component_timers)
        fired, calls = firing.fire() if due or component_timers else 0, firing.calls
        for call in failed:
            fired += 1
            calls[call.component] = calls.get(call.component, 0) + 1
        if watermark is not None and fired:
            with_ttl = self._with_ttl()  # a component may have been made
            expire(with_ttl, group, watermark)
            if callbacks.letters is not None:  # packed already: undoing a failed event restores expired state
                expired = expired_keys(with_ttl, group, watermark)
        if runs:
            self.stopwatch.turn("on_event")
            calls["on_event"] = count - late
        for run in runs:
            late += callbacks.process_events(run, subject)
        self.stopwatch.turn()
        clean_up(with_ttl, expired, subject)
        self._store(group, runs, batch)
        times = [time for time in (group.next_time(), *clean_up_times(with_ttl, group)) if time is not None]
        return self._processed(group, batch, count, late, fired, calls, min(times, default=None))

    def _admitted(
        self, group: KeyGroup, chunks: Sequence[Chunk], limits: Mapping[str, int], batch: Batch
    ) -> tuple[list[Run], int, int]:
        """Return the events to process, their number with late ones, and the number of late ones not delivered."""
        runs = release_or_hold(group, chunks, limits, batch.watermark, self._callbacks.observer)
        count, late = sum(len(run.keys) for run in runs), 0
        if self._late is not None and not batch.is_replay and batch.watermark_micros is not None:
            runs, late = self._late.taken_out(runs, batch.watermark_micros, batch)
        return runs, count, late

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
        next_timer: int | None,
    ) -> ProcessedGroup:
        for end, losses in ((LOST, group.lost), (DROPPED, group.dropped)):
            for name, subjects in losses.items():
                batch.counts[f"{name}{end}"] = batch.counts.get(f"{name}{end}", 0) + subjects
        outputs = {name: port.encoded_values for name, port in batch.ports.items() if port.encoded_values}
        if group.retired and next_timer is None:
            next_timer = END_OF_TIME  # so that the group is called when a job has the spec again
        held = group.waiting()
        counts = Counts(
            events=events,
            late=late,
            dropped=batch.dropped,
            timers_set=group.timers.added,
            timers_fired=fired,
            counters=batch.counts,
            keys=len(group),
            timers_pending=group.pending,
            held=held_counts(held),
        )
        group.in_memory |= {name for name, component in self._callbacks.components.items() if component.in_memory}
        state = group.pack()  # which drops components without stored state from `in_memory`
        return ProcessedGroup(state, bool(group.in_memory), next_timer, outputs, counts, calls, held, group.retired)

    def _spread(self, group: KeyGroup, subject: Subject) -> None:
        """Convert key-group state back to per-key state, except for unknown components that are not due."""
        watermark = subject.watermark_micros
        for name, whole in list(group.wholes.items()):
            component = self._callbacks.components.get(name)
            next_timer = whole.next_timer
            if component is None and watermark is not None and next_timer is not None and next_timer <= watermark:
                subject.key, subject.timestamp = next(iter(whole.keys)), from_micros(next_timer)
                component = self._callbacks.recovered(name, subject)
            if component is not None:
                group.by_subject(component)

    def _renew(self, left: list[Component], group: KeyGroup, subject: Subject, touched: set[Key]) -> None:
        """Bring the state that older code left of declared components up to date, for all subjects: per-event and
        vectorised processing then leave the same state.
        """
        tables = {component: group.tables[component.name] for component in left if component.name in group.tables}
        touched.update(*(table.packed for table in tables.values()))
        subject.timestamp = subject.watermark or from_micros(0)
        for component, table in tables.items():
            for subject.key in list(table.packed):
                component.state_for(subject)
            table.store()

    def _batch(self, group: KeyGroup, watermark: int | None, touched: Collection[Key]) -> Batch:
        return Batch(
            self._job.handler,
            self._has_timers,
            {name: Port(codec) for name, codec in self._codecs.items()},
            watermark,
            group.tables,
            group.timers,
            touched,
            self._callbacks.components,
            self._job.name,
            group,
        )

    def _store(self, group: KeyGroup, runs: list[Run], batch: Batch) -> None:
        for table in group.tables.values():
            try:
                table.store()
            except AmadouError as error:  # msgpack finds some errors only now, such as a text that is not valid Unicode
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


def together(outputs: Iterable[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Return several outputs by port as one, in their order."""
    given = [each for each in outputs if each]
    if len(given) == 1:
        return dict(given[0])
    whole: dict[str, list[Any]] = {}
    for each in given:
        for port, encoded_values in each.items():
            whole.setdefault(port, []).extend(encoded_values)
    return whole
