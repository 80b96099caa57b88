"""The operator core: what happens to a key group in a batch. Both engines call this and nothing else."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import heappop, heappush
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from amadou import Call, Component, Events, Job, Key, KeyedEvent, LateEvent, Subject, Timer, check_ran, in_key_order
from amadou._component import known_components
from amadou._event import keyed_events
from amadou._group import Timers
from amadou._handler import callbacks_of
from amadou._letters import DEAD_LETTERS, LATE_EVENTS
from amadou._subject import Batch, KeylessSubject, Port
from amadou.errors import AmadouError, RecoverError, StateDecodeError, TimerError
from amadou.event_time import END_OF_TIME, MICROSECOND, from_micros
from amadou.text import shown_error
from amadou_runtime.core.dead_letter_limit import Failures
from amadou_runtime.core.dead_letters import DeadLetters, Wake
from amadou_runtime.core.dependencies import Held, Verdict, judge
from amadou_runtime.core.events import Chunk, Run
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.failure import callback_error, called, shown_traceback
from amadou_runtime.core.held_events import admitted
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import stands_for
from amadou_runtime.core.ports import port_codec
from amadou_runtime.core.stopwatch import Stopwatch
from amadou_runtime.testing.trace import Trace

_SWEEPS = 8
"""How many sweeps a time to live has at most: what is gone may stay stored for an eighth longer."""

_logger = logging.getLogger("amadou")
LOST = ".lost"
"""The end of the counters of what components had in memory and lost, by keys."""
DROPPED = ".dropped"
"""The end of the counters of what specs had that the job gave up (`Job(retired=…)`), by keys."""
Wakes: TypeAlias = dict[int, dict[Key, set[str]]]
"""By time and key, which components are to be woken."""


class Processed(NamedTuple):
    """A key group after a batch."""

    state: bytes | None
    memory: bytes | None
    """What components keep in memory, which is to be kept beside the state."""
    next_timer: int | None
    """When the group must be called again at the latest, in microseconds of event time."""
    outputs: dict[str, list[Any]]
    """What was collected into each port, in wire form."""
    counts: dict[str, int]
    """What callbacks and components counted."""
    events: int
    late: int
    dropped: int
    """Events that were dropped because they came too late, by the job or by components."""
    fired: int
    keys: int
    """Keys that have state or timers."""
    pending: int
    """Timers that are set and not due, and components that are to be woken."""
    timers_set: int
    calls: dict[str, int]
    """How often callbacks were called, as `BatchReport.callback_calls`."""
    held: Held
    """Events that wait."""
    retired: list[str]
    """The names of what is kept as it is, for a job that has a spec of that name again."""


class ReplayedGroup(NamedTuple):
    """What is replayed of a key group."""

    chunks: list[Chunk]
    timers: list[tuple[Key, int, str]]
    """Timers that fire again: key, time in microseconds, tag."""
    calls: list[FailedCall]
    """What components called."""


class Judged(NamedTuple):
    """What a batch's judgement gave; see `Processed`."""

    verdict: Verdict
    outputs: dict[str, list[Any]]
    calls: dict[str, int]


class Operator:
    """A job's handler, ready to process key groups.

    :param job: a job without unresolved parameters
    :param trace: takes an entry for each callback, for test runs
    """

    def __init__(self, job: Job, trace: Trace | None = None) -> None:
        handler = job.handler
        self.handler = handler
        self._name = type(handler).__name__
        self._has_timer_callback = job.has_timers
        self._codecs = {name: port_codec(job, name) for name in job.ports}
        self._trace = trace
        self._specs = job.specs
        self._components = job.components
        self._own = tuple(self._components.values())
        """The components that the handler declares; others join `_components` while a run goes on."""
        self._declared = {name: position for position, name in enumerate(job.component_order)}
        self._wake: Wake = self._wake_component
        self._encode_late = self._codecs[LATE_EVENTS].encode if job.late_events == "divert" else None
        self._late_events = job.late_events
        self._job = job
        self.retired = job.retired
        """What becomes of state under names that the job has no spec of any more."""
        self._changes = {name: getattr(handler, name) for name in ("on_dependency_down", "on_dependency_recovered")}
        self._on_event: Callable[[Subject, KeyedEvent[Any]], Any] = handler.on_event
        self._on_timer_expired: Callable[[Subject, datetime], Any] = handler.on_timer_expired
        if trace is not None:
            self._on_event = trace.observed_event(self._on_event)
            self._on_timer_expired = trace.observed_timer(self._on_timer_expired)
            self._wake = trace.observed_wake(self._wake)
            self._changes = {name: trace.observed_change(name, change) for name, change in self._changes.items()}
        self._taker = _taker(job) if trace is None else None
        self._has_told = False
        self.stopwatch = Stopwatch()
        """Measures callbacks, as `BatchReport.callback_seconds`."""
        self._letters = DeadLetters(job, trace) if job.on_error == "dead_letter" else None
        if self._letters is not None:
            letters = self._letters
            self._on_event = letters.guarded_event(self._on_event)
            self._on_timer_expired = letters.guarded_timer(self._on_timer_expired)
            self._wake = letters.guarded_wake(self._wake)

    def take_failures(self) -> Failures:
        """What callbacks failed since the last call of this. Begins anew."""
        return {} if self._letters is None else self._letters.take_failures()

    def open(self) -> None:
        """Let the handler prepare itself."""
        with known_components(self._components):
            self._guarded("open", self.handler.open)

    def close(self) -> None:
        """Let the handler clean up."""
        self._guarded("close", self.handler.close)

    def judge(
        self,
        kept: bytes | None,
        newest: Mapping[str, int],
        oldest: Mapping[str, int],
        number: int,
        watermark: int | None,
    ) -> Judged:
        """Judge which sources are down, and tell the handler what has changed. Called once for a batch, in one place.

        :param kept: see `_dependencies.judge`, with `newest`, `oldest` and `number`
        :raises CallbackError: a callback failed; nothing of the batch counts
        """
        batch = self._batch(KeyGroup(None), watermark, ())
        calls: dict[str, int] = {}

        def tell(callback: str, dependency: Any, checkpoint: Any) -> None:
            checkpoint.subject = KeylessSubject(batch, callback)
            checkpoint.subject.source = dependency.name
            calls[callback] = calls.get(callback, 0) + 1
            self.stopwatch.turn(callback)
            try:
                check_ran(callback, self._changes[callback](dependency, checkpoint))
            except Exception as error:
                raise self._failed(error, callback, batch, dependency.name, None, dependency)
            self.stopwatch.turn()

        with callbacks_of(self.handler):
            verdict = judge(self._job, kept, newest, oldest, number, tell)
        return Judged(verdict, {name: port.wires for name, port in batch.ports.items() if port.wires}, calls)

    def process(
        self,
        state: bytes | None,
        chunks: Sequence[Chunk],
        watermark: int | None,
        memory: bytes | None = None,
        limits: Mapping[str, int] = MappingProxyType({}),
    ) -> Processed:
        """Play one batch of one key group: due timers, then events (`semantics.md` 5).

        A handler that gives all events to a component is played that way; where this fails, one event after the other
        tells which of them it was.

        :param state: what the last `Processed.state` was
        :param chunks: the batch's events, in any order
        :param watermark: the batch's watermark in microseconds, `None` before the first
        :param memory: what the last `Processed.memory` was; `None` where it is lost
        :param limits: which events wait; see `Verdict`
        :raises CallbackError: a callback failed; nothing of the batch counts
        """
        with callbacks_of(self.handler):
            return self._process(state, chunks, watermark, memory, limits)

    def replay(
        self,
        state: bytes | None,
        again: ReplayedGroup,
        watermark: int | None,
        memory: bytes | None,
        limits: Mapping[str, int],
    ) -> Processed:
        """Play callbacks again that failed in earlier batches: no event of theirs is dropped or diverted as late.

        :param again: what is played
        :raises CallbackError: a callback failed; nothing of the batch counts
        """
        with callbacks_of(self.handler):
            played = self.process_one_by_one(state, again.chunks, watermark, memory, limits, again)
            return played._replace(late=0)

    def _process(
        self,
        state: bytes | None,
        chunks: Sequence[Chunk],
        watermark: int | None,
        memory: bytes | None,
        limits: Mapping[str, int],
    ) -> Processed:
        if self._taker is not None:
            try:
                played = self.process_at_once(self._taker, state, chunks, watermark, memory, limits)
                if played is not None:
                    return played
            except Exception as error:
                if not self._has_told:
                    told = (
                        "%s: %s did not take many events at once; they are played one by one, now and whenever it "
                        "fails\n%s"
                    )
                    _logger.warning(told, self._job.name, self._taker.name, shown_traceback(error))
                    self._has_told = True
        try:
            return self.process_one_by_one(state, chunks, watermark, memory, limits)
        except StateDecodeError as error:  # outside of callbacks: of a component, or of what a time to live ends
            if error.spec is None:
                raise
            reached = None if watermark is None else from_micros(watermark)
            raise callback_error(error, handler=self._name, callback=error.spec, key=error.key, watermark=reached)

    def process_at_once(
        self,
        taker: Component,
        state: bytes | None,
        chunks: Sequence[Chunk],
        watermark: int | None,
        memory: bytes | None = None,
        limits: Mapping[str, int] = MappingProxyType({}),
    ) -> Processed | None:
        """Play one batch through a component that takes the events of all subjects at once.

        :returns: what `process_one_by_one` would; `None` where only that can tell
        """
        group = KeyGroup(state, memory, self._job.retired)
        whole = group.gather(taker)
        if whole is None:
            return None
        batch = self._batch(group, watermark, ())
        subject = Subject(batch)
        runs = admitted(group, chunks, limits, batch.watermark, self._trace)
        count, late = sum(len(run.keys) for run in runs), 0
        if self._late_events != "deliver" and watermark is not None:
            runs, late = self._without_late(runs, watermark, batch)
        fired = 0
        if watermark is not None and whole.wake_at is not None and whole.wake_at <= watermark:
            self.stopwatch.turn(taker.name)
            fired = taker.woken_all(subject, whole, watermark)
        calls = {taker.name: fired} if fired else {}
        if runs:
            self.stopwatch.turn("on_event")
            calls["on_event"] = count - late
        for run in runs:
            micros = run.micros
            if watermark is not None and min(micros) < watermark:
                late += sum(map(watermark.__gt__, micros))
            subject.source = run.source
            taker.add_all(subject, whole, Events(run.keys, run.values, micros))
        self.stopwatch.turn()
        if group.columns:  # the handler did more than it said
            return None
        return self._processed(group, batch, count, late, fired, calls, whole.wake_at)

    def process_one_by_one(
        self,
        state: bytes | None,
        chunks: Sequence[Chunk],
        watermark: int | None,
        memory: bytes | None = None,
        limits: Mapping[str, int] = MappingProxyType({}),
        again: ReplayedGroup | None = None,
    ) -> Processed:
        """Play one batch, callback by callback.

        :param again: what is replayed besides events
        """
        group = KeyGroup(state, memory, self._job.retired)
        timers = group.timers
        for timer in () if again is None else again.timers:
            timers.add(*timer)
        failed = [] if again is None else again.calls
        due = timers.due(watermark)
        touched: set[Key] = set()
        batch = self._batch(group, watermark, touched)
        batch.is_replay = again is not None
        runs = admitted(group, chunks, limits, batch.watermark, self._trace)
        count = sum(len(run.keys) for run in runs)
        left = group.left_otherwise(self._own)
        self._spread(group, Subject(batch))
        waking = _waking(group, watermark)
        aging = self._aging()
        expired = _expired(aging, group, watermark) if aging else {}
        touched.update(*map(timers.at, due), *(run.keys for run in runs), *expired.values())
        touched.update(*waking.values(), (call.key for call in failed))
        subject = Subject(batch)
        self._renew(left, group, subject, touched)
        late = 0
        if again is None and self._late_events != "deliver" and watermark is not None:
            runs, late = self._without_late(runs, watermark, batch)
        calls: dict[str, int] = {}
        for call in failed:
            self._call_again(call, subject)
        fired = self._fire(due, waking, subject, calls) if due or waking else 0
        for call in failed:
            fired += 1
            calls[call.component] = calls.get(call.component, 0) + 1
        if watermark is not None and fired:
            aging = self._aging()  # a component may have been made
            _age(aging, group, watermark)
            if self._letters is not None:  # packed already: an event that fails brings it back, where it is gone by now
                expired = _expired(aging, group, watermark)
        if runs:
            self.stopwatch.turn("on_event")
            calls["on_event"] = count - late
        for run in runs:
            late += self._play(run, subject)
        self.stopwatch.turn()
        _sweep(aging, expired, subject)
        self._store(group, runs, batch)
        times = [time for time in (group.next_time(), *_sweep_times(aging, group)) if time is not None]
        return self._processed(group, batch, count, late, fired, calls, min(times, default=None))

    def _aging(self) -> list[Any]:
        """The specs with a time to live."""
        return [spec for spec in {**self._specs, **self._components}.values() if spec.ttl is not None]

    def _processed(
        self,
        group: KeyGroup,
        batch: Batch,
        events: int,
        late: int,
        fired: int,
        calls: dict[str, int],
        next_timer: int | None,
    ) -> Processed:
        for end, losses in ((LOST, group.lost), (DROPPED, group.dropped)):
            for name, subjects in losses.items():
                batch.counts[f"{name}{end}"] = batch.counts.get(f"{name}{end}", 0) + subjects
        outputs = {name: port.wires for name, port in batch.ports.items() if port.wires}
        if group.retired and next_timer is None:
            next_timer = END_OF_TIME  # it is to be called when a job has the spec again
        keys, pending = len(group), group.pending
        memory = group.set_apart({name for name, component in self._components.items() if component.in_memory})
        return Processed(
            group.pack(),
            memory,
            next_timer,
            outputs,
            batch.counts,
            events,
            late,
            batch.dropped,
            fired,
            keys,
            pending,
            group.timers.added,
            calls,
            group.waiting(),
            group.retired,
        )

    def _spread(self, group: KeyGroup, subject: Subject) -> None:
        """Let what components keep as a whole be state of each subject again, but for what is not due of strangers."""
        watermark = subject.watermark_micros
        for name, whole in list(group.wholes.items()):
            component = self._components.get(name)
            wake_at = whole.wake_at
            if component is None and watermark is not None and wake_at is not None and wake_at <= watermark:
                subject.key, subject.timestamp = next(iter(whole.keys)), from_micros(wake_at)
                component = self._recovered(name, subject)
            if component is not None:
                group.spread(component)

    def _renew(self, left: list[Component], group: KeyGroup, subject: Subject, touched: set[Key]) -> None:
        """Let what older code left of the components that the handler declares be as its own, of all subjects: it is
        the same for those that are played one by one and at once.
        """
        columns = {component: group.columns[component.name] for component in left if component.name in group.columns}
        touched.update(*(column.packed for column in columns.values()))
        subject.timestamp = subject.watermark or from_micros(0)
        for component, column in columns.items():
            for subject.key in list(column.packed):
                component.state_for(subject)
            column.store()

    def _batch(self, group: KeyGroup, watermark: int | None, touched: Collection[Key]) -> Batch:
        return Batch(
            self.handler,
            self._has_timer_callback,
            {name: Port(codec) for name, codec in self._codecs.items()},
            watermark,
            group.columns,
            group.timers,
            touched,
            self._components,
            self._job.name,
            group,
        )

    def _without_late(self, runs: list[Run], micros: int, batch: Batch) -> tuple[list[Run], int]:
        """The events that are not late, and how many others there were, which are dropped or diverted."""
        late = 0
        left = []
        watermark = from_micros(micros)
        for run in runs:
            if min(run.micros) >= micros:
                left.append(run)
                continue
            on_time: list[Any] = []
            for event in zip(run.keys, run.timestamps, run.values, strict=True):
                if event[1] >= watermark:
                    on_time.append(event)
                    continue
                late += 1
                if self._encode_late is None:
                    batch.dropped += 1
                    self._not_delivered("dropped", run.source, event, watermark)
                    continue
                try:
                    wire = self._encode_late(LateEvent(self._job.name, run.source, *event, watermark))
                except Exception as error:
                    self._bury_late(error, run.source, KeyedEvent(*event), watermark, batch.ports)
                    continue
                batch.ports[LATE_EVENTS].wires.append(wire)
                self._not_delivered("diverted", run.source, event, watermark, wire)
            if on_time:
                left.append(Run.of(run.source, on_time))
        return left, late

    def _not_delivered(self, verdict: str, source: str, event: Any, watermark: datetime, wire: Any = None) -> None:
        if self._trace is not None:
            self._trace.not_delivered(verdict, source, event, watermark, wire)

    def _bury_late(
        self, error: Exception, source: str, event: KeyedEvent[Any], watermark: datetime, ports: dict[str, Port]
    ) -> None:
        """Write a letter for a late event that its sink cannot carry.

        :raises CallbackError: the job takes no letters
        """
        failed = callback_error(
            error,
            handler=self._name,
            callback=LATE_EVENTS,
            source=source,
            key=event.key,
            record=event,
            watermark=watermark,
        )
        if self._letters is None:
            raise failed
        wire = self._letters.of_late(source, event, watermark, failed)
        ports[DEAD_LETTERS].wires.append(wire)
        self._not_delivered("dropped", source, event, watermark)
        if self._trace is not None:
            self._trace.failed(failed.error, [(DEAD_LETTERS, wire)])

    def _fire(self, due: list[int], waking: Wakes, subject: Subject, calls: dict[str, int]) -> int:
        """Fire the timers of some times and wake components, by time, key and tag (`semantics.md` 6).

        :param calls: takes how often each callback is called
        """
        batch, timers = subject._batch, subject._batch.timers
        if due and not self._has_timer_callback:
            raise TimerError(self._name)
        fired = 0
        on_timer_expired = self._on_timer_expired
        times = sorted({*due, *waking})
        while times:
            micros = batch.firing_micros = heappop(times)
            subject.timestamp = timestamp = from_micros(micros)
            woken = waking.pop(micros, {})
            for key in in_key_order(woken):
                subject.key = key
                fired += self._wake_at(micros, woken[key], subject, waking, times, calls)
            if micros not in timers.plain and micros not in timers.tagged:
                continue
            expired = (
                _expired_with_tags(timers, micros)
                if micros in timers.tagged
                else zip(in_key_order(timers.take(micros)), repeat(""))
            )
            if self.stopwatch.turn_of != "on_timer_expired":
                self.stopwatch.turn("on_timer_expired")
            for subject.key, subject.timer_tag in expired:
                fired += 1
                try:
                    returned = on_timer_expired(subject, timestamp)
                    if returned is not None:
                        check_ran("on_timer_expired", returned)
                except Exception as error:
                    timer = Timer(timestamp, subject.timer_tag)
                    raise self._failed(error, "on_timer_expired", batch, None, subject.key, timer)
                if batch.stored:
                    self._plan(micros, (), subject, waking, times)
        subject.timer_tag = ""
        batch.firing_micros = None
        expirations = fired - sum(calls.values())
        if expirations:
            calls["on_timer_expired"] = expirations
        return fired

    def _wake_at(
        self, micros: int, due: set[str], subject: Subject, waking: Wakes, times: list[int], calls: dict[str, int]
    ) -> int:
        """Wake a subject's components for which a time has come, and those that ask for it meanwhile.

        :param due: the components' names
        :returns: how many were woken
        """
        batch = subject._batch
        timestamp = subject.timestamp
        woken = batch.woken = []
        while due:
            name = min(due, key=self._turn) if len(due) > 1 else next(iter(due))
            due.remove(name)
            if _wake_time(batch, subject.key, name) != micros:  # another one's callback has changed it
                continue
            if self.stopwatch.turn_of != name:
                self.stopwatch.turn(name)
            calls[name] = calls.get(name, 0) + 1
            woken.append(name)
            subject.timestamp, subject.timer_tag = timestamp, ""
            self._wake(name, subject, timestamp, self._call)
            batch.stored.add(name)
            due |= self._plan(micros, woken, subject, waking, times)
        batch.woken = None
        return len(woken)

    def _plan(self, micros: int, woken: Collection[str], subject: Subject, waking: Wakes, times: list[int]) -> set[str]:
        """Plan the wakes that a callback asked for and that the watermark has reached.

        :param micros: the time in hand
        :param woken: the subject's components that were woken at it
        :returns: those that ask for that time itself
        """
        batch, now = subject._batch, set()
        assert batch.watermark_micros is not None
        for name in batch.stored:
            at = _wake_time(batch, subject.key, name)
            if at is None or at > batch.watermark_micros:
                continue
            if at < micros or (at == micros and name in woken):
                raise AssertionError(f"{name} asked to be woken at a time that has passed")
            if at == micros:
                now.add(name)
                continue
            if at not in waking:
                heappush(times, at)
            waking.setdefault(at, {}).setdefault(subject.key, set()).add(name)
        batch.stored.clear()
        return now

    def _turn(self, name: str) -> tuple[int, str]:
        """Where a component stands among those of a subject that are woken at one time."""
        return self._declared.get(name, len(self._declared)), name

    def _wake_component(self, name: str, subject: Subject, timestamp: datetime, call: Call) -> None:
        component = self._components.get(name) or self._recovered(name, subject)
        component.woken(subject, timestamp, call)

    def _call(self, subject: Subject, function: Callable[..., Any], *arguments: Any) -> None:
        """Run a function of the user's for a component."""
        try:
            check_ran(called(function), function(subject, *arguments))
        except Exception as error:
            raise self._failed(error, called(function), subject._batch, None, subject.key, arguments)

    def _call_again(self, failed: FailedCall, subject: Subject) -> None:
        """Call what a component called, and failed, after the watermark went on: windows that have closed take nothing
        from it.
        """
        subject.key, subject.timestamp = failed.key, from_micros(failed.micros)
        component = self._components.get(failed.component) or self._recovered(failed.component, subject)
        apart = self._batch(KeyGroup(None), failed.watermark, (failed.key,))
        apart.keeper = None
        again = failed.again(component, apart)

        def wake(name: str, subject: Subject, timestamp: datetime, call: Call) -> None:
            call(subject, again, *failed.arguments)

        watched: Wake = wake if self._trace is None else self._trace.observed_wake(wake)
        if self._letters is not None:
            watched = self._letters.guarded_wake(watched, failed)
        self.stopwatch.turn(failed.component)
        watched(failed.component, subject, subject.timestamp, self._call)

    def _recovered(self, name: str, subject: Subject) -> Component:
        """A component of a former run, made anew by the handler."""
        with known_components(self._components):
            try:
                made = self.handler.on_recover_window(name, subject)
                check_ran("on_recover_window", made)
                if isinstance(made, Component):
                    made.check()
            except Exception as error:
                error.add_note(RecoverError.where_removed(name))
                raise self._failed(error, "on_recover_window", subject._batch, None, subject.key, name)
        assert subject._batch.keeper is not None
        noun = subject._batch.keeper.noun_of(name)
        if isinstance(made, Component) and made._name != name:
            raise RecoverError(self._name, name, subject.key, f"gave one with the name {made._name!r}", noun)
        if isinstance(made, Component):
            self._components[name] = made
        if name not in self._components:
            raise RecoverError(self._name, name, subject.key, noun=noun)
        return self._components[name]

    def _play(self, run: Run, subject: Subject) -> int:
        """Play events of one source in their order. Returns how many were late."""
        late = 0
        on_event = self._on_event
        watermark = subject._batch.watermark
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
                raise self._failed(error, "on_event", subject._batch, run.source, event.key, event)
        return late

    def _store(self, group: KeyGroup, runs: list[Run], batch: Batch) -> None:
        for column in group.columns.values():
            try:
                column.store()
            except AmadouError as error:  # what msgpack finds only now, such as a text that is no valid Unicode
                key = column.unstored()[0]
                source = next((run.source for run in runs if key in run.keys), None)
                raise callback_error(
                    error,
                    handler=self._name,
                    callback="on_timer_expired" if source is None else "on_event",
                    source=source,
                    key=key,
                    watermark=batch.watermark,
                )

    def _guarded(self, callback: str, function: Callable[[], Any]) -> None:
        try:
            check_ran(callback, function())
        except Exception as error:
            raise callback_error(error, handler=self._name, callback=callback)

    def _failed(
        self, error: Exception, callback: str, batch: Batch, source: str | None, key: Key | None, record: Any
    ) -> AmadouError:
        if self._trace is not None:
            self._trace.failed(shown_error(error), [])
        return callback_error(
            error,
            handler=self._name,
            callback=callback,
            source=source,
            key=key,
            record=record,
            watermark=batch.watermark,
        )


def together(outputs: Iterable[Mapping[str, list[Any]]]) -> dict[str, list[Any]]:
    """Several outputs by port as one, in their order."""
    given = [each for each in outputs if each]
    if len(given) == 1:
        return dict(given[0])
    whole: dict[str, list[Any]] = {}
    for each in given:
        for port, wires in each.items():
            whole.setdefault(port, []).extend(wires)
    return whole


def _taker(job: Job) -> Component | None:
    """The component that takes the events of a whole key group at once."""
    component = job.components.get(job.handler.gives_all_to or "")
    alone = job.on_error == "fail" and not job.has_timers and job.specs.keys() == {job.handler.gives_all_to}
    alone = alone and stands_for(job.handler, "gives_all_to", "on_event")
    return component if component is not None and component.at_once and alone else None


def _expired(aging: list[Any], group: KeyGroup, watermark: int | None) -> dict[str, list[Key]]:
    """The keys of which something is gone by a watermark, by spec; and those that did not age yet.

    :param aging: the specs with a time to live
    """
    if watermark is None:
        return {}
    columns = {spec.name: group.columns[spec.name] for spec in aging if spec.name in group.columns}
    return {
        name: [key for key in column.packed if column.expires.get(key, watermark) <= watermark]
        for name, column in columns.items()
    }


def _age(aging: list[Any], group: KeyGroup, watermark: int) -> None:
    """Let go what is gone by now, and was not at the times that were due."""
    for spec in aging:
        column = group.columns.get(spec.name)
        if column is not None:
            for state in column.states.values():
                spec.age(state, watermark)


def _sweep(aging: list[Any], expired: dict[str, list[Key]], subject: Subject) -> None:
    """Remove what is gone and was not touched (`semantics.md` 16): state loses it when it is opened."""
    if subject.watermark is not None:
        subject.timestamp = subject.watermark  # what did not age yet begins to
    for spec in aging:
        for subject.key in expired.get(spec.name, ()):
            spec.state_for(subject)._changed = True


def _sweep_times(aging: list[Any], group: KeyGroup) -> Iterator[int]:
    """When the group must be called to be swept: each spec some time after its first part is gone."""
    for spec in aging:
        column = group.columns.get(spec.name)
        if column is not None and column.expires:
            step = max(spec.ttl // MICROSECOND // _SWEEPS, 1)
            yield -(-min(column.expires.values()) // step) * step


def _waking(group: KeyGroup, watermark: int | None) -> Wakes:
    """The components that a watermark wakes."""
    waking: Wakes = {}
    if watermark is not None:
        for name, column in group.columns.items():
            for key, at in column.wakes.items():
                if at <= watermark:
                    waking.setdefault(at, {}).setdefault(key, set()).add(name)
    return waking


def _wake_time(batch: Batch, key: Key, name: str) -> int | None:
    """When a component wants to be woken for a subject."""
    column = batch.columns.get(name)
    if column is None:
        return None
    part = column.states.get(key)
    return column.wakes.get(key) if part is None else part.wake_at


def _expired_with_tags(timers: Timers, micros: int) -> Iterator[tuple[Key, str]]:
    """Take the timers of a time out one by one, as an earlier one of a key may delete a later one."""
    for key in in_key_order(timers.at(micros)):
        for tag in timers.tags(key, micros):
            if timers.discard(key, micros, tag):
                yield key, tag
