"""The console command `amadou`."""

import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from amadou_runtime.plugins.hooks import plugins_of

app = typer.Typer(
    name="amadou",
    help="Stateful stream handlers in plain Python: tested in milliseconds, run unchanged on Apache Spark.",
    epilog="Examples:\n\namadou describe views.py\n\namadou run views.py --once --checkpoint state/",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


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
    if isinstance(sys.stdout, TextIOWrapper):  # text from data can have characters that the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")


plugins_of().register_commands(app)
