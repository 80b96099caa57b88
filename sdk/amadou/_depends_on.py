from datetime import timedelta

import attrs

from amadou._params import Param
from amadou._time import seconds_or_time


@attrs.frozen
class DependsOn:
    """A source of a job that needs another one to be up to date.

    The other one is *down* when its newest event is older than the newest event of the dependent source by more than
    the threshold, across all keys; it has *recovered* when its newest event is newer than the one by which it was found
    down. While it is down, the events of the dependent source are held in the state, and nothing else stops
    (`docs/dependencies.md`).

    :param dependent: the name of the source that depends
    :param on: the name of the source that it needs
    :param threshold: how far behind the other one may be, a `timedelta` or seconds
    :param max_held: how many events are held at most: with more the run ends, with nothing lost, and may go on with a
        greater bound
    """

    dependent: str
    on: str = attrs.field(kw_only=True)
    threshold: timedelta | float | Param = attrs.field(
        default=timedelta(minutes=10), converter=seconds_or_time, kw_only=True
    )
    max_held: int | Param = attrs.field(default=1_000_000, kw_only=True)

    def problems(self) -> list[str]:
        """What makes no sense of its own, one sentence each."""
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
