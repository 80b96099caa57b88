"""Reports of runs, for their callers and for plugins."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeVar

import attrs

from amadou._job import Job
from amadou._letters import DEAD_LETTERS, LATE_EVENTS
from amadou._metric import Metric

N = TypeVar("N", int, float)


def sum_counts(counts: Iterable[Mapping[str, N]]) -> dict[str, N]:
    """Return the sum of several counts by name."""
    whole: dict[str, N] = {}
    for part in counts:
        for name, count in part.items():
            whole[name] = whole.get(name, 0) + count
    return whole


@attrs.frozen
class Counts:
    """The counts of a batch, or of a run so far.

    :param records: number of records read, by source
    :param events: number of events processed
    :param late: number of those events that were behind the watermark
    :param dropped: number of events dropped because they came too late: by the job, or by components such as windows.
        An event that several windows drop counts once
    :param timers_set: number of timers that callbacks set and that were not set already
    :param timers_fired: number of timers that fired, those of components included
    :param outputs: number of values collected, by port
    :param counters: counters of callbacks and components (`Subject.count`), by name
    :param vectorized_fallbacks: number of times a vectorised path failed and amadou used the slow one, by component;
        for records under ``key_event``. Each is an error of amadou or of the component
    :param keys: number of keys with state or timers afterwards
    :param timers_pending: number of timers pending afterwards, those of components included
    :param state_bytes: size of the stored state afterwards, in bytes
    :param held: number of events held afterwards for a source that is down, by source (`DependsOn`)
    """

    records: Mapping[str, int] = attrs.field(factory=dict)
    events: int = 0
    late: int = 0
    dropped: int = 0
    timers_set: int = 0
    timers_fired: int = 0
    outputs: Mapping[str, int] = attrs.field(factory=dict)
    counters: Mapping[str, int] = attrs.field(factory=dict)
    vectorized_fallbacks: Mapping[str, int] = attrs.field(factory=dict)
    keys: int = 0
    timers_pending: int = 0
    state_bytes: int = 0
    held: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def dead_letters(self) -> int:
        """The number of records and callbacks that failed and became dead letters."""
        return self.outputs.get(DEAD_LETTERS, 0)

    @classmethod
    def total(cls, parts: Sequence["Counts"]) -> "Counts":
        """Return the sum of the counts of a batch's parts."""
        return cls(
            records=sum_counts(part.records for part in parts),
            events=sum(part.events for part in parts),
            late=sum(part.late for part in parts),
            dropped=sum(part.dropped for part in parts),
            timers_set=sum(part.timers_set for part in parts),
            timers_fired=sum(part.timers_fired for part in parts),
            outputs=sum_counts(part.outputs for part in parts),
            counters=sum_counts(part.counters for part in parts),
            vectorized_fallbacks=sum_counts(part.vectorized_fallbacks for part in parts),
            keys=sum(part.keys for part in parts),
            timers_pending=sum(part.timers_pending for part in parts),
            state_bytes=sum(part.state_bytes for part in parts),
            held=sum_counts(part.held for part in parts),
        )

    def then(self, later: "Counts") -> "Counts":
        """Return these counts and later ones as one."""
        afterwards = {name: getattr(later, name) for name in ("keys", "timers_pending", "state_bytes", "held")}
        return attrs.evolve(Counts.total((self, later)), **afterwards)


@attrs.frozen
class Run:
    """A run of a job.

    :param id: an identifier of its checkpoint: the same after a restart, as in `SinkBatch.run`
    :param job: the job as it runs: with the values of its parameters, and with the changes of plugins
    :param engine: the engine that processes it
    :param checkpoint: the directory that holds state, timers and offsets; `None` for a run without a checkpoint
    :param metrics: metrics of its batches, amadou's own first, then those of plugins. A metric that fails is reported
        with a warning, and has no values from then on
    """

    id: str
    job: Job
    engine: Literal["spark", "embedded"]
    checkpoint: str | None
    metrics: tuple[Metric, ...] = ()


@attrs.frozen
class PartitionReport:
    """The progress of a source's partition after a batch (`Source`).

    :param source: the source's name
    :param partition: the partition's name; empty if the source is a single partition
    :param newest: the partition's newest event time; `None` before the first event
    :param lag: number of its records that the batch left unread, as of the batch's planning; `None` if the source does
        not report it
    :param age: age of its newest event, by the clock when the batch began, while records are left to read; zero if none
        are left, `None` if that is not known
    :param holds_back: `True` if the watermark waits for this partition
    """

    source: str
    partition: str
    newest: datetime | None
    lag: int | None
    age: timedelta | None
    holds_back: bool

    @property
    def name(self) -> str:
        """The names of the source and of its partition."""
        return f"{self.source}/{self.partition}" if self.partition else self.source


@attrs.frozen
class BatchReport:
    """A report of a batch whose outputs are committed.

    Times of tasks that run in parallel are summed.

    :param number: the batch's number, which counts on after a restart
    :param counts: the batch's counts
    :param watermark: the watermark under which it was processed; `None` before the first
    :param seconds: duration of its processing and commit
    :param completed: the clock time of its completion
    :param stage_seconds: duration of each stage: `keying` (records to packed events), `processing` (timers and
        events, with state unpacked and packed), `writing` (outputs to the sinks' writers) and `committing`
    :param callback_seconds: duration of callbacks, including the loop that calls them, some tenths of a microsecond a
        call: `key_event`, `on_event`, `on_timer_expired`, and by its name each component that fired, with the functions
        that it called. A vectorised call counts as the callback that it replaces
    :param callback_calls: number of calls of each
    :param down: `True` for each source that is down, of those that others depend on (`DependsOn`)
    :param partitions: progress of each partition of the sources
    """

    number: int
    counts: Counts
    watermark: datetime | None
    seconds: float
    completed: datetime
    stage_seconds: Mapping[str, float] = attrs.field(factory=dict)
    callback_seconds: Mapping[str, float] = attrs.field(factory=dict)
    callback_calls: Mapping[str, int] = attrs.field(factory=dict)
    down: Mapping[str, bool] = attrs.field(factory=dict)
    partitions: Sequence[PartitionReport] = ()

    @property
    def lag(self) -> timedelta | None:
        """The watermark's distance behind the clock when the batch was completed; `None` before the first watermark."""
        return None if self.watermark is None else self.completed - self.watermark


@attrs.frozen
class RunSummary:
    """A summary of a run, at its end or so far.

    :param job: the job's name
    :param batches: number of completed batches
    :param counts: the counts of all batches
    :param watermark: the last watermark
    """

    job: str
    batches: int = 0
    counts: Counts = Counts()
    watermark: datetime | None = None

    def with_batch(self, batch: BatchReport) -> "RunSummary":
        """Return the summary with one more batch."""
        return RunSummary(self.job, self.batches + 1, self.counts.then(batch.counts), batch.watermark)

    def then(self, other: "RunSummary") -> "RunSummary":
        """Return the summary of this run and of one that continued it, as one."""
        return RunSummary(
            self.job, self.batches + other.batches, self.counts.then(other.counts), other.watermark or self.watermark
        )

    def __str__(self) -> str:
        counts = self.counts
        own = (LATE_EVENTS, DEAD_LETTERS)
        outputs = ", ".join(f"{count:,} {port}" for port, count in sorted(counts.outputs.items()) if port not in own)
        late = [f"{counts.outputs[LATE_EVENTS]:,} diverted"] if counts.outputs.get(LATE_EVENTS) else []
        late += [f"{counts.dropped:,} dropped"] if counts.dropped else []
        shown_late = f"{counts.late:,} ({', '.join(late)})" if late else f"{counts.late:,}"
        letters = f"dead letters: {counts.dead_letters:,}; " if counts.dead_letters else ""
        held = "".join(f"held: {count:,} of {source}; " for source, count in sorted(counts.held.items()))
        counters = "".join(f"{name}: {count:,}; " for name, count in sorted(counts.counters.items()))
        fallbacks = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.vectorized_fallbacks.items()))
        counters += f"vectorized fallbacks: {fallbacks}; " if fallbacks else ""
        return (
            f"{self.job}: {counts.events:,} events in {self.batches:,} batches; outputs: {outputs or 'none'}; "
            f"late: {shown_late}; {letters}{held}{counters}timers fired: {counts.timers_fired:,}, "
            f"pending: {counts.timers_pending:,}; keys: {counts.keys:,}; watermark: {shown_watermark(self.watermark)}"
        )


def shown_watermark(watermark: datetime | None) -> str:
    """Return a watermark's text, for people."""
    return "none" if watermark is None else watermark.isoformat().replace("+00:00", "Z")
