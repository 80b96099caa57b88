"""Spark data source behind `GeneratorSource`: plans ranges of record numbers as the records become due. Spark runs the
planning in a separate process. The tasks that turn records into events also generate the records in each range.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from amadou.data_source import DataSource, DataSourceStreamReader, InputPartition, SupportsTriggerAvailableNow

# Spark defines the method names.
# ruff: noqa: N802

_SMALLEST_PART = 1000
"""Maximum number of records in a batch that has only one task."""


class GeneratorStream(DataSource):
    """A streaming data source for Spark. Options: `parts` (maximum number of tasks per batch); optionally, `rate`
    (records per second) and `count` (total number of records).
    """

    @classmethod
    def name(cls) -> str:
        return "amadou_generator"

    def schema(self) -> str:
        return "start long, end long"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        rate, count = self.options.get("rate"), self.options.get("count")
        return _Reader(
            None if rate is None else float(rate), None if count is None else int(count), int(self.options["parts"])
        )


class _Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, rate: float | None, count: int | None, parts: int) -> None:
        self._rate = rate
        self._count = count
        self._parts = parts
        self._began: tuple[int, float] | None = None
        self._awaited: int | None = None
        """Record number at which a run with the available-now trigger ends; `None` with any other trigger."""

    def initialOffset(self) -> dict[str, int]:
        return {"records": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        if self._count is None:
            raise ValueError("a GeneratorSource without a count never ends: set count, or use a different trigger")
        self._awaited = self._count

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        first = start["records"]
        end = self._due(first)
        while self._awaited is not None and end == first < self._awaited:
            # With the available-now trigger, Spark ends the run as soon as there are no new records.
            assert self._rate is not None
            time.sleep(min(1 / self._rate, 0.1))
            end = self._due(first)
        return {"records": end}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        first, last = start["records"], end["records"]
        parts = min(self._parts, -(-(last - first) // _SMALLEST_PART))
        bounds = [first + (last - first) * part // parts for part in range(parts)] + [last]
        return [InputPartition(bounds[part : part + 2]) for part in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, ...]]:
        return iter([tuple(partition.value)])

    def _due(self, start: int) -> int:
        """Return the number of the first record that is not due yet: at most the source's `count`, and at least
        `start`.

        :param start: number of the first unread record
        """
        if self._began is None:
            self._began = start, time.monotonic()
        first, began = self._began
        due = None if self._rate is None else first + int((time.monotonic() - began) * self._rate)
        # The count may be lower than in an earlier run, and then `start` is greater.
        return max(start, min(limit for limit in (due, self._count) if limit is not None))
