"""The third stage: writes a batch's outputs in Spark's workers."""

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import attrs

from amadou import SinkBatch, SinkWriter
from amadou.errors import AmadouError
from amadou_runtime.core.ports import port_codec, sink_of
from amadou_runtime.spark.clock import BatchTime
from amadou_runtime.spark.payload import Payload
from amadou_runtime.spark.summary import Summary, error_fields
from amadou_runtime.spark.worker_end import end_with_spark


@attrs.frozen
class OutputStage:
    """Passes outputs to the sinks' writers, and merges the other results of a task into one row for the driver.

    :param run: see `SinkBatch`
    :param batches_before: see `CheckpointMetadata`
    """

    payload: Payload
    run: str
    batches_before: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        number = BatchTime.of_task().number + self.batches_before
        part = f"{context.partitionId():05}"
        writers: dict[str, SinkWriter] = {}
        written: dict[str, int] = {}
        summary, writing = Summary(), 0.0
        try:
            self.payload.load()  # needed to unpack objects of the job's classes
            for batch in batches:
                for packed in batch.column("result").to_pylist():
                    row = Summary.unpack(packed)
                    summary.merge(row)
                    if summary.error is not None:
                        continue
                    began = perf_counter()
                    for port, encoded_values in row.outputs.items():
                        if port not in writers:
                            writers[port] = self._open(port, number, part)
                        writers[port].write(encoded_values)
                        written[port] = written.get(port, 0) + len(encoded_values)
                    writing += perf_counter() - began
            if summary.error is None:
                began = perf_counter()
                finished = {port: writer.finish() for port, writer in writers.items()}
                summary.parts = {port: [[part, message]] for port, message in finished.items() if message is not None}
                writers = {}
                summary.counts = attrs.evolve(summary.counts, outputs=written)
                summary.stage_seconds["writing"] = writing + perf_counter() - began
        except AmadouError as error:
            summary.error = error_fields(error)
        finally:
            for writer in writers.values():
                writer.abort()
        yield pa.record_batch([pa.array([summary.pack()], pa.binary())], names=["result"])

    def _open(self, port: str, number: int, part: str) -> SinkWriter:
        job = self.payload.load().job
        codec = port_codec(job, port)
        return sink_of(job, port).open(SinkBatch(self.run, job.name, port, number, codec, self.batches_before), part)


end_with_spark()
