"""The console command `amadou`."""

from importlib.metadata import version
from typing import Annotated

import typer

from amadou_runtime._command import ParamOption, TargetArgument, errors_told, pairs, run_job
from amadou_runtime._load import load_job

app = typer.Typer(
    name="amadou",
    help="Stateful stream handlers in plain Python: tested in milliseconds, run unchanged on Apache Spark.",
    epilog="Examples:\n\namadou describe views.py\n\namadou run views.py --once --checkpoint state/",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

_RUN_EXAMPLES = """Examples:

amadou run views.py --once

amadou run views.py -p VIEWS=in/ --checkpoint state/ --trigger "5 seconds"

amadou run my.package.views:job --engine embedded"""

app.command("run", epilog=_RUN_EXAMPLES)(run_job)


@app.command("describe", epilog="Example: amadou describe views.py:job -p VIEWS=in/")
def describe_job(target: TargetArgument, param: ParamOption = None) -> None:
    """Show what a job is made of: handler, state, ports, sinks, sources and parameters. Needs no Java."""
    from rich.console import Console

    from amadou_runtime._describe import describe

    params = pairs(param, "-p")
    with errors_told():
        describe(load_job(target), params, Console(markup=False, highlight=False))


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"amadou {version('amadou')}")
        raise typer.Exit


@app.callback()
def amadou(
    _: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass
