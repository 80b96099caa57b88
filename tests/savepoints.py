"""Rewrites savepoints as a job with other settings writes them."""

from itertools import groupby
from pathlib import Path

from attrs import evolve

from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.savepoint.savepoint import Savepoint, Totals, complete, new_savepoint, progress_of, write_groups


def key_groups(savepoint: Savepoint, groups: int) -> list[tuple[int, KeyGroup]]:
    """Return the key groups of a savepoint."""
    return list(savepoint.groups(groups, range(groups), {}, {}))


def rewritten(savepoint: Savepoint, groups: list[tuple[int, KeyGroup]], number: int, to: Path) -> Savepoint:
    """Write key groups to a savepoint, two groups in a file.

    :param number: number of key groups
    """
    with new_savepoint(to) as partial:
        infos, totals = [], Totals()
        for file, of_file in groupby(groups, key=lambda group: group[0] // 2):
            written, figures = write_groups(partial, file, of_file, number)
            infos += written
            totals.add(figures)
        progress = evolve(progress_of(savepoint), engine="spark", key_groups=number)
        complete(partial, progress, infos, totals)
    return Savepoint(to)
