"""Every hook that a plugin may implement.

Hooks are called in the order in which plugins are loaded: amadou's own, then the entry points of installed packages,
then those that the job names. `register` hooks add to amadou, `prepare` hooks change a run, and the others observe it.

A plugin that fails does not affect the others: amadou skips the part that fails, with a warning that names the plugin.
Three failures end the run, since it would not be the run that was asked for: an error in a `prepare` hook, a plugin of
the job that cannot be loaded, and an `AmadouError` that a plugin raises on purpose in `amadou_run_started`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from amadou._connector import Sink, Source
from amadou._job import Job
from amadou._markers import hookspec
from amadou._metric import Metric
from amadou._report import BatchReport, Run, RunSummary

if TYPE_CHECKING:
    import typer


@hookspec
def amadou_register_sources() -> Mapping[str, type[Source]]:  # type: ignore[empty-body]
    """Add sources by the names under which the command line knows them, as in ``--source views=lines:views/``."""


@hookspec
def amadou_register_sinks() -> Mapping[str, type[Sink]]:  # type: ignore[empty-body]
    """Add sinks by the names under which the command line knows them, as in ``--sink sums=json-lines:sums/``."""


@hookspec
def amadou_register_codecs() -> Mapping[str, Callable[[Any], Any]]:  # type: ignore[empty-body]
    """Add codecs by name, as in ``SinkSpec(ViewSum, codec="json")``: each function makes the codec for a type."""


@hookspec
def amadou_register_metrics() -> Iterable[Metric]:  # type: ignore[empty-body]
    """Add metrics. Every plugin finds them in `Run.metrics`, and plugins that export metrics export these, too."""


@hookspec
def amadou_register_commands(app: "typer.Typer") -> None:
    """Add commands to ``amadou``.

    :param app: the typer application
    """


@hookspec
def amadou_prepare_job(job: Job) -> Job | None:
    """Inspect or change a job before it runs. Change it with `attrs.evolve`. The job has the values of its parameters;
    test runs process the job as it is written.

    :param job: the job as changed by the plugins before this one
    :returns: the changed job; `None` leaves it as it is
    """


@hookspec
def amadou_prepare_session(job: Job, settings: dict[str, str]) -> None:
    """Change the settings of a new `SparkSession`, in place. An existing session keeps its own.

    :param settings: settings of amadou and the command line, by name
    """


@hookspec
def amadou_run_started(run: Run) -> None:
    """Called when a run has started: sources and sinks are checked, and no batch has been processed. A plugin that
    raises an `AmadouError` ends the run.
    """


@hookspec
def amadou_batch_completed(run: Run, batch: BatchReport) -> None:
    """Called when a batch has been processed and its outputs are committed. After a crash it may be called again with
    the same number.

    It is called in the driver, in the order of batches; the next batch waits for it.
    """


@hookspec
def amadou_spark_progress(run: Run, progress: Mapping[str, Any]) -> None:
    """Called with Spark's progress of a batch: after its `amadou_batch_completed`, before that of the next batch. Not
    called for a batch that failed.

    :param progress: fields of Spark's `StreamingQueryProgress` by Spark's names: ``durationMs``, ``stateOperators`` …
    """


@hookspec
def amadou_run_ended(run: Run, summary: RunSummary) -> None:
    """Called when a run has reached the end of its input, or was stopped."""


@hookspec
def amadou_run_failed(run: Run, error: Exception) -> None:
    """Called when a run has ended with an error."""
