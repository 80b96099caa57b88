"""A run on the embedded engine: reads the sources once, processes the batches, and writes their outputs."""

import logging
import time
import uuid
from collections.abc import Mapping
from functools import partial
from time import perf_counter
from typing import Any

from amadou import Job
from amadou.engine import clock_time
from amadou.errors import AmadouError
from amadou.event_time import from_micros
from amadou.plugins import BatchReport, Run, RunSummary, SinkBatch
from amadou.text import qualified
from amadou_runtime.core.dependencies import downs, log_changes
from amadou_runtime.core.feeding import fed_by
from amadou_runtime.core.watermark import feed_stages
from amadou_runtime.embedded.engine import BatchRecords, BatchResult, Embedded
from amadou_runtime.embedded.savepoints import JobProgress, load_savepoint, save
from amadou_runtime.formats.failure import failed_batch
from amadou_runtime.formats.json_logs import log_context
from amadou_runtime.jobs.connectors import check_connectors
from amadou_runtime.jobs.job_document import job_document
from amadou_runtime.jobs.ports import port_codec, sink_of, with_all_sinks
from amadou_runtime.jobs.stages import depth, errors_of_stage, whole_report
from amadou_runtime.plugins.run_hooks import RunHooks
from amadou_runtime.runs.dropped_warning import DroppedWarning
from amadou_runtime.savepoint.fitting import check_job_fits
from amadou_runtime.savepoint.job_savepoint import JobSavepoint, write_job_savepoint

_logger = logging.getLogger("amadou")


def run_embedded(
    job: Job,
    hooks: RunHooks,
    *,
    flush: bool = False,
    savepoint: JobSavepoint | None = None,
    to_savepoint: str | None = None,
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
        _load(savepoint, job, stages)
    run, summary = uuid.uuid4().hex[:12], RunSummary(job.name)
    hooks.started(Run(run, job, "embedded", None, description=job_document(job)))
    keeps_position = savepoint is not None or to_savepoint is not None
    records = {name: stage.progress.read(stage.job, keeps_position=keeps_position) for name, stage in stages.items()}
    further = depth(job)
    for number in range(1 + further + (further if flush else 0)):
        with log_context(batch=number):
            for stage in stages.values():
                if number == 1:
                    stage.progress.watermark.exhaust()
                if number == 1 + further:
                    stage.progress.watermark.flush()
            report = _completed_batch(stages, records if number == 0 else {}, run, number, hooks)
            summary = summary.with_batch(report)
            hooks.batch_completed(report)
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


def _load(savepoint: JobSavepoint, job: Job, stages: "Mapping[str, EmbeddedStage]") -> None:
    """Load the state and the progress of a job's stages."""
    check_job_fits(job, savepoint)
    for name, of in savepoint.stages.items():
        if name in stages:
            stages[name].progress = load_savepoint(stages[name].job, of, stages[name].engine)
    feed_stages({name: stage.progress.watermark for name, stage in stages.items()})


def _completed_batch(
    stages: "Mapping[str, EmbeddedStage]", records: Mapping[str, BatchRecords], run: str, number: int, hooks: RunHooks
) -> BatchReport:
    """Process a batch, write its outputs, and store its state and progress. Return its report."""
    began = time.monotonic()
    try:
        if number == 0:
            for name, stage in stages.items():
                with errors_of_stage(name):
                    stage.engine.read_tables(clock_time())
        results = process_batch(stages, records, clock_time(), number)
        committing = {
            name: write_outputs(stage.job, run, number, results[name].tally.outputs, name)
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
    return whole_report(reports)


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
        self._warning = DroppedWarning(job)

    def finish(self, result: BatchResult, number: int, began: float, committing: Mapping[str, float]) -> BatchReport:
        """Store the state and the progress after a batch, and log the warnings that are due. Return its report.

        :param began: result of `time.monotonic` at the beginning of the batch
        :param committing: result of `write_outputs`
        """
        self.engine.store(result)
        tally, decision, watermark = result.tally, result.decision, self.progress.watermark
        log_changes(self.job, decision.changes)
        now = clock_time()
        watermark.observe(tally.newest, now)
        watermark.hold(result.held)
        self.progress.dependency_state = decision.state
        report = BatchReport(
            number,
            tally.counts,
            None if watermark.current is None else from_micros(watermark.current),
            time.monotonic() - began,
            from_micros(now),
            {**tally.stage_seconds, **committing},
            tally.callback_seconds,
            tally.callback_calls,
            downs(self.job, decision.down),
            watermark.reports(now),
            tally.samples.dead_letters,
            tally.samples.late_events,
        )
        self._warning.look(report)
        return report


def process_batch(
    stages: Mapping[str, EmbeddedStage], records: Mapping[str, BatchRecords], now: int, number: int
) -> dict[str, BatchResult]:
    """Process a batch in all stages, each after those that feed it. Return the results by stage.

    :param records: the records of sources that are not ports of other stages; see `Embedded.process`
    """
    results: dict[str, BatchResult] = {}
    for name, stage in stages.items():
        watermark = stage.progress.watermark.follow(now)
        fed = fed_by(stage.job, {of: result.tally.outputs for of, result in results.items()})
        given = {**records.get(name, {}), **{source: [("", each)] for source, each in fed.items()}}
        with errors_of_stage(name):
            progress = stage.progress
            results[name] = stage.engine.process(
                given, watermark, now, number, progress.dependency_state, progress.watermark.before_end
            )
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
