"""Sources that depend on other sources: the declaration, the rules, and the handler's callbacks.

`DependsOn` declares that one source of a job depends on another. A handler may define the callbacks of
`DependencyCallbacks`. Each callback receives a `DependencyChange`. A run applies the rules `downtime` and
`has_recovered`. The rules accept any values that can be compared and subtracted, such as event times. See
`docs/dependencies.md`.
"""

from datetime import datetime, timedelta
from typing import Any, cast

import attrs

from amadou._engine.time import seconds_or_time
from amadou._handler.subject import Subject
from amadou._jobs.params import Param

__all__ = ["DependencyCallbacks", "DependencyChange", "DependsOn", "downtime", "has_recovered"]


@attrs.frozen
class DependsOn:
    """Declares that one source of a job, the *dependent* source, needs up-to-date events from another, the *needed*
    source.

    The needed source is *down* when its newest event, across all keys, is older than the newest event from the
    dependent source by more than the threshold. The needed source has *recovered* when its newest event is newer than
    the newest event that the dependent source had when the needed source went down. In between, new events from the
    dependent source are held in the state, and events from other sources are processed (`docs/dependencies.md`). A
    handler may define the callbacks of `DependencyCallbacks`.

    :param dependent: name of the dependent source
    :param on: name of the needed source
    :param threshold: how far the needed source can lag behind the dependent source in event time, as a `timedelta` or
        in seconds
    :param max_held: maximum number of held events. If this number is exceeded, the run fails without losing events. The
        job can then be restarted from its checkpoint with a higher maximum
    """

    dependent: str
    on: str = attrs.field(kw_only=True)
    threshold: timedelta | float | Param = attrs.field(
        default=timedelta(minutes=10), converter=seconds_or_time, kw_only=True
    )
    max_held: int | Param = attrs.field(default=1_000_000, kw_only=True)

    def problems(self) -> list[str]:
        """Return the problems with this declaration that do not depend on the job, in one sentence per problem."""
        label = f"DependsOn({self.dependent!r}, on={self.on!r})"
        if not (isinstance(self.dependent, str) and isinstance(self.on, str)):
            return [f"{label}: dependent and on must each be a source name: use one DependsOn per pair of sources"]
        problems = []
        threshold, most = self.threshold, self.max_held
        if not isinstance(threshold, timedelta | Param) or (
            isinstance(threshold, timedelta) and threshold < timedelta(0)
        ):
            problems.append(f"{label}: threshold must be zero or more, as a timedelta or in seconds, not {threshold!r}")
        if not isinstance(most, Param) and (type(most) is not int or most < 1):
            problems.append(f"{label}: max_held must be a positive integer, not {most!r}")
        if self.dependent == self.on:
            problems.append(f"{label}: a source cannot depend on itself: name two different sources")
        return problems


@attrs.frozen
class DependencyChange:
    """A status change of a source that another source depends on: the source went down or has recovered.

    :param source: the source that went down or has recovered
    :param dependent: the source that depends on `source`, and whose events are held while `source` is down
    :param is_down: `True` if `source` went down, `False` if it has recovered
    :param since: the time of the newest event of `source` when it went down. If `source` had no events yet, the time of
        the oldest event in the first batch of `dependent`
    :param reached: the time of the newest event of `dependent` when `source` went down
    :param newest: the time of the current newest event of `source`; the same as `since` if `source` went down
    :param since_batch: the number of the batch that contained the event that `since` refers to
    :param reached_batch: the number of the batch that contained the event that `reached` refers to
    :param subject: a subject for collecting values: ``self.alerts.collect(change.subject, …)``. A change does not
        belong to a key, so this subject has neither state nor timers
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

    A handler may define one or both callbacks, and need not inherit from this class. If a handler inherits from this
    class, as in ``class Enrich(Handler, DependencyCallbacks)``, type checkers check the signatures.

    A run calls these callbacks on one worker, once for each change, before the other callbacks of the batch. If a batch
    fails and is processed again, the callbacks are called again.
    """

    def on_dependency_down(self, change: DependencyChange) -> None:
        """Called when a source that another source depends on has gone down."""

    def on_dependency_recovered(self, change: DependencyChange) -> None:
        """Called when a source that was down has caught up, before the held events are processed."""


def downtime(reached: Any, newest: Any, threshold: Any) -> Any | None:
    """Return the lag of a dependency behind the dependent source; `None` if the lag is within the threshold.

    :param reached: the newest event time of the dependent source
    :param newest: the newest event time of the dependency
    :param threshold: maximum lag of the dependency
    """
    behind = reached - newest
    return behind if behind > threshold else None


def has_recovered(reached: Any, newest: Any) -> bool:
    """Return `True` if a dependency that was down has caught up: `newest` is later than `reached`.

    :param reached: the newest event time of the dependent source when the dependency went down
    :param newest: the current newest event time of the dependency
    """
    return bool(newest > reached)
