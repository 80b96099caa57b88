"""The third stage: writes a batch's outputs in Spark's workers, and passes values on to the next stages of the job."""

from collections.abc import Iterable, Iterator, Sequence
from time import perf_counter
from typing import Any

import attrs

from amadou import SinkBatch, SinkWriter
from amadou.engine import fed_output
from amadou.errors import AmadouError
from amadou.text import qualified
from amadou_runtime.core.events import FED
from amadou_runtime.core.feeding import fed_records
from amadou_runtime.core.ports import port_codec, sink_of
from amadou_runtime.core.stages import errors_of_stage
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.compressed import pack_compressed, unpack_compressed
from amadou_runtime.spark.keying_stage import REPORT_RANGE, Rows, blocks_of
from amadou_runtime.spark.payload import Payload
from amadou_runtime.spark.summary import Summary, error_fields
from amadou_runtime.spark.timeouts import WAKE_UP
from amadou_runtime.spark.worker_end import end_with_spark

DONE_RANGE = -2
"""Range number of rows with a packed `Summary` whose outputs have been written. All stages pass them on."""
_PASSING = -3
"""Range numbers from this one downwards are those of rows for stages after the next one: with the stage's name, the
range number there, and the chunk. There is a number for each range, so that the rows are spread over the tasks.
"""


@attrs.frozen
class OutputStage:
    """Passes outputs to the sinks' writers, and merges the other results of a task into one row for the driver. Keys
    the values of ports that feed other stages.

    :param payload: the stage of the job
    :param run: see `SinkBatch`
    :param batches_before: see `CheckpointMetadata`
    :param later: names of the stages that Spark processes after this one, in order
    """

    payload: Payload
    run: str
    batches_before: int
    later: Sequence[str] = ()

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        writing = _Writing(self, BatchTime.of_task(self.payload.stage).number, f"{context.partitionId():05}")
        rows = _OutputRows(self)
        try:
            self.payload.load()  # needed to unpack objects of the job's classes
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("range", "result"))
                for number, packed in zip(*columns, strict=True):
                    if number == REPORT_RANGE:
                        writing.add(Summary.unpack(packed))
                    else:
                        rows.pass_on(number, packed)
            writing.finish()
        except AmadouError as error:
            writing.summary.error = error_fields(error)
        finally:
            writing.abort()
        if self.later and writing.summary.error is None:
            try:
                yield from rows.feed(writing.fed)
            except AmadouError as error:
                writing.summary.error = error_fields(error)
        if self.later and context.partitionId() == 0:
            rows.wake()
        rows.add(DONE_RANGE, writing.summary.pack())
        yield rows.to_arrow()


class _Writing:
    """Writes the outputs of a task.

    :param number: the batch's number in Spark
    :param part: the name of the task's part of the batch
    """

    def __init__(self, stage: OutputStage, number: int, part: str) -> None:
        self.summary = Summary(stage=stage.payload.stage)
        self.fed: dict[str, list[Any]] = {}
        """The collected values of ports that feed other stages, by port."""
        self._stage = stage
        self._number = number + stage.batches_before
        self._part = part
        self._writers: dict[str, SinkWriter] = {}
        self._written: dict[str, int] = {}
        self._seconds = 0.0

    def add(self, results: Summary) -> None:
        """Merge results, and write their outputs."""
        self.summary.merge(results)
        if self.summary.error is not None:
            return
        job = self._stage.payload.load().job
        for port in job.feeds:
            self.fed.setdefault(port, []).extend(results.outputs.pop(fed_output(port), ()))
        began = perf_counter()
        for port, encoded_values in results.outputs.items():
            if port not in self._writers:
                self._writers[port] = self._open(port)
            self._writers[port].write(encoded_values)
            self._written[port] = self._written.get(port, 0) + len(encoded_values)
        self._seconds += perf_counter() - began

    def finish(self) -> None:
        """Finish the parts, unless there is an error."""
        summary, part = self.summary, self._part
        if summary.error is not None:
            return
        began = perf_counter()
        finished = {port: writer.finish() for port, writer in self._writers.items()}
        summary.parts = {port: [[part, message]] for port, message in finished.items() if message is not None}
        self._writers = {}
        summary.counts = attrs.evolve(summary.counts, outputs=self._written)
        summary.stage_seconds["writing"] = self._seconds + perf_counter() - began

    def abort(self) -> None:
        """Discard the parts that are not finished."""
        for writer in self._writers.values():
            writer.abort()

    def _open(self, port: str) -> SinkWriter:
        payload = self._stage.payload
        job = payload.load().job
        batch = SinkBatch(
            self._stage.run,
            job.name,
            qualified(payload.stage, port),
            self._number,
            port_codec(job, port),
            self._stage.batches_before,
        )
        return sink_of(job, port).open(batch, self._part)


class _OutputRows:
    """The rows of a task for the next stage or, after the last stage, for the driver."""

    def __init__(self, stage: OutputStage) -> None:
        self._stage = stage
        self._rows: list[tuple[int, bytes]] = []

    def add(self, number: int, row: bytes) -> None:
        self._rows.append((number, row))

    def pass_on(self, number: int, packed: bytes) -> None:
        """Add a row that is not meant for this stage."""
        if number <= _PASSING:
            stage, target, chunk = unpack_compressed(packed)
            self._add_for(stage, target, chunk)
        else:
            self.add(number, packed)

    def feed(self, fed: dict[str, list[Any]]) -> Iterator[Any]:
        """Key the values of ports for the stages that they feed, and yield the rows in Arrow batches.

        :param fed: collected values by port
        """
        for name in self._stage.later:
            payload = self._stage.payload.of_stage(name)
            for source, of in payload.load().job.fed_sources.items():
                if of.stage == self._stage.payload.stage and fed.get(of.port):
                    yield from self._keyed(payload, source, fed[of.port])

    def _keyed(self, payload: Payload, source: str, collected: Iterable[Any]) -> Iterator[Any]:
        worker, time = payload.opened(), BatchTime.of_task(payload.stage)
        began = perf_counter()
        for records in blocks_of(fed_records(collected)):
            rows = Rows(payload, time, began)
            with errors_of_stage(payload.stage):
                rows.add_events(source, "", FED, records, worker)
            for number, chunk in rows.pairs():
                self._add_for(payload.stage, number, chunk)
            yield self.to_arrow()
            began = perf_counter()

    def wake(self) -> None:
        """Make Spark call the key ranges of the next stage that have something to do."""
        stage = self._stage.later[0]
        for number in BatchTime.of_task(stage).called:
            self.add(number, WAKE_UP)

    def _add_for(self, stage: str, number: int, chunk: bytes) -> None:
        if stage == self._stage.later[0]:
            self.add(number, chunk)
        else:
            self.add(*passing_row(stage, number, chunk))

    def to_arrow(self) -> Any:
        """Return the rows with the columns of the next stage, and forget them."""
        import pyarrow as pa

        rows, self._rows = self._rows, []
        numbers, chunks = ([row[place] for row in rows] for place in (0, 1))
        columns = [pa.array(numbers, pa.int32()), pa.array(chunks, pa.binary())]
        if not self._stage.later:
            return pa.record_batch(columns, ["range", "result"])
        columns.insert(1, pa.nulls(len(rows), pa.timestamp("us", tz="UTC")))
        return pa.record_batch(columns, ["range", "event_time", "chunk"])


def passing_row(stage: str, number: int, chunk: bytes) -> tuple[int, bytes]:
    """Return the range number and the chunk of a row that stages pass on.

    :param stage: the stage that the row is meant for
    :param number: the range number there
    """
    return _PASSING - abs(number), pack_compressed([stage, number, chunk])


end_with_spark()
