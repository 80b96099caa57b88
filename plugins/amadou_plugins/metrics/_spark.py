"""Metrics from Spark's progress reports, which the hook `amadou_spark_progress` receives."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from amadou.plugins import Metric


def _named(field: str) -> Callable[[Any], float | None]:
    return lambda progress: progress.get(field)


def _phase_seconds(progress: Any) -> Mapping[str, float]:
    return {phase: millis / 1000 for phase, millis in progress["durationMs"].items()}


def _state(progress: Any) -> Mapping[str, float]:
    """Return the metrics of the query's stateful operators, one for each stage, without the metrics of individual
    partitions.
    """
    reported: Counter[str] = Counter()
    for operator in progress["stateOperators"]:
        numbers = (operator | operator["customMetrics"]).items()
        reported.update({name: number for name, number in numbers if isinstance(number, int | float)})
    return {name: number for name, number in reported.items() if "." not in name}


SPARK = (
    Metric("amadou_spark_input_rows", "Rows that Spark read.", "counter", _named("numInputRows")),
    Metric(
        "amadou_spark_input_rows_per_second",
        "Rows that arrived per second between the starts of the last two batches.",
        "gauge",
        _named("inputRowsPerSecond"),
    ),
    Metric(
        "amadou_spark_processed_rows_per_second",
        "Rows that Spark processed per second in the latest batch.",
        "gauge",
        _named("processedRowsPerSecond"),
    ),
    Metric(
        "amadou_spark_phase_seconds",
        "Seconds spent in each phase of Spark batches; addBatch includes amadou's work, triggerExecution is the total.",
        "counter",
        _phase_seconds,
        "phase",
    ),
    Metric(
        "amadou_spark_state",
        "Metrics of Spark's state store, including those of RocksDB, under Spark's names.",
        "gauge",
        _state,
        "figure",
    ),
)
"""Metrics that are computed from Spark's progress reports rather than from a `BatchReport`."""
