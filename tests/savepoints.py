"""Rewrites savepoints, as a job with other settings would write them."""

from pathlib import Path

from attrs import evolve

from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.savepoint.savepoint import Savepoint, StateWriter, Totals, complete, new_savepoint, progress_of


def key_groups(savepoint: Savepoint, groups: int) -> list[tuple[int, KeyGroup]]:
    """The key groups of a savepoint."""
    return list(savepoint.groups(groups, range(groups), {}, {}))


def rewritten(savepoint: Savepoint, groups: list[tuple[int, KeyGroup]], number: int, to: Path) -> Savepoint:
    """Write key groups to a savepoint, two groups in a file.

    :param number: number of key groups
    """
    with new_savepoint(to) as partial:
        writers: dict[int, StateWriter] = {}
        for at, group in groups:
            if at // 2 not in writers:
                writers[at // 2] = StateWriter(partial, at // 2)
            writers[at // 2].write(group, at, number)
        infos = [info for writer in writers.values() if (info := writer.finish()) is not None]
        totals = [writer.totals for writer in writers.values()]
        first = Totals()
        for other in totals:
            first.add(other)
        progress = evolve(progress_of(savepoint), engine="spark", key_groups=number)
        complete(partial, progress, infos, first)
    return Savepoint(to)
