"""Decides which sources are down, and which events from dependent sources are held.

amadou evaluates dependencies from the event times of each batch. On Spark, every key range evaluates the dependencies
before the range processes the batch. The driver evaluates the dependencies after the batch, and stores their state. The
key ranges and the driver reach the same decision. The rules are in `amadou.dependencies`.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from graphlib import TopologicalSorter
from typing import Any, NamedTuple, cast

import attrs

from amadou import DependencyChange, DependsOn, Job
from amadou.dependencies import downtime, has_recovered
from amadou.engine import pack, unpack
from amadou.errors import TooManyHeldError
from amadou.event_time import MICROSECOND, from_micros

_logger = logging.getLogger("amadou")
HOLD_ALL = -(1 << 63)
"""The limit in `Decision.limits`, in microseconds, for a source whose events are all held."""

Held = dict[str, tuple[int, int]]
"""The number of held events and the oldest event time among them, in microseconds, by source."""


class Decision(NamedTuple):
    """The sources that are down in a batch, and the events to hold.

    :param state: the state for evaluating the next batch; `None` for a job without dependencies
    :param limits: the maximum event time to process, in microseconds, by source. All events from sources without a
        limit are processed
    :param down: pairs of a dependent source and a needed source that is down
    :param changes: one `DependencyChange`, without a subject, per pair of a dependent source and a needed source that
        went down or recovered. If the needed source is itself dependent, the changes of its own dependencies come first
    """

    state: bytes | None
    limits: dict[str, int]
    down: set[tuple[str, str]]
    changes: list[DependencyChange]


def evaluate(
    job: Job, state: bytes | None, newest: Mapping[str, int], oldest: Mapping[str, int], number: int
) -> Decision:
    """Decide which sources are down in a batch.

    :param state: the `Decision.state` of the previous batch
    :param newest: per source, the newest event time in the batch, in microseconds
    :param oldest: per source that depends on others, the oldest event time in the batch, in microseconds
    :param number: the batch's number
    """
    decision = Decision(None, {}, set(), [])
    if not job.dependencies:
        return decision
    come: dict[str, tuple[int, int]]
    come, dependents = ({}, {}) if state is None else unpack(state)
    for source in sorted(watched(job) & newest.keys()):
        if source not in come or newest[source] > come[source][0]:
            come[source] = newest[source], number
    for name, needs in _in_order(job):
        dependent = _Dependent(name, needs, *dependents.get(name, ()))
        # Skip a source whose newest event is held: the time of its newest processed event is unknown here.
        reached = {source: at for source, (at, _) in come.items() if at <= decision.limits.get(source, at)}
        decision.changes.extend(dependent.follow(reached, number))
        if dependent.down:
            decision.limits[name] = HOLD_ALL
        elif name in come:
            decision.changes.extend(dependent.advance(*come[name], oldest.get(name)))
            if dependent.down:
                decision.limits[name] = dependent.limit
        decision.down.update((name, on) for on in dependent.down)
        dependents[name] = dependent.pack()
    return decision._replace(state=pack([come, dependents]))


def _in_order(job: Job) -> Iterator[tuple[str, list[DependsOn]]]:
    """Yield the sources that depend on others with their dependencies, each after those that it depends on."""
    graph: TopologicalSorter[str] = TopologicalSorter()
    for each in job.dependencies:
        graph.add(each.dependent, each.on)
    for name in graph.static_order():
        needs = [each for each in job.dependencies if each.dependent == name]
        if needs:
            yield name, needs


@attrs.define
class _Needed:
    """The progress of a source that another source depends on.

    :param newest: the source's newest event time in microseconds; an assumed time until the source delivers an event
    :param batch: the number of the batch that contained the newest event
    :param has_brought: `True` once the source has delivered an event
    :param went_down: the values of `newest` and `batch` when the source went down; `None` while it is up
    """

    newest: int
    batch: int
    has_brought: bool = False
    went_down: tuple[int, int] | None = None


class _Dependent:
    """A source that depends on others.

    :param needs: the source's dependencies
    :param reached: the first element of the list that `pack` returned in the previous batch; `batch` and `needed` are
        the other elements
    """

    def __init__(self, name: str, needs: list[DependsOn], reached: Any = None, batch: int = 0, *needed: Any) -> None:
        self._name = name
        self._thresholds = {each.on: cast("timedelta", each.threshold) // MICROSECOND for each in needs}
        self._reached = reached
        self._batch = batch
        self._needed = {on: _Needed(*values) for on, *values in needed}

    def pack(self) -> Any:
        """Return the state for the next batch."""
        return [self._reached, self._batch, *([on, *attrs.astuple(each)] for on, each in self._needed.items())]

    @property
    def down(self) -> list[str]:
        """The needed sources that are down."""
        return [on for on in self._thresholds if on in self._needed and self._needed[on].went_down is not None]

    @property
    def limit(self) -> int:
        """Maximum event time to process, in microseconds. Use this property only after `advance`, which records the
        progress of every needed source.
        """
        return min(self._needed[on].newest + threshold for on, threshold in self._thresholds.items())

    def follow(self, reached: Mapping[str, int], number: int) -> Iterator[DependencyChange]:
        """Record the progress of the needed sources. Yield a change for each source that has recovered.

        :param reached: per source, the time of its newest processed event; sources for which this time is unknown are
            omitted
        :param number: the batch's number
        """
        for on in self._thresholds:
            if on in reached:
                needed = self._needed.setdefault(on, _Needed(reached[on], number))
                if not needed.has_brought or reached[on] > needed.newest:
                    needed.newest, needed.batch, needed.has_brought = reached[on], number, True
                if needed.went_down is not None and has_recovered(self._reached, needed.newest):
                    yield self._change(on, *needed.went_down, is_down=False)
                    needed.went_down = None

    def advance(self, reached: int, batch: int, began: int | None) -> Iterator[DependencyChange]:
        """Record the source's own progress. Yield a change for each needed source that goes down. Call this only while
        no needed source is down.

        :param reached: the source's newest event time, including held events
        :param batch: the number of the batch that contained the newest event
        :param began: the source's oldest event time in this batch
        """
        assumed = began if self._reached is None and began is not None else reached
        self._reached, self._batch = reached, batch
        for on, threshold in self._thresholds.items():
            needed = self._needed.setdefault(on, _Needed(assumed, batch))
            if downtime(reached, needed.newest, threshold) is not None:
                needed.went_down = needed.newest, needed.batch
                yield self._change(on, *needed.went_down, is_down=True)

    def _change(self, on: str, since: int, since_batch: int, *, is_down: bool) -> DependencyChange:
        since_time, reached, newest = map(from_micros, (since, self._reached, self._needed[on].newest))
        return DependencyChange(on, self._name, is_down, since_time, reached, newest, since_batch, self._batch)


def log_changes(job: Job, changes: Iterable[DependencyChange]) -> None:
    """Log a warning for each source that went down or recovered."""
    for change in changes:
        if change.is_down:
            text = "job %s: source %s is down (its newest event: %s; %s is at %s). Holding events beyond the threshold."
            _logger.warning(text, job.name, change.source, change.newest, change.dependent, change.reached)
        else:
            text = "job %s: source %s has recovered (its newest event: %s). Events from %s no longer wait for it."
            _logger.warning(text, job.name, change.source, change.newest, change.dependent)


def watched(job: Job) -> set[str]:
    """Return the sources whose progress is tracked: the dependent sources and the sources that they need."""
    return {name for each in job.dependencies for name in (each.dependent, each.on)}


def all_held(parts: Iterable[Mapping[str, Iterable[int]]]) -> Held:
    """Combine numbers of held events and their oldest event times, by source, into totals by source."""
    total: Held = {}
    for part in parts:
        for source, (count, oldest) in part.items():
            before, oldest_before = total.get(source, (0, oldest))
            total[source] = before + count, min(oldest, oldest_before)
    return total


def held_counts(held: Held) -> dict[str, int]:
    """Return the number of held events by source."""
    return {source: count for source, (count, _) in held.items()}


def check_held(job: Job, held: Held, down: Collection[tuple[str, str]]) -> None:
    """Check the number of held events against the limit of each dependency.

    :param down: see `Decision.down`
    :raises TooManyHeldError: more events than `max_held` wait for a source that is down
    """
    for each in job.dependencies:
        count, _ = held.get(each.dependent, (0, 0))
        assert isinstance(each.max_held, int)
        if (each.dependent, each.on) in down and count > each.max_held:
            raise TooManyHeldError(each.dependent, each.on, count, each.max_held)


def downs(job: Job, down: Collection[tuple[str, str]]) -> dict[str, bool]:
    """Return the needed sources, each with `True` if the source is down for at least one dependent source."""
    return {each.on: any(on == each.on for _, on in down) for each in job.dependencies}
