"""The command that runs a job: `amadou run TARGET …`, and `python views.py …` without the target."""

import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from amadou import Job
from amadou_runtime._run import run
from amadou_runtime.command.load_job import load_job
from amadou_runtime.command.named_connectors import with_connectors
from amadou_runtime.command.options import ParamOption, TargetArgument, errors_as_messages, groups, pairs
from amadou_runtime.command.progress_display import ProgressDisplay
from amadou_runtime.core.trigger import AVAILABLE_NOW, trigger_problem


class Engine(StrEnum):
    """Engine that runs a job."""

    SPARK = "spark"
    EMBEDDED = "embedded"


def run_job(
    target: TargetArgument,
    param: ParamOption = None,
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=KIND:…", help="Read a source from elsewhere, such as views=lines:views/."),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PORT=KIND:…",
            help="Lead a port elsewhere, such as sums=console. Given several times for a port, to several sinks.",
        ),
    ] = None,
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="A plugin, beside those that are installed and the job's."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Keep state, timers and offsets here, and resume from here. Without it each run begins anew.",
        ),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="embedded: process what the sources have now, in this process, without Java.")
    ] = Engine.SPARK,
    once: Annotated[
        bool, typer.Option("--once", help="End when what is there now is processed, also with unbounded sources.")
    ] = False,
    trigger: Annotated[
        str | None, typer.Option(metavar="TIME", help='The pace of batches, such as "5 seconds".')
    ] = None,
    flush: Annotated[
        bool,
        typer.Option("--flush", help="At the end of input send the watermark to the end of time: all timers fire."),
    ] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark's master.  [default: spark-submit's, or local[*]]")
    ] = None,
    conf: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="A Spark setting. May be given several times."),
    ] = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            envvar="AMADOU_METRICS_PORT",
            help="Serve metrics to Prometheus at this port of 127.0.0.1 while the run lasts.",
        ),
    ] = None,
) -> None:
    """Run a job to the end of its input, or until Ctrl-C, which ends it after the batch in hand."""
    params, settings = pairs(param, "-p"), pairs(conf, "--conf")
    sources, sinks = pairs(source, "--source"), groups(sink, "--sink")
    if once and trigger is not None:
        raise typer.BadParameter("--once and --trigger exclude each other")
    problem = trigger_problem(trigger)
    if problem is not None:
        raise typer.BadParameter(problem, param_hint="--trigger")
    if engine is Engine.EMBEDDED:
        for option, value in {
            "--checkpoint": checkpoint,
            "--trigger": trigger,
            "--master": master,
            "--conf": conf,
        }.items():
            if value:
                raise typer.BadParameter(f"{option} is for the Spark engine: leave it out with --engine embedded")
    with errors_as_messages():
        job = load_job(target) if isinstance(target, str) else target  # see run_program
        job = with_connectors(job, sources, sinks, [*(plugin or ()), *_endpoint(metrics_port)])
        with ProgressDisplay() as display:
            summary = run(
                job,
                engine=engine.value,
                checkpoint=checkpoint,
                trigger=AVAILABLE_NOW if once else trigger,
                flush=flush,
                params=params,
                master=master,
                conf=settings,
                on_progress=display,
            )
        print(summary, file=sys.stderr)


def _endpoint(port: int | None) -> list[Any]:
    """Return the plugin that serves metrics at a port, if a port is given."""
    from amadou_plugins.metrics import PrometheusEndpoint

    return [] if port is None else [PrometheusEndpoint(port)]


def run_program(job: Job, argv: Sequence[str] | None) -> None:
    """Run a job as its own program, and exit."""
    # The job replaces the target, which leaves the options; typer needs a function's attributes.
    command: Callable[..., None] = partial(run_job, job)  # type: ignore[arg-type]
    command.__annotations__ = run_job.__annotations__
    command.__name__ = "run"
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.command(help=(run_job.__doc__ or "").replace("a job", f"the job {job.name}", 1))(command)
    app(args=None if argv is None else list(argv), prog_name=Path(sys.argv[0]).name)
