"""The useful part of Spark's own progress, which `amadou_spark_progress` has in Spark's terms."""

from collections.abc import Callable, Mapping
from typing import Any

from amadou import Metric


def _named(field: str) -> Callable[[Any], float | None]:
    return lambda progress: progress.get(field)


def _phase_seconds(progress: Any) -> Mapping[str, float]:
    return {phase: millis / 1000 for phase, millis in progress["durationMs"].items()}


def _state(progress: Any) -> Mapping[str, float]:
    """Return the numbers of the only stateful operator, without those of each partition."""
    told: dict[str, Any] = {}
    for operator in progress["stateOperators"]:
        told |= operator | operator["customMetrics"]
    return {name: number for name, number in told.items() if isinstance(number, int | float) and "." not in name}


SPARK = (
    Metric("amadou_spark_input_rows", "Rows that Spark read.", "counter", _named("numInputRows")),
    Metric(
        "amadou_spark_input_rows_per_second",
        "Rows that came, by the time between two batches.",
        "gauge",
        _named("inputRowsPerSecond"),
    ),
    Metric(
        "amadou_spark_processed_rows_per_second",
        "Rows that Spark read, by the time of the batch.",
        "gauge",
        _named("processedRowsPerSecond"),
    ),
    Metric(
        "amadou_spark_phase_seconds",
        "Time of batches, by Spark's phases: addBatch is amadou's, and triggerExecution the whole.",
        "counter",
        _phase_seconds,
        "phase",
    ),
    Metric(
        "amadou_spark_state",
        "What Spark says of its state, RocksDB's figures among it, as Spark names it.",
        "gauge",
        _state,
        "figure",
    ),
)
"""Metrics that read Spark's progress instead of a `BatchReport`."""
