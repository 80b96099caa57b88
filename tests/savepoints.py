"""Rewrites savepoints as a job with other settings writes them."""

from functools import partial
from itertools import groupby
from pathlib import Path

from attrs import evolve
from tests.spark.log_storage import MemorySegments

from amadou import Job
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_job_savepoint
from amadou_runtime.savepoint.manifest import Manifest
from amadou_runtime.savepoint.savepoint import Savepoint, Totals, complete, new_savepoint, progress_of, write_groups
from amadou_runtime.store.log.filling import fill
from amadou_runtime.store.log.segments import Log
from amadou_runtime.store.log.stored_log import logged_groups
from amadou_runtime.store.packed_group import PackedGroup
from amadou_runtime.store.packed_range import PackedRange

Groups = list[tuple[int, KeyGroup]]
STORES = ("memory", "groups", "log")


def rewritten(savepoint: Savepoint, groups: Groups, number: int, to: Path) -> Savepoint:
    """Write key groups to a savepoint, two groups in a file.

    :param number: number of key groups
    """
    with new_savepoint(to) as directory:
        _write(savepoint, groups, number, directory)
    return Savepoint(to)


def written_from(store: str, job: Job, savepoint: Path, key_groups: int, to: Path) -> None:
    """Write a savepoint of the same state as a job does whose state is in a store.

    :param store: one of `STORES`
    """

    def write(stage: str, of: Savepoint, directory: Path) -> Manifest:
        groups = list(of.groups_for(job.by_stage[stage], key_groups, range(key_groups)))
        if store == "groups":
            groups = _through_groups(groups)
        elif store == "log":
            groups = _through_log(groups, to.with_name("spill"))
        return _write(of, groups, key_groups, directory)

    stages = {name: partial(write, name, of) for name, of in JobSavepoint(savepoint).stages.items()}
    write_job_savepoint(job.name, stages, to)


def _write(savepoint: Savepoint, groups: Groups, number: int, directory: Path) -> Manifest:
    infos, totals = [], Totals()
    for file, of_file in groupby(groups, key=lambda group: group[0] // 2):
        written, figures = write_groups(directory, file, of_file, number)
        infos += written
        totals.add(figures)
    progress = evolve(progress_of(savepoint), engine="spark", key_groups=number)
    return complete(directory, progress, infos, totals)


def _through_groups(groups: Groups) -> Groups:
    filled = PackedRange(None)
    filled.fill(groups)
    stored = PackedRange(filled.pack())
    return [(number, KeyGroup(PackedGroup(stored.packed(number)))) for number in sorted(stored.numbers)]


def _through_log(groups: Groups, spill: Path) -> Groups:
    segments = MemorySegments()
    fill(Log(segments, "0"), groups, "run")
    return list(logged_groups(Log(segments, "0"), spill))
