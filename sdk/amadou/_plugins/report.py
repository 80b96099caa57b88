"""Reports on runs, for callers and plugins."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar

import attrs

from amadou._handler.letters import DEAD_LETTERS, LATE_EVENTS
from amadou._jobs.job import Job
from amadou._plugins.letter_report import DeadLetterReport, LateEventReport
from amadou._plugins.metric import Metric
from amadou._plugins.run_control import RunControl
from amadou._state.state_reader import StateReader
from amadou.text import qualified, unqualified

N = TypeVar("N", int, float)
_CURRENT_TOTALS = ("keys", "timers_pending", "state_entries", "state_bytes", "state_view_bytes", "held")
"""The fields of `Counts` that describe the state after a batch, rather than what the batch did."""


def sum_counts(counts: Iterable[Mapping[str, N]]) -> dict[str, N]:
    """Return the sums of counts, by name."""
    total: dict[str, N] = {}
    for part in counts:
        for name, count in part.items():
            total[name] = total.get(name, 0) + count
    return total


def with_stage(stage: str, values: Any) -> Any:
    """Return values by name with `qualified` names. Other values are returned as they are."""
    return {qualified(stage, name): value for name, value in values.items()} if isinstance(values, Mapping) else values


@attrs.frozen
class Counts:
    """Counts of one batch, or of all batches of a run.

    The counts of a job with several stages are the sums over its stages. The names of sources, ports and counters then
    begin with the stage's name: ``views.clicks``.

    :param records: number of records read, by source
    :param events: number of events processed, including late events that the job dropped or diverted
    :param late: number of events behind the watermark, whether the job delivered, dropped or diverted them
    :param dropped: number of late events that were dropped by the job, or by components such as windows. An event
        dropped by more than one window is counted once
    :param timers_set: number of timers that callbacks set, not counting timers that were already set
    :param timers_fired: number of timers that fired, including timers of components
    :param outputs: number of collected values, by port
    :param counters: values of the counters of callbacks and components (`Subject.count`), by name
    :param vectorized_fallbacks: number of times that a vectorised path failed and amadou used the per-event path, by
        component, or under ``key_event`` for records. Each failure is a bug in amadou or in the component
    :param state_bytes_written: number of bytes written to store state, after compression
    :param state_bytes_cleaned: size of the log segments that were removed or written again, because many of their
        entries were outdated or there were many segments, before compression. Only the store `"log"` has segments and
        views
    :param state_view_hits: number of times that a batch could use a key range's local view, which makes the log fast to
        read
    :param state_view_rebuilds: number of times that a view was missing or outdated, and was made from the log
    :param keys: number of keys with state or timers after the last batch
    :param timers_pending: number of timers pending after the last batch, including timers of components
    :param state_entries: number of stored entries after the last batch. The store `"groups"` counts keys as entries.
        The store `"log"` and the embedded engine have an entry for each key, and a few for each key group. The store
        `"log"` keeps a key group in a single entry while it is small or while batches touch most of its keys
    :param state_bytes: size of the stored state after the last batch, in bytes. On the store `"groups"`, this is the
        size after compression. On the store `"log"`, it does not include in-memory state
    :param state_view_bytes: space that the views occupy on local disks after the last batch, in bytes
    :param held: number of events held after the last batch because another source is down, by the events' source
        (`DependsOn`)
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
    state_bytes_written: int = 0
    state_bytes_cleaned: int = 0
    state_view_hits: int = 0
    state_view_rebuilds: int = 0
    keys: int = 0
    timers_pending: int = 0
    state_entries: int = 0
    state_bytes: int = 0
    state_view_bytes: int = 0
    held: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def dead_letters(self) -> int:
        """The number of dead letters: failed callbacks, including `key_event`, and late events that the `late_events`
        sink could not encode.
        """
        return self._written_to(DEAD_LETTERS)

    def _written_to(self, port: str) -> int:
        """Return the number of values collected for the ports of a name, in all stages."""
        return sum(count for name, count in self.outputs.items() if unqualified(name) == port)

    def of_stage(self, stage: str) -> "Counts":
        """Return these counts with names that begin with a stage's name, such as ``views.clicks``."""
        values = attrs.asdict(self, recurse=False)
        return Counts(**{name: with_stage(stage, value) for name, value in values.items()})

    @classmethod
    def total(cls, parts: Sequence["Counts"]) -> "Counts":
        """Return the sum of several `Counts`, such as the counts of a batch's tasks."""
        sums: dict[str, Any] = {}
        for field in attrs.fields(cls):
            each = [getattr(part, field.name) for part in parts]
            sums[field.name] = sum(each) if field.default == 0 else sum_counts(each)
        return cls(**sums)

    def then(self, later: "Counts") -> "Counts":
        """Return these counts plus later counts. Current totals, such as `keys`, are taken from the later counts."""
        afterwards = {name: getattr(later, name) for name in _CURRENT_TOTALS}
        return attrs.evolve(Counts.total((self, later)), **afterwards)


@attrs.frozen
class PartitionReport:
    """The progress of one partition of a source after a batch.

    :param source: the source's name
    :param partition: the partition's name; empty if the source is a single partition
    :param newest: the partition's newest event time; `None` before the first event
    :param lag: number of unread records in the partition after the batch, counted when the batch was planned; `None` if
        the source does not report this number
    :param age: age of the newest event read from the partition, measured at the start of the batch; zero if the
        partition has no unread records, `None` if `lag` is `None` or before the first event
    :param holds_back: `True` for the one partition that holds the run's watermark back, `False` for all others
    """

    source: str
    partition: str
    newest: datetime | None
    lag: int | None
    age: timedelta | None
    holds_back: bool

    @property
    def name(self) -> str:
        """The source's name, or ``source/partition`` if the partition has a name."""
        return f"{self.source}/{self.partition}" if self.partition else self.source


@attrs.frozen
class BatchReport:
    """A report of a batch whose outputs are committed.

    In `stage_seconds` and `callback_seconds`, the durations of parallel tasks are summed.

    The report of a job with several stages adds up those of its stages, which are in `stages`. The names of callbacks,
    sources and ports then begin with the stage's name, as in `Counts`.

    :param number: the batch's number; the numbering continues after a restart
    :param counts: the batch's counts
    :param watermark: the batch's watermark; `None` before the first watermark. Of several stages, the watermark of the
        stage that is furthest behind
    :param seconds: wall-clock time to process and commit the batch
    :param completed: clock time when the batch was completed
    :param stage_seconds: duration of each stage: `keying` (turning records into packed events), `processing` (timers
        and events, including loading and storing state), `writing` (outputs to the sinks' writers) and `committing`;
        on the store `"log"`, also `rebuilding` (rebuilding and compacting views), if a batch did this
    :param callback_seconds: time spent in each callback, such as `key_event`, `on_event` and `on_timer_expired`, and in
        each component that fired, by name. A component's time includes the functions that the component called. The
        time of a vectorised call is attributed to the callback that the call replaces. All times include the overhead
        of the calling loop, a few tenths of a microsecond per call
    :param callback_calls: number of calls of each callback and component in `callback_seconds`
    :param down: for each source that other sources depend on (`DependsOn`): `True` if the source is down
    :param partitions: the progress of each source's partitions
    :param dead_letters: a few of the batch's dead letters, at most 20 and at most 5 of the same kind
    :param late_events: a few of the late events that the batch dropped or diverted, as many
    :param stages: the reports of the stages, by stage; empty for a job with one handler
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
    dead_letters: Sequence[DeadLetterReport] = ()
    late_events: Sequence[LateEventReport] = ()
    stages: "Mapping[str, BatchReport]" = attrs.field(factory=dict)

    @classmethod
    def of_stages(cls, stages: "Mapping[str, BatchReport]") -> "BatchReport":
        """Return the report of a batch with several stages."""
        reports, last = list(stages.values()), list(stages.values())[-1]
        watermarks = [report.watermark for report in reports]
        return cls(
            number=last.number,
            counts=Counts.total([report.counts.of_stage(stage) for stage, report in stages.items()]),
            watermark=None if None in watermarks else min(filter(None, watermarks)),
            seconds=last.seconds,
            completed=last.completed,
            stage_seconds=sum_counts(report.stage_seconds for report in reports),
            callback_seconds=sum_counts(with_stage(stage, each.callback_seconds) for stage, each in stages.items()),
            callback_calls=sum_counts(with_stage(stage, each.callback_calls) for stage, each in stages.items()),
            down={qualified(stage, on): is_down for stage, each in stages.items() for on, is_down in each.down.items()},
            partitions=[
                attrs.evolve(partition, source=qualified(stage, partition.source))
                for stage, report in stages.items()
                for partition in report.partitions
            ],
            dead_letters=[attrs.evolve(of, stage=stage) for stage, each in stages.items() for of in each.dead_letters],
            late_events=[attrs.evolve(of, stage=stage) for stage, each in stages.items() for of in each.late_events],
            stages=stages,
        )

    @property
    def lag(self) -> timedelta | None:
        """Lag of the watermark behind the clock when the batch was completed; `None` before the first watermark."""
        return None if self.watermark is None else self.completed - self.watermark


@attrs.frozen
class FailedBatch:
    """A batch that failed and ended the run. Its outputs are not committed, and the next run processes it again.

    :param number: the batch's number
    :param error: the error in a line
    :param details: the entire message, with the traceback of the user's code if a callback failed. Secrets are hidden
    :param seconds: wall-clock time until the batch failed
    :param failed: clock time when the batch failed
    """

    number: int
    error: str
    details: str
    seconds: float
    failed: datetime


@attrs.frozen
class Run:
    """A run of a job.

    :param id: id of the run's checkpoint, as in `SinkBatch.run`; it does not change at a restart
    :param job: the job that runs, with its parameters set and with the changes that plugins made
    :param engine: the engine that runs the job
    :param checkpoint: the directory with state, timers and offsets; `None` for a run without a checkpoint
    :param metrics: the metrics of the run's batches: first amadou's metrics, then plugin metrics. If a metric fails,
        amadou logs a warning, and the metric has no values for the rest of the run
    :param trigger: the interval between batches, such as ``"5 seconds"``; ``"available-now"`` if the run ends once the
        available input is processed; `None` if batches run back to back
    :param interval: the interval between batches; `None` if `trigger` is not an interval
    :param description: the job as values that can be written as JSON: ``job``, ``handler`` and the ``summary`` from its
        docstring; ``specs`` with ``name``, ``kind``, ``type`` and ``ttl``; ``lookups`` with ``name``, ``fetch`` and
        ``type``; ``sources`` with ``name``, ``connector`` and ``bounded``; ``dependencies`` with ``source``, ``needs``
        and ``threshold``; ``ports`` with ``name``, ``type`` and ``sinks``, each with ``connector`` and ``guarantee``;
        and ``settings``. A job with several stages has only ``job`` and ``stages``, with these values of each stage by
        the stage's name; a source that is a port of another stage also has ``stage`` and ``port``. Secrets are hidden
    :param state: reads the state of the run; `None` for the embedded engine
    :param control: stops the run and takes savepoints; `None` for the embedded engine
    :param history: function that returns the batches of earlier runs that the checkpoint has a record of, oldest first.
        It reads files
    :param reproduce: function that returns the source code of a test that fails with the error of a dead letter. It
        raises an `AmadouError` if the job or the data of the dead letter is not available; `None` without such a
        function
    """

    id: str
    job: Job
    engine: Literal["spark", "embedded"]
    checkpoint: str | None
    metrics: tuple[Metric, ...] = ()
    trigger: str | None = None
    interval: timedelta | None = None
    description: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    state: StateReader | None = attrs.field(default=None, eq=False, repr=False)
    control: RunControl | None = attrs.field(default=None, eq=False, repr=False)
    history: Callable[[], Sequence[BatchReport | FailedBatch]] = attrs.field(default=tuple, eq=False, repr=False)
    reproduce: Callable[[DeadLetterReport], str] | None = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class RunSummary:
    """Summary of a run that has ended or is still running.

    :param job: the job's name
    :param batches: number of completed batches
    :param counts: the counts of all batches
    :param watermark: the watermark of the last batch; `None` before the first watermark
    """

    job: str
    batches: int = 0
    counts: Counts = Counts()
    watermark: datetime | None = None

    def with_batch(self, batch: BatchReport) -> "RunSummary":
        """Return the summary with one more batch added."""
        return RunSummary(self.job, self.batches + 1, self.counts.then(batch.counts), batch.watermark)

    def then(self, other: "RunSummary") -> "RunSummary":
        """Return a combined summary of this run and a run that continued it."""
        return RunSummary(
            self.job, self.batches + other.batches, self.counts.then(other.counts), other.watermark or self.watermark
        )

    def __str__(self) -> str:
        counts = self.counts
        own = (LATE_EVENTS, DEAD_LETTERS)
        by_port = [
            f"{count:,} {port}" for port, count in sorted(counts.outputs.items()) if unqualified(port) not in own
        ]
        kinds = ((counts._written_to(LATE_EVENTS), "diverted"), (counts.dropped, "dropped"))
        late = ", ".join(f"{count:,} {kind}" for count, kind in kinds if count)
        letters = f"dead letters: {counts.dead_letters:,}; " if counts.dead_letters else ""
        held = "".join(f"held: {count:,} from {source}; " for source, count in sorted(counts.held.items()))
        counters = "".join(f"{name}: {count:,}; " for name, count in sorted(counts.counters.items()))
        fallbacks = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.vectorized_fallbacks.items()))
        counters += f"vectorized fallbacks: {fallbacks}; " if fallbacks else ""
        state = f"state: {shown_bytes(counts.state_bytes)}; " if counts.state_bytes else ""
        return (
            f"{self.job}: {counts.events:,} events in {self.batches:,} batches; "
            f"outputs: {', '.join(by_port) or 'none'}; late: {counts.late:,}{f' ({late})' if late else ''}; "
            f"{letters}{held}{counters}timers fired: {counts.timers_fired:,}, pending: {counts.timers_pending:,}; "
            f"keys: {counts.keys:,}; {state}watermark: {shown_watermark(self.watermark)}"
        )


def shown_watermark(watermark: datetime | None) -> str:
    """Return a watermark as readable text."""
    return "none" if watermark is None else watermark.isoformat().replace("+00:00", "Z")


def shown_bytes(count: float) -> str:
    """Return a number of bytes as readable text."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
