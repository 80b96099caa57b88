"""The third stage: writes a batch's outputs in Spark's workers, and passes rows on to later stages of the job."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import attrs

from amadou.errors import AmadouError
from amadou.plugins import SinkBatch, SinkWriter
from amadou.text import qualified
from amadou_runtime.jobs.ports import port_codec, sink_of
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.payload import Payload
from amadou_runtime.spark.reference_files import letters_in
from amadou_runtime.spark.rows import Call, done_row, packed, report_in, row_for
from amadou_runtime.spark.summary import Summary, error_fields
from amadou_runtime.spark.worker_end import end_with_spark


@attrs.frozen
class OutputStage:
    """Passes outputs to the sinks' writers, and merges the other results of a task into one row for the driver. Passes
    rows for later stages on.

    :param payload: the stage of the job
    :param run: see `SinkBatch`
    :param batches_before: see `CheckpointMetadata`
    :param following: the stage that Spark processes next; empty after the last stage
    """

    payload: Payload
    run: str
    batches_before: int
    following: str = ""

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        time, partition = BatchTime.of_task(self.payload.stage), context.partitionId()
        writing = _Writing(self, time.number, f"{partition:05}")
        try:
            self.payload.load()  # needed to unpack objects of the job's classes
            for file in time.letter_files if partition == 0 else ():
                writing.add(letters_in(file))
            for batch in batches:
                rows = []
                columns = (batch.column(name).to_pylist() for name in ("range", "result"))
                for number, content in zip(*columns, strict=True):
                    report = report_in(content)
                    if report is None:
                        rows.append(row_for(self.following, number, content))
                    else:
                        writing.add(Summary.unpack(report))
                if rows:
                    yield _to_arrow(rows, self.following)
            writing.finish()
        except AmadouError as error:
            writing.summary.error = error_fields(error)
        finally:
            writing.abort()
        rows = [done_row(writing.summary.pack())]
        if self.following and partition == 0:  # call the ranges of the next stage that have something to do
            rows += [(called, packed(Call())) for called in BatchTime.of_task(self.following).called]
        yield _to_arrow(rows, self.following)


class _Writing:
    """Writes the outputs of a task.

    :param number: the batch's number in Spark
    :param part: the name of the task's part of the batch
    """

    def __init__(self, stage: OutputStage, number: int, part: str) -> None:
        self.summary = Summary(stage=stage.payload.stage)
        self._stage = stage
        self._number = number + stage.batches_before
        self._part = part
        self._writers: dict[str, SinkWriter] = {}
        self._written: dict[str, int] = {}
        self._seconds = 0.0

    def add(self, results: Summary) -> None:
        """Merge results, and write their outputs."""
        outputs, results.outputs = results.outputs, {}
        self.summary.merge(results)
        if self.summary.error is not None:
            return
        began = perf_counter()
        for port, encoded_values in outputs.items():
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


def _to_arrow(rows: list[tuple[int, bytes]], following: str) -> Any:
    """Return rows with the columns of the next stage.

    :param following: the next stage; empty for the driver
    """
    import pyarrow as pa

    numbers, chunks = ([row[place] for row in rows] for place in (0, 1))
    columns = [pa.array(numbers, pa.int32()), pa.array(chunks, pa.binary())]
    if not following:
        return pa.record_batch(columns, ["range", "result"])
    columns.insert(1, pa.nulls(len(rows), pa.timestamp("us", tz="UTC")))
    return pa.record_batch(columns, ["range", "event_time", "chunk"])


end_with_spark()
