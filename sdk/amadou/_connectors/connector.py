from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import attrs

from amadou._connectors.codec import Codec, codec_for
from amadou.errors import SourceError

_CANNOT_CONTINUE = (
    "{kind} cannot continue from a savepoint of the other engine or on the embedded engine: continue on the engine of "
    "the savepoint, or define {kind}.{method}"
)


@attrs.frozen
class PartitionOffset:
    """A batch's end offset in one partition of a source.

    :param read: the position after the last record that the batch reads: an increasing number, such as a Kafka offset
        or a number of files
    :param end: the position after the last record that existed when the batch was planned
    :param back: the clock time at which the source became reachable again after an outage, or `None` without an outage;
        the partition's idle timeout does not start before this time
    """

    read: int
    end: int
    back: datetime | None = None

    @property
    def lag(self) -> int:
        """The number of unread records; the number of unread files if the positions count files."""
        return self.end - self.read


class Source:
    """The base class of sources, which deliver the records that a job processes.

    A source has two implementations: the embedded engine calls `records`, and Spark calls `read_stream`. Both methods
    must deliver the same records in the same order.

    A source may have multiple **partitions**, such as the partitions of a Kafka topic. Partitions are read in parallel,
    and each partition is read in order. The watermark of a source is the watermark of the partition that is furthest
    behind (`semantics.md` 2, 22). A source with partitions defines `records_by_partition` for the embedded engine, and
    `partition_of` and `partition_offsets` for Spark. If a source does not define these methods, the entire source is
    one partition, named ``""``.
    """

    NEWEST_OPTION: ClassVar[str] = "amadou.newest"
    """Name of the reader option that contains the path of the file with the newest event times; see `read_stream`."""
    START_OPTION: ClassVar[str] = "amadou.start"
    ENDS_OPTION: ClassVar[str] = "amadou.ends"
    """Names of reader options for `amadou.data_source` on Spark 4.0 and 4.1."""

    key_event: Callable[[Any], Any] | None = None
    """Function that turns this source's records into events; `None` to use the handler's `key_event`."""

    @property
    def bounded(self) -> bool:
        """`True` if the source's input ends. By default, a run ends when all of its sources' input has ended."""
        return True

    def check(self) -> None:
        """Check that the source can be read. amadou calls this method before a run starts.

        :raises SourceError: the source cannot be read; the error's message says what to do
        """

    def records(self) -> Iterable[Any]:
        """Return all records that currently exist, in reading order."""
        raise NotImplementedError

    def records_by_partition(self) -> Iterable[tuple[str, Iterable[Any]]]:
        """Return the same records as `records`, as pairs of a partition's name and consecutive records of this
        partition. A partition may appear more than once.
        """
        return [("", self.records())]

    def read_from(self, position: Any) -> tuple[Iterable[tuple[str, Iterable[Any]]], Any]:
        """Return the records after a position, as `records_by_partition` returns them, and the position after these
        records. The embedded engine calls this method instead of `records_by_partition` if a run starts from a
        savepoint, or ends with one.

        :param position: the position at which to continue, in the form in which this method returned it, for example
            a list of the files that have been read; `None` for the beginning. Positions consist of types that JSON
            supports
        :returns: the records, and the position; `None` as the position if the source does not know it: no run can then
            continue after these records
        :raises SourceError: the source cannot continue at the position
        """
        if position is not None:
            raise SourceError(_CANNOT_CONTINUE.format(kind=type(self).__name__, method="read_from"))
        return self.records_by_partition(), None

    def position_at(self, offset: Any, files: Mapping[str, str]) -> Any:
        """Return the position that corresponds to an offset on Spark; see `read_from`. Called if the embedded engine
        continues from a savepoint of a run on Spark.

        :param offset: the offset, parsed from the JSON that Spark stores
        :param files: the files that Spark's built-in sources keep in the checkpoint for this source, by name
        :raises SourceError: the source cannot convert offsets
        """
        raise SourceError(_CANNOT_CONTINUE.format(kind=type(self).__name__, method="position_at"))

    def offset_at(self, position: Any) -> tuple[Any, Mapping[str, str]]:
        """Return the offset on Spark that corresponds to a position, and the files by name; see `position_at`.

        :raises SourceError: the source cannot convert positions
        """
        raise SourceError(_CANNOT_CONTINUE.format(kind=type(self).__name__, method="offset_at"))

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        """Return the source as a streaming DataFrame.

        :param spark: the `SparkSession`
        :param reader: the `DataStreamReader` to use; the source's name in Spark is already set. For a source that
            defines `partition_offsets`, the reader's option `NEWEST_OPTION` is the path of a local file. After each
            batch, the file contains the newest event time of each partition: a JSON object that maps the partition's
            name to microseconds since 1970. With this file, the stream can read the partition that is furthest behind
            first
        :param name: the source's name in the job
        :param checkpoint: the run's checkpoint directory
        :returns: a DataFrame with the columns `record` (the input of `to_records`), `partition` (a string) and
            `position` (a long). Within a task, rows with equal (`partition`, `position`) must be in reading order.
            amadou sorts rows from different tasks by (`partition`, `position`). `position` need not be unique
        """
        raise NotImplementedError

    partition_of: Callable[[str], str] | None = None
    """Function that converts a value of the column `partition` into the partition's name; `None` if the source is a
    single partition. Called on the workers."""

    def partition_offsets(self, offset: Any, log: str) -> Mapping[str, PartitionOffset] | None:
        """Return the batch's end offset in each existing partition. Called on the driver when the batch begins.

        A partition with unread records holds the watermark back, even if it delivers no records for a long time.

        :param offset: the end offset of the batch in the stream, parsed from the JSON that Spark stores
        :param log: the checkpoint's subdirectory in which Spark's built-in sources store their metadata
        :returns: the offsets by partition; `None` if the source cannot determine them
        """
        return None

    to_records: Callable[[Any], Iterable[Any]] | None = None
    """Function that converts consecutive cells of the column `record`, passed as a `pyarrow.Array`, into records.
    Called on the workers. Required if a cell can contain more than one record, such as a section of a file."""

    decode: Callable[[Any], Any] | None = None
    """Function that decodes each record before `key_event` is called. Required if `key_event` expects something other
    than the raw record. A decoding error counts as a failure of `key_event`; the dead letter contains the raw record.
    Records from `TestRun.add_record` are decoded as well."""


@attrs.frozen
class SinkBatch:
    """Identifies a batch for a sink.

    :param run: an identifier of the checkpoint: the same after a restart, different for a new checkpoint
    :param job: the job's name
    :param port: the port's name
    :param number: the batch's number; the same when a batch is reprocessed
    :param codec: the codec of the values: the port's codec or, if the port has none, the sink's codec
    :param batches_before: number of batches before the checkpoint was last rescaled or converted. A reprocessed batch
        has the same parts, with the same names and values, only as long as this number stays the same
    """

    run: str
    job: str
    port: str
    number: int
    codec: Codec[Any]
    batches_before: int = 0


class SinkWriter:
    """Writes the values of one part of a batch on a worker."""

    def write(self, encoded_values: Sequence[Any]) -> None:
        """Write values that `SinkBatch.codec` has encoded, in the given order."""
        raise NotImplementedError

    def finish(self) -> Any:
        """Finish the part. The part's values must not become visible before `Sink.commit`.

        :returns: the data that `Sink.commit` needs for this part, of types that msgpack supports; `None` if nothing was
            written
        """
        raise NotImplementedError

    def abort(self) -> None:
        """Discard the part. Called if the task that writes the part fails."""


class Sink:
    """The base class of sinks, which write the values of a port.

    Writers on the workers write a batch in parts. Then the driver commits the batch. A batch whose commit did not
    finish is reprocessed with the same number. To be exactly-once, a sink must have an idempotent `commit`: two commits
    of a batch must have the same result as one commit. A port can have multiple sinks. Sinks of a port that write to
    the same system, such as a database, must distinguish their batches, for example by table.
    """

    guarantee: str = "at-least-once"
    """`exactly-once` or `at-least-once`; shown by `amadou describe`."""

    def codec(self, type_: Any) -> Codec[Any]:
        """Return the codec for the values of a port. A sink that writes text may return a codec that encodes values as
        strings.
        """
        return codec_for(type_)

    def check(self, port: str, type_: Any) -> None:
        """Check that the values of a port can be written. amadou calls this method before a run starts.

        :param port: the port's name
        :param type_: the port's type
        :raises SinkError: the values cannot be written; the error's message says what to do
        """

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        """Return a writer for one part of a batch. Called on a worker, and possibly more than once for the same part.

        :param part: the part's name within the batch; the same when the batch is reprocessed
        """
        raise NotImplementedError

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        """Make a batch visible: all parts atomically, as far as the target system supports this.

        Called on the driver, in batch order, even for a batch without parts.

        :param parts: the results of the writers' `finish`, in the order of the parts' names
        """
        raise NotImplementedError


class BufferingWriter(SinkWriter):
    """A writer that passes the encoded values to `Sink.commit`, for sinks that write on the driver."""

    def __init__(self) -> None:
        self._encoded_values: list[Any] = []

    def write(self, encoded_values: Sequence[Any]) -> None:
        self._encoded_values.extend(encoded_values)

    def finish(self) -> Any:
        return self._encoded_values or None
