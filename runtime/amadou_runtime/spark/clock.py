"""The time of a run on Spark: the watermark of each batch, and the time of the next batch if no data arrives.

amadou does not use Spark's watermark, which has a resolution of milliseconds, does not support idle sources, and loses
each source's progress on restart. The driver computes the watermark when a batch begins, and passes the watermark to
the tasks as a Spark local property. After a batch, the driver writes each source's progress to the checkpoint, next to
Spark's files. So the watermarks are the same when a run resumes, or reprocesses the last batch.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from amadou import Job, PartitionOffset, PartitionReport, Source
from amadou.engine import clock_time
from amadou.errors import CheckpointError, RunError
from amadou.event_time import END_OF_TIME
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.dependencies import all_held
from amadou_runtime.core.watermark import Newest, Reading, Watermark
from amadou_runtime.spark.files import Files
from amadou_runtime.spark.key_range import RangeStatus
from amadou_runtime.spark.local_file import write_json
from amadou_runtime.spark.timeouts import WakeUp

CLOCK_DIRECTORY = "clock"
_PROPERTY = "amadou.time"


def stream_name(source: str) -> str:
    """Return Spark's name for a source's stream. The name does not change if other sources are added or removed."""
    return "amadou_" + re.sub(r"[^A-Za-z0-9]", lambda found: f"_{ord(found[0]):x}_", source)


def source_name(stream: str) -> str:
    """Return the source whose stream has a name; see `stream_name`."""
    return re.sub(r"_([0-9a-f]+)_", lambda found: chr(int(found[1], 16)), stream.removeprefix("amadou_"))


def planned_offsets(files: Files, number: int | None) -> dict[str, str]:
    """Return the end offsets that Spark planned for a batch, by stream."""
    lines = (files.read(f"offsets/{number}") or "").splitlines()[2:]
    return {name: offset for name, _, offset in (line.partition(":") for line in lines)}


def last_commit(files: Files) -> int | None:
    """Return the number of the last completed batch; `None` if no batch was completed."""
    return max(commits(files), default=None)


def commits(files: Files) -> list[int]:
    """Return the numbers of the completed batches that Spark still lists."""
    return [int(name) for name in files.names("commits") if name.isdigit()]


@attrs.frozen
class BatchTime:
    """A batch's watermark and processing time.

    :param number: the batch's number
    :param watermark: the batch's watermark in microseconds; `None` before the first watermark
    :param now: the processing time at which the batch began, in microseconds since 1970
    :param dependency_state: the `Decision.state` of the previous batch
    """

    number: int
    watermark: int | None
    now: int
    dependency_state: bytes | None = None

    def hand_to_tasks(self, spark: Any) -> None:
        """Pass the batch's time, as a Spark local property, to the tasks that this thread starts."""
        spark.sparkContext.setLocalProperty(_PROPERTY, json.dumps(attrs.asdict(self), default=bytes.hex))

    @classmethod
    def of_task(cls) -> "BatchTime":
        """Return the time of the batch that the current task belongs to."""
        from pyspark import TaskContext

        context = TaskContext.get()
        text = None if context is None else context.getLocalProperty(_PROPERTY)
        if context is None or text is None:
            raise RunError("Spark did not pass the watermark to its tasks: do not set PYSPARK_PIN_THREAD=false")
        fields = json.loads(text)
        time = cls(**fields | {"dependency_state": _bytes(fields["dependency_state"])})
        if str(time.number) != context.getLocalProperty("streaming.sql.batchId"):
            raise RunError(f"a task received the watermark of batch {time.number}, but belongs to a different batch")
        return time


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def written_clock(kept: Mapping[str, Any], ranges: Mapping[int, RangeStatus]) -> str:
    """Return the text of a batch's progress file.

    :param kept: the state of the clock
    """
    statuses = {number: attrs.astuple(status, recurse=False) for number, status in ranges.items()}
    return json.dumps({**kept, "ranges": statuses}, default=_plain)


class Clock(Protocol):
    """The clock of a run, which provides the watermark and the processing time of each batch."""

    ranges: dict[int, RangeStatus]
    """Latest status of each key range, by the range's number. Only ranges that a batch has processed have a status."""
    letters: LetterCount
    """Counts of callback calls and failures; the engine must update the counts before it calls `end`."""

    @property
    def watermark(self) -> int | None:
        """The watermark of the current batch, in microseconds; `None` before the first watermark."""

    def begin(self, number: int) -> BatchTime:
        """Set and return a batch's watermark and processing time."""

    def end(
        self, number: int, newest: Newest, ranges: Mapping[int, RangeStatus], dependency_state: bytes | None
    ) -> None:
        """Record a batch's progress before Spark marks the batch as completed.

        :param newest: the newest event times in the batch, by source and partition
        :param ranges: status of the key ranges that the batch processed, by number; see `Clock.ranges`
        :param dependency_state: see `Decision.state`
        """

    def reports(self) -> list[PartitionReport]:
        """Return the progress of each source partition after the last completed batch."""


class RunClock:
    """The clock of a run with a checkpoint; see `Clock`.

    :param directory: local directory for files that other processes on this machine read
    :param ends: `True` if the run ends when all available input has been read
    :raises CheckpointError: the progress that the last run recorded cannot be read
    """

    def __init__(self, job: Job, files: Files, directory: Path, *, ends: bool) -> None:
        self._files = files
        self._directory = directory
        self.wake_up = directory / "wake-up.json"
        """The file that the wake-up source reads."""
        self._watermark = Watermark(job, ends=ends)
        self._sources = job.sources
        self._planned: tuple[int | None, dict[str, str]] = (None, {})
        self._may_rise = bool(job.idle_after)
        self._looks_at_plans = self._may_rise or any(map(self.newest_file, job.sources))
        self._notes_beginnings = self._looks_at_plans or job.max_ahead is not None
        self._flushes = False
        self._now = 0
        self.ranges: dict[int, RangeStatus] = {}
        self.letters = LetterCount()
        self._dependency_state: bytes | None = None
        done = last_commit(files)
        if done is not None:
            self._load(done)
            self._plan_wake_up(done)

    @property
    def watermark(self) -> int | None:
        return self._watermark.current

    def flush(self) -> None:
        """Advance the watermark to the maximum timestamp."""
        self._flushes = True
        self._watermark.raise_to(END_OF_TIME)

    def begin(self, number: int) -> BatchTime:
        reading = self._reading(number) if self._looks_at_plans else {}
        name = f"{CLOCK_DIRECTORY}/{number}-began"
        kept = self._files.read(name) if self._notes_beginnings else None
        if kept is None:
            self._now = clock_time()
            began = {"now": self._now, "watermark": self._watermark.follow(self._now, reading)}
            if self._notes_beginnings:
                self._files.write(name, json.dumps(began))
        else:  # the batch is processed again with the same time and watermark
            began = json.loads(kept)
            self._now = began["now"]
            self._watermark.follow(self._now, reading)
            if not self._flushes:
                self._watermark.current = began["watermark"]
        return BatchTime(number, self._watermark.current, self._now, dependency_state=self._dependency_state)

    def reports(self) -> list[PartitionReport]:
        return self._watermark.reports(self._now)

    def newest_file(self, source: str) -> Path | None:
        """Return the file that passes the newest event times of a source's partitions to the source's planner. Return
        `None` if the source does not report partition offsets.
        """
        if type(self._sources[source]).partition_offsets is Source.partition_offsets:
            return None
        return self._directory / f"{stream_name(source)}.json"

    def end(
        self, number: int, newest: Newest, ranges: Mapping[int, RangeStatus], dependency_state: bytes | None
    ) -> None:
        self._watermark.observe(newest, clock_time())
        self._write_newest()
        self.ranges |= ranges
        self._watermark.hold(all_held(status.held for status in self.ranges.values()))
        self._dependency_state = dependency_state
        kept = {
            "watermark": self._watermark.to_json(),
            "dependency_state": dependency_state,
            "letters": attrs.asdict(self.letters),
            "partitions": [attrs.asdict(report) for report in self.reports()],  # for `amadou describe`
        }
        self._files.write(f"{CLOCK_DIRECTORY}/{number}", written_clock(kept, self.ranges))
        for name in (f"{number - 2}", f"{number - 2}-began"):
            self._files.remove(f"{CLOCK_DIRECTORY}/{name}")
        self._plan_wake_up(number)

    def _reading(self, number: int) -> dict[str, Reading]:
        """Return the `Reading` of each source in a batch, from the offsets that Spark planned for this batch and the
        previous batch.
        """
        last, before = self._planned
        if last != number - 1:  # the first batch of the run
            before = planned_offsets(self._files, number - 1)
        planned = planned_offsets(self._files, number)
        self._planned = number, planned
        return {name: self._reading_of(name, planned, before) for name in self._sources}

    def _reading_of(self, source: str, planned: Mapping[str, str], before: Mapping[str, str]) -> Reading:
        stream = stream_name(source)
        read, was_read = (self._partitions(source, offsets.get(stream)) for offsets in (planned, before))
        if read is None:
            return Reading.whole(planned.get(stream) != before.get(stream))
        return Reading.between(was_read or {}, read)

    def _partitions(self, source: str, offset: str | None) -> Mapping[str, PartitionOffset] | None:
        if offset is None or offset == "-":  # Spark writes "-" for a source that has no offset yet
            return None
        log = f"{self._files.checkpoint}/sources/{stream_name(source)}"
        return self._sources[source].partition_offsets(json.loads(offset), log)

    def _write_newest(self) -> None:
        for source in self._sources:
            path = self.newest_file(source)
            if path is not None:
                write_json(path, self._watermark.newest_times(source))

    def _plan_wake_up(self, done: int) -> None:
        """Plan the batch that fires the next timer if no data arrives."""
        if not self._may_rise:
            return
        timers = (status.next_timer for status in self.ranges.values())
        next_timer = min((timer for timer in timers if timer is not None), default=None)
        if next_timer is not None:
            at = self._watermark.reaches(next_timer, clock_time())
            if at is not None:
                WakeUp(done, at).write(self.wake_up)

    def _load(self, done: int) -> None:
        name = f"{CLOCK_DIRECTORY}/{done}"
        text = self._files.read(name)
        if text is None:
            raise CheckpointError(
                self._files.checkpoint,
                f"the progress file {name} is missing: restore it, or start with a new checkpoint directory",
            )
        try:
            kept = json.loads(text)
            self._watermark.load(kept["watermark"])
            ranges = {int(number): RangeStatus(*status) for number, status in kept["ranges"].items()}
            # A view counts once a batch of this run has opened it: the views of an earlier run are usually removed.
            self.ranges = {number: attrs.evolve(status, view_bytes=0) for number, status in ranges.items()}
            self._dependency_state = _bytes(kept["dependency_state"])
            self.letters = LetterCount(**kept["letters"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                self._files.checkpoint,
                f"the progress file {name} cannot be read: restore it, or use a new checkpoint directory ({error!r})",
            ) from error
