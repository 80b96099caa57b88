"""Reads the state in a checkpoint as of a batch. The run that uses the checkpoint can continue meanwhile."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from amadou.spark_versions import check_reads_state
from amadou_runtime.core.key_group import KeyGroup
from amadou_runtime.spark.checkpoint import CheckpointMetadata
from amadou_runtime.store.packed_group import PackedGroup
from amadou_runtime.store.packed_range import PackedRange

READING_CONF = {"spark.sql.execution.arrow.maxRecordsPerBatch": "16"}
"""Settings for reading state: by default, Spark would pass a hundred thousand rows of up to a megabyte at once."""
_COLUMNS = {
    "groups": "key.range AS range, 0L AS number, value.groupState.state AS packed",
    "log": "key.range AS range, user_map_key.number AS number, unbase64(user_map_value.packed) AS packed",
}


def stored_rows(spark: Any, checkpoint: str, metadata: CheckpointMetadata, batch: int, stage: str = "") -> Any:
    """Return a data frame with the stored state of all key ranges: the range's number, and the packed range (*groups*)
    or the segments of its log with their numbers (*log*). All rows of a range are in one partition.

    :param spark: a session with `READING_CONF`
    :param stage: the stage's name; empty in a job with one handler
    """
    reader = _reader(spark, checkpoint, metadata, stage).option("batchId", batch)
    return reader.load().selectExpr(*_COLUMNS[metadata.state].split(", "))


def changed_rows(
    spark: Any, checkpoint: str, metadata: CheckpointMetadata, first: int, last: int, stage: str = ""
) -> Any:
    """Return a data frame with the rows of `stored_rows` that some batches have changed, and the number of the batch. A
    removed row has no content.

    :param first: number of the first batch
    """
    reader = _reader(spark, checkpoint, metadata, stage).option("readChangeFeed", "true")
    reader = reader.option("changeStartBatchId", first).option("changeEndBatchId", last)
    return reader.load().selectExpr("batch_id AS batch", *_COLUMNS[metadata.state].split(", "))


def _reader(spark: Any, checkpoint: str, metadata: CheckpointMetadata, stage: str) -> Any:
    check_reads_state()
    reader = spark.read.format("statestore").option("path", checkpoint)
    reader = reader.option("operatorId", metadata.operator_of(stage))
    return reader.option("stateVarName", "log") if metadata.state == "log" else reader


def stored_ranges(store: str, batches: Iterable[Any]) -> Iterator[tuple[int, Iterator[tuple[int, KeyGroup]]]]:
    """Yield the number of each key range, and its completely loaded key groups by number.

    :param store: the checkpoint's store
    :param batches: Arrow batches with the columns of `stored_rows`
    """
    if store == "groups":
        for batch in batches:
            for number, packed in zip(batch["range"].to_pylist(), batch["packed"], strict=True):
                if packed.is_valid:
                    yield number, _packed_groups(packed.as_py())
        return
    yield from _logged_ranges(batches)


def groups_of_range(store: str, number: int, rows: Mapping[int, bytes]) -> Iterator[tuple[int, KeyGroup]]:
    """Yield the completely loaded key groups of a key range by number.

    :param store: the checkpoint's store
    :param number: the number of the range
    :param rows: the rows of the range, by number; see `stored_rows`
    """
    if not rows:
        return
    if store == "groups":
        yield from _packed_groups(rows[0])
        return
    from amadou_runtime.store.log.segments import Log
    from amadou_runtime.store.log.stored_log import SegmentsInMemory, logged_groups

    with TemporaryDirectory(prefix="amadou-state-") as directory:
        yield from logged_groups(Log(SegmentsInMemory(rows), str(number)), Path(directory) / "spill")


def _packed_groups(packed: bytes) -> Iterator[tuple[int, KeyGroup]]:
    stored = PackedRange(packed)
    for number in sorted(stored.numbers):
        yield number, KeyGroup(PackedGroup(stored.packed(number)))


def _logged_ranges(batches: Iterable[Any]) -> Iterator[tuple[int, Iterator[tuple[int, KeyGroup]]]]:
    from amadou_runtime.store.log.segments import Log
    from amadou_runtime.store.log.stored_log import CopiedSegments, logged_groups

    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or None
    with TemporaryDirectory(prefix="amadou-state-", dir=local) as directory, ExitStack() as stack:
        ranges: dict[int, CopiedSegments] = {}
        for batch in batches:
            rows = zip(batch["range"].to_pylist(), batch["number"].to_pylist(), batch["packed"], strict=True)
            for number, segment, packed in rows:
                if number not in ranges:
                    file: IO[bytes] = stack.enter_context(open(Path(directory) / str(number), "w+b"))
                    ranges[number] = CopiedSegments(file)
                ranges[number].add(segment, packed.as_py())
        for number, segments in ranges.items():
            yield number, logged_groups(Log(segments, str(number)), Path(directory) / "spill")
