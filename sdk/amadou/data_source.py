"""The base classes of streaming sources that Spark plans in Python, on each version of Spark. Needs pyspark.

Spark 4.0 and 4.1 ask a reader for the latest offset without the offset at which the last batch ended, and without a
limit. A `DataSource` of this module passes both to its reader, also on these versions::

    class OutboxStream(DataSource):
        def streamReader(self, schema):
            return OutboxPlanner()  # a DataSourceStreamReader with latestOffset(start, limit)
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from amadou._connectors.connector import Source
from amadou.spark_versions import check_has_all, plans_with_limits

check_has_all("a source in Python, such as KafkaSource,", "read with SparkSource, or use a newer Spark")

import pyspark.sql.datasource as _of_spark  # noqa: E402 - Spark 3.5 does not have it
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition  # noqa: E402

if plans_with_limits():
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
else:

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch may read."""

    @attrs.frozen
    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """A batch may read everything."""

    @attrs.frozen
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A batch may read a number of rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A reader that is informed if the run ends when all available input has been read."""


__all__ = [
    "DataSource",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]

# Spark defines the method names.
# ruff: noqa: N802


class DataSource(_of_spark.DataSource):
    """The base class of data sources whose readers define ``latestOffset(start, limit)``."""

    if not plans_with_limits():

        def __init_subclass__(cls) -> None:
            made = cls.__dict__.get("streamReader")
            if made is not None:
                cls.streamReader = lambda self, schema: _StartingReader(made(self, schema), self.options)  # type: ignore[method-assign]


class _StartingReader(DataSourceStreamReader):
    """Passes the start and the limit of a batch to a reader, on Spark 4.0 and 4.1. With the available-now trigger,
    these versions only plan one batch. It gets all available input, without a limit.

    :param reader: the reader
    :param options: the options of the data source
    """

    def __init__(self, reader: Any, options: Mapping[str, str]) -> None:
        self._reader = reader
        start = options.get(Source.START_OPTION)
        self._last = None if start is None else json.loads(start)
        self._ends = options.get(Source.ENDS_OPTION) == "True"

    def initialOffset(self) -> Any:
        return self._reader.initialOffset()

    def latestOffset(self) -> Any:  # type: ignore[override]
        start = self.initialOffset() if self._last is None else self._last
        if self._ends:
            self._last = self._all_available(start)
        else:
            default = getattr(self._reader, "getDefaultReadLimit", ReadAllAvailable)
            self._last = self._reader.latestOffset(start, default())
        return self._last

    def _all_available(self, start: Any) -> Any:
        self._reader.prepareForTriggerAvailableNow()
        while (end := self._reader.latestOffset(start, ReadAllAvailable())) != start:
            start = end
        return start

    def partitions(self, start: Any, end: Any) -> Sequence[InputPartition]:
        return self._reader.partitions(start, end)  # type: ignore[no-any-return]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._reader.read(partition)  # type: ignore[no-any-return]

    def commit(self, end: Any) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()
