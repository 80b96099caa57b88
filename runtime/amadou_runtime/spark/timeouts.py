"""Makes Spark call key ranges for which no data arrives. This page describes the whole mechanism.

Spark calls a key range in a batch that has rows for it, or where the range's timeout is behind Spark's event-time
watermark. amadou decides which timers are due (`BatchTime.watermark`); Spark only has to call every range that has
timers, in every batch. So Spark's event time is a count of batches, a millisecond each:

1. The rows of batch N carry N + 2 milliseconds as their event time (`batch_event_time`). So Spark's watermark rises by
   one millisecond with each batch that has data, whatever the event times are.
2. A range with timers sets its timeout to Spark's present watermark (`set_timeout`). The next batch with a higher
   watermark calls it, with rows or without.
3. After a batch with data Spark plans a batch without data, since its watermark has moved. This second batch fires the
   timers that became due. If the last run ended before the second batch, a run that resumes would skip it. So
   `plan_due_batch` writes the batch's offsets, as Spark does before it begins a batch.
4. If no data arrives for long and the job has an `idle_timeout`, the job's watermark rises with the clock. The driver
   writes the time at which the next timer is due to a file (`WakeUp`). A separate source (`wake_source`) reads the file
   and adds an empty row for each range. These rows carry no event time: they only make Spark call the ranges.
"""

import json
import os
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from amadou.errors import CheckpointError
from amadou_runtime.spark.files import Files

WAKE_UP: Final = b""
"""The chunk of a row without events, for which Spark calls the range."""


def batch_event_time(number: int) -> int:
    """Return the event time of a batch's rows, in microseconds. The first timeout is at one millisecond."""
    return 1000 * (number + 2)


def set_timeout(state: Any) -> None:
    """Let Spark call a key range in the next batch that moves Spark's watermark."""
    state.setTimeoutTimestamp(max(state.getCurrentWatermarkMs(), 1))  # Spark refuses zero


class WakeUp(NamedTuple):
    """A call to every key range, planned by the driver.

    :param batch: number of the batch after which the call is due: each batch plans at most one
    :param at: processing time at which the call is due, in microseconds since 1970
    """

    batch: int
    at: int

    def write(self, path: Path) -> None:
        """Write the call to a file, for the process that reads the wake-up source."""
        write_json(path, self)

    @classmethod
    def read(cls, path: Path) -> "WakeUp | None":
        """Return the call that was planned last."""
        try:
            return cls(*json.loads(path.read_text()))
        except FileNotFoundError:
            return None


def write_json(path: Path, value: Any) -> None:
    """Write a file that another process reads, so that the process never sees a part of it."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(value))
    os.replace(beside, path)


def plan_due_batch(files: Files, last: int | None, *, anyway: bool = False) -> None:
    """Plan the batch without data that was due when the last run ended, if there is one.

    Once its offsets are written, it is the first batch of the run.

    :param last: number of the last planned batch
    :param anyway: whether to plan the batch even if none is due
    :raises CheckpointError: Spark's files cannot be read or written
    """
    commit = None if last is None else files.read(f"commits/{last}")
    if last is None or commit is None:
        return
    offsets = files.read(f"offsets/{last}")
    try:
        reached = json.loads(commit.splitlines()[1])["nextBatchWatermarkMs"]
        version, planned, *sources = (offsets or "").splitlines()
        metadata = json.loads(planned)
        before = metadata["batchWatermarkMs"]
        if anyway:
            reached = max(reached, before + 1)
        due = reached > before
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise CheckpointError(files.checkpoint, f"Spark's files of batch {last} cannot be read ({error!r})") from error
    if due:
        metadata |= {"batchWatermarkMs": reached, "batchTimestampMs": time.time_ns() // 1_000_000}
        files.write(f"offsets/{last + 1}", "\n".join([version, json.dumps(metadata), *sources]))
