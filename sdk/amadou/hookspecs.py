"""Every hook that a plugin may implement.

Hooks are called in the order in which plugins are loaded: those that come with amadou, those that installed packages
name as entry points, those that the job names. `register` hooks add, `prepare` hooks change, and the others tell what
happens.

A plugin that fails is named, and does not take the others along: what fails is left out with a warning. Three failures
end the run, since it would not be what was asked for: those of `prepare` hooks, of plugins that the job names and that
cannot be loaded, and an `AmadouError` that a plugin raises on purpose in `amadou_run_started`.
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
    """Add codecs by name, as in ``SinkSpec(ViewSum, codec="json")``: each makes the codec for a type."""


@hookspec
def amadou_register_metrics() -> Iterable[Metric]:  # type: ignore[empty-body]
    """Add metrics, which every plugin finds in `Run.metrics`: those that hand metrics on hand on these, too."""


@hookspec
def amadou_register_commands(app: "typer.Typer") -> None:
    """Add commands to ``amadou``.

    :param app: the typer application
    """


@hookspec
def amadou_prepare_job(job: Job) -> Job | None:
    """Look at a job before it runs, and change it, as `attrs.evolve` does. Called with the values of parameters in
    place; test runs play the job as it is written.

    :param job: the job as the plugins before have left it
    :returns: the changed job; `None` leaves it as it is
    """


@hookspec
def amadou_prepare_session(job: Job, settings: dict[str, str]) -> None:
    """Change the settings with which a new `SparkSession` begins, in place. A session that is there already keeps its
    own.

    :param settings: those of amadou and the command line, by name
    """


@hookspec
def amadou_run_started(run: Run) -> None:
    """A run has begun: sources and sinks were looked at, and no batch was played yet. A plugin that raises an
    `AmadouError` ends it.
    """


@hookspec
def amadou_batch_completed(run: Run, batch: BatchReport) -> None:
    """A batch was played, and its outputs are committed. It may be told again after a crash, with the same number.

    Called in the driver, in the order of batches; the next batch waits for it.
    """


@hookspec
def amadou_spark_progress(run: Run, progress: Mapping[str, Any]) -> None:
    """Spark tells how a batch went: after `amadou_batch_completed`, and before the next batch is. That of a batch that
    failed is not told.

    :param progress: what Spark's `StreamingQueryProgress` has, as Spark names it: ``durationMs``, ``stateOperators`` …
    """


@hookspec
def amadou_run_ended(run: Run, summary: RunSummary) -> None:
    """A run came to the end of its input, or was stopped."""


@hookspec
def amadou_run_failed(run: Run, error: Exception) -> None:
    """A run ended with an error."""
