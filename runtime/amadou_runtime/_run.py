"""Runs jobs, from their sources to their sinks: `run`, `start` and `replay`."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import attrs

from amadou import Job, RunSummary
from amadou_runtime.core.connectors import is_bounded
from amadou_runtime.core.dead_letter_files import Letter
from amadou_runtime.core.ports import with_all_sinks
from amadou_runtime.core.progress import Progress
from amadou_runtime.core.replay import plan_of
from amadou_runtime.core.trigger import trigger_problem
from amadou_runtime.embedded.engine import run_embedded
from amadou_runtime.plugins.hooks import plugins_of
from amadou_runtime.plugins.run_hooks import RunHooks

if TYPE_CHECKING:
    from amadou_runtime.spark import RunningJob

_POLL = timedelta(seconds=0.25)


def run(
    job: Job,
    *,
    engine: Literal["spark", "embedded"] = "spark",
    checkpoint: str | None = None,
    trigger: str | None = None,
    flush: bool = False,
    params: Mapping[str, str] = MappingProxyType({}),
    master: str | None = None,
    conf: Mapping[str, str] = MappingProxyType({}),
    on_progress: Callable[[Progress], None] | None = None,
) -> RunSummary:
    """Run a job to the end of bounded input, or until Ctrl-C or SIGTERM, which end it after the current batch; a second
    one ends it at once.

    :param job: the job
    :param engine: `"spark"`, or `"embedded"`: the sources' present input, in this process, without a checkpoint
    :param checkpoint: the directory that holds state, timers and offsets; starting again with it resumes there.
        Without it the run begins anew each time and cannot be resumed
    :param trigger: `"available-now"` ends when the available input is processed, also with unbounded sources; a time
        such as `"5 seconds"` is the interval of batches
    :param flush: at the end of input raise the watermark to the end of time, so that every timer fires (`semantics.md`
        12). Events in a later run of the checkpoint are then late
    :param params: values of the job's parameters by name
    :param master: Spark's master URL; the default is that of `spark-submit`, else `local[*]`
    :param conf: Spark settings, which override amadou's
    :param on_progress: function that is called about four times a second
    :raises AmadouError: see `amadou.errors`
    """
    if engine == "embedded" and checkpoint is not None:
        raise ValueError('engine="embedded" keeps no checkpoint: leave it out, or use engine="spark"')
    _check_trigger(trigger)
    if engine not in ("spark", "embedded"):
        raise ValueError(f'the engine is "spark" or "embedded", not {engine!r}')
    job, hooks = _prepared(job, params)
    with hooks.failures_reported():
        if engine == "embedded":
            summary = run_embedded(job, hooks, flush=flush)
        else:
            summary = _run_on_spark(job, hooks, checkpoint, trigger, flush, master, dict(conf), on_progress)
    hooks.ended(summary)
    return summary


def _prepared(job: Job, params: Mapping[str, str]) -> tuple[Job, RunHooks]:
    """Return the job as it is processed, and its plugins."""
    plugins = plugins_of(job.plugins)
    return plugins.prepare_job(job.with_params(params)), RunHooks(plugins)


def _run_on_spark(
    job: Job,
    hooks: RunHooks,
    checkpoint: str | None,
    trigger: str | None,
    flush: bool,
    master: str | None,
    conf: dict[str, str],
    on_progress: Callable[[Progress], None] | None,
) -> RunSummary:
    from amadou_runtime.spark import session
    from amadou_runtime.spark import start as start_on_spark

    with_all_sinks(job, checkpoint)  # before Spark starts, which takes seconds
    if flush and trigger != "available-now" and not (trigger is None and is_bounded(job)):
        raise ValueError('flush=True needs input that ends: use trigger="available-now"')
    hooks.plugins.prepare_session(job, conf)
    spark = session(job.name, master=master, conf=conf)
    with _stop_signals() as stop, TemporaryDirectory(prefix="amadou-checkpoint-") as temporary:
        if flush and checkpoint is None:
            checkpoint = temporary
        process = partial(start_on_spark, job, spark, hooks, checkpoint=checkpoint, trigger=trigger, conf=conf)
        running = process()
        _follow(running, stop, on_progress)
        if not flush or stop.is_set():
            return running.summary
        flushing = process(flushes=running)
        _follow(flushing, stop, on_progress)
        return running.summary.then(flushing.summary)


def start(
    job: Job,
    spark: Any,
    *,
    checkpoint: str | None = None,
    trigger: str | None = None,
    params: Mapping[str, str] = MappingProxyType({}),
    conf: Mapping[str, str] = MappingProxyType({}),
) -> "RunningJob":
    """Start a job on a Spark session, which the caller continues to own, and return at once.

    :param spark: the `SparkSession`
    :param conf: Spark SQL settings for this job, which override the session's and amadou's
    :returns: the running job; the other parameters and the errors are those of `run`
    """
    from amadou_runtime.spark import start as start_on_spark

    _check_trigger(trigger)
    job, hooks = _prepared(job, params)
    with hooks.failures_reported():
        running = start_on_spark(job, spark, hooks, checkpoint=checkpoint, trigger=trigger, conf=conf)
    running.on_end = hooks.ended
    return running


def _check_trigger(trigger: str | None) -> None:
    problem = trigger_problem(trigger)
    if problem is not None:
        raise ValueError(problem)


def _follow(running: "RunningJob", stop: threading.Event, on_progress: Callable[[Progress], None] | None) -> None:
    while not running.await_termination(_POLL):
        if on_progress is not None:
            on_progress(running.progress)
        if stop.is_set():
            running.stop()
    if on_progress is not None:
        on_progress(running.progress)


@attrs.frozen
class Replay:
    """Result of a replay of dead letters.

    :param summary: summary of the replay's batches; `None` if no letters were left to replay
    :param letters: number of letters that were replayed
    :param before: number of letters that had been replayed before
    :param others: number of letters that cannot be replayed, by callback
    """

    summary: RunSummary | None
    letters: int
    before: int
    others: Mapping[str, int]

    def __str__(self) -> str:
        lines = [f"letters replayed: {self.letters:,}"]
        if self.before:
            lines.append(f"replayed before, and left out: {self.before:,}")
        lines += [f"cannot be replayed, and left out: {count:,} of {name}" for name, count in self.others.items()]
        return "\n".join([*lines, *([] if self.summary is None else [str(self.summary)])])


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
    """Replay dead letters into a job, in their order, with the state of its checkpoint. The sources' present input is
    processed, too. A letter counts once: it is stored in the checkpoint, and left out the next time.

    :param letters: all letters so far, in their order
    :param checkpoint: checkpoint of the run that wrote the letters; no run may be using it
    :raises CheckpointError: no run has used the checkpoint, or it does not fit the job
    :raises LoadError: the letters are of another job
    """
    from amadou_runtime.spark import session
    from amadou_runtime.spark import start as start_on_spark
    from amadou_runtime.spark.replay import noted_letters

    job, hooks = _prepared(job, params)
    settings = dict(conf)
    with hooks.failures_reported(), _stop_signals() as stop:
        with_all_sinks(job, checkpoint)
        hooks.plugins.prepare_session(job, settings)
        spark = session(job.name, master=master, conf=settings)
        plan = plan_of(letters, job, noted_letters(spark, checkpoint))
        summary, count = None, 0
        # An interrupted replay may have stored letters that are still to be processed.
        for step in plan.steps or ([[]] if plan.before else []):
            running = start_on_spark(
                job, spark, hooks, checkpoint=checkpoint, trigger="available-now", conf=settings, letters=step
            )
            count += len(step)
            _follow(running, stop, on_progress)
            summary = running.summary if summary is None else summary.then(running.summary)
            if stop.is_set():
                break
    if summary is not None:
        hooks.ended(summary)
    return Replay(summary, count, plan.before, plan.others)


@contextmanager
def _stop_signals() -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C or SIGTERM sets; the second signal has its usual effect."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}

    def handle(number: int, _: Any) -> None:
        stop.set()
        for other in numbers:
            signal.signal(other, signal.default_int_handler if other == signal.SIGINT else signal.SIG_DFL)

    for number in numbers:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number in numbers:
            signal.signal(number, before[number])
