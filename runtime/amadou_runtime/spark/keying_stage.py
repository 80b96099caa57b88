"""The first stage of a run on Spark: keys records in the workers."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from time import perf_counter
from typing import Any

import attrs

from amadou.errors import AmadouError
from amadou_runtime.core.dependencies import watched
from amadou_runtime.jobs.stages import errors_of_stage
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.payload import Payload, Worker
from amadou_runtime.spark.rows import Combined, Events, Mark, RangeRow, Update, packed, report_row
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.summary import Summary, packed_error
from amadou_runtime.spark.timeouts import batch_event_time
from amadou_runtime.spark.worker_end import end_with_spark

BLOCK = 100_000
"""Maximum number of records in a block. The events of a block are packed into at most one row per key range."""


@attrs.frozen
class KeyingStage:
    """Turns the rows from one source into packed events by key range, and into reports of the source's progress.

    :param source: the source's name
    """

    payload: Payload
    source: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        number = itertools.count()
        time = BatchTime.of_task(self.payload.stage)
        try:
            worker = self.payload.opened()
            for batch in batches:
                began = perf_counter()
                for partition, position, cells in runs_of(batch, task):
                    for records in self._blocks(worker, cells):
                        rows = Rows(self.payload, time, began)
                        with errors_of_stage(self.payload.stage):
                            self._key(worker, rows, records, (partition, position, next(number)))
                        yield rows.to_arrow()
                        began = perf_counter()
        except AmadouError as error:
            yield failed_rows(self.payload, time, error, batches)

    def _blocks(self, worker: Worker, cells: Any) -> Iterator[list[Any]]:
        """Convert cells to records, and yield the records in blocks."""
        to_records = worker.job.sources[self.source].to_records
        return blocks_of((to_records or _as_they_are)(cells))

    def _key(self, worker: Worker, rows: "Rows", records: list[Any], place: tuple[str, int, int]) -> None:
        """Key a block of records, and add the output to `rows`.

        :param place: partition and position of the records, and the sequence number of the block; see `order_of`
        """
        partition_of = worker.job.sources[self.source].partition_of
        partition = "" if partition_of is None else partition_of(place[0])
        rows.add_events(self.source, partition, order_of(*place), records, worker)


def blocks_of(records: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield records in blocks of up to `BLOCK` records."""
    remaining = iter(records)
    while block := list(itertools.islice(remaining, BLOCK)):
        yield block


class Rows:
    """Output rows of the keying stage.

    :param began: result of `perf_counter` at the start of the work on the rows
    """

    def __init__(self, payload: Payload, time: BatchTime, began: float) -> None:
        self._payload = payload
        self._now = time.now
        self._watermark = time.watermark
        self._began = began
        self._event_time = batch_event_time(time.number)
        self._columns: tuple[list[Any], ...] = ([], [], [])

    def add(self, number: int, content: bytes) -> None:
        for column, cell in zip(self._columns, (number, self._event_time, content), strict=True):
            column.append(cell)

    def add_to_all(self, row: RangeRow) -> None:
        """Add a row for each key range."""
        content = packed(row)
        for number in range_numbers(self._payload.ranges):
            self.add(number, content)

    def add_events(self, source: str, partition: str, ordering: bytes, records: list[Any], worker: Worker) -> None:
        """Key records, and add rows with the resulting events and a report."""
        keying = worker.keying[source]
        keyed = keying.pack_combined(records, self._now, self._watermark)
        updates: list[Any] = []
        if source in worker.job.reference_sources:
            updates = self.add_updates(source, ordering, keyed.events.values())
        else:
            for number, events in self._by_range(keyed.events):
                self.add(number, packed(Events(source, ordering, events)))
            for number, events in self._by_range(keyed.combined):
                self.add(number, packed(Combined(source, events)))
        if keyed.newest is not None and source in watched(worker.job):
            self.add_to_all(Mark(source, keyed.newest, keyed.oldest))
        now = perf_counter()
        tally = keying.tally(keyed, len(records), partition, now - self._began)
        report = Summary.of(tally, updates=updates, letters=keyed.letters if worker.is_of_test_run else [])
        self._began = now
        self.add(*report_row(report.pack()))

    def add_updates(self, source: str, ordering: bytes, updates: Iterable[bytes]) -> list[Any]:
        """Add rows with updates of a reference for all key ranges. Return the updates for `Summary.updates`.

        :param updates: packed events
        """
        added = [Update(source, ordering, events) for events in updates]
        for update in added:
            self.add_to_all(update)
        return list(map(list, added))

    def _by_range(self, groups: Mapping[int, bytes]) -> Iterator[tuple[int, dict[int, bytes]]]:
        """Yield the number of each key range that has events, and its packed events by key group."""
        ranges, by_range = self._payload.ranges, dict[int, dict[int, bytes]]()
        for group, events in groups.items():
            by_range.setdefault(group * ranges // self._payload.groups, {})[group] = events
        numbers = range_numbers(ranges)
        for position, of_range in by_range.items():
            yield numbers[position], of_range

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Yield the range number and the chunk of each row."""
        yield from zip(self._columns[0], self._columns[2], strict=True)

    def to_arrow(self) -> Any:
        import pyarrow as pa

        types = (pa.int32(), pa.timestamp("us", tz="UTC"), pa.binary())
        columns = [pa.array(column, type_) for column, type_ in zip(self._columns, types, strict=True)]
        return pa.record_batch(columns, names=["range", "event_time", "chunk"])


def failed_rows(payload: Payload, time: BatchTime, error: AmadouError, batches: Iterator[Any]) -> Any:
    """Return rows that report the error of a failed task."""
    rows = Rows(payload, time, 0.0)
    rows.add(*report_row(packed_error(error)))
    for _ in batches:
        pass  # Spark requires a task to read all of its rows
    return rows.to_arrow()


def _as_they_are(cells: Any) -> list[Any]:
    return cells.to_pylist() if cells.type.num_fields else cells.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def order_of(partition: str, position: int, number: int) -> bytes:
    """Return the sort key of a block of events. Sorted by this key, blocks are in the order of their source.

    :param number: sequence number of the block in its task; orders blocks with the same partition and position
    """
    return partition.encode() + b"\0" + position.to_bytes(8, "big") + number.to_bytes(8, "big")


def runs_of(batch: Any, task: int) -> Iterator[tuple[str, int, Any]]:
    """Split an Arrow batch wherever the partition or the position changes. Yield each slice's partition, position and
    cells.
    """
    import pyarrow.compute as pc

    cells = batch.column("record")
    if not len(cells):
        return
    ends = set()
    for name in ("partition", "position"):
        ends.update(pc.run_end_encode(batch.column(name)).run_ends.to_pylist())
    start = 0
    for end in sorted(ends):
        partition = batch.column("partition")[start].as_py()
        position = batch.column("position")[start].as_py()
        yield f"{task:08}" if partition is None else partition, position or 0, cells.slice(start, end - start)
        start = end


end_with_spark()
