"""The command that shows a run's figures in the terminal: `amadou top`."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from amadou_runtime.command.options import ConfOption, MasterOption, errors_as_messages, pairs

if TYPE_CHECKING:
    from amadou_runtime.command.top_view import Documents

TOP_EXAMPLES = """Examples:

amadou top 'http://127.0.0.1:40123/?token=…'

amadou top state/ --once"""
_LEAST_INTERVAL, _MOST_INTERVAL = 0.1, 3600.0


def top(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            envvar="AMADOU_CONSOLE",
            help="The address that a run with --console printed, in quotes; or the checkpoint of any run.",
            show_default=False,
        ),
    ],
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="How often the figures are read: every 0.1 to 3600 seconds.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the figures once, and exit.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the overview of the console's API once, as JSON.")
    ] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Show a run's figures in the terminal, as its console does. Ctrl-C ends this command, not the run."""
    if not _LEAST_INTERVAL <= interval <= _MOST_INTERVAL:
        raise typer.BadParameter("the interval must be between 0.1 and 3600 seconds", param_hint="--interval")
    with errors_as_messages(), suppress(KeyboardInterrupt):
        documents = _documents(run, master, pairs(conf, "--conf"))
        if as_json:
            _print_overview(documents)
        else:
            _show(documents, interval, once=once)


def _documents(run: str, master: str | None, settings: Mapping[str, str]) -> "Documents":
    """Return the documents of a console, or of a checkpoint."""
    if run.startswith(("http:", "https:")):
        from amadou_runtime.command.console_client import ConsoleClient

        try:
            return ConsoleClient(run)
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="RUN") from None
    from amadou_runtime.command.console_command import stored_run

    return stored_run(run, master=master, settings=settings)


def _print_overview(documents: "Documents") -> None:
    import json

    print(json.dumps(documents.overview(), indent=2))


def _show(documents: "Documents", interval: float, *, once: bool) -> None:
    from rich.console import Console

    from amadou_runtime.command.top_display import TopScreen
    from amadou_runtime.command.top_view import read_view
    from amadou_runtime.command.top_watch import watch

    console = Console(markup=False, highlight=False, emoji=False)
    if once or not sys.stdout.isatty() or console.is_dumb_terminal:
        console.print(TopScreen(read_view(documents)))
    else:
        watch(documents, interval, console)
