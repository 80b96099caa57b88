"""The source of Kafka's records as Spark sees it: which ranges of offsets a batch has. The records themselves do not
pass through Spark.

Spark asks for offsets in a process of its own, beside the driver.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from amadou_plugins.connectors._kafka_offsets import LATEST, Offsets, limited, shares

if TYPE_CHECKING:
    from amadou_plugins.connectors._kafka_source import KafkaSource

# The names of methods are Spark's.
# ruff: noqa: N802

_ID = "id"
_COLUMNS = "record struct<topic string, partition int, start bigint, end bigint>, partition string, position bigint"


def kafka_stream(source: "KafkaSource", spark: Any, reader: Any, name: str) -> Any:
    """The ranges of a source as a streaming DataFrame; see `Source.read_stream`."""
    cores = spark.sparkContext.defaultParallelism

    class KafkaRanges(DataSource):  # a class for each source: Spark's options would show the password
        @classmethod
        def name(cls) -> str:
            return f"amadou_kafka_{name}"

        def schema(self) -> str:
            return _COLUMNS

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            return _RangeReader(source, cores)

    spark.dataSource.register(KafkaRanges)
    return reader.format(KafkaRanges.name()).load()


class _RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{topic: {partition: offset, "id": the topic's}}``."""

    def __init__(self, source: "KafkaSource", cores: int) -> None:
        self._source = source
        self._cores = cores
        self._end: dict[tuple[str, int], int] | None = None
        self._has_looked = False  # at the topics, in this process

    def __reduce__(self) -> Any:
        return type(self), (self._source, self._cores)  # its connection stays where it is

    @cached_property
    def _offsets(self) -> Offsets:
        return self._source.offsets()

    def initialOffset(self) -> dict[str, Any]:
        partitions = self._offsets.partitions()
        offsets = self._offsets.at(self._source.start, partitions)  # type: ignore[arg-type]
        return _nested(offsets, self._ids(offsets, {}))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._source.max_records_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)  # type: ignore[arg-type]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        starts = _flat(start)
        ends = self._ends() if self._end is None else self._end
        ids = self._ids(starts | ends, start)
        ranges = self._offsets.ranges(starts, ends)
        if isinstance(limit, ReadMaxRows):
            ranges = limited(ranges, limit.max_rows)
        return _nested(starts | {(each.topic, each.partition): each.end for each in ranges}, ids)

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = self._ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        ends = _flat(end)
        if not self._has_looked:  # Spark begins with the batch that it planned last, however long ago
            self._ids(ends, end)
        return [InputPartition(part) for part in shares(self._offsets.ranges(_flat(start), ends), self._cores)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return ((tuple(each), f"{each.topic}-{each.partition}", each.start) for each in partition.value)

    def _ends(self) -> dict[tuple[str, int], int]:
        return self._offsets.at(LATEST, self._offsets.partitions())

    def _ids(self, offsets: Iterable[tuple[str, int]], kept: dict[str, Any]) -> dict[str, str]:
        """The ids of topics, as far as they are known.

        :param kept: offsets as Spark keeps them
        :raises SourceError: a topic has another id by now
        """
        self._has_looked = True
        known = {topic: of[_ID] for topic, of in kept.items() if _ID in of}
        return known | self._offsets.ids({topic for topic, _ in offsets}, known)


def _nested(offsets: dict[tuple[str, int], int], ids: dict[str, str]) -> dict[str, Any]:
    nested: dict[str, dict[str, Any]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {_ID: ids[topic]} if topic in ids else {})[str(partition)] = offset
    return nested


def _flat(offsets: dict[str, dict[str, Any]]) -> dict[tuple[str, int], int]:
    return {(topic, int(name)): value for topic, of in offsets.items() for name, value in of.items() if name != _ID}
