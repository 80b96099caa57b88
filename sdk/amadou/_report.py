"""What runs tell about themselves: to those who start them, and to plugins."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal, TypeVar

import attrs

from amadou._job import Job
from amadou._letters import DEAD_LETTERS, LATE_EVENTS
from amadou._metric import Metric

N = TypeVar("N", int, float)


def sum_counts(counts: Iterable[Mapping[str, N]]) -> dict[str, N]:
    """Several counts by name as one."""
    whole: dict[str, N] = {}
    for part in counts:
        for name, count in part.items():
            whole[name] = whole.get(name, 0) + count
    return whole


@attrs.frozen
class Counts:
    """What a batch, or a run so far, came to.

    :param records: how many were read, by source
    :param events: how many were processed
    :param late: how many of them were behind the watermark
    :param dropped: how many events were dropped because they came too late: by the job, or by components such as
        windows. An event that several windows drop counts once
    :param timers_set: how many timers callbacks set that were not set already
    :param timers_fired: how many timers fired, and how many times components were woken
    :param outputs: values that were collected, by port
    :param counters: what callbacks and components counted (`Subject.count`), by name
    :param vectorized_fallbacks: how often a vectorised path failed and amadou used the slow one, by component; of
        records under ``key_event``. Each is an error of amadou or of the component
    :param keys: keys that have state or timers afterwards
    :param timers_pending: timers that are set and not due afterwards, and times at which components are to be woken
    :param state_bytes: what is stored afterwards
    :param held: events that wait afterwards for a source that is down, by source (`DependsOn`)
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
        """How many records and callbacks failed and became dead letters."""
        return self.outputs.get(DEAD_LETTERS, 0)

    @classmethod
    def total(cls, parts: Sequence["Counts"]) -> "Counts":
        """Return what the parts of a batch came to together."""
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
        """Return these and what came after them, as one."""
        afterwards = {name: getattr(later, name) for name in ("keys", "timers_pending", "state_bytes", "held")}
        return attrs.evolve(Counts.total((self, later)), **afterwards)


@attrs.frozen
class Run:
    """A run of a job.

    :param id: names the life of its checkpoint: the same after a restart, as in `SinkBatch.run`
    :param job: the job as it is played: with the values of its parameters, and what plugins changed
    :param engine: where it is played
    :param checkpoint: the directory that holds state, timers and offsets; `None` for a run that keeps none
    :param metrics: what plugins make of its batches, amadou's own first. One that fails is named with a warning, and
        gives nothing from then on
    """

    id: str
    job: Job
    engine: Literal["spark", "embedded"]
    checkpoint: str | None
    metrics: tuple[Metric, ...] = ()


@attrs.frozen
class PartitionReport:
    """Where a partition of a source stands after a batch (`Source`).

    :param source: the source's name
    :param partition: the partition's name; empty where the source is one
    :param newest: the newest event time that it brought; `None` before the first event
    :param lag: how many records it has that were not read when the batch was planned; `None` where the source does not
        tell
    :param age: how long ago, by the clock when the batch began, the newest event was that it brought, while it has
        more to read: zero where it has not; `None` where that is not known
    :param holds_back: whether it is the one that the watermark waits for
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
    """A batch whose outputs are committed.

    Where several tasks did something at a time, how long it took is their sum.

    :param number: its number, which counts on after a restart
    :param counts: what it came to
    :param watermark: the watermark that it was played under; `None` before the first
    :param seconds: how long it was played and committed
    :param completed: when it was completed, by the clock
    :param stage_seconds: how long each stage took: `keying` (records to packed events), `processing` (timers and
        events, with state unpacked and packed), `writing` (outputs to the sinks' writers) and `committing`
    :param callback_seconds: how long callbacks took, with the loop that calls them, which is some tenths of a
        microsecond a call: `key_event`, `on_event`, `on_timer_expired`, and by its name each component that was woken,
        with the functions that it called. What takes many at once counts as the callback that it stands for
    :param callback_calls: how often they were called
    :param down: whether each source that others depend on is down (`DependsOn`)
    :param partitions: where each partition of the sources stands
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
        """How far the watermark was behind the clock when the batch was completed; `None` before the first one."""
        return None if self.watermark is None else self.completed - self.watermark


@attrs.frozen
class RunSummary:
    """How a run ended, or where it stands.

    :param job: the job's name
    :param batches: how many batches were completed
    :param counts: what they came to
    :param watermark: the last watermark
    """

    job: str
    batches: int = 0
    counts: Counts = Counts()
    watermark: datetime | None = None

    def with_batch(self, batch: BatchReport) -> "RunSummary":
        """The run with one more batch."""
        return RunSummary(self.job, self.batches + 1, self.counts.then(batch.counts), batch.watermark)

    def then(self, other: "RunSummary") -> "RunSummary":
        """This run and one that went on from it, as one."""
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
    """A watermark for people."""
    return "none" if watermark is None else watermark.isoformat().replace("+00:00", "Z")
