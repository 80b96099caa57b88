"""Sources that need others to be up to date: the declaration, the rules, and the callbacks of a handler.

`DependsOn` declares a dependency for a job. A handler may define the callbacks of `DependencyCallbacks`; each gets a
`DependencyChange`. Runs decide by the rules `downtime` and `has_recovered`; these take any values that can be compared
and subtracted, such as event times. See `docs/dependencies.md`.
"""

from datetime import datetime, timedelta
from typing import Any, cast

import attrs

from amadou._params import Param
from amadou._subject import Subject
from amadou._time import seconds_or_time

__all__ = ["DependencyCallbacks", "DependencyChange", "DependsOn", "downtime", "has_recovered"]


@attrs.frozen
class DependsOn:
    """A dependency of a job: one source needs another one to be up to date.

    The needed source is *down* when its newest event is older than the newest event of the dependent source by more
    than the threshold, across all keys. It has *recovered* when its newest event is newer than the event of the
    dependent source by which it was found down. While it is down, the events of the dependent source are held in the
    state; nothing else stops (`docs/dependencies.md`). A handler may define the callbacks of `DependencyCallbacks`.

    :param dependent: the name of the source that depends
    :param on: the name of the source that it needs
    :param threshold: time by which the needed source may be behind, a `timedelta` or seconds
    :param max_held: maximum number of held events: with more the run ends, with nothing lost, and may continue with a
        greater bound
    """

    dependent: str
    on: str = attrs.field(kw_only=True)
    threshold: timedelta | float | Param = attrs.field(
        default=timedelta(minutes=10), converter=seconds_or_time, kw_only=True
    )
    max_held: int | Param = attrs.field(default=1_000_000, kw_only=True)

    def problems(self) -> list[str]:
        """Return the mistakes of this dependency alone, one sentence each."""
        told = f"DependsOn({self.dependent!r}, on={self.on!r})"
        if not (isinstance(self.dependent, str) and isinstance(self.on, str)):
            return [f"{told}: give the names of two sources, and a DependsOn for each pair"]
        problems = []
        threshold, most = self.threshold, self.max_held
        if not isinstance(threshold, timedelta | Param) or (
            isinstance(threshold, timedelta) and threshold < timedelta(0)
        ):
            problems.append(f"{told}: threshold must be a timedelta or seconds, not below zero, not {threshold!r}")
        if not isinstance(most, Param) and (type(most) is not int or most < 1):
            problems.append(f"{told}: max_held must be a whole number above zero, not {most!r}")
        if self.dependent == self.on:
            problems.append(f"{told}: a source cannot depend on itself")
        return problems


@attrs.frozen
class DependencyChange:
    """A change of a source that another one depends on: it went down, or has recovered.

    :param source: the source that is down or has recovered
    :param dependent: the source that depends on it, and waits while it is down
    :param is_down: `True` if the source went down, `False` if it has recovered
    :param since: the event time of the newest event of `source` when it went down. For a source without any event this
        is the time of the oldest event of `dependent` in its first batch
    :param reached: the event time of the newest event of `dependent` when `source` went down
    :param newest: the event time of the newest event of `source` now; for a source that went down the same as `since`
    :param since_batch: the number of the batch that contained the event of `since`
    :param reached_batch: the number of the batch that contained the event of `reached`
    :param subject: collects values, ``self.alerts.collect(change.subject, …)``. A change belongs to no key, so the
        subject has neither state nor timers
    """

    source: str
    dependent: str
    is_down: bool
    since: datetime
    reached: datetime
    newest: datetime
    since_batch: int
    reached_batch: int
    subject: Subject[Any] = attrs.field(default=cast("Subject[Any]", None), eq=False, repr=False)


class DependencyCallbacks:
    """The callbacks of a handler whose job has dependencies.

    A handler may define one or both. It need not inherit from this class; if it does, as in ``class Enrich(Handler,
    DependencyCallbacks)``, type checkers check the signatures.

    A run calls them in one worker, before the other callbacks of the batch, once for each change. A batch that fails
    and is processed again calls them again.
    """

    def on_dependency_down(self, change: DependencyChange) -> None:
        """Called when a source that another one depends on is found down."""

    def on_dependency_recovered(self, change: DependencyChange) -> None:
        """Called when a source that was down has caught up, before the held events are processed."""


def downtime(reached: Any, newest: Any, threshold: Any) -> Any | None:
    """Return the distance of a source behind the one that depends on it; `None` while it is within the threshold.

    :param reached: the newest event time of the dependent source
    :param newest: the newest event time of the source that it needs
    :param threshold: distance by which that source may be behind
    """
    behind = reached - newest
    return behind if behind > threshold else None


def has_recovered(reached: Any, newest: Any) -> bool:
    """Return `True` if a source that was down is ahead of the one that depends on it.

    :param reached: the newest event time of the dependent source when the other one was found down
    :param newest: the newest event time of the source that it needs
    """
    return bool(newest > reached)
