"""Spark data source behind `KafkaSource`: provides the offset ranges of a batch. The records themselves do not pass
through Spark. Spark plans the batches in a separate Python process on the driver's machine.
"""

import json
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from amadou.data_source import (
    DataSource,
    DataSourceStreamReader,
    InputPartition,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from amadou_plugins.connectors.kafka.offsets import LATEST, Offsets, furthest_behind, limited, shares
from amadou_plugins.connectors.kafka.planned_offsets import Planned

if TYPE_CHECKING:
    from amadou_plugins.connectors.kafka.kafka_source import KafkaSource

# Spark defines the method names.
# ruff: noqa: N802

_COLUMNS = "record struct<topic string, partition int, start bigint, end bigint>, partition string, position bigint"


def kafka_stream(source: "KafkaSource", spark: Any, reader: Any, name: str) -> Any:
    """Return a streaming DataFrame of a source's offset ranges; see `Source.read_stream`."""
    cores = spark.sparkContext.defaultParallelism

    class KafkaRanges(DataSource):  # one class per source: Spark would show a password that is passed as an option
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
    """Let this process end silently when it writes to a connection that Spark has closed; otherwise, pyspark would
    print a traceback. Other connections are not affected: librdkafka's threads block the signal SIGPIPE.
    """
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


class _RangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans offset ranges, and returns them as rows. The offsets that Spark stores are `Planned` objects as JSON.

    :param newest: path of the file with the newest event time of each partition; see `Source.read_stream`
    """

    def __init__(self, source: "KafkaSource", cores: int, newest: str | None) -> None:
        self._source = source
        self._cores = cores
        self._newest = newest
        self._end: dict[tuple[str, int], int] | None = None
        self._has_looked = False  # `True` once this process has checked the ids of the topics

    def __reduce__(self) -> Any:
        return type(self), (self._source, self._cores, self._newest)  # without the connection

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
        if not self._has_looked:  # after a restart, Spark first repeats the last planned batch, whose plan can be old
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
        """Return the known ids of topics, updated with the current ids.

        :param known: ids of topics that were read earlier
        :raises SourceError: the id of a topic has changed, because the topic was re-created
        """
        self._has_looked = True
        return known | self._offsets.ids({topic for topic, _ in offsets}, known)
