"""Replays dead letters on Spark.

At its start, a run stores the dead letters to replay as one file in the checkpoint. A separate stream reads these
files, and Spark stores the stream's offset in the checkpoint like any other offset. Each dead letter therefore takes
effect exactly once, even if runs are killed. Every later run with the same checkpoint also reads the stream, and
replays the remaining dead letters. In a job with several stages, each stage has a directory with files and a stream.
"""

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any

import attrs

from amadou.errors import AmadouError, CheckpointError
from amadou_runtime.core.events import Chunk, pack_events, without_turns
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.feeding import replayed_record
from amadou_runtime.core.group_batch import ReplayedGroup
from amadou_runtime.core.keying import key_group
from amadou_runtime.core.tally import BatchTally
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.runs.files import Files, checkpoint_files
from amadou_runtime.runs.replay import CALL, ReplayedLetter
from amadou_runtime.spark.checkpoint import absolute
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.keying_stage import Rows, failed_rows, order_of, runs_of
from amadou_runtime.spark.payload import Payload, Worker
from amadou_runtime.spark.rows import KEYED, Replay, packed, report_row
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.streams import Streams, replay_stream
from amadou_runtime.spark.summary import Summary

REPLAY_DIRECTORY = "replay"
_SUFFIX = ".txt"


def recorded_letters(spark: Any, checkpoint: str, stages: Iterable[str] = ("",)) -> set[str]:
    """Return the ids of the dead letters that are stored in a checkpoint for replay.

    :param stages: the names of the job's stages; see `Job.by_stage`
    :raises CheckpointError: no run has used the checkpoint
    """
    files = checkpoint_files(spark, absolute(checkpoint))
    if not files.exists("offsets"):
        raise CheckpointError(checkpoint, "no run has used it: pass the checkpoint that the dead letters came from")
    texts = (files.read(f"{replay_directory(stage)}/{name}") or "" for stage in stages for name in _names(files, stage))
    return {line.partition(" ")[0] for text in texts for line in text.splitlines()}


def note(files: Files, letters: Sequence[ReplayedLetter]) -> None:
    """Store dead letters of a stage atomically, for replay in one batch."""
    stage = letters[0].stage
    number = len(_names(files, stage))
    files.write(f"{replay_directory(stage)}/{number:09}{_SUFFIX}", "".join(f"{letter.line()}\n" for letter in letters))


def replayed(spark: Any, files: Files, payload: Payload, streams: Streams) -> list[Any]:
    """Return a list with the stream of keyed dead letters of a stage; an empty list if the checkpoint contains none,
    and does not need the stream.
    """
    stage = payload.stage
    if not _names(files, stage):
        if streams.order is None:
            return []
        files.write(f"{replay_directory(stage)}/.directory", "")
    lines = (
        streams.reader(spark, replay_stream(stage))
        .option("pathGlobFilter", f"*{_SUFFIX}")
        .text(f"{files.checkpoint}/{replay_directory(stage)}")
        .selectExpr("value AS record", "_metadata.file_path AS partition", "_metadata.file_block_start AS position")
    )
    return [lines.mapInArrow(ReplayStage(payload), KEYED)]


def replay_directory(stage: str) -> str:
    """Return the directory with the dead letters of a stage."""
    return f"{REPLAY_DIRECTORY}/{stage}" if stage else REPLAY_DIRECTORY


def _names(files: Files, stage: str) -> list[str]:
    return sorted(name for name in files.names(replay_directory(stage)) if name.endswith(_SUFFIX))


@attrs.frozen
class ReplayStage:
    """Turns dead letters into events, timers and calls for replay, by key group. Replayed events do not advance the
    watermark.
    """

    payload: Payload

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        time = BatchTime.of_task(self.payload.stage)
        rows = Rows(self.payload, time, perf_counter())
        try:
            worker = self.payload.opened()
            number = 0
            for batch in batches:
                for partition, position, cells in runs_of(batch, 0):
                    letters = [ReplayedLetter.of_line(line) for line in cells.to_pylist()]
                    with errors_of_stage(self.payload.stage):
                        self._add(worker, time, rows, letters, order_of(partition, position, number))
                    number += 1
            yield rows.to_arrow()
        except AmadouError as error:
            yield failed_rows(self.payload, time, error, batches)

    def _add(self, worker: Worker, time: BatchTime, rows: Rows, letters: list[ReplayedLetter], order: bytes) -> None:
        by_range: dict[int, dict[int, ReplayedGroup]] = {}
        keyed = BatchTally()
        updates: list[Any] = []
        groups, ranges = self.payload.groups, self.payload.ranges

        def of(group: int) -> ReplayedGroup:
            return by_range.setdefault(group * ranges // groups, {}).setdefault(group, ReplayedGroup([], [], []))

        for position, letter in enumerate(letters):
            source, content, at = letter.source, letter.content, order + position.to_bytes(8, "big")
            if letter.callback == CALL:
                of(key_group(content[0], groups)).calls.append(FailedCall(*content))
            elif source is None:
                of(key_group(content[0], groups)).timers.append(tuple(content))
            elif letter.callback == "on_event":
                of(key_group(content[0], groups)).chunks.append(Chunk(source, at, pack_events(content)))
            else:
                is_fed = source in worker.job.fed_sources
                keyed_one = worker.keying[source].pack([replayed_record(*content) if is_fed else content], time.now)
                keyed.merge(worker.keying[source].tally(keyed_one, 1, "", 0.0))
                given = {
                    group: without_turns(events) if is_fed else events for group, events in keyed_one.events.items()
                }
                if source in worker.job.reference_sources:
                    updates += rows.add_updates(source, at, given.values())
                    continue
                for group, events in given.items():
                    of(group).chunks.append(Chunk(source, at, events))
        for position, by_group in by_range.items():
            again = {group: [list(map(list, part)) for part in replayed] for group, replayed in by_group.items()}
            rows.add(range_numbers(ranges)[position], packed(Replay(again)))
        if keyed.outputs or updates:  # replayed records are neither new ones, nor do they advance the watermark
            failed = BatchTally(
                keyed.outputs, callback_calls=keyed.callback_calls, failures=keyed.failures, samples=keyed.samples
            )
            rows.add(*report_row(Summary.of(failed, updates=updates).pack()))
