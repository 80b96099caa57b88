"""Makes Spark call key ranges for which no data arrives. This docstring describes the entire mechanism.

Spark calls a key range in a batch if the batch has rows for the range, or if the range's timeout is behind Spark's
event-time watermark. amadou decides which timers are due (`BatchTime.watermark`); Spark only has to call every range
that has timers, in every batch in which the watermark can have advanced. amadou therefore uses Spark's event time to
count batches, one millisecond per batch:

1. The rows of batch N have an event time of N + 2 milliseconds (`batch_event_time`). Spark's watermark thus advances
   with each batch that has data, regardless of the events' times.
2. A range with timers sets its timeout to Spark's current watermark (`set_timeout`). In the next batch with a higher
   Spark watermark, Spark calls the range, with or without rows. On the store *log*, a range has Spark timers instead of
   a timeout (`set_timer`).
3. After a batch with data, Spark plans a no-data batch, since Spark's watermark has advanced. The no-data batch fires
   the timers that have become due. If a run ended before its no-data batch, Spark would skip this batch after a
   restart. To prevent this, a new run calls `plan_due_batch`, which writes the offsets of the no-data batch, as Spark
   does before a batch begins.
4. If no data arrives for longer than the job's `idle_timeout`, the job's watermark advances with processing time. The
   driver writes a file with the processing time at which the next timer will be due (`WakeUp`). A separate source
   (`wake_source`) reads the file and, at that time, adds a `Call` row for each key range. These rows do not have an
   event time: they only make Spark call the ranges.
5. If keys are notified of the rows of a table (`on_reference_changed`), the run reads the table in a batch in which the
   wake-up source calls every key range, and plans such a call for the time at which the table is to be read again.

In a job with several stages, this holds for the first stage. The others do not have Spark timers: the stage before adds
a `Call` row for each range that has something to do (`BatchTime.called`). The wake-up source also starts the batches in
which only timers of later stages are due.
"""

import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from amadou.errors import CheckpointError
from amadou_runtime.formats.local_file import write_json
from amadou_runtime.runs.files import Files


def batch_event_time(number: int) -> int:
    """Return the event time of a batch's rows, in microseconds: at least 2 ms, since the earliest timeout is 1 ms."""
    return 1000 * (number + 2)


def set_timeout(state: Any) -> None:
    """Make Spark call a key range in the next batch with a higher Spark watermark."""
    state.setTimeoutTimestamp(max(state.getCurrentWatermarkMs(), 1))  # Spark rejects zero


def set_timer(handle: Any, times: Any) -> None:
    """Make Spark call a key range on the store *log* in the next batch with a higher Spark watermark. Spark removes the
    timer when it fires.

    :param handle: Spark's `StatefulProcessorHandle`
    :param times: Spark's `TimerValues`
    """
    handle.registerTimer(times.getCurrentWatermarkInMs() + 1)  # a timer fires when the watermark reaches its time


class WakeUp(NamedTuple):
    """A call to every key range, planned by the driver.

    :param batch: number of the batch after which the call was planned, counted from before the checkpoint was rescaled;
        at most one call is planned after each batch
    :param at: processing time at which the call is due, in microseconds since 1970
    """

    batch: int
    at: int

    def write(self, path: Path) -> None:
        """Write the call to a file, for the process that runs the wake-up source."""
        write_json(path, self)

    @classmethod
    def read(cls, path: Path) -> "WakeUp | None":
        """Return the last planned call from a file; `None` if no call has been planned."""
        try:
            return cls(*json.loads(path.read_text()))
        except FileNotFoundError:
            return None


def plan_due_batch(files: Files, last: int | None, *, anyway: bool = False) -> None:
    """Plan the no-data batch that was due when the last run ended, if any.

    Spark processes the planned batch as the first batch of the new run.

    :param last: number of the last planned batch; `None` if there is none
    :param anyway: `True` to plan a batch even if none is due
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
        raise CheckpointError(files.checkpoint, f"cannot read batch {last}: restore its files ({error!r})") from error
    if due:
        metadata |= {"batchWatermarkMs": reached, "batchTimestampMs": time.time_ns() // 1_000_000}
        files.write(f"offsets/{last + 1}", "\n".join([version, json.dumps(metadata), *sources]))
