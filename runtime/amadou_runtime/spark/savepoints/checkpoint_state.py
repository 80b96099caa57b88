"""The state in a checkpoint as of its last batch, for looking at it. A run may use the checkpoint meanwhile."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs

from amadou import Key
from amadou.errors import CheckpointError, PlatformError
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.core.keying import group_interval, key_group
from amadou_runtime.jobs.stages import chosen_stage, stage_job
from amadou_runtime.jobs.state_schema import Known
from amadou_runtime.runs.files import LocalFiles, checkpoint_files, local_files
from amadou_runtime.savepoint.block import Block, block_of_key, blocks_of
from amadou_runtime.spark.checkpoint import CheckpointMetadata, read_metadata
from amadou_runtime.spark.clock import commits
from amadou_runtime.spark.savepoints.state_files import (
    RangeFiles,
    UnknownFilesError,
    apply_changes,
    check_for_spark,
    partitions_with_state,
)
from amadou_runtime.spark.savepoints.stored_state import (
    READING_CONF,
    changed_rows,
    groups_of_range,
    stored_ranges,
    stored_rows,
)
from amadou_runtime.spark.savepoints.writing import clock_of
from amadou_runtime.spark.session import check_log_store, check_pyspark, own_session
from amadou_runtime.spark.spark_errors import root_cause
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.store.packed_group import PackedGroup
from amadou_runtime.store.packed_range import PackedRange

_MOST_BATCHES: Final = 99
"""Number of batches before the last one that a history can include: Spark retains the state of a hundred batches."""
_logger = logging.getLogger("amadou")
_BLOCKS = "first long, last long, keys long, packed binary"


class CheckpointState:
    """The state of a stage in a checkpoint; see `Savepoint` for the methods.

    :param checkpoint: the checkpoint, as an absolute path or a URI
    :param spark: function that returns the `SparkSession`. It is called only if Spark is needed: to read files that are
        not local, or in a form that `RangeFiles` does not know
    :param stage: the stage's name; empty for the only stage
    :raises LoadError: there is no such stage
    :raises CheckpointError: the checkpoint cannot be read
    :raises PlatformError: a package that is needed to read it is not installed
    """

    def __init__(self, checkpoint: str, spark: Callable[[], Any], stage: str = "") -> None:
        self._checkpoint = checkpoint
        self._spark = spark
        self._files = files = local_files(checkpoint) or checkpoint_files(spark(), checkpoint)
        self._metadata = read_metadata(files)
        self._stage = chosen_stage(checkpoint, self._metadata.stages, stage)
        check_pyspark()
        if self._metadata.state == "log":
            check_log_store()
        self._committed = commits(files)
        self._last = max(self._committed, default=None)
        self._clock = clock_of(files, self._last, self._stage)
        self._partitions: dict[int, int] = {}
        """Numbers of partitions by batch. Spark removes what tells them before it removes the state."""

    @cached_property
    def _own(self) -> Any:
        if isinstance(self._files, LocalFiles):
            check_for_spark(self._files.directory)
        return own_session(self._spark(), self._metadata.key_groups, self._checkpoint, READING_CONF)

    @property
    def job(self) -> str:
        return stage_job(self._metadata.job, self._stage)

    @property
    def batch(self) -> int | None:
        return None if self._last is None else self._reported(self._last)

    def _reported(self, batch: int) -> int:
        """Return the number that a batch has in reports and logs."""
        return batch + self._metadata.batches_before

    @property
    def structures(self) -> Known:
        return self._metadata.specs_of(self._stage)

    @property
    def clock(self) -> Mapping[str, Any]:
        return self._clock

    def blocks(self) -> Iterator[Block]:
        """Yield the state as blocks. At any time, the state of one key range is in memory."""
        if self._last is None:
            return
        numbers = range_numbers(self._metadata.key_ranges)
        for at, number in enumerate(numbers):
            rows = self._local_rows(number, self._last)
            if rows is None:
                yield from self._blocks_from_spark(numbers[at:], self._last)
                return
            groups = groups_of_range(self._metadata.state, number, rows)
            yield from _blocks_of_groups(groups, self._metadata.key_groups)

    def _blocks_from_spark(self, numbers: Iterable[int], batch: int) -> Iterator[Block]:
        """Yield the state of some key ranges as blocks."""
        own, wanted = self._own, f"range IN ({', '.join(map(str, numbers))})"
        try:
            rows = stored_rows(own, self._checkpoint, self._metadata, batch, self._stage).where(wanted)
            for row in rows.mapInArrow(_BlocksStage(self._metadata), _BLOCKS).toLocalIterator():
                yield Block.unpack(row[0], row[1], row[2], bytes(row[3]))
        except Exception as error:  # any error from Spark
            self._fail(error, batch)

    def find(self, key: Key) -> list[Block]:
        """Return the blocks with a key's state; see `Savepoint.find`."""
        if self._last is None:
            return []
        return self._blocks(key, self._rows(key, self._last))

    def history(self, key: Key) -> Iterator[tuple[int, list[Block]]]:
        """Yield the blocks with a key's state as of the oldest batch that is retained, and as of each later batch that
        changed the key's range. Each comes with the number of the batch.
        """
        if self._last is None:
            return
        first = max(min(self._committed), self._last - _MOST_BATCHES)
        rows = self._rows(key, first)
        yield self._reported(first), self._blocks(key, rows)
        for batch, changes in self._changes(key, first + 1, self._last):
            apply_changes(rows, changes)
            yield self._reported(batch), self._blocks(key, rows)

    def _rows(self, key: Key, batch: int) -> dict[int, bytes]:
        """Return the rows of a key's range as of a batch; see `stored_rows`."""
        number = self._range_number(key)
        rows = self._local_rows(number, batch)
        if rows is not None:
            return rows
        stored = stored_rows(self._own, self._checkpoint, self._metadata, batch, self._stage)
        found = self._collected(stored.where(f"range = {number}"), batch)
        return {at: packed for at, packed in found if packed is not None}

    def _local_rows(self, number: int, batch: int) -> dict[int, bytes] | None:
        """Return the rows of a key range as of a batch, without Spark; `None` if only Spark can read them.

        :raises CheckpointError: a run has removed the files
        """
        if not isinstance(self._files, LocalFiles):
            return None
        try:
            return self._range_files(self._files.directory, number, batch).rows(batch)
        except UnknownFilesError as error:
            if self._is_removed(batch):
                self._fail(error, batch)
            _logger.debug("the state of range %s is read with Spark: %s", number, error)
            return None

    def _range_files(self, directory: Path, number: int, batch: int) -> RangeFiles:
        if batch not in self._partitions:
            self._partitions[batch] = partitions_with_state(directory, batch)
        operator = self._metadata.operator_of(self._stage)
        return RangeFiles(directory, self._metadata.state, number, self._partitions[batch], operator)

    def _is_removed(self, batch: int) -> bool:
        """Return `True` if a run has completed so many batches that the state as of a batch is not retained."""
        return batch not in commits(self._files)

    def _fail(self, error: Exception, batch: int) -> NoReturn:
        if isinstance(error, PlatformError):
            raise error
        if self._is_removed(batch):
            why = (
                f"the run has removed the state of batch {self._reported(batch)} before it was read completely. Try "
                "again, or increase the run's setting spark.sql.streaming.minBatchesToRetain"
            )
        else:
            why = f"its state cannot be read: {root_cause(error)}"
        raise CheckpointError(self._checkpoint, why) from error

    def _changes(self, key: Key, first: int, last: int) -> list[tuple[int, dict[int, bytes | None]]]:
        """Return the rows of a key's range that batches have changed, with the numbers of these batches."""
        if last < first:
            return []
        number = self._range_number(key)
        if isinstance(self._files, LocalFiles):
            try:
                directory, batches = self._files.directory, range(first, last + 1)
                found = [(batch, self._range_files(directory, number, batch).changes(batch)) for batch in batches]
                return [(batch, changes) for batch, changes in found if changes]
            except UnknownFilesError as error:
                _logger.debug("the changes of range %s are read with Spark: %s", number, error)
        changed = changed_rows(self._own, self._checkpoint, self._metadata, first, last, self._stage)
        rows = self._collected(changed.where(f"range = {number}").orderBy("batch"), first)
        return [(batch, {at: packed for _, at, packed in of}) for batch, of in groupby(rows, key=itemgetter(0))]

    def _collected(self, frame: Any, batch: int) -> list[tuple[Any, ...]]:
        try:
            rows = frame.drop("range").collect()
        except Exception as error:  # any error from Spark
            self._fail(error, batch)
        return [(*row[:-1], None if row[-1] is None else bytes(row[-1])) for row in rows]

    def _range_number(self, key: Key) -> int:
        groups, ranges = self._metadata.key_groups, self._metadata.key_ranges
        return range_numbers(ranges)[key_group(key, groups) * ranges // groups]

    def _blocks(self, key: Key, rows: Mapping[int, bytes]) -> list[Block]:
        """Return the blocks with a key's state.

        :param rows: the rows of the key's range in Spark's state, by number; see `stored_rows`
        """
        if not rows:
            return []
        number = key_group(key, self._metadata.key_groups)
        if self._metadata.state == "log":
            from amadou_runtime.store.log.searching import group_of_key
            from amadou_runtime.store.log.segments import Log
            from amadou_runtime.store.log.stored_log import SegmentsInMemory

            return block_of_key(group_of_key(Log(SegmentsInMemory(rows), "of the key"), number, key), key)
        return block_of_key(KeyGroup(PackedGroup(PackedRange(rows[0]).packed(number))), key)


def _blocks_of_groups(groups: Iterable[tuple[int, KeyGroup]], count: int) -> Iterator[Block]:
    """Yield the state of completely loaded key groups as blocks.

    :param count: number of key groups of the checkpoint
    """
    for number, group in groups:
        yield from blocks_of(group, *group_interval(number, count))


@attrs.frozen
class _BlocksStage:
    """Returns the state of key ranges as blocks."""

    metadata: CheckpointMetadata

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for _, found in stored_ranges(self.metadata.state, batches):
            for block in _blocks_of_groups(found, self.metadata.key_groups):
                columns = [[block.first], [block.last], [block.keys], [block.pack()]]
                types = [pa.int64(), pa.int64(), pa.int64(), pa.binary()]
                arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
                yield pa.record_batch(arrays, names=["first", "last", "keys", "packed"])
