"""Moments of a batch at which a process of the run kills itself, if a test has asked for it.

A test writes the name of a moment to the file `die`. The process that reaches this moment next renames the file to
`died`, and dies.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from amadou.plugins import BatchReport, Run, Sink, SinkBatch, SinkWriter, hookimpl

TASK = "task"
"""A worker has written its part of a batch."""
COMPLETED = "completed"
"""The batch's outputs and progress are stored, and Spark has not committed the batch yet."""


def ask(directory: Path, moment: str, *, whole_group: bool) -> None:
    """Ask for the end of the process that reaches a moment next.

    :param whole_group: `True` to kill the entire process group: driver, Java and workers
    """
    asked = directory / "die.part"
    asked.write_text(f"{moment}\n{'group' if whole_group else 'process'}")
    (directory / "died").unlink(missing_ok=True)
    asked.rename(directory / "die")


def withdraw(directory: Path) -> None:
    """Withdraw what was asked for, if nobody has died."""
    (directory / "die").unlink(missing_ok=True)


def has_died(directory: Path) -> bool:
    return (directory / "died").exists()


def reach(directory: str, moment: str) -> None:
    """End this process if a test has asked for it."""
    asked = Path(directory, "die")
    try:
        wanted, whom = asked.read_text().split("\n")
        if wanted != moment:
            return
        asked.rename(Path(directory, "died"))
    except FileNotFoundError:  # not asked for, or another process was faster
        return
    if whom == "group":
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


@frozen
class Moment(Sink):
    """A sink that writes nothing. Its moments are the commit, on the driver, and the end of each part, on a worker."""

    name: str
    directory: str

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        return _Part(self.directory)

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        reach(self.directory, self.name)


@frozen
class _Part(SinkWriter):
    directory: str

    def write(self, encoded_values: Sequence[Any]) -> None:
        """Write nothing."""

    def finish(self) -> None:
        reach(self.directory, TASK)

    def abort(self) -> None:
        """Do nothing."""


@frozen
class Moments:
    """A plugin that writes a line to the file `completed` for each completed batch."""

    directory: str

    @hookimpl
    def amadou_batch_completed(self, run: Run, batch: BatchReport) -> None:
        reach(self.directory, COMPLETED)
        records = sum(count for source, count in batch.counts.records.items() if source.endswith("events"))
        counts = batch.counts
        with Path(self.directory, "completed").open("a") as completed:
            completed.write(f"{batch.number} {records} {counts.state_entries} {counts.state_bytes}\n")


@frozen
class Completed:
    """A completed batch.

    :param number: the batch's number
    :param records: number of records that it read from the source
    :param state_entries: see `amadou.plugins.Counts`, as is `state_bytes`
    """

    number: int
    records: int
    state_entries: int
    state_bytes: int


def completed(directory: Path) -> list[Completed]:
    """The completed batches, in order. A batch that was processed again is there twice."""
    file = directory / "completed"
    lines = file.read_text().splitlines() if file.exists() else []
    return [Completed(*map(int, line.split())) for line in lines]
