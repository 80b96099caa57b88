"""The command that runs a job: `amadou run TARGET …`, or `python views.py …` without a target."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import attrs
import typer

from amadou import Job
from amadou_runtime.command.options import ConfOption, ParamOption, TargetArgument, errors_as_messages, groups, pairs
from amadou_runtime.formats.json_logs import LOG_FORMAT


def run_job(
    target: TargetArgument,
    param: ParamOption = None,
    source: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=KIND:…", help="Use a different connector for a source, such as views=lines:views/."),
    ] = None,
    sink: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PORT=KIND:…",
            help="Write a port to a different sink, such as sums=console. Repeat the option for multiple sinks.",
        ),
    ] = None,
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Load this plugin in addition to installed plugins and the job's plugins."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Directory for state, timers and offsets, from which later runs resume. Default: no checkpoint.",
        ),
    ] = None,
    from_savepoint: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SAVEPOINT",
            help="Start from this savepoint, on Spark with a new checkpoint. A later run with the same options resumes "
            "from the checkpoint.",
        ),
    ] = None,
    to_savepoint: Annotated[
        str | None,
        typer.Option("--savepoint", metavar="DIR", help="Write a savepoint to this new directory when the run ends."),
    ] = None,
    savepoint_every: Annotated[
        str | None,
        typer.Option(metavar="TIME", help='Take a savepoint at this interval, such as "1 hour". The run continues.'),
    ] = None,
    savepoint_directory: Annotated[
        str | None,
        typer.Option(
            "--savepoint-dir",
            metavar="DIR",
            help="Where to take savepoints at intervals, or after the signal SIGUSR1. Default: savepoints in the "
            "checkpoint.",
        ),
    ] = None,
    savepoint_keep: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Keep only the last N of these savepoints. Default: keep all."),
    ] = None,
    state: Annotated[
        Literal["auto", "groups", "log"] | None,
        typer.Option(
            help="Where to store state. groups: small state; log: state of any size. The first run on a checkpoint "
            "decides. Default: the job's setting.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        Literal["spark", "embedded"],
        typer.Option(help="embedded: run in this process, without Java, on the available input."),
    ] = "spark",
    once: Annotated[
        bool, typer.Option("--once", help="End once the available input is processed, even if sources are unbounded.")
    ] = False,
    trigger: Annotated[
        str | None, typer.Option(metavar="TIME", help='Interval between batches, such as "5 seconds".')
    ] = None,
    flush: Annotated[
        bool,
        typer.Option("--flush", help="At the end of input, advance the watermark to its maximum, so all timers fire."),
    ] = False,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master URL. Default: from spark-submit, or local[*].")
    ] = None,
    conf: ConfOption = None,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            envvar="AMADOU_METRICS_PORT",
            help="Serve Prometheus metrics on this port while the job runs.",
        ),
    ] = None,
    metrics_host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Address that the metrics are served on. Default: 127.0.0.1. 0.0.0.0 lets other machines read the "
            "metrics, without a login.",
        ),
    ] = None,
    metrics_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A host name under which the metrics are read, apart from those of this machine. Numeric addresses "
            "and names of services in a cluster need not be named. Can be repeated.",
        ),
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Serve web pages about the run, on this machine, while the job runs.")
    ] = False,
    console_port: Annotated[
        int | None,
        typer.Option(metavar="PORT", min=1, max=65535, help="The console's port. Default: any free port."),
    ] = None,
    console_host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST",
            help="Address that the console listens on. Any other than 127.0.0.1 lets other machines connect, without "
            "encryption: whoever knows the address with its token sees the job's data.",
        ),
    ] = None,
    console_actions: Annotated[
        bool,
        typer.Option("--console-actions", help="Let the console stop the run and take savepoints."),
    ] = False,
    check_in_place: Annotated[
        bool,
        typer.Option(
            "--check-in-place",
            help="Check one of ten calls of a callback for values of state that it changes in place, which is not "
            "stored. Such a call fails.",
        ),
    ] = False,
    log_format: Annotated[
        Literal["text", "json"],
        typer.Option(envvar=LOG_FORMAT, help="json: log to standard error as JSON lines, without a progress display."),
    ] = "text",
) -> None:
    """Run a job until its input ends. Ctrl-C stops the run after the current batch."""
    from amadou_runtime._run import run
    from amadou_runtime.command.progress_display import ProgressDisplay
    from amadou_runtime.command.run_logs import run_logs
    from amadou_runtime.jobs.load_job import load_job
    from amadou_runtime.jobs.named_connectors import with_connectors
    from amadou_runtime.jobs.trigger import AVAILABLE_NOW, trigger_problem

    params, settings = pairs(param, "-p"), pairs(conf, "--conf")
    sources, sinks = pairs(source, "--source"), groups(sink, "--sink")
    if once and trigger is not None:
        raise typer.BadParameter("--once and --trigger are mutually exclusive: use only one of them")
    problem = trigger_problem(trigger)
    if problem is not None:
        raise typer.BadParameter(problem, param_hint="--trigger")
    if engine == "embedded":
        spark_only = {
            "--checkpoint": checkpoint,
            "--state": state,
            "--trigger": trigger,
            "--master": master,
            "--conf": conf,
            "--savepoint-every": savepoint_every,
            "--savepoint-dir": savepoint_directory,
            "--savepoint-keep": savepoint_keep,
        }
        for option, value in spark_only.items():
            if value not in (None, []):
                raise typer.BadParameter(f"{option} works only on the Spark engine: omit it with --engine embedded")
    if savepoint_every is not None:
        _check_savepoint_every(savepoint_every, checkpoint)
    logs = run_logs(log_format, target if isinstance(target, str) else target.name)
    with errors_as_messages(logs.show_error):
        job = load_job(target) if isinstance(target, str) else target  # see run_program
        logs.begin(job.name)
        job = job if state is None else attrs.evolve(job, state=state)
        job = attrs.evolve(job, check_in_place=True) if check_in_place else job
        plugins = [
            *(plugin or ()),
            *_endpoint(metrics_port, metrics_host, metrics_name or ()),
            *_console(console, console_port, console_host, actions=console_actions),
        ]
        job = with_connectors(job, sources, sinks, plugins)
        with ProgressDisplay(log=logs.log_progress) as display:
            summary = run(
                job,
                engine=engine,
                checkpoint=checkpoint,
                from_savepoint=from_savepoint,
                to_savepoint=to_savepoint,
                savepoint_every=savepoint_every,
                savepoint_directory=savepoint_directory,
                savepoint_keep=savepoint_keep,
                trigger=AVAILABLE_NOW if once else trigger,
                flush=flush,
                params=params,
                master=master,
                conf={**logs.settings, **settings},
                on_progress=display,
            )
        logs.show_summary(summary)


def _check_savepoint_every(savepoint_every: str, checkpoint: str | None) -> None:
    from amadou_runtime.jobs.interval import interval

    try:
        interval(savepoint_every)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--savepoint-every") from None
    if checkpoint is None:
        raise typer.BadParameter("--savepoint-every needs --checkpoint")


def _endpoint(port: int | None, host: str | None, names: Sequence[str]) -> list[Any]:
    """Return a list with the plugin that serves metrics on a port; empty if no port is set."""
    if port is None:
        for option, value in (("--metrics-host", host), ("--metrics-name", names)):
            if value:
                raise typer.BadParameter(f"{option} needs --metrics-port")
        return []
    from amadou_plugins.metrics import PrometheusEndpoint

    return [PrometheusEndpoint(port, host or "127.0.0.1", hosts=names)]


def _console(wanted: bool, port: int | None, host: str | None, *, actions: bool) -> list[Any]:
    """Return a list with the plugin that serves the console; empty if it is not wanted."""
    if not wanted:
        if port is not None or host is not None or actions:
            raise typer.BadParameter("--console-port, --console-host and --console-actions need --console")
        return []
    from amadou_plugins.console import Console

    return [Console(port or 0, host or "127.0.0.1", actions=actions)]


def run_program(job: Job, argv: Sequence[str] | None) -> None:
    """Run a job as its own program, and exit if it fails."""
    # The job takes the place of the target so that the command has only options. typer reads attributes that a
    # `partial` lacks, so set them here.
    command: Callable[..., None] = partial(run_job, job)  # type: ignore[arg-type]
    command.__annotations__ = run_job.__annotations__
    command.__name__ = "run"
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.command(help=(run_job.__doc__ or "").replace("a job", f"the job {job.name}", 1))(command)
    try:
        app(args=None if argv is None else list(argv), prog_name=Path(sys.argv[0]).name)
    except SystemExit as end:
        if end.code:
            raise
