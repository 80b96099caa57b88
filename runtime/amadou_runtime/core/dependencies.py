"""Which sources are down that others depend on, and which events wait for them.

It is judged once for a batch, from the event times that its sources bring: by each worker before it plays the
batch, and by the driver, which keeps the judgement, afterwards. All come to the same.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Any, NamedTuple

from amadou import Job, from_micros, to_micros
from amadou._wire import pack, unpack
from amadou.errors import TooManyHeldError
from amadou.event_time import MICROSECOND

if TYPE_CHECKING:
    from amadou_plugins.dependencies import Checkpoint, Dependency

HOLD_ALL = -(1 << 63)
"""The limit of a source whose events are all held, in microseconds."""

Held = dict[str, tuple[int, int]]
"""By source, how many events are held, and the oldest time of one, in microseconds."""


class Verdict(NamedTuple):
    """What is judged for a batch.

    :param kept: what the next batch is judged from; `None` where nothing depends on anything
    :param limits: by source, the newest time that an event may have to be played, in microseconds; all of a source that
        is not named are
    :param down: which dependencies are down, as pairs of the source that waits and the one that it needs
    """

    kept: bytes | None
    limits: dict[str, int]
    down: set[tuple[str, str]]


def judge(
    job: Job,
    kept: bytes | None,
    newest: Mapping[str, int],
    oldest: Mapping[str, int],
    number: int,
    tell: Callable[[str, "Dependency", "Checkpoint"], None] = lambda callback, dependency, checkpoint: None,
) -> Verdict:
    """Judge which sources are down in a batch.

    :param kept: what the last `Verdict.kept` was
    :param newest: the newest event time that each source brings, in microseconds
    :param oldest: the oldest one of each source that depends on others
    :param number: the batch's number
    :param tell: is told of each change, as the name of the handler's callback and its arguments
    """
    if not job.dependencies:
        return Verdict(None, {}, set())
    come, batches, cache = ({}, {}, {}) if kept is None else unpack(kept)
    for source in sorted(watched(job) & newest.keys()):
        if source not in come or newest[source] > come[source]:
            come[source], batches[source] = newest[source], number
    needs: dict[str, list[Any]] = {}
    for each in job.dependencies:
        needs.setdefault(each.dependent, []).append(each)
    limits: dict[str, int] = {}
    down: set[tuple[str, str]] = set()
    for dependent in TopologicalSorter({name: [of.on for of in ons] for name, ons in needs.items()}).static_order():
        if dependent in needs:
            checkpoint = _checkpoint(dependent, needs[dependent], cache, tell)
            # Of a source that itself waits, what is held has not come, and what else has is not known here.
            reached = {name: at for name, at in come.items() if at <= limits.get(name, at)}
            limit = _limit(
                checkpoint, reached, number, oldest.get(dependent), come.get(dependent), batches.get(dependent)
            )
            if limit is not None:
                limits[dependent] = limit
            down |= {(dependent, name) for name, dependency in checkpoint.dependencies.items() if dependency.is_down}
    return Verdict(pack([come, batches, cache]), limits, down)


def _checkpoint(dependent: str, needs: Iterable[Any], cache: dict[str, Any], tell: Callable[..., None]) -> "Checkpoint":
    from amadou_plugins.dependencies import Checkpoint, Dependency

    return Checkpoint(
        dependent,
        dependent,
        [Dependency(each.on, each.on, each.threshold) for each in needs],
        lambda checkpoint, dependency: tell("on_dependency_down", dependency, checkpoint),
        lambda checkpoint, dependency: tell("on_dependency_recovered", dependency, checkpoint),
        cache=cache,
    )


def _limit(
    checkpoint: "Checkpoint",
    reached: Mapping[str, int],
    number: int,
    began: int | None,
    come: int | None,
    batch: int | None,
) -> int | None:
    """Up to when events of a dependent source may be played, once its dependencies are judged; `None` for all.

    :param reached: how far the sources have come of which that is known
    :param number: the batch's number
    :param began: the oldest event time that the source itself brings
    :param come: how far the source itself has, what is held included
    :param batch: the number of the batch that brought it there
    """
    from amadou_plugins.dependencies import at_once

    for name, dependency in checkpoint.dependencies.items():
        before = to_micros(dependency.checkpoint_marker) if dependency.has_beaten else HOLD_ALL
        if reached.get(name, HOLD_ALL) > before:
            at_once(checkpoint.heartbeat(from_micros(reached[name]), name, batch=number))
    if checkpoint.is_paused:
        return HOLD_ALL
    if come is None:
        return None
    has_brought = all(dependency.has_beaten for dependency in checkpoint.dependencies.values())
    if began is not None and checkpoint.state_marker is None and not has_brought:
        at_once(checkpoint.check_pulse(from_micros(began), batch=batch))  # what has brought nothing counts as there
    at_once(checkpoint.check_pulse(from_micros(come), batch=batch))
    if not checkpoint.is_paused:
        return None
    return min(
        to_micros(dependency.checkpoint_marker) + dependency.downtime_threshold // MICROSECOND
        for dependency in checkpoint.dependencies.values()
    )


def watched(job: Job) -> set[str]:
    """The sources of which is judged how far they have come."""
    return {name for each in job.dependencies for name in (each.dependent, each.on)}


def all_held(parts: Iterable[Mapping[str, Iterable[int]]]) -> Held:
    """What is held in several places."""
    whole: Held = {}
    for part in parts:
        for source, (count, oldest) in part.items():
            before, oldest_before = whole.get(source, (0, oldest))
            whole[source] = before + count, min(oldest, oldest_before)
    return whole


def check_held(job: Job, held: Held, down: Collection[tuple[str, str]]) -> None:
    """Look whether too much is held.

    :param down: see `Verdict`
    :raises TooManyHeldError: it is
    """
    for each in job.dependencies:
        count, _ = held.get(each.dependent, (0, 0))
        assert isinstance(each.max_held, int)
        if (each.dependent, each.on) in down and count > each.max_held:
            raise TooManyHeldError(each.dependent, each.on, count, each.max_held)


def downs(job: Job, down: Collection[tuple[str, str]]) -> dict[str, bool]:
    """Whether each source that others need is down for one of them."""
    return {each.on: any(on == each.on for _, on in down) for each in job.dependencies}
