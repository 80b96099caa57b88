from amadou.plugins import BatchReport, Metric


def _values_per_event(batch: BatchReport) -> float | None:
    counts = batch.counts
    return sum(counts.outputs.values()) / counts.events if counts.events else None


VALUES_PER_EVENT = Metric(
    "sqlite_values_per_event", "Number of values per event in the last batch.", "gauge", _values_per_event
)
