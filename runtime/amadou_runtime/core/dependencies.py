"""Deciding which sources are down that others depend on, and which events wait for them.

Dependencies are evaluated once for a batch, from the event times that its sources bring: by each worker before it
processes the batch, and afterwards by the driver, which keeps their state. All come to the same decision. The rules are
those of `amadou.dependencies`.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from graphlib import TopologicalSorter
from typing import Any, NamedTuple, cast

import attrs

from amadou import DependencyChange, DependsOn, Job, from_micros
from amadou.dependencies import downtime, has_recovered
from amadou.engine import pack, unpack
from amadou.errors import TooManyHeldError
from amadou.event_time import MICROSECOND

_logger = logging.getLogger("amadou")
HOLD_ALL = -(1 << 63)
"""The limit of a source whose events are all held, in microseconds."""

Held = dict[str, tuple[int, int]]
"""Number of held events and the oldest event time among them in microseconds, by source."""


class Decision(NamedTuple):
    """The sources that are down in a batch, and the consequences.

    :param state: the state for evaluating the next batch; `None` for a job without dependencies
    :param limits: the newest event time to process in microseconds, by source; sources without a limit are processed
        entirely
    :param down: the dependencies that are down, as pairs of the waiting source and the source that it needs
    :param changes: sources that went down or recovered, in their order; without a subject
    """

    state: bytes | None
    limits: dict[str, int]
    down: set[tuple[str, str]]
    changes: list[DependencyChange]


def evaluate(
    job: Job, state: bytes | None, newest: Mapping[str, int], oldest: Mapping[str, int], number: int
) -> Decision:
    """Evaluate which sources are down in a batch.

    :param state: the last `Decision.state`
    :param newest: the newest event time that each source brings, in microseconds
    :param oldest: the oldest event time of each source that depends on others
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
    graph = TopologicalSorter[str]()
    for each in job.dependencies:
        graph.add(each.dependent, each.on)
    for name in graph.static_order():
        needs = [each for each in job.dependencies if each.dependent == name]
        if needs:
            dependent = _Dependent(name, needs, *dependents.get(name, ()))
            # Held events of a source that itself waits have not come; its newest processed event is unknown here.
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


@attrs.define
class _Needed:
    """The progress of a source that another one depends on.

    :param newest: the time of its newest event in microseconds; before its first event, an assumed time
    :param batch: the number of the batch that brought this event
    :param has_brought: true once it has brought an event
    :param went_down: `newest` and `batch` as they were when the source went down; `None` while it is up
    """

    newest: int
    batch: int
    has_brought: bool = False
    went_down: tuple[int, int] | None = None


class _Dependent:
    """A source that depends on others.

    :param needs: the sources that it needs
    :param reached: the first value that `pack` returned; `batch` and `needed` are the others
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
        """The sources that it needs and that are down."""
        return [on for on in self._thresholds if on in self._needed and self._needed[on].went_down is not None]

    @property
    def limit(self) -> int:
        """The newest event time that it may process, in microseconds, once all sources that it needs are known."""
        return min(self._needed[on].newest + threshold for on, threshold in self._thresholds.items())

    def follow(self, reached: Mapping[str, int], number: int) -> Iterator[DependencyChange]:
        """Note the progress of the sources that it needs. Yields those that have recovered.

        :param reached: the newest event times of sources, where known
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
        """Note its own progress, while no source that it needs is down. Yields the sources that go down.

        :param reached: its newest event time, held events included
        :param batch: the number of the batch that brought this event
        :param began: the oldest event time that it brings in this batch
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
    """Warn of each source that went down or recovered."""
    for change in changes:
        if change.is_down:
            text = "job %s: source %s is down (its newest event: %s; %s is at %s). Holding events beyond the threshold."
            _logger.warning(text, job.name, change.source, change.newest, change.dependent, change.reached)
        else:
            text = "job %s: source %s has recovered (its newest event: %s). Processing the held events of %s."
            _logger.warning(text, job.name, change.source, change.newest, change.dependent)


def watched(job: Job) -> set[str]:
    """Return the sources whose progress matters: those that depend on others, and those that they need."""
    return {name for each in job.dependencies for name in (each.dependent, each.on)}


def all_held(parts: Iterable[Mapping[str, Iterable[int]]]) -> Held:
    """Return the sum of events held in several places."""
    whole: Held = {}
    for part in parts:
        for source, (count, oldest) in part.items():
            before, oldest_before = whole.get(source, (0, oldest))
            whole[source] = before + count, min(oldest, oldest_before)
    return whole


def held_counts(held: Held) -> dict[str, int]:
    """Return the number of held events by source."""
    return {source: count for source, (count, _) in held.items()}


def check_held(job: Job, held: Held, down: Collection[tuple[str, str]]) -> None:
    """Check the number of held events.

    :param down: see `Decision`
    :raises TooManyHeldError: a source that waits for one that is down holds more than its `max_held`
    """
    for each in job.dependencies:
        count, _ = held.get(each.dependent, (0, 0))
        assert isinstance(each.max_held, int)
        if (each.dependent, each.on) in down and count > each.max_held:
            raise TooManyHeldError(each.dependent, each.on, count, each.max_held)


def downs(job: Job, down: Collection[tuple[str, str]]) -> dict[str, bool]:
    """Return whether each source that others need is down for one of them."""
    return {each.on: any(on == each.on for _, on in down) for each in job.dependencies}
