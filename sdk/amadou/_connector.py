from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import attrs

from amadou._codec import Codec, codec_for


@attrs.frozen
class PartitionOffset:
    """How far a batch reads a partition of a source.

    :param read: the position after the last record that the batch reads, as a number that grows with each record
    :param end: the same of the last record that was there when the batch was planned
    :param back: since when the source can be reached again, by the clock, where it could not be for a while: the
        partition was not silent before
    """

    read: int
    end: int
    back: datetime | None = None

    @property
    def lag(self) -> int:
        """How many records are left to read."""
        return self.end - self.read


class Source:
    """The base class of sources: where records come from.

    A source has two halves. `records` serves the embedded engine, `read_stream` serves Spark; both must give the same
    records in the same order.

    A source may have several **partitions**: parts that are read side by side, each in its own order, such as those of
    a Kafka topic. The watermark of a source is that of its partition furthest behind (`semantics.md` 2, 22). A source
    with partitions defines `records_by_partition` for the embedded engine, and `partition_of` and `partition_offsets`
    for Spark. Without them the whole source is one partition, named ``""``.
    """

    NEWEST_OPTION: ClassVar[str] = "amadou.newest"
    """An option of the reader that `read_stream` gets."""

    key_event: Callable[[Any], Any] | None = None
    """Turns this source's records into events; the handler's own `key_event` does where it is `None`."""

    @property
    def bounded(self) -> bool:
        """Whether the source ends. A run ends by itself when all of its sources do."""
        return True

    def check(self) -> None:
        """Look before a run starts whether the source can be read.

        :raises SourceError: it cannot, with what to do about it
        """

    def records(self) -> Iterable[Any]:
        """All records that there are now, in their order."""
        raise NotImplementedError

    def records_by_partition(self) -> Iterable[tuple[str, Iterable[Any]]]:
        """The records of `records`, each stretch of them with the name of its partition."""
        return [("", self.records())]

    def read_stream(self, spark: Any, reader: Any, name: str, checkpoint: str) -> Any:
        """The source as a streaming DataFrame.

        :param spark: the `SparkSession`
        :param reader: the `DataStreamReader` to make it with: Spark knows the source by its name. For a source that
            defines `partition_offsets`, its option `NEWEST_OPTION` is the path of a local file that has the newest
            event time of each partition after each batch, as a JSON object of microseconds since 1970 by name: the
            stream's planner may read the partition first that is furthest behind
        :param name: the source's name in the job
        :param checkpoint: the run's checkpoint directory
        :returns: a frame with the columns `record` (what `to_records` takes), `partition` (a string) and `position` (a
            long). Rows of one task are taken to come in order within equal (`partition`, `position`), and those
            are put in order across tasks: `position` need not be unique.
        """
        raise NotImplementedError

    partition_of: Callable[[str], str] | None = None
    """Names the partition that rows belong to, by the rows' column `partition`. Called on the workers. Without it the
    source is one partition."""

    def partition_offsets(self, offset: Any, log: str) -> Mapping[str, PartitionOffset] | None:
        """How far a batch reads each partition that there is. Called in the driver when the batch begins.

        A partition with something left to read holds the watermark back, however long it is silent.

        :param offset: what Spark keeps as the stream's offset at the end of the batch, from its JSON
        :param log: the directory of the checkpoint where Spark's own sources write down what they have read
        :returns: by partition; `None` where the source does not know
        """
        return None

    to_records: Callable[[Any], Iterable[Any]] | None = None
    """Turns cells of the column `record`, which follow each other, into records, where they are no records already: a
    cell may stand for many, such as a part of a file. Takes a `pyarrow.Array`; called on the workers."""

    decode: Callable[[Any], Any] | None = None
    """Turns each record into what `key_event` takes, where that is something else. Where it fails, the record is taken
    for one that cannot be keyed; dead letters have the record itself. What `TestRun.add_record` brings goes through it,
    too."""


@attrs.frozen
class SinkBatch:
    """Which batch of which run goes into a sink.

    :param run: names the life of a checkpoint: the same after a restart, another for a new checkpoint
    :param job: the job's name
    :param port: the port's name
    :param number: the batch's number; a batch that is played again has the same one
    :param codec: the port's codec
    """

    run: str
    job: str
    port: str
    number: int
    codec: Codec[Any]


class SinkWriter:
    """Takes the values of one part of a batch, where they come into being: in a worker."""

    def write(self, encoded_values: Sequence[Any]) -> None:
        """Take values, as the sink's codec encoded them, in their order."""
        raise NotImplementedError

    def finish(self) -> Any:
        """End the part: nothing of it may be visible yet.

        :returns: what `Sink.commit` needs to know of it, in terms of msgpack; `None` where nothing was written
        """
        raise NotImplementedError

    def abort(self) -> None:
        """Undo the part: the batch failed."""


class Sink:
    """The base class of sinks: where the values of a port go.

    A batch is written in parts, by writers in the workers, and then committed in one place. A batch whose commit did
    not come to an end is played again with the same number: `commit` must then leave what one commit leaves, which is
    what makes a sink exactly-once. A port may lead to several sinks: where two of them share a place, such as a
    database, each has to tell its own batches apart, by the table for instance.
    """

    guarantee: str = "at-least-once"
    """`exactly-once` or `at-least-once`; shown by `amadou describe`."""

    def codec(self, type_: Any) -> Codec[Any]:
        """The codec for the values of a port that leads here. A sink that writes text may encode to it at once."""
        return codec_for(type_)

    def check(self, port: str, type_: Any) -> None:
        """Look before a run starts whether the values of a port can be written.

        :param port: the port's name
        :param type_: the port's type
        :raises SinkError: it cannot, with what to do about it
        """

    def open(self, batch: SinkBatch, part: str) -> SinkWriter:
        """A writer for one part of a batch. Called in a worker; a part may be tried more than once.

        :param part: names the part among the others of its batch, the same in each replay
        """
        raise NotImplementedError

    def commit(self, batch: SinkBatch, parts: Sequence[Any]) -> None:
        """Make a batch visible, all of its parts at once as far as the system behind allows it.

        Called in one place, in the order of batches, also for a batch without parts.

        :param parts: what the writers' `finish` gave, by part
        """
        raise NotImplementedError


class BufferingWriter(SinkWriter):
    """A writer that hands the values themselves to `commit`: for sinks that live in the driver."""

    def __init__(self) -> None:
        self._wires: list[Any] = []

    def write(self, encoded_values: Sequence[Any]) -> None:
        self._wires.extend(encoded_values)

    def finish(self) -> Any:
        return self._wires or None
