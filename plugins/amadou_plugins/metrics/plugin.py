"""Registers amadou's own metrics."""

from collections.abc import Iterable

from amadou import BatchReport, Metric, hookimpl


@hookimpl
def amadou_register_metrics() -> Iterable[Metric]:
    return [
        Metric("amadou_batches", "Batches completed.", "counter", lambda batch: 1),
        Metric("amadou_batch_seconds", "Time of batches, by the clock.", "counter", lambda batch: batch.seconds),
        Metric("amadou_records", "Records read.", "counter", lambda batch: batch.counts.records, "source"),
        Metric("amadou_events", "Events processed.", "counter", lambda batch: batch.counts.events),
        Metric("amadou_late_events", "Events behind the watermark.", "counter", lambda batch: batch.counts.late),
        Metric(
            "amadou_dropped_events",
            "Events dropped because they came too late.",
            "counter",
            lambda batch: batch.counts.dropped,
        ),
        Metric(
            "amadou_dead_letters",
            "Records and callbacks that failed and became dead letters.",
            "counter",
            lambda batch: batch.counts.dead_letters,
        ),
        Metric("amadou_outputs", "Values collected.", "counter", lambda batch: batch.counts.outputs, "port"),
        Metric("amadou_timers_set", "Timers set by callbacks.", "counter", lambda batch: batch.counts.timers_set),
        Metric(
            "amadou_timers_fired",
            "Timers fired, and components woken.",
            "counter",
            lambda batch: batch.counts.timers_fired,
        ),
        Metric(
            "amadou_timers_pending",
            "Timers set and not due, and components to be woken.",
            "gauge",
            lambda batch: batch.counts.timers_pending,
        ),
        Metric(
            "amadou_held",
            "Events that wait for a source that is down.",
            "gauge",
            lambda batch: batch.counts.held,
            "source",
        ),
        Metric(
            "amadou_dependency_down",
            "Whether a source that others depend on is down.",
            "gauge",
            lambda batch: {source: int(down) for source, down in batch.down.items()},
            "source",
        ),
        Metric("amadou_keys", "Keys with state or timers.", "gauge", lambda batch: batch.counts.keys),
        Metric("amadou_state_bytes", "State stored.", "gauge", lambda batch: batch.counts.state_bytes),
        Metric("amadou_watermark_timestamp_seconds", "The watermark, since 1970.", "gauge", _watermark),
        Metric("amadou_watermark_lag_seconds", "How far the watermark was behind the clock.", "gauge", _lag),
        Metric(
            "amadou_partition_lag_records",
            "Records that are there and were not read.",
            "gauge",
            lambda batch: {each.name: each.lag for each in batch.partitions if each.lag is not None},
            "partition",
        ),
        Metric(
            "amadou_partition_age_seconds",
            "How long ago the newest event of a partition with more to read was; 0 where all is read.",
            "gauge",
            lambda batch: {each.name: each.age.total_seconds() for each in batch.partitions if each.age is not None},
            "partition",
        ),
        Metric(
            "amadou_partition_holds_back",
            "Whether the watermark waits for a partition.",
            "gauge",
            lambda batch: {each.name: int(each.holds_back) for each in batch.partitions},
            "partition",
        ),
        Metric(
            "amadou_stage_seconds",
            "Time of stages, summed over tasks.",
            "counter",
            lambda batch: batch.stage_seconds,
            "stage",
        ),
        Metric(
            "amadou_callback_seconds",
            "Time of callbacks, summed over tasks.",
            "counter",
            lambda batch: batch.callback_seconds,
            "callback",
        ),
        Metric("amadou_callback_calls", "Callbacks called.", "counter", lambda batch: batch.callback_calls, "callback"),
        Metric(
            "amadou_counter",
            "What handlers and components count.",
            "counter",
            lambda batch: batch.counts.counters,
            "counter",
        ),
    ]


def _watermark(batch: BatchReport) -> float | None:
    return None if batch.watermark is None else batch.watermark.timestamp()


def _lag(batch: BatchReport) -> float | None:
    return None if batch.lag is None else batch.lag.total_seconds()
