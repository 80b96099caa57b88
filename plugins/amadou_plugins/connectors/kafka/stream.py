"""Spark's view of the Kafka source: the ranges of offsets of a batch. The records themselves do not pass through Spark.

Spark requests offsets in a process of its own, beside the driver.
"""

import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from amadou_plugins.connectors.kafka.offsets import LATEST, Offsets, furthest_behind, limited, shares
from amadou_plugins.connectors.kafka.planned_offsets import Planned

if TYPE_CHECKING:
    from amadou_plugins.connectors.kafka.kafka_source import KafkaSource

# The names of methods are Spark's.
# ruff: noqa: N802

_COLUMNS = "record struct<topic string, partition int, start bigint, end bigint>, partition string, position bigint"


def kafka_stream(source: "KafkaSource", spark: Any, reader: Any, name: str) -> Any:
    """Return the ranges of a source as a streaming DataFrame; see `Source.read_stream`."""
    cores = spark.sparkContext.defaultParallelism

    class KafkaRanges(DataSource):  # a class for each source: Spark's options would show the password
        @classmethod
        def name(cls) -> str:
            return f"amadou_kafka_{name}"

        def schema(self) -> str:
            return _COLUMNS

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            _end_like_a_filter()

        def streamReader(self, schema: Any) -> DataSourceStreamReader:
            _end_like_a_filter()
            return _RangeReader(source, cores, self.options.get(source.NEWEST_OPTION))

    spark.dataSource.register(KafkaRanges)
    return reader.format(KafkaRanges.name()).load()


def _end_like_a_filter() -> None:
    """Let this process, which only answers Spark's requests, end silently when it writes to a connection that Spark has
    closed: pyspark would write a traceback to the console. librdkafka's threads block the signal.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


class _RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads ranges; its offsets are those of `Planned`.

    :param newest: the file with the newest event time of each partition; see `Source.read_stream`
    """

    def __init__(self, source: "KafkaSource", cores: int, newest: str | None) -> None:
        self._source = source
        self._cores = cores
        self._newest = newest
        self._end: dict[tuple[str, int], int] | None = None
        self._has_looked = False  # at the topics, in this process

    def __reduce__(self) -> Any:
        return type(self), (self._source, self._cores, self._newest)  # its connection stays where it is

    @cached_property
    def _offsets(self) -> Offsets:
        return self._source.offsets()

    def initialOffset(self) -> dict[str, Any]:
        partitions = self._offsets.partitions()
        offsets = self._offsets.at(self._source.start, partitions)  # type: ignore[arg-type]
        return Planned(offsets, fresh=set(offsets), ids=self._ids(offsets, {})).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._source.max_records_per_batch
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)  # type: ignore[arg-type]

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        before = Planned.of_json(start)
        ends = self._ends() if self._end is None else self._end
        ids = self._ids(before.read | ends, before.ids)
        ranges = self._offsets.ranges(before.read, ends)
        chosen = ranges
        if isinstance(limit, ReadMaxRows):
            chosen = limited(furthest_behind(ranges, self._newest_times()), limit.max_rows)
        return before.then(ranges, chosen, ends, ids, self._offsets.back).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._end = self._ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        before, planned = Planned.of_json(start), Planned.of_json(end)
        if not self._has_looked:  # Spark begins with the batch that it planned last, however long ago
            self._ids(planned.read, planned.ids)
        return [InputPartition(part) for part in shares(self._offsets.ranges(before.read, planned.read), self._cores)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return ((tuple(each), each.name, each.start) for each in partition.value)

    def _ends(self) -> dict[tuple[str, int], int]:
        return self._offsets.at(LATEST, self._offsets.partitions())

    def _newest_times(self) -> dict[str, int]:
        if self._newest is None or not os.path.exists(self._newest):  # no batch has completed yet
            return {}
        with open(self._newest, encoding="utf-8") as file:
            times: dict[str, int] = json.load(file)
        return times

    def _ids(self, offsets: Iterable[tuple[str, int]], known: dict[str, str]) -> dict[str, str]:
        """Return the ids of topics, as far as they are known.

        :param known: earlier ids of the topics
        :raises SourceError: a topic has another id now
        """
        self._has_looked = True
        return known | self._offsets.ids({topic for topic, _ in offsets}, known)
