"""All hooks that a plugin can implement.

Hooks are called in the order in which plugins are loaded: first amadou's own plugins, then the entry points of
installed packages, then the job's plugins, and last the plugins from the command line. `register` hooks extend amadou,
`prepare` hooks change a run, and the other hooks observe the run.

A plugin that fails does not affect other plugins: amadou skips the failed plugin or hook call and logs a warning with
the plugin's name. Three failures end the run, because the job would not run as requested: an error in a `prepare` hook,
a plugin of the job that cannot be loaded, and an `AmadouError` that a plugin raises in `amadou_run_started`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from amadou._connectors.connector import Sink, Source
from amadou._jobs.job import Job
from amadou._plugins.markers import hookspec
from amadou._plugins.metric import Metric
from amadou._plugins.report import BatchReport, FailedBatch, Run, RunSummary

if TYPE_CHECKING:
    import typer


@hookspec
def amadou_register_sources() -> Mapping[str, type[Source]]:  # type: ignore[empty-body]
    """Register sources under the names used on the command line, such as ``lines`` in
    ``--source views=lines:views/``.
    """


@hookspec
def amadou_register_sinks() -> Mapping[str, type[Sink]]:  # type: ignore[empty-body]
    """Register sinks under the names used on the command line, such as ``json-lines`` in
    ``--sink sums=json-lines:sums/``.
    """


@hookspec
def amadou_register_codecs() -> Mapping[str, Callable[[Any], Any]]:  # type: ignore[empty-body]
    """Register codecs by name, such as ``json`` in ``SinkSpec(ViewSum, codec="json")``. Each name is mapped to a
    function that accepts a type and returns a codec for this type.
    """


@hookspec
def amadou_register_metrics() -> Iterable[Metric]:  # type: ignore[empty-body]
    """Register metrics. Every plugin can read the metrics in `Run.metrics`. A plugin that exports metrics, such as
    `PrometheusEndpoint`, exports these metrics, too.
    """


@hookspec
def amadou_register_commands(app: "typer.Typer") -> None:
    """Add commands to the program ``amadou``.

    :param app: the program's Typer application
    """


@hookspec
def amadou_prepare_job(job: Job) -> Job | None:
    """Inspect or change a job before the run. To create a changed job, use `attrs.evolve`. Each `Param` of the job has
    already been replaced by its value. Test runs do not call this hook.

    :param job: the job, including the changes of earlier plugins
    :returns: the changed job; `None` to leave the job unchanged
    """


@hookspec
def amadou_prepare_session(job: Job, settings: dict[str, str]) -> None:
    """Change the settings for a new `SparkSession` by changing `settings` in place. The settings of an existing session
    do not change.

    :param settings: the settings from amadou and the command line, by name
    """


@hookspec
def amadou_run_started(run: Run) -> None:
    """Called when a run starts, after amadou has checked the run's sources and sinks, and before the first batch. A
    plugin that raises an `AmadouError` ends the run.
    """


@hookspec
def amadou_batch_completed(run: Run, batch: BatchReport) -> None:
    """Called when a batch has been processed and its outputs have been committed. After a crash, the next run may call
    this hook again with the same batch number.

    Called on the driver, in batch order; the next batch waits until the hook returns.
    """


@hookspec
def amadou_batch_failed(run: Run, batch: FailedBatch) -> None:
    """Called when a batch has failed, before `amadou_run_failed`. A run can also fail outside of a batch."""


@hookspec
def amadou_spark_progress(run: Run, progress: Mapping[str, Any]) -> None:
    """Called with Spark's progress report on a batch, after `amadou_batch_completed` for the same batch and before
    `amadou_batch_completed` for the next batch. Not called for a batch that failed.

    :param progress: the fields of Spark's `StreamingQueryProgress` under Spark's names, such as ``durationMs`` and
        ``stateOperators``
    """


@hookspec
def amadou_run_ended(run: Run, summary: RunSummary) -> None:
    """Called when a run has ended because it reached the end of its input or was stopped."""


@hookspec
def amadou_run_failed(run: Run, error: Exception) -> None:
    """Called when a run has ended with an error. Not called if the run fails before it starts."""
