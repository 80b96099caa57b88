"""Runs jobs and replays their dead letters: `run`, `start` and `replay`."""

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import attrs

from amadou import Job
from amadou.errors import CheckpointError, JobError, SavepointError
from amadou.paths import is_remote, local_path
from amadou.plugins import DeadLetterReport, RunSummary
from amadou_runtime.embedded.run import run_embedded
from amadou_runtime.jobs.connectors import is_bounded
from amadou_runtime.jobs.given_path import check_given
from amadou_runtime.jobs.interval import interval
from amadou_runtime.jobs.ports import with_all_sinks
from amadou_runtime.jobs.trigger import trigger_problem
from amadou_runtime.plugins.hooks import plugins_of
from amadou_runtime.plugins.run_hooks import RunHooks
from amadou_runtime.runs.dead_letter_files import Letter
from amadou_runtime.runs.progress import Progress
from amadou_runtime.runs.replay import Replay, plan_of
from amadou_runtime.savepoint.job_savepoint import JobSavepoint
from amadou_runtime.savepoint.savepoint import check_new

if TYPE_CHECKING:
    from amadou_runtime.spark import RunningJob
    from amadou_runtime.spark.savepoints.service import Schedule

_POLL = timedelta(seconds=0.25)
_SAVEPOINT_SIGNALS = [signal.SIGUSR1] if hasattr(signal, "SIGUSR1") else []  # not on Windows
_logger = logging.getLogger("amadou")


def run(
    job: Job,
    *,
    engine: Literal["spark", "embedded"] = "spark",
    checkpoint: str | None = None,
    from_savepoint: str | None = None,
    to_savepoint: str | None = None,
    savepoint_every: str | None = None,
    savepoint_directory: str | None = None,
    savepoint_keep: int | None = None,
    trigger: str | None = None,
    flush: bool = False,
    params: Mapping[str, str] = MappingProxyType({}),
    master: str | None = None,
    conf: Mapping[str, str] = MappingProxyType({}),
    on_progress: Callable[[Progress], None] | None = None,
) -> RunSummary:
    """Run a job until its input ends, or until Ctrl-C or SIGTERM. On Spark, the first signal stops the run after the
    current batch, and a second signal stops the run immediately. This also applies to signals that the Java process of
    the driver receives. SIGTERM while Spark starts ends the run without a batch.

    :param job: the job
    :param engine: `"spark"`; or `"embedded"`, which processes the available input in this process, without a
        checkpoint. The embedded engine ignores `trigger`, `master`, `conf` and `on_progress`
    :param checkpoint: directory for state, timers and offsets. The next run with the same directory continues where the
        last run ended. Without a checkpoint, each run starts with empty state and cannot be resumed
    :param from_savepoint: directory of a savepoint. The run starts with its state and offsets; on Spark, with a new
        checkpoint. If an earlier run has made the checkpoint from this savepoint, the run resumes from the checkpoint
    :param to_savepoint: new directory for a savepoint to write when the run ends; on Spark, with a checkpoint
    :param savepoint_every: interval between savepoints that the run takes while it continues, such as `"1 hour"`; only
        on Spark, with a checkpoint
    :param savepoint_directory: directory in which to create these savepoints; by default, `savepoints` in the
        checkpoint. The run also takes a savepoint in this directory when it receives the signal SIGUSR1
    :param savepoint_keep: number of these savepoints to keep; by default, all
    :param trigger: `"available-now"` ends the run once the available input is processed, even if a source is unbounded.
        With an interval between batches, such as `"5 seconds"`, the run continues until it is stopped, even if all
        sources are bounded. By default, batches run back to back, and the run ends with its input if all sources are
        bounded
    :param flush: `True` to advance the watermark to the maximum timestamp when the input ends so that every timer
        fires (`semantics.md` 12). All events in later runs with the same checkpoint are then late
    :param params: the values of the job's parameters, by name
    :param master: the Spark master URL; by default, the URL that `spark-submit` sets, or `local[*]`
    :param conf: Spark settings, which override amadou's default settings
    :param on_progress: function to call with the run's progress, about four times a second
    :raises AmadouError: the job failed or cannot run; see the subclasses in `amadou.errors`
    :raises ValueError: `engine` or `trigger` is invalid, or `checkpoint` is set for the embedded engine
    """
    _check_given(checkpoint, from_savepoint, to_savepoint, savepoint_directory)
    if engine == "embedded" and checkpoint is not None:
        raise ValueError('engine="embedded" does not use a checkpoint: omit checkpoint=, or use engine="spark"')
    _check_trigger(trigger)
    if engine not in ("spark", "embedded"):
        raise ValueError(f'the engine must be "spark" or "embedded", not {engine!r}')
    if to_savepoint is not None and not _needs_spark(to_savepoint, engine):
        check_new(to_savepoint)
    savepoint = None
    if from_savepoint is not None and not _needs_spark(from_savepoint, engine) and not _may_resume(checkpoint):
        savepoint = JobSavepoint(from_savepoint)  # checked first, since starting Spark takes seconds
    job, hooks = _prepared(job, params)
    with hooks.failures_reported():
        if engine == "embedded":
            summary = run_embedded(job, hooks, flush=flush, savepoint=savepoint, to_savepoint=to_savepoint)
        else:
            summary = _run_on_spark(
                job,
                hooks,
                checkpoint,
                trigger,
                flush,
                master,
                dict(conf),
                on_progress,
                from_savepoint=from_savepoint,
                to_savepoint=to_savepoint,
                schedule=_schedule(checkpoint, savepoint_every, savepoint_directory, savepoint_keep),
            )
    hooks.ended(summary)
    return summary


def _needs_spark(savepoint: str, engine: str) -> bool:
    """Return `True` if a savepoint can only be accessed once Spark has started."""
    return engine == "spark" and is_remote(savepoint)


def _may_resume(checkpoint: str | None) -> bool:
    """Return `True` if a checkpoint may exist already."""
    return checkpoint is not None and (is_remote(checkpoint) or Path(local_path(checkpoint)).exists())


def _prepared(job: Job, params: Mapping[str, str]) -> tuple[Job, RunHooks]:
    """Return the job, with its parameters set and its plugins' changes applied, and the hooks for the run."""
    plugins = plugins_of(job.plugins)
    return plugins.prepare_job(job.with_params(params)), RunHooks(plugins, partial(reproduced, job, params))


def reproduced(job: Job, params: Mapping[str, str], letter: DeadLetterReport) -> str:
    """Return the source code of a test for a dead letter; see `Run.reproduce`."""
    from amadou_runtime.runs.reproduce import test_of_report

    return test_of_report(letter, job, params)


def _run_on_spark(
    job: Job,
    hooks: RunHooks,
    checkpoint: str | None,
    trigger: str | None,
    flush: bool,
    master: str | None,
    conf: dict[str, str],
    on_progress: Callable[[Progress], None] | None,
    *,
    from_savepoint: str | None,
    to_savepoint: str | None,
    schedule: "Schedule | None",
) -> RunSummary:
    from amadou.spark_versions import check_reads_state, wakes_while_ending
    from amadou_runtime.spark import start as start_on_spark
    from amadou_runtime.spark.checkpoint import absolute
    from amadou_runtime.spark.savepoints.writing import write_savepoint

    with_all_sinks(job, checkpoint)  # checked first, since starting Spark takes seconds
    ends = trigger == "available-now" or (trigger is None and is_bounded(job))
    if flush and not ends:
        raise JobError(job.name, ('flush=True (--flush) needs a run that ends: use trigger="available-now" (--once)',))
    hooks.plugins.prepare_session(job, conf)
    with (
        _session(job, master, conf) as (spark, requests),
        TemporaryDirectory(prefix="amadou-checkpoint-") as temporary,
    ):
        if requests.stop.is_set():
            if to_savepoint is not None:
                raise SavepointError(to_savepoint, "it was not written: the run was stopped while Spark started")
            return RunSummary(job.name)
        if to_savepoint is not None:
            check_reads_state()
        goes_on = flush or to_savepoint is not None or (ends and not wakes_while_ending())
        directory = checkpoint or temporary
        kept = directory if goes_on else checkpoint

        def process(**how: Any) -> "RunningJob":
            running = start_on_spark(job, spark, hooks, checkpoint=kept, trigger=trigger, conf=conf, **how)
            _follow(running, requests, on_progress)
            return running

        summary = _with_due_batches(process(from_savepoint=from_savepoint, schedule=schedule), process, flush)
        if requests.savepoint.is_set():
            _logger.warning("no savepoint was written: SIGUSR1 came when the run was ending. Run amadou savepoint")
        if to_savepoint is not None:
            write_savepoint(spark, absolute(directory), to_savepoint)
        return summary


def _with_due_batches(running: "RunningJob", process: Callable[..., "RunningJob"], flush: bool) -> RunSummary:
    """Process the batches that are due after a run, and flush. Return the summary of all batches.

    :param process: function that starts the next run, and returns when it has ended
    """
    summary, flushing = running.summary, False
    while running.goes_on or (flush and not flushing and not running.is_stopping):
        flushing = flushing or not running.goes_on
        running = process(after=running, flush=flushing)
        summary = summary.then(running.summary)
    return summary


def start(
    job: Job,
    spark: Any,
    *,
    checkpoint: str | None = None,
    from_savepoint: str | None = None,
    trigger: str | None = None,
    params: Mapping[str, str] = MappingProxyType({}),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> "RunningJob":
    """Start a job on a Spark session and return immediately. The caller must stop the session. For the other parameters
    and the errors, see `run`. On Spark before 4.2, a run with several stages or idle sources may end while batches are
    still due; a warning says so. `run` processes these batches, too.

    :param spark: the `SparkSession`
    :param conf: Spark SQL settings for this job, which override the session's settings and amadou's default settings
    :returns: the running job
    """
    from amadou_runtime.spark import start as start_on_spark

    _check_given(checkpoint, from_savepoint)
    _check_trigger(trigger)
    job, hooks = _prepared(job, params)
    with hooks.failures_reported():
        running = start_on_spark(
            job, spark, hooks, checkpoint=checkpoint, from_savepoint=from_savepoint, trigger=trigger, conf=conf
        )

    def ended(outcome: RunSummary | Exception) -> None:
        if running.goes_on and isinstance(outcome, RunSummary):
            _logger.warning(
                "job %s: batches are still due, which this version of Spark does not begin in a run that ends: start "
                "the job again with its checkpoint, or use run() instead of start()",
                job.name,
            )
        hooks.ended(outcome)

    running.on_end = ended
    return running


def _check_given(checkpoint: str | None, *savepoints: str | None) -> None:
    """Raise an `AmadouError` if a path is empty."""
    if checkpoint is not None:
        check_given(checkpoint, CheckpointError)
    for directory in savepoints:
        if directory is not None:
            check_given(directory, SavepointError)


def _check_trigger(trigger: str | None) -> None:
    problem = trigger_problem(trigger)
    if problem is not None:
        raise ValueError(problem)


def _schedule(checkpoint: str | None, every: str | None, directory: str | None, keep: int | None) -> "Schedule | None":
    """Return when and where a run takes savepoints; `None` if it has neither a checkpoint nor a directory.

    :raises ValueError: a setting is invalid
    """
    from amadou_runtime.spark.checkpoint import absolute
    from amadou_runtime.spark.savepoints.service import Schedule

    if keep is not None and keep < 1:
        raise ValueError(f"savepoint_keep must be at least 1, not {keep}")
    if every is not None and checkpoint is None:
        raise ValueError("savepoint_every needs a checkpoint")
    if directory is None and checkpoint is None:
        return None
    return Schedule(
        None if directory is None else absolute(local_path(directory)), None if every is None else interval(every), keep
    )


@attrs.frozen
class _Requests:
    """What signals have asked of a run."""

    stop: threading.Event = attrs.field(factory=threading.Event)
    """The first Ctrl-C or SIGTERM sets it."""
    savepoint: threading.Event = attrs.field(factory=threading.Event)
    """SIGUSR1 sets it."""


def _follow(running: "RunningJob", requests: _Requests, on_progress: Callable[[Progress], None] | None) -> None:
    while not running.await_termination(_POLL):
        if on_progress is not None:
            on_progress(running.progress)
        if requests.savepoint.is_set():
            requests.savepoint.clear()
            if running.ask_for_savepoint() is None:
                _logger.warning("no savepoint was written after SIGUSR1: the run has no checkpoint (--checkpoint)")
        if requests.stop.is_set():
            running.stop()
    if on_progress is not None:
        on_progress(running.progress)


def replay(
    job: Job,
    letters: Iterable[Letter],
    *,
    checkpoint: str,
    params: Mapping[str, str] = MappingProxyType({}),
    master: str | None = None,
    conf: Mapping[str, str] = MappingProxyType({}),
    on_progress: Callable[[Progress], None] | None = None,
) -> Replay:
    """Replay a job's dead letters in order, with the state in the job's checkpoint. Each stage replays its own dead
    letters, one stage after the other. The replay also processes the sources' available input. Each dead letter is
    replayed only once: the checkpoint records its id, and later replays skip it.

    :param letters: all dead letters that the job has written, oldest first, including those already replayed
    :param checkpoint: checkpoint of the run that wrote the dead letters; no other run may use it during the replay
    :raises CheckpointError: no run has used the checkpoint, or the checkpoint does not fit the job
    :raises LoadError: the dead letters are from a different job, or need a source or component that the job does not
        have
    """
    from amadou_runtime.spark import start as start_on_spark
    from amadou_runtime.spark.replay import recorded_letters

    _check_given(checkpoint)
    job, hooks = _prepared(job, params)
    settings = dict(conf)
    with hooks.failures_reported():
        with_all_sinks(job, checkpoint)
        hooks.plugins.prepare_session(job, settings)
        with _session(job, master, settings) as (spark, requests):
            plan = plan_of(letters, job, recorded_letters(spark, checkpoint, job.by_stage))
            summary, count = None, 0
            # An interrupted replay may have stored dead letters that still have to be processed.
            for step in plan.steps or ([[]] if plan.before else []):
                running = start_on_spark(
                    job, spark, hooks, checkpoint=checkpoint, trigger="available-now", conf=settings, letters=step
                )
                count += len(step)
                _follow(running, requests, on_progress)
                summary = running.summary if summary is None else summary.then(running.summary)
                if running.is_stopping:
                    break
    if summary is not None:
        hooks.ended(summary)
    return Replay(summary, count, plan.before, plan.others)


@contextmanager
def _session(job: Job, master: str | None, conf: Mapping[str, str]) -> Iterator[tuple[Any, _Requests]]:
    """Yield the Spark session, and what signals ask of the run. A second Ctrl-C or SIGTERM has its default effect, and
    so has Ctrl-C while Spark starts. Outside the main thread, all signals keep their effects.
    """
    from amadou_runtime.spark import session
    from amadou_runtime.spark.java_signals import java_signals

    requests = _Requests()
    if threading.current_thread() is not threading.main_thread():
        yield session(job.name, master=master, conf=conf), requests
        return
    with _handled(lambda *_: requests.savepoint.set(), *_SAVEPOINT_SIGNALS):
        with _signals_set(requests.stop, signal.SIGTERM):
            spark = session(job.name, master=master, conf=conf)  # changes the handler of SIGINT
        with _signals_set(requests.stop, signal.SIGINT, signal.SIGTERM), java_signals(spark, requests.stop.set):
            yield spark, requests


def _signals_set(stop: threading.Event, *numbers: signal.Signals) -> AbstractContextManager[None]:
    def handle(*_: Any) -> None:
        stop.set()
        for other in numbers:
            signal.signal(other, signal.default_int_handler if other == signal.SIGINT else signal.SIG_DFL)

    return _handled(handle, *numbers)


@contextmanager
def _handled(handle: Callable[..., None], *numbers: signal.Signals) -> Iterator[None]:
    """Within the context, call a function when one of some signals arrives."""
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, before[number])
