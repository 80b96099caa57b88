"""What runs in Spark's Python workers: keying, stateful, output. Each is a function over Arrow or pandas batches.

A failing callback does not fail its task: it travels as a row, so that no task is tried again in vain and the driver
can tell the user what happened.
"""

import itertools
from collections.abc import Iterator
from time import perf_counter
from typing import Any

import attrs

from amadou import SinkBatch, SinkWriter
from amadou._letters import DEAD_LETTERS
from amadou._report import added
from amadou.errors import AmadouError, CallbackError, RunError
from amadou_runtime.core.dead_letter_limit import Failures, all_failures
from amadou_runtime.core.dependencies import judge, watched
from amadou_runtime.core.events import Chunk
from amadou_runtime.core.failed_call import FailedCall
from amadou_runtime.core.operator import Judged, ReplayedGroup, together
from amadou_runtime.core.ports import port_codec, sink_of
from amadou_runtime.core.watermark import Newest
from amadou_runtime.spark.call import CALL
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.compressed import pack_compressed, unpack_compressed
from amadou_runtime.spark.key_range import KeyRange
from amadou_runtime.spark.modules import loads
from amadou_runtime.spark.payload import Payload, Worker
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.worker_end import end_with_spark
from amadou_runtime.testing.trace import SimulatedCrash, Trace

KEYED = "range int, event_time timestamp, chunk binary"
"""Columns after keying. What Spark takes for event time is the number of the batch; see `StatefulStage`."""
RESULT = "result binary"
STATE = "state binary"

BLOCK = 100_000
"""Records that are keyed and packed together: each block makes a row for each key range."""
REPORT_RANGE = -1
"""Rows of this range bring no events but go on to the driver as they are."""


@attrs.frozen
class ScriptedRow:
    """A record of a test run's script on its way to Spark."""

    source: str
    partition: str
    record: Any


@attrs.frozen
class KeyingStage:
    """Turns rows of one source into packed events by key range, and a report of how far the source came.

    :param source: the source's name; `None` for a test run's script, which brings records of all, and a call
    """

    payload: Payload
    source: str | None

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        task = context.partitionId() if context is not None else 0
        number = itertools.count()
        time = BatchTime.told()
        try:
            worker = self.payload.load().opened()
            for batch in batches:
                began = perf_counter()
                for partition, position, cells in runs_of(batch, task):
                    for records in self._blocks(worker, cells):
                        rows = Rows(self.payload, time, began)
                        self._key(worker, rows, records, (partition, position, next(number)))
                        yield rows.to_arrow()
                        began = perf_counter()
        except AmadouError as error:
            failed = Rows(self.payload, time, 0.0)
            failed.add(REPORT_RANGE, packed_error(error))
            yield failed.to_arrow()
            for _ in batches:
                pass  # the batch is lost, but Spark wants its rows read

    def _blocks(self, worker: Worker, cells: Any) -> Iterator[list[Any]]:
        """The records of cells, as many at once as are keyed and packed together."""
        to_records = None if self.source is None else worker.job.sources[self.source].to_records
        records = iter((to_records or _as_they_are)(cells))
        while block := list(itertools.islice(records, BLOCK)):
            yield block

    def _key(self, worker: Worker, rows: "Rows", records: list[Any], place: tuple[str, int, int]) -> None:
        """Key records.

        :param place: their partition and position, and a number that tells in which order they came
        """
        name, position, number = place
        if self.source is not None:
            partition_of = worker.job.sources[self.source].partition_of
            partition = "" if partition_of is None else partition_of(name)
            rows.add_events(self.source, partition, order_of(*place), records, worker)
            return
        script = [_scripted_row(cell) for cell in records if cell]
        for source, partition in sorted({(row.source, row.partition) for row in script}):
            brought = [row.record for row in script if (row.source, row.partition) == (source, partition)]
            rows.add_events(source, partition, order_of(f"{partition}\0{name}", position, number), brought, worker)
        if len(script) < len(records):
            (key_range,) = range_numbers(self.payload.ranges)
            rows.add(key_range, CALL)


class Rows:
    """Rows of the keying stage.

    :param began: when the work on them began, by `perf_counter`
    """

    def __init__(self, payload: Payload, time: BatchTime, began: float) -> None:
        self._payload = payload
        self._now = time.now
        self._began = began
        # In microseconds; see `StatefulStage`. It begins at two milliseconds, since the first timeout is at one.
        self._event_time = 1000 * (time.number + 2)
        self._columns: tuple[list[Any], ...] = ([], [], [])

    def add(self, number: int, chunk: bytes) -> None:
        for column, cell in zip(self._columns, (number, self._event_time, chunk), strict=True):
            column.append(cell)

    def add_events(self, source: str, partition: str, ordering: bytes, records: list[Any], worker: Worker) -> None:
        if not records:
            return
        keying = worker.keying[source]
        packed = keying.pack(records, self._now)
        groups, ranges = self._payload.groups, self._payload.ranges
        by_range: dict[int, dict[int, bytes]] = {}
        for group, events in packed.events.items():
            by_range.setdefault(group * ranges // groups, {})[group] = events
        numbers = range_numbers(ranges)
        for position, by_group in by_range.items():
            self.add(numbers[position], pack_compressed([source, ordering, by_group]))
        if packed.newest is not None and source in watched(worker.job):
            mark = pack_compressed([source, packed.newest, packed.oldest])
            for number in numbers:
                self.add(number, mark)
        now = perf_counter()
        report: dict[str, Any] = {
            "records": {source: len(records)},
            "stage_seconds": {"keying": now - self._began},
            "callback_seconds": keying.stopwatch.take(),
            "callback_calls": {"key_event": len(records)},
        }
        self._began = now
        if packed.newest is not None:
            report["newest"] = {source: {partition: packed.newest}}
        if packed.oldest is not None:
            report["oldest"] = {source: packed.oldest}
        failures = keying.take_failures()
        if failures:
            report["failures"] = failures
        if packed.letters:
            report["outputs"] = {DEAD_LETTERS: packed.letters}
            if self._payload.traced:
                report["letters"] = packed.letters
        self.add(REPORT_RANGE, pack_compressed(report))

    def to_arrow(self) -> Any:
        import pyarrow as pa

        types = (pa.int32(), pa.timestamp("us", tz="UTC"), pa.binary())
        columns = [pa.array(column, type_) for column, type_ in zip(self._columns, types, strict=True)]
        return pa.record_batch(columns, names=["range", "event_time", "chunk"])


def _as_they_are(cells: Any) -> list[Any]:
    return cells.to_pylist() if cells.type.num_fields else cells.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def order_of(partition: str, position: int, number: int) -> bytes:
    """Puts what was keyed together into the order of its source.

    :param number: where it came in the task, among others of its partition and position
    """
    return partition.encode() + b"\0" + position.to_bytes(8) + number.to_bytes(8)


def runs_of(batch: Any, task: int) -> Iterator[tuple[str, int, Any]]:
    """The cells of an Arrow batch, cut where (partition, position) changes."""
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


def _scripted_row(cell: str) -> ScriptedRow:
    import base64

    row: ScriptedRow = loads(base64.b64decode(cell))
    return row


@attrs.frozen
class StatefulStage:
    """Plays one key range's batch through the operator core, between Spark's state and its timeout.

    Spark calls a range in a batch that has rows for it, and where its timeout is before Spark's watermark. That follows
    the number of the last batch that had data, a millisecond each: a range with timers, whose timeout is always Spark's
    watermark, is called in every batch after that one, and there is one even if no data comes. Which timers are due is
    not Spark's to say, but `BatchTime`'s.
    """

    payload: Payload

    def __call__(self, key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import pandas as pd

        chunks = [chunk for frame in frames for chunk in frame["chunk"].tolist()]
        if key[0] == REPORT_RANGE:
            yield pd.DataFrame({"result": chunks})
            return
        try:
            result = self._process(int(key[0]), chunks, state)
        except AmadouError as error:
            result = packed_error(error)
        yield pd.DataFrame({"result": [result]})

    def _process(self, number: int, packed: list[bytes], state: Any) -> bytes:
        began = perf_counter()
        stored = state.get[0] if state.exists else None
        told = BatchTime.told()
        worker = self.payload.load().opened()
        worker.operator.take_failures()
        worker.operator.stopwatch.take()  # workers are re-used, and a batch that failed left its callbacks here
        if worker.trace is not None:
            worker.trace.take()
            worker.trace.crash_after = told.crash_after
        key_range = KeyRange(stored) if told.put is None else KeyRange.of_group(told.put)
        chunks, newest, oldest, again = _unpacked(packed)
        try:
            judged = self._judge(worker, told, newest, oldest, number)
            limits = judged.verdict.limits
            replayed = key_range.replay(worker.operator, again, told.watermark, limits)
            played = key_range.process(worker.operator, chunks, told.watermark, limits, every=self.payload.traced)
            given = [*replayed, *played.values()]
        except AmadouError as error:
            return packed_error(error, worker.trace)
        if told.crash_after is not None:
            raise SimulatedCrash
        kept = key_range.pack()
        if kept is not None:
            state.update((kept,))
        elif stored is not None:
            state.remove()
        next_timer, held = key_range.next_timer, key_range.held
        if next_timer is not None or held:
            state.setTimeoutTimestamp(max(state.getCurrentWatermarkMs(), 1))  # Spark refuses zero
        outputs = together((judged.outputs, *(processed.outputs for processed in given)))
        result: dict[str, Any] = {
            "range": number,
            "outputs": outputs,
            "events": sum(processed.events for processed in given),
            "late": sum(processed.late for processed in given),
            "dropped": sum(processed.dropped for processed in given),
            "timers_set": sum(processed.timers_set for processed in given),
            "fired": sum(processed.fired for processed in given),
            "counts": added(processed.counts for processed in given),
            "callback_calls": added((judged.calls, *(processed.calls for processed in given))),
            "failures": worker.operator.take_failures(),
            "callback_seconds": worker.operator.stopwatch.take(),
            "stage_seconds": {"playing": perf_counter() - began},
            "kept": [key_range.keys, key_range.pending, len(kept or b""), next_timer, held],
        }
        if worker.trace is not None:
            result["trace"] = _traced(worker.trace)
            result["states"] = {group: processed.state for group, processed in played.items()}
        return pack_compressed(result)

    def _judge(
        self, worker: Worker, told: BatchTime, newest: dict[str, int], oldest: dict[str, int], number: int
    ) -> Judged:
        """Judge which sources are down. Every range does, and the first one tells the handler."""
        if number == range_numbers(self.payload.ranges)[0]:
            return worker.operator.judge(told.judged, newest, oldest, told.number, told.watermark)
        return Judged(judge(worker.job, told.judged, newest, oldest, told.number), {}, {})


def _unpacked(
    packed: list[bytes],
) -> tuple[list[tuple[int, Chunk]], dict[str, int], dict[str, int], dict[int, ReplayedGroup]]:
    """What rows bring: events with their key group, the newest and the oldest event times that `judge` takes, and what
    is replayed, by key group.
    """
    chunks: list[tuple[int, Chunk]] = []
    newest: dict[str, int] = {}
    oldest: dict[str, int] = {}
    again: dict[int, ReplayedGroup] = {}
    for row in filter(None, packed):  # what is empty only calls
        source, first, second = unpack_compressed(row)
        if source is None:
            for group, (replayed, timers, calls) in second.items():
                into = again.setdefault(group, ReplayedGroup([], [], []))
                into.chunks.extend(Chunk(*chunk) for chunk in replayed)
                into.timers.extend(map(tuple, timers))
                into.calls.extend(FailedCall(*call) for call in calls)
        elif isinstance(first, int):
            newest[source] = max(first, newest.get(source, first))
            if second is not None:
                oldest[source] = min(second, oldest.get(source, second))
        else:
            chunks += [(group, Chunk(source, first, events)) for group, events in second.items()]
    return chunks, newest, oldest, again


@attrs.frozen
class OutputStage:
    """Writes outputs to the sinks' writers, and sums up the rest in one row for the driver.

    :param run: see `SinkBatch`
    """

    payload: Payload
    run: str

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = BatchTime.told().number
        part = f"{context.partitionId():05}"
        writers: dict[str, SinkWriter] = {}
        summary, writing = Summary(), 0.0
        try:
            self.payload.load()  # what is unpacked may be of the job's classes
            for batch in batches:
                for packed in batch.column("result").to_pylist():
                    result = unpack_compressed(packed)
                    summary.merge(Summary.of(result))
                    if summary.error is not None:
                        continue
                    began = perf_counter()
                    for port, wires in result.get("outputs", {}).items():
                        if port not in writers:
                            writers[port] = self._open(port, number, part)
                        writers[port].write(wires)
                    writing += perf_counter() - began
            if summary.error is None:
                began = perf_counter()
                finished = {port: writer.finish() for port, writer in writers.items()}
                summary.parts = {port: [[part, message]] for port, message in finished.items() if message is not None}
                writers = {}
                summary.stage_seconds["writing"] = writing + perf_counter() - began
        except AmadouError as error:
            summary.error = error_fields(error)
        finally:
            for writer in writers.values():
                writer.abort()
        yield pa.record_batch(
            [pa.array([pack_compressed(attrs.asdict(summary, recurse=False))], pa.binary())], names=["result"]
        )

    def _open(self, port: str, number: int, part: str) -> SinkWriter:
        job = self.payload.load().job
        return sink_of(job, port).open(SinkBatch(self.run, job.name, port, number, port_codec(job, port)), part)


_ADDED = ("records", "counts", "stage_seconds", "callback_seconds", "callback_calls")
"""Numbers by name, of which a summary has the sums."""
_TOLD = (
    "events",
    "failures",
    "late",
    "dropped",
    "timers_set",
    "fired",
    "error",
    "newest",
    "oldest",
    "letters",
    "trace",
    "states",
    *_ADDED,
)
"""What a row of results says in the terms of a summary."""


@attrs.define
class Summary:
    """What a part of a batch, or a whole one, gave."""

    parts: dict[str, list[Any]] = attrs.field(factory=dict)
    """What writers finished with, as pairs of part and message, by port."""
    outputs: dict[str, int] = attrs.field(factory=dict)
    records: dict[str, int] = attrs.field(factory=dict)
    events: int = 0
    late: int = 0
    dropped: int = 0
    timers_set: int = 0
    fired: int = 0
    counts: dict[str, int] = attrs.field(factory=dict)
    stage_seconds: dict[str, float] = attrs.field(factory=dict)
    callback_seconds: dict[str, float] = attrs.field(factory=dict)
    callback_calls: dict[str, int] = attrs.field(factory=dict)
    ranges: dict[int, list[Any]] = attrs.field(factory=dict)
    """What `Clock.ranges` says, of each key range that was called."""
    error: dict[str, Any] | None = None
    newest: Newest = attrs.field(factory=dict)
    oldest: dict[str, int] = attrs.field(factory=dict)
    failures: Failures = attrs.field(factory=dict)
    letters: list[Any] = attrs.field(factory=list)
    """Dead letters of records that could not be keyed, for test runs."""
    trace: list[Any] = attrs.field(factory=list)
    """Parts of raw entries, for test runs."""
    states: dict[int, bytes | None] = attrs.field(factory=dict)

    @classmethod
    def of(cls, result: dict[str, Any]) -> "Summary":
        """What one row of results says."""
        outputs = {port: len(wires) for port, wires in result.get("outputs", {}).items()}
        ranges = {result["range"]: result["kept"]} if "range" in result else {}
        told = {name: result[name] for name in _TOLD if name in result}
        return cls(outputs=outputs, ranges=ranges, **told)

    def merge(self, other: "Summary") -> None:
        """Add what else the same batch gave."""
        for port, parts in other.parts.items():
            self.parts[port] = sorted([*self.parts.get(port, []), *parts])
        self.outputs = added((self.outputs, other.outputs))
        self.events += other.events
        self.late += other.late
        self.dropped += other.dropped
        self.timers_set += other.timers_set
        self.fired += other.fired
        for name in _ADDED:
            setattr(self, name, added((getattr(self, name), getattr(other, name))))
        self.ranges |= other.ranges
        self.error = self.error or other.error
        for source, by_partition in other.newest.items():
            newest = self.newest.setdefault(source, {})
            for partition, micros in by_partition.items():
                newest[partition] = max(micros, newest.get(partition, micros))
        for source, oldest in other.oldest.items():
            self.oldest[source] = min(oldest, self.oldest.get(source, oldest))
        self.failures = all_failures((self.failures, other.failures))
        self.letters += other.letters
        self.trace += other.trace
        self.states |= other.states


def error_fields(error: AmadouError) -> dict[str, Any]:
    """An error in terms of msgpack."""
    if isinstance(error, CallbackError):
        return {"callback": error.fields()}
    return {"message": f"{type(error).__name__}: {error}"}


def packed_error(error: AmadouError, trace: Trace | None = None) -> bytes:
    """An error as a row of results.

    :param trace: has the callbacks that led to it, in test runs
    """
    return pack_compressed({"error": error_fields(error), "trace": [] if trace is None else _traced(trace)})


def _traced(trace: Trace) -> list[Any]:
    return [entry.parts() for entry in trace.take()]


def error_from(fields: dict[str, Any]) -> AmadouError:
    """The error of some fields."""
    return CallbackError(**fields["callback"]) if "callback" in fields else RunError(fields["message"])


end_with_spark()
