"""Registers amadou's built-in metrics."""

from collections.abc import Iterable

from amadou.plugins import BatchReport, Metric, hookimpl


@hookimpl
def amadou_register_metrics() -> Iterable[Metric]:
    return [
        Metric("amadou_batches", "Completed batches.", "counter", lambda batch: 1, by_stage=False),
        Metric(
            "amadou_batch_seconds",
            "Duration of batches, in seconds.",
            "counter",
            lambda batch: batch.seconds,
            by_stage=False,
        ),
        Metric("amadou_records", "Records read.", "counter", lambda batch: batch.counts.records, "source"),
        Metric("amadou_events", "Events processed.", "counter", lambda batch: batch.counts.events),
        Metric("amadou_late_events", "Events behind the watermark.", "counter", lambda batch: batch.counts.late),
        Metric(
            "amadou_dropped_events",
            "Events dropped because they arrived too late.",
            "counter",
            lambda batch: batch.counts.dropped,
        ),
        Metric(
            "amadou_dead_letters",
            "Dead letters: failed callbacks, and late events that the sink could not encode.",
            "counter",
            lambda batch: batch.counts.dead_letters,
        ),
        Metric("amadou_outputs", "Values collected.", "counter", lambda batch: batch.counts.outputs, "port"),
        Metric("amadou_timers_set", "Timers set by callbacks.", "counter", lambda batch: batch.counts.timers_set),
        Metric(
            "amadou_timers_fired",
            "Timers fired, including those of windows and joins.",
            "counter",
            lambda batch: batch.counts.timers_fired,
        ),
        Metric(
            "amadou_timers_pending",
            "Timers set but not yet fired, including those of windows and joins.",
            "gauge",
            lambda batch: batch.counts.timers_pending,
        ),
        Metric(
            "amadou_held",
            "Events from each source that are held because another source is down.",
            "gauge",
            lambda batch: batch.counts.held,
            "source",
        ),
        Metric(
            "amadou_dependency_down",
            "1 if a source that other sources depend on is down, otherwise 0.",
            "gauge",
            lambda batch: {source: int(down) for source, down in batch.down.items()},
            "source",
        ),
        Metric("amadou_keys", "Keys with state or timers.", "gauge", lambda batch: batch.counts.keys),
        Metric("amadou_state_entries", "Stored entries.", "gauge", lambda batch: batch.counts.state_entries),
        Metric("amadou_state_bytes", "Bytes of stored state.", "gauge", lambda batch: batch.counts.state_bytes),
        Metric(
            "amadou_state_written_bytes",
            "Bytes written to store state.",
            "counter",
            lambda batch: batch.counts.state_bytes_written,
        ),
        Metric(
            "amadou_state_cleaned_bytes",
            "Bytes of log segments removed or written again to keep the log small.",
            "counter",
            lambda batch: batch.counts.state_bytes_cleaned,
        ),
        Metric(
            "amadou_state_view_hits",
            "Times that a batch could use the local view of a key range.",
            "counter",
            lambda batch: batch.counts.state_view_hits,
        ),
        Metric(
            "amadou_state_view_rebuilds",
            "Times that the local view of a key range was made from the log.",
            "counter",
            lambda batch: batch.counts.state_view_rebuilds,
        ),
        Metric(
            "amadou_state_view_bytes",
            "Bytes that local views occupy on disk.",
            "gauge",
            lambda batch: batch.counts.state_view_bytes,
        ),
        Metric("amadou_watermark_timestamp_seconds", "Watermark, in seconds since 1970.", "gauge", _watermark),
        Metric("amadou_watermark_lag_seconds", "Lag of the watermark behind the clock, in seconds.", "gauge", _lag),
        Metric(
            "amadou_partition_lag_records",
            "Unread records in a partition; unread files for file sources.",
            "gauge",
            lambda batch: {each.name: each.lag for each in batch.partitions if each.lag is not None},
            "partition",
        ),
        Metric(
            "amadou_partition_age_seconds",
            "Age of the newest event read from a partition, in seconds; 0 if the partition has no unread records.",
            "gauge",
            lambda batch: {each.name: each.age.total_seconds() for each in batch.partitions if each.age is not None},
            "partition",
        ),
        Metric(
            "amadou_partition_holds_back",
            "1 for the partition that holds the watermark back, 0 for the others.",
            "gauge",
            lambda batch: {each.name: int(each.holds_back) for each in batch.partitions},
            "partition",
        ),
        Metric(
            "amadou_stage_seconds",
            "Seconds spent in each stage, summed over tasks.",
            "counter",
            lambda batch: batch.stage_seconds,
            "stage",
        ),
        Metric(
            "amadou_callback_seconds",
            "Seconds spent in each callback, summed over tasks.",
            "counter",
            lambda batch: batch.callback_seconds,
            "callback",
        ),
        Metric("amadou_callback_calls", "Callback calls.", "counter", lambda batch: batch.callback_calls, "callback"),
        Metric(
            "amadou_counter",
            "Counters of handlers and components.",
            "counter",
            lambda batch: batch.counts.counters,
            "counter",
        ),
    ]


def _watermark(batch: BatchReport) -> float | None:
    return None if batch.watermark is None else batch.watermark.timestamp()


def _lag(batch: BatchReport) -> float | None:
    return None if batch.lag is None else batch.lag.total_seconds()
