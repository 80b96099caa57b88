"""Replays dead letters on Spark.

At its start, a run stores the dead letters to replay as one file in the checkpoint. A separate stream reads these
files, and Spark stores the stream's offset in the checkpoint like any other offset. Each dead letter therefore takes
effect exactly once, even if runs are killed. Every later run with the same checkpoint also reads the stream, and
replays the remaining dead letters.
"""

from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

import attrs

from amadou.engine import DEAD_LETTERS
from amadou.errors import AmadouError, CheckpointError
from amadou_runtime.core.events import Chunk, pack_events
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.keying import key_group
from amadou_runtime.core.operator import ReplayedGroup
from amadou_runtime.core.replay import CALL, ReplayedLetter
from amadou_runtime.spark.checkpoint import absolute
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.compressed import pack_compressed
from amadou_runtime.spark.files import Files, checkpoint_files
from amadou_runtime.spark.keying_stage import KEYED, REPORT_RANGE, Rows, failed_rows, order_of, runs_of
from amadou_runtime.spark.payload import Payload, Worker
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.summary import Summary

REPLAY_DIRECTORY = "replay"
_SUFFIX = ".txt"
REPLAY_STREAM = "amadou__replay"
"""Name of the stream in Spark. No source's stream has this name."""


def recorded_letters(spark: Any, checkpoint: str) -> set[str]:
    """Return the ids of the dead letters that are stored in a checkpoint for replay.

    :raises CheckpointError: no run has used the checkpoint
    """
    files = checkpoint_files(spark, absolute(checkpoint))
    if not files.exists("offsets"):
        raise CheckpointError(checkpoint, "no run has used it: pass the checkpoint that the dead letters came from")
    texts = (files.read(f"{REPLAY_DIRECTORY}/{name}") or "" for name in _names(files))
    return {line.partition(" ")[0] for text in texts for line in text.splitlines()}


def note(files: Files, letters: Sequence[ReplayedLetter]) -> None:
    """Store dead letters atomically, for replay in one batch."""
    number = len(_names(files))
    files.write(f"{REPLAY_DIRECTORY}/{number:09}{_SUFFIX}", "".join(f"{letter.line()}\n" for letter in letters))


def replayed(spark: Any, files: Files, payload: Payload) -> list[Any]:
    """Return a list with the stream of keyed dead letters; an empty list if the checkpoint contains no dead letters."""
    if not _names(files):
        return []
    lines = (
        spark.readStream.name(REPLAY_STREAM)
        .option("pathGlobFilter", f"*{_SUFFIX}")
        .text(f"{files.checkpoint}/{REPLAY_DIRECTORY}")
        .selectExpr("value AS record", "_metadata.file_path AS partition", "_metadata.file_block_start AS position")
    )
    return [lines.mapInArrow(ReplayStage(payload), KEYED)]


def _names(files: Files) -> list[str]:
    return sorted(name for name in files.names(REPLAY_DIRECTORY) if name.endswith(_SUFFIX))


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
            worker = self.payload.load().opened()
            number = 0
            for batch in batches:
                for partition, position, cells in runs_of(batch, 0):
                    letters = [ReplayedLetter.of_line(line) for line in cells.to_pylist()]
                    self._add(worker, time, rows, letters, order_of(partition, position, number))
                    number += 1
            yield rows.to_arrow()
        except AmadouError as error:
            yield failed_rows(self.payload, time, error, batches)

    def _add(self, worker: Worker, time: BatchTime, rows: Rows, letters: list[ReplayedLetter], order: bytes) -> None:
        by_range: dict[int, dict[int, ReplayedGroup]] = {}
        failed: list[Any] = []
        groups, ranges = self.payload.groups, self.payload.ranges

        def of(group: int) -> ReplayedGroup:
            return by_range.setdefault(group * ranges // groups, {}).setdefault(group, ReplayedGroup([], [], []))

        for position, letter in enumerate(letters):
            source, content, at = letter.source, letter.content, order + position.to_bytes(8)
            if letter.callback == CALL:
                of(key_group(content[0], groups)).calls.append(FailedCall(*content))
            elif source is None:
                of(key_group(content[0], groups)).timers.append(tuple(content))
            elif letter.callback == "on_event":
                of(key_group(content[0], groups)).chunks.append(Chunk(source, at, pack_events(content)))
            else:
                packed = worker.keying[source].pack([content], time.now)
                failed += packed.letters
                for group, events in packed.events.items():
                    of(group).chunks.append(Chunk(source, at, events))
        for position, by_group in by_range.items():
            again = {group: [list(map(list, part)) for part in replayed] for group, replayed in by_group.items()}
            rows.add(range_numbers(ranges)[position], pack_compressed([None, order, again]))
        if failed:
            rows.add(REPORT_RANGE, Summary(outputs={DEAD_LETTERS: failed}).pack())
