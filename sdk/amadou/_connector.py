from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import attrs

from amadou._codec import Codec, codec_for


@attrs.frozen
class PartitionOffset:
    """The end of a batch's read in one partition of a source.

    :param read: the position after the last record that the batch reads, as a number that grows with each record
    :param end: the position after the last record that existed when the batch was planned
    :param back: the clock time since which the source can be reached again after an outage; the partition does not
        count as idle before
    """

    read: int
    end: int
    back: datetime | None = None

    @property
    def lag(self) -> int:
        """The number of records left to read."""
        return self.end - self.read


class Source:
    """The base class of sources, which read the records of a job.

    A source has two halves: the embedded engine reads `records`, Spark reads `read_stream`. Both must return the same
    records in the same order.

    A source may have several **partitions**, such as those of a Kafka topic: they are read in parallel, each in its own
    order. The watermark of a source is that of its partition furthest behind (`semantics.md` 2, 22). A source with
    partitions defines `records_by_partition` for the embedded engine, and `partition_of` and `partition_offsets` for
    Spark. Without them the whole source is one partition, named ``""``.
    """

    NEWEST_OPTION: ClassVar[str] = "amadou.newest"
    """An option of the reader that `read_stream` gets."""

    key_event: Callable[[Any], Any] | None = None
    """Turns this source's records into events; if it is `None`, the handler's `key_event` does."""

    @property
    def bounded(self) -> bool:
        """`True` if the source has an end. A run ends by itself when all of its sources have ended."""
        return True

    def check(self) -> None:
        """Check before a run starts that the source can be read.

        :raises SourceError: the source cannot be read; its message says what to do
        """

    def records(self) -> Iterable[Any]:
        """Return all records that exist now, in their order."""
        raise NotImplementedError

    def records_by_partition(self) -> Iterable[tuple[str, Iterable[Any]]]:
        """Return the records of `records` in stretches of one partition each, with the partition's name."""
        return [("", self.records())]

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        """Return the source as a streaming DataFrame.

        :param spark: the `SparkSession`
        :param reader: the `DataStreamReader` to use; it carries the name by which Spark knows the source. For a source
            that defines `partition_offsets`, its option `NEWEST_OPTION` is the path of a local file. After each batch
            the file has the newest event time of each partition, as a JSON object of microseconds since 1970 by name.
            The stream's planner may use it to read the partition furthest behind first
        :param name: the source's name in the job
        :param checkpoint: the run's checkpoint directory
        :returns: a frame with the columns `record` (the input of `to_records`), `partition` (a string) and `position`
            (a long). Rows of one task with equal (`partition`, `position`) must come in order; across tasks, rows are
            sorted by (`partition`, `position`). `position` need not be unique.
        """
        raise NotImplementedError

    partition_of: Callable[[str], str] | None = None
    """Returns the name of the partition that rows belong to, from the rows' column `partition`. Called on the workers.
    Without it the source is one partition."""

    def partition_offsets(self, offset: Any, log: str) -> Mapping[str, PartitionOffset] | None:
        """Return the end of a batch's read in each existing partition. Called in the driver when the batch begins.

        A partition with records left to read holds the watermark back, however long it is silent.

        :param offset: the stream's offset at the end of the batch, from the JSON that Spark stores
        :param log: the directory of the checkpoint where Spark's own sources record their reads
        :returns: the offsets by partition; `None` if the source does not know them
        """
        return None

    to_records: Callable[[Any], Iterable[Any]] | None = None
    """Turns consecutive cells of the column `record` into records, if they are not records already: a cell may hold
    many, such as a part of a file. Takes a `pyarrow.Array`; called on the workers."""

    decode: Callable[[Any], Any] | None = None
    """Decodes each record for `key_event`, if that takes something else than the record. If decoding fails, the record
    counts as one that cannot be keyed; dead letters contain the original record. Records of `TestRun.add_record` are
    decoded, too."""


@attrs.frozen
class SinkBatch:
    """The identity of a batch for a sink.

    :param run: an identifier of the checkpoint: the same after a restart, different for a new checkpoint
    :param job: the job's name
    :param port: the port's name
    :param number: the batch's number; a batch that is processed again has the same one
    :param codec: the port's codec
    """

    run: str
    job: str
    port: str
    number: int
    codec: Codec[Any]


class SinkWriter:
    """Writes the values of one part of a batch, in the worker that emits them."""

    def write(self, encoded_values: Sequence[Any]) -> None:
        """Write values in their order, encoded by the sink's codec."""
        raise NotImplementedError

    def finish(self) -> Any:
        """Finish the part. Nothing of it may be visible yet.

        :returns: the data that `Sink.commit` needs for this part, as msgpack carries it; `None` if nothing was written
        """
        raise NotImplementedError

    def abort(self) -> None:
        """Undo the part because the batch failed."""


class Sink:
    """The base class of sinks, which write the values of a port.

    Writers in the workers write a batch in parts; then the batch is committed in one place. A batch whose commit did
    not finish is processed again with the same number. The second `commit` must then leave what a single one leaves:
    this makes a sink exactly-once. A port may have several sinks: where two of them share a place, such as a database,
    each must distinguish its own batches, for instance by the table.
    """

    guarantee: str = "at-least-once"
    """`exactly-once` or `at-least-once`; shown by `amadou describe`."""

    def codec(self, type_: Any) -> Codec[Any]:
        """Return the codec for the values of a port of this sink. A sink that writes text may encode to text here."""
        return codec_for(type_)

    def check(self, port: str, type_: Any) -> None:
        """Check before a run starts that the values of a port can be written.

        :param port: the port's name
        :param type_: the port's type
        :raises SinkError: the values cannot be written; its message says what to do
        """

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        """Return a writer for one part of a batch. Called in a worker; a part may be tried more than once.

        :param part: the name of the part within its batch, the same in each replay
        """
        raise NotImplementedError

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        """Make a batch visible: all of its parts at once, as far as the target system allows it.

        Called in one place, in the order of batches, also for a batch without parts.

        :param parts: results of the writers' `finish`, by part
        """
        raise NotImplementedError


class BufferingWriter(SinkWriter):
    """A writer that passes the values themselves to `commit`, for sinks that live in the driver."""

    def __init__(self) -> None:
        self._encoded_values: list[Any] = []

    def write(self, encoded_values: Sequence[Any]) -> None:
        self._encoded_values.extend(encoded_values)

    def finish(self) -> Any:
        return self._encoded_values or None
