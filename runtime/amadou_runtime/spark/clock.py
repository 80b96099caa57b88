"""The time of a run on Spark: the watermark of each batch, and the time of the next batch if no data arrives.

amadou does not use Spark's watermark, which has a resolution of milliseconds, does not support idle sources, and loses
each source's progress on restart. The driver computes the watermark when a batch begins, and passes the watermark to
the tasks as a Spark local property. After a batch, the driver writes each source's progress to the checkpoint, next to
Spark's files. So the watermarks are the same when a run resumes, or reprocesses the last batch.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from amadou import Job
from amadou.engine import BeforeEnd, clock_time
from amadou.errors import CheckpointError, RunError
from amadou.event_time import END_OF_TIME
from amadou.plugins import PartitionOffset, PartitionReport, Source
from amadou_runtime.core.dead_letter_limit import LetterCount
from amadou_runtime.core.dependencies import all_held
from amadou_runtime.core.key_range import RangeStatus
from amadou_runtime.core.references import notifies_keys
from amadou_runtime.core.watermark import Newest, Reading, Watermark, feed_stages
from amadou_runtime.formats.documents import UNREADABLE
from amadou_runtime.formats.json_logs import log_batch
from amadou_runtime.formats.local_file import write_json
from amadou_runtime.runs.files import Files
from amadou_runtime.spark.streams import needs_wake_ups, planned_offsets, stream_log, stream_name
from amadou_runtime.spark.timeouts import WakeUp

CLOCK_DIRECTORY = "clock"
_PROPERTY = "amadou.time"


def last_commit(files: Files) -> int | None:
    """Return the number of the last completed batch; `None` if no batch was completed."""
    return max(commits(files), default=None)


def commits(files: Files) -> list[int]:
    """Return the numbers of the completed batches that Spark still lists."""
    return [int(name) for name in files.names("commits") if name.isdecimal()]


@attrs.frozen
class BatchTime:
    """A stage's watermark and processing time in a batch.

    :param number: Spark's number of the batch
    :param reported: the batch's number in reports, logs, sinks and callbacks
    :param watermark: the stage's watermark in microseconds; `None` before the first watermark
    :param now: the processing time at which the batch began, in microseconds since 1970
    :param dependency_state: the `Decision.state` of the previous batch
    :param called: numbers of the key ranges to process even if they do not get data. The first stage does not need
        them; see `timeouts`
    """

    number: int
    reported: int
    watermark: int | None
    now: int
    dependency_state: bytes | None = None
    called: Sequence[int] = ()
    before_end: BeforeEnd | None = None
    """See `Watermark.before_end`."""
    references: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    """For each reference, the names of the files with its entries before the batch; see `reference_files`."""
    changed_files: Mapping[str, str] = attrs.field(factory=dict)
    """For each reference whose table has changed, the one of these files with the changes, if keys are notified."""
    letter_files: Sequence[str] = ()
    """The names of the files with dead letters of rows of tables; see `reference_files`."""

    @staticmethod
    def hand_to_tasks(times: "Mapping[str, BatchTime]", spark: Any) -> None:
        """Pass the times of a batch's stages, as a Spark local property, to the tasks that this thread starts."""
        fields = {stage: attrs.asdict(time) for stage, time in times.items()}
        spark.sparkContext.setLocalProperty(_PROPERTY, json.dumps(fields, default=bytes.hex))

    @classmethod
    def of_task(cls, stage: str) -> "BatchTime":
        """Return the time of a stage in the batch that the current task belongs to."""
        from pyspark import TaskContext

        context = TaskContext.get()
        text = None if context is None else context.getLocalProperty(_PROPERTY)
        if context is None or text is None:
            raise RunError("Spark did not pass the watermark to its tasks: do not set PYSPARK_PIN_THREAD=false")
        fields = json.loads(text)[stage]
        end = fields["before_end"]
        decoded = {"dependency_state": _bytes(fields["dependency_state"]), "before_end": end and BeforeEnd(**end)}
        time = cls(**fields | decoded)
        if str(time.number) != context.getLocalProperty("streaming.sql.batchId"):
            raise RunError(f"a task received the watermark of batch {time.number}, but belongs to a different batch")
        log_batch(time.reported)
        return time


@attrs.define
class StageProgress:
    """The progress of a stage."""

    watermark: int | None = None
    """The watermark in the current batch, in microseconds; `None` before the first watermark."""
    ranges: dict[int, RangeStatus] = attrs.field(factory=dict)
    """Latest status of each key range, by the range's number. Only ranges that a batch has processed have a status."""
    letters: LetterCount = attrs.field(factory=LetterCount)
    """Counts of callback calls and failures."""
    dependency_state: bytes | None = None
    """See `Decision.state`."""
    before_end: BeforeEnd | None = None
    """See `Watermark.before_end`."""
    partitions: list[PartitionReport] = attrs.field(factory=list)
    """The progress of each source partition after the last completed batch."""


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def written_clock(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text of the progress file of a batch.

    :param kept: the progress of each stage; see `kept_progress`
    """
    return json.dumps(kept.get("", {"stages": kept}), default=_plain)


def read_clock(text: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the progress of each stage from the text of a progress file."""
    fields = json.loads(text)
    kept: Mapping[str, Mapping[str, Any]] = fields.get("stages", {"": fields})
    return kept


def kept_progress(kept: Mapping[str, Any], ranges: Mapping[int, RangeStatus]) -> dict[str, Any]:
    """Return the progress of a stage in the form in which it is stored.

    :param kept: the state of the clock
    """
    return {**kept, "ranges": {number: attrs.astuple(status, recurse=False) for number, status in ranges.items()}}


class Clock:
    """The clock of a run, which provides the watermarks and the processing time of each batch.

    :param stages: the progress of each stage. The engine sets all of it, but for watermarks and partitions, before it
        calls `end`
    """

    is_due = False
    """`True` if a batch is due even if no data arrives."""

    def __init__(self, stages: dict[str, StageProgress]) -> None:
        self.stages = stages

    def begin(self, number: int) -> dict[str, BatchTime]:
        """Set and return the watermarks and the processing time of a batch, by stage."""
        raise NotImplementedError

    def end(self, number: int, newest: Mapping[str, Newest], due: int | None) -> None:
        """Record a batch's progress before Spark marks the batch as completed.

        :param newest: the newest event times in the batch, by stage
        :param due: the clock time in microseconds at which a batch has to begin even if no data arrives: 0 if the run
            has not read a table yet; `None` for no such time
        """


class RunClock(Clock):
    """The clock of a run with a checkpoint.

    :param directory: local directory for files that other processes on this machine read
    :param first: the stage that Spark processes first; see `timeouts`
    :param batches_before: see `CheckpointMetadata`
    :param ends: `True` if the run ends when all available input has been read
    :raises CheckpointError: the progress that the last run recorded cannot be read
    """

    def __init__(self, job: Job, files: Files, directory: Path, first: str, batches_before: int, *, ends: bool) -> None:
        self._files = files
        self._directory = directory
        self.wake_up = directory / "wake-up.json"
        """The file that the wake-up source reads."""
        self._first = first
        self._batches_before = batches_before
        self._clocks = {name: _StageClock(name, stage, files, ends=ends) for name, stage in job.by_stage.items()}
        super().__init__({name: clock.progress for name, clock in self._clocks.items()})
        stages = job.by_stage.values()
        self.wakes = needs_wake_ups(job)
        """`True` if the job needs the wake-up source."""
        sources = [(name, source) for name, stage in job.by_stage.items() for source in stage.stream_sources]
        idles = any(stage.idle_after or len(stage.sources) > 1 for stage in stages)
        self._looks_at_plans = idles or any(self.newest_file(*each) for each in sources)
        uses_time = any(stage.max_ahead is not None or stage.table_sources for stage in stages)
        self._notes_beginnings = self._looks_at_plans or uses_time
        self._planned: tuple[int | None, dict[str, str]] = (None, {})
        self._flushes = False
        self._ends = ends
        self._starts = True
        """`True` until the first batch of the run has begun."""
        self._now = 0
        done = last_commit(files)
        if done is not None:
            self._load(done)
            self._plan_wake_up(done, 0 if any(map(notifies_keys, stages)) else None)

    def flush(self) -> None:
        """Advance the watermark to the maximum timestamp."""
        self._flushes = True
        for clock in self._clocks.values():
            clock.watermark.flush()

    def begin(self, number: int) -> dict[str, BatchTime]:
        planned, before = self._offsets(number) if self._looks_at_plans else ({}, {})
        name = f"{CLOCK_DIRECTORY}/{number}-began"
        kept = self._files.read(name) if self._notes_beginnings else None
        began = None if kept is None else json.loads(kept)
        self._now = clock_time() if began is None else began["now"]
        for stage, clock in self._clocks.items():
            reading = clock.reading(planned, before) if self._looks_at_plans else {}
            last = clock.watermark.current
            clock.follow(self._now, reading)
            if began is not None and not self._flushes:  # processed again with the same time and watermark
                clock.reset(began["watermarks"][stage], last)
        if self._notes_beginnings and began is None:
            reached = {stage: progress.watermark for stage, progress in self.stages.items()}
            self._files.write(name, json.dumps({"now": self._now, "watermarks": reached}))
        starts, self._starts = self._starts, False
        return {
            stage: BatchTime(
                number,
                number + self._batches_before,
                clock.progress.watermark,
                self._now,
                clock.progress.dependency_state,
                [] if stage == self._first else clock.called(everything=starts),
                before_end=clock.watermark.before_end,
            )
            for stage, clock in self._clocks.items()
        }

    def newest_file(self, stage: str, source: str) -> Path | None:
        """Return the file that passes the newest event times of a source's partitions to the source's planner. Return
        `None` if the source does not report partition offsets.
        """
        if type(self._clocks[stage].job.sources[source]).partition_offsets is Source.partition_offsets:
            return None
        return self._directory / f"{stream_name(source, stage)}.json"

    def end(self, number: int, newest: Mapping[str, Newest], due: int | None) -> None:
        now = clock_time()
        for stage, clock in self._clocks.items():
            clock.end(newest[stage], now, self._now)
            self._write_newest(stage)
        self._feed()
        kept = {stage: clock.kept() for stage, clock in self._clocks.items()}
        self._files.write(f"{CLOCK_DIRECTORY}/{number}", written_clock(kept))
        for name in (f"{number - 2}", f"{number - 2}-began"):
            self._files.remove(f"{CLOCK_DIRECTORY}/{name}")
        if self._ends and due:  # with a short interval, the run would never end
            due = None
        self._plan_wake_up(number, due)

    def _feed(self) -> None:
        feed_stages({stage: clock.watermark for stage, clock in self._clocks.items()})

    def _offsets(self, number: int) -> tuple[dict[str, str], dict[str, str]]:
        """Return the offsets that Spark planned for a batch and for the batch before, by stream."""
        last, before = self._planned
        if last != number - 1:  # the first batch of the run
            before = planned_offsets(self._files, number - 1)
        planned = planned_offsets(self._files, number)
        self._planned = number, planned
        return planned, before

    def _write_newest(self, stage: str) -> None:
        clock = self._clocks[stage]
        for source in clock.job.stream_sources:
            path = self.newest_file(stage, source)
            if path is not None:
                write_json(path, clock.watermark.newest_times(source))

    def _plan_wake_up(self, done: int, due: int | None) -> None:
        """Plan the batch that fires the next timer, or reads tables, if no data arrives.

        :param due: the clock time at which tables are to be read
        """
        if not self.wakes:
            return
        now = clock_time()
        if self._flushes and any(progress.watermark != END_OF_TIME for progress in self.stages.values()):
            due = now
        timers = {stage: clock.next_timer for stage, clock in self._clocks.items()}
        times = [due, *(self._reaches(stage, timer, now) for stage, timer in timers.items() if timer is not None)]
        at = min((time for time in times if time is not None), default=None)
        self.is_due = at is not None and at <= now
        if at is not None:
            WakeUp(self._batches_before + done, at).write(self.wake_up)

    def _reaches(self, stage: str, micros: int, now: int) -> int | None:
        """Return the clock time at which a stage's watermark, or those that it waits for, reach an event time if no
        more events arrive; `None` if they never do.
        """
        watermark = self._clocks[stage].watermark
        at = watermark.reaches(micros, now)
        if at is not None:
            return at
        waits = watermark.waits_for(micros)
        times = [self._reaches(other, needed, now) for other, needed in waits.items()]
        known = [time for time in times if time is not None]
        return max(known) if known and len(known) == len(times) else None

    def _load(self, done: int) -> None:
        name = f"{CLOCK_DIRECTORY}/{done}"
        text = self._files.read(name)
        if text is None:
            raise CheckpointError(
                self._files.checkpoint,
                f"the progress file {name} is missing: restore it, or start with a new checkpoint directory",
            )
        try:
            kept = read_clock(text)
            for stage, clock in self._clocks.items():
                clock.load(kept[stage])
        except UNREADABLE as error:
            raise CheckpointError(
                self._files.checkpoint,
                f"the progress file {name} cannot be read: restore it, or use a new checkpoint directory ({error!r})",
            ) from error
        self._feed()


class _StageClock:
    """The watermark and the progress of a stage.

    :param name: the stage's name; empty for a job with one handler
    """

    def __init__(self, name: str, job: Job, files: Files, *, ends: bool) -> None:
        self.job = job
        self.watermark = Watermark(job, ends=ends, began=clock_time())
        self.progress = StageProgress()
        self._name = name
        self._logs = {
            source: f"{files.checkpoint}/{stream_log(files, stream_name(source, name))}"
            for source in job.stream_sources
        }

    @property
    def next_timer(self) -> int | None:
        """The event time of the next timer, in microseconds; `None` if there is none."""
        timers = (status.next_timer for status in self.progress.ranges.values())
        return min((timer for timer in timers if timer is not None), default=None)

    def follow(self, now: int, reading: Mapping[str, Reading]) -> None:
        """Advance the watermark for a batch."""
        self.progress.watermark = self.watermark.follow(now, reading)

    def reset(self, micros: int | None, before: int | None) -> None:
        """Set the watermark to that of a batch that is processed again.

        :param before: the watermark of the batch before
        """
        self.watermark.reset(micros, before)
        self.progress.watermark = micros

    def called(self, *, everything: bool) -> list[int]:
        """Return the numbers of the key ranges with due timers or held events.

        :param everything: `True` to return all key ranges that have a status
        """
        watermark = self.progress.watermark
        return [
            number
            for number, status in self.progress.ranges.items()
            if everything
            or status.held
            or (status.next_timer is not None and watermark is not None and status.next_timer <= watermark)
        ]

    def end(self, newest: Newest, now: int, began: int) -> None:
        """Take the newest event times of a batch.

        :param began: the processing time at which the batch began
        """
        self.watermark.observe(newest, now)
        self.watermark.hold(all_held(status.held for status in self.progress.ranges.values()))
        self.progress.partitions = self.watermark.reports(began)

    def kept(self) -> dict[str, Any]:
        """Return the progress in the form in which it is stored."""
        kept = {
            "watermark": self.watermark.to_json(),
            "dependency_state": self.progress.dependency_state,
            "letters": attrs.asdict(self.progress.letters),
            "partitions": [attrs.asdict(report) for report in self.progress.partitions],  # for `amadou describe`
        }
        return kept_progress(kept, self.progress.ranges)

    def load(self, kept: Mapping[str, Any]) -> None:
        """Restore the progress that `kept` returned."""
        self.watermark.load(kept["watermark"])
        self.progress.watermark = self.watermark.current
        ranges = {int(number): RangeStatus(*status) for number, status in kept["ranges"].items()}
        # A view counts once a batch of this run has opened it: the views of an earlier run are usually removed.
        self.progress.ranges = {number: attrs.evolve(status, view_bytes=0) for number, status in ranges.items()}
        self.progress.dependency_state = _bytes(kept["dependency_state"])
        self.progress.letters = LetterCount(**kept["letters"])
        self.progress.partitions = self.watermark.reports(0)

    def reading(self, planned: Mapping[str, str], before: Mapping[str, str]) -> dict[str, Reading]:
        """Return the `Reading` of each source in a batch.

        :param planned: the offsets that Spark planned for this batch, by stream
        :param before: those that it planned for the batch before
        """
        return {name: self._reading_of(name, planned, before) for name in self.job.stream_sources}

    def _reading_of(self, source: str, planned: Mapping[str, str], before: Mapping[str, str]) -> Reading:
        stream = stream_name(source, self._name)
        read, was_read = (self._partitions(source, offsets.get(stream)) for offsets in (planned, before))
        if read is None:
            return Reading.whole(planned.get(stream) != before.get(stream))
        return Reading.between(was_read or {}, read)

    def _partitions(self, source: str, offset: str | None) -> Mapping[str, PartitionOffset] | None:
        if offset is None:
            return None
        return self.job.sources[source].partition_offsets(json.loads(offset), self._logs[source])
