"""The embedded engine, which runs a job in one process, with one key group and without Java."""

import gc
import logging
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

import attrs

from amadou import BatchReport, Counts, Job, Run, RunSummary, SinkBatch, from_micros
from amadou.engine import DEAD_LETTERS, clock_time, sum_counts
from amadou.errors import AmadouError
from amadou.text import qualified
from amadou_runtime.core.connectors import check_connectors
from amadou_runtime.core.dead_letter_limit import Failures, LetterCount, all_failures
from amadou_runtime.core.dependencies import check_held, downs, log_changes
from amadou_runtime.core.dropped_warning import DroppedWarning
from amadou_runtime.core.events import FED, Chunk
from amadou_runtime.core.failure import failed_batch
from amadou_runtime.core.feeding import fed_by
from amadou_runtime.core.group_by_key import GroupByKey
from amadou_runtime.core.job_document import job_document
from amadou_runtime.core.json_logs import log_context
from amadou_runtime.core.keying import KeyedRecords, Keying, key_event_of
from amadou_runtime.core.operator import Evaluation, GroupBatch, Operator, ProcessedGroup, together
from amadou_runtime.core.ports import port_codec, sink_of, with_all_sinks
from amadou_runtime.core.references import ReferenceTable, new_tables, read_table, told_tables, with_updates
from amadou_runtime.core.samples import Samples
from amadou_runtime.core.stages import depth, errors_of_stage, whole_report
from amadou_runtime.core.vectorized import handler_for
from amadou_runtime.core.watermark import Newest, feed_stages, newest_of
from amadou_runtime.embedded.savepoints import JobProgress, load_savepoint, save
from amadou_runtime.embedded.state import EmbeddedState
from amadou_runtime.plugins.run_hooks import RunHooks
from amadou_runtime.savepoint.fitting import check_job_fits
from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_job_savepoint

BatchRecords: TypeAlias = Mapping[str, Iterable[tuple[str, Iterable[Any]]]]
"""The records of a batch by source: pairs of a partition's name and records of this partition, in the source's
order."""

_logger = logging.getLogger("amadou")


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection during a batch, since all objects of a batch live until the batch ends. With
    100,000 keys, garbage collection would take a quarter of the batch's time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class BatchResult(NamedTuple):
    """The result of a batch."""

    counts: Counts
    outputs: dict[str, list[Any]]
    """The encoded values, by port."""
    processed: ProcessedGroup
    evaluation: Evaluation
    samples: Samples
    newest: Newest
    """The newest event times in the batch, by source and partition."""
    letters: list[Any]
    """Encoded dead letters for records that could not be keyed."""
    letter_count: LetterCount
    """Counts of callback calls and failures after the batch."""
    references: Mapping[str, ReferenceTable]
    """The references in the batch, by name."""
    stage_seconds: dict[str, float]
    callback_seconds: dict[str, float]
    callback_calls: dict[str, int]


class Embedded:
    """Processes batches of a job with one handler in this process.

    :param job: a job without unresolved parameters
    """

    def __init__(self, job: Job) -> None:
        self.state = EmbeddedState()
        self.references = new_tables(job)
        self.letters = LetterCount()
        handler = handler_for(job)
        if handler is not job.handler:
            job = attrs.evolve(job, handler=handler)
        self._job = job
        self._operator = self.operator_of(job)
        self._tables = job.table_sources
        self._keying = {source: self.keying_of(job, source) for source in job.sources}
        self._operator.open()

    def operator_of(self, job: Job) -> Operator:
        """Return the operator for a job. Test runs override this method."""
        return Operator(job)

    def keying_of(self, job: Job, source: str) -> Keying:
        """Return the `Keying` for a source. Test runs override this method."""
        return Keying(job, source, key_event_of(job, source), 1)

    def begin(self, run: str) -> None:
        """Start a new run. The in-memory state of the previous run is lost."""
        self._operator.run = run
        self.state.begin(run)

    @_without_garbage_collection()
    def process(
        self,
        records: BatchRecords,
        watermark: int | None,
        now: int,
        number: int = 0,
        dependency_state: bytes | None = None,
    ) -> "BatchResult":
        """Process one batch. The state changes only when the result is passed to `store`.

        :param records: the batch's records
        :param watermark: the batch's watermark in microseconds; `None` before the job's first watermark
        :param now: the clock time in microseconds
        :param number: the batch's number
        :param dependency_state: the `Decision.state` of the previous batch
        :raises CallbackError: a callback failed
        :raises TooManyDeadLettersError: more calls failed than `max_dead_letters` allows
        :raises TooManyHeldError: more events are held than `DependsOn` allows
        """
        chunks, updates, letters = list[Chunk](), list[Chunk](), list[Any]()
        counts: list[Counts] = []
        newest: Newest = {}
        oldest: dict[str, int] = {}
        stages = {"keying": 0.0, "processing": 0.0}
        self._operator.take_failures()  # discards those of a batch that was not completed
        self._operator.samples.take()
        failures: list[Failures] = []
        samples = Samples()
        for source in self._keying:
            for order, (partition, stretch) in enumerate(records.get(source, ())):
                packed, count, seconds = self._packed(source, stretch, now)
                failures.append(self._keying[source].take_failures())
                samples.merge(self._keying[source].samples.take())
                if count:
                    counts.append(Counts(records={source: count}, vectorized_fallbacks=packed.fallbacks))
                stages["keying"] += seconds
                letters += packed.letters
                place = FED if source in self._job.fed_sources else order.to_bytes(8, "big")
                of_source = updates if source in self._job.reference_sources else chunks
                of_source += [Chunk(source, place, events) for events in packed.events.values()]
                if packed.newest is not None:
                    of = newest.setdefault(source, {})
                    of[partition] = max(packed.newest, of.get(partition, packed.newest))
                if packed.oldest is not None:
                    oldest[source] = min(packed.oldest, oldest.get(source, packed.oldest))
        began = perf_counter()
        references = with_updates(self._job, self.references, updates)
        self._operator.begin(references)
        evaluation = self._operator.evaluate(dependency_state, newest_of(newest), oldest, number, watermark)
        decision = evaluation.decision
        given = GroupBatch(GroupByKey(self.state), chunks, watermark, decision.limits)
        self._operator.fetch([given])
        processed = self._operator.process(given._replace(stored=GroupByKey(self.state)))
        check_held(self._job, processed.held, decision.down)
        stages["processing"] = perf_counter() - began
        lookups = self._operator.lookups
        total = Counts.total([*counts, processed.counts, Counts(counters=lookups.take_counters())])
        keyed = {"key_event": sum(total.records.values())} if total.records else {}
        calls = sum_counts((keyed, evaluation.calls, lookups.take_calls(), processed.calls))
        samples.merge(self._operator.samples.take())
        failed = all_failures((*failures, self._operator.take_failures()))
        watches = (*(keying.stopwatch for keying in self._keying.values()), self._operator.stopwatch)
        seconds_by_callback = sum_counts(watch.take() for watch in watches)
        outputs = together(({DEAD_LETTERS: letters} if letters else {}, evaluation.outputs, processed.outputs))
        written = {port: len(values) for port, values in outputs.items() if port in self._job.sinks}
        return BatchResult(
            attrs.evolve(total, outputs=written),
            outputs,
            processed,
            evaluation,
            samples,
            newest,
            letters,
            self.letters.then(self._job, calls, failed),
            references,
            stages,
            seconds_by_callback,
            calls,
        )

    def read_tables(self, now: int) -> None:
        """Read the tables that are sources of references.

        :raises SourceError: a table cannot be read
        :raises CallbackError: `key_event` failed on a row
        """
        for source, table in self._tables.items():
            name = self._job.reference_sources[source].name
            self.references[name], _ = read_table(table, self._keying[source], self.references[name], now)
            if not told_tables(self._job):
                self.references[name].merge()

    def store(self, result: BatchResult) -> BatchResult:
        """Store the state after a batch. Return the result with the counts of the state."""
        written = self.state.store(result.processed.changes)
        self.letters, self.references = result.letter_count, dict(result.references)
        for table in self.references.values():
            table.merge()
        counts = attrs.evolve(
            result.counts,
            state_bytes_written=written,
            state_entries=self.state.entries,
            state_bytes=self.state.size,
        )
        return result._replace(counts=counts)

    def _packed(self, source: str, records: Iterable[Any], now: int) -> tuple[KeyedRecords, int, float]:
        """Return a source's keyed records, the number of records, and the seconds that keying took."""
        read = list(records)
        began = perf_counter()
        return self._keying[source].pack(read, now), len(read), perf_counter() - began

    def close(self) -> None:
        """Call the handler's `close`."""
        self._operator.close()


def run_embedded(
    job: Job,
    hooks: RunHooks,
    *,
    flush: bool = False,
    savepoint: JobSavepoint | None = None,
    to_savepoint: Path | None = None,
) -> RunSummary:
    """Process all available records from a job's sources as one batch, then fire the due timers in further batches: one
    batch, or as many as stages feed one another. Write the outputs of each batch to the sinks.

    :param hooks: the hooks to call for the run and its batches
    :param flush: `True` to advance the watermark to the maximum timestamp afterwards so that every timer fires
    :param savepoint: the savepoint to start from
    :param to_savepoint: directory for a savepoint to write at the end
    """
    job = with_all_sinks(job, None)
    check_connectors(job)
    stages = {name: EmbeddedStage(stage, name) for name, stage in job.by_stage.items()}
    if savepoint is not None:
        check_job_fits(job, savepoint)
        for name, of in savepoint.stages.items():
            if name in stages:
                stages[name].progress = load_savepoint(stages[name].job, of, stages[name].engine)
        feed_stages({name: stage.progress.watermark for name, stage in stages.items()})
    warnings = {name: DroppedWarning(stage) for name, stage in job.by_stage.items()}
    run, summary = uuid.uuid4().hex[:12], RunSummary(job.name)
    hooks.started(Run(run, job, "embedded", None, description=job_document(job)))
    keeps_position = savepoint is not None or to_savepoint is not None
    records = {name: stage.progress.read(stage.job, keeps_position=keeps_position) for name, stage in stages.items()}
    further = depth(job)
    for number in range(1 + further + (further if flush else 0)):
        with log_context(batch=number):
            began = time.monotonic()
            if number == 1 + further:
                for stage in stages.values():
                    stage.progress.watermark.flush()
            try:
                if number == 0:
                    for name, stage in stages.items():
                        with errors_of_stage(name):
                            stage.engine.read_tables(clock_time())
                results = process_batch(stages, records, clock_time(), number)
                committing = {
                    name: write_outputs(stage.job, run, number, results[name].outputs, name)
                    for name, stage in stages.items()
                }
            except AmadouError as error:
                hooks.batch_failed(failed_batch(number, error, began))
                raise
            reports = {}
            for name, stage in stages.items():
                with errors_of_stage(name):
                    reports[name] = stage.finish(results[name], number, began, committing[name])
            feed_stages({name: stage.progress.watermark for name, stage in stages.items()})
            report = whole_report(reports)
            summary = summary.with_batch(report)
            for name, each in reports.items():
                with errors_of_stage(name):
                    warnings[name].look(each)
            hooks.batch_completed(report)
        records = {}
    for stage in stages.values():
        stage.engine.close()
    if to_savepoint is not None:
        last = summary.batches - 1
        saves = {
            name: partial(save, stage.job, run, last, stage.engine, stage.progress) for name, stage in stages.items()
        }
        write_job_savepoint(job.name, saves, to_savepoint)
        return summary
    for source, count in summary.counts.held.items():
        text = "job %s: lost held events from %s (%s): a needed source is down. Use a checkpoint on Spark to keep them"
        _logger.warning(text, job.name, source, f"{count:,}")
    return summary


class EmbeddedStage:
    """A stage of a run, with its progress.

    :param job: the stage as a job
    :param name: the stage's name; empty for a job with one handler
    """

    def __init__(self, job: Job, name: str) -> None:
        self.job = job
        with errors_of_stage(name):
            self.engine = Embedded(job)
        self.progress = JobProgress(job)

    def finish(self, result: BatchResult, number: int, began: float, committing: Mapping[str, float]) -> BatchReport:
        """Store the state and the progress after a batch. Return its report.

        :param began: result of `time.monotonic` at the beginning of the batch
        :param committing: result of `write_outputs`
        """
        result, watermark = self.engine.store(result), self.progress.watermark
        log_changes(self.job, result.evaluation.decision.changes)
        now = clock_time()
        watermark.observe(result.newest, now)
        watermark.hold(result.processed.held)
        self.progress.dependency_state = result.evaluation.decision.state
        return BatchReport(
            number,
            result.counts,
            None if watermark.current is None else from_micros(watermark.current),
            time.monotonic() - began,
            from_micros(now),
            {**result.stage_seconds, **committing},
            result.callback_seconds,
            result.callback_calls,
            downs(self.job, result.evaluation.decision.down),
            watermark.reports(now),
            result.samples.dead_letters,
            result.samples.late_events,
        )


def process_batch(
    stages: Mapping[str, EmbeddedStage], records: Mapping[str, BatchRecords], now: int, number: int
) -> dict[str, BatchResult]:
    """Process a batch in all stages, each after those that feed it. Return the results by stage.

    :param records: the records of sources that are not ports of other stages; see `Embedded.process`
    """
    results: dict[str, BatchResult] = {}
    for name, stage in stages.items():
        watermark = stage.progress.watermark.follow(now)
        fed = fed_by(stage.job, {of: result.outputs for of, result in results.items()})
        given = {**records.get(name, {}), **{source: [("", each)] for source, each in fed.items()}}
        with errors_of_stage(name):
            results[name] = stage.engine.process(given, watermark, now, number, stage.progress.dependency_state)
    return results


def write_outputs(
    job: Job, run: str, number: int, outputs: Mapping[str, list[Any]], stage: str = ""
) -> dict[str, float]:
    """Write and commit one batch's outputs as one part per port. Return the seconds that writing and committing took.

    :param stage: the stage's name; empty in a job with one handler
    """
    seconds = {"writing": 0.0, "committing": 0.0}
    with errors_of_stage(stage):
        for port in job.sinks:
            batch = SinkBatch(run, job.name, qualified(stage, port), number, port_codec(job, port))
            sink = sink_of(job, port)
            began = perf_counter()
            writer = sink.open(batch, "00000")
            try:
                writer.write(outputs.get(port, []))
                part = writer.finish()
            except BaseException:
                writer.abort()
                raise
            written = perf_counter()
            sink.commit(batch, [] if part is None else [part])
            seconds["writing"] += written - began
            seconds["committing"] += perf_counter() - written
    return seconds
