"""A streaming source that adds a row for each key range when a `WakeUp` is due; see `timeouts`.

Spark plans a batch when a source has a new offset. To find new data, Spark calls this source in a separate Python
process and asks for the latest offset.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from amadou.data_source import DataSource, DataSourceStreamReader, InputPartition, SupportsTriggerAvailableNow
from amadou.engine import clock_time
from amadou_runtime.spark.rows import KEYED, Call, packed
from amadou_runtime.spark.spread import range_numbers
from amadou_runtime.spark.timeouts import WakeUp
from amadou_runtime.spark.worker_end import end_like_a_filter

# Spark prescribes the method names.
# ruff: noqa: N802


class WakeSource(DataSource):
    """Source with two options: `path`, the file of the next `WakeUp`, and `ranges`, the number of key ranges."""

    @classmethod
    def name(cls) -> str:
        return "amadou_wake"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        end_like_a_filter()

    def schema(self) -> str:
        return KEYED

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        end_like_a_filter()
        return _WakeReader(Path(self.options["path"]), int(self.options["ranges"]))


class _WakeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, path: Path, ranges: int) -> None:
        self._path = path
        self._ranges = ranges

    def initialOffset(self) -> dict[str, int]:
        return {"batch": -1}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        wake_up = WakeUp.read(self._path)
        if wake_up is None or wake_up.batch <= start["batch"] or wake_up.at > clock_time():
            return start
        return {"batch": wake_up.batch}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(None)] if start != end else []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        return iter([(number, None, packed(Call())) for number in range_numbers(self._ranges)])

    def prepareForTriggerAvailableNow(self) -> None:
        """Do nothing: a wake-up that becomes due during the run is part of the run."""


def wake_ups(reader: Any, spark: Any, path: Path, ranges: int) -> Any:
    """Return the rows of the wake-up source.

    :param reader: the `DataStreamReader`
    :param path: the file of the next `WakeUp`
    :param ranges: the number of key ranges
    """
    spark.dataSource.register(WakeSource)
    return reader.format(WakeSource.name()).option("path", str(path)).option("ranges", ranges).load()
