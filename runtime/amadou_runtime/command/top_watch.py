"""Shows a run's figures on a terminal until Ctrl-C."""

import time

from rich.console import Console
from rich.live import Live

from amadou import AmadouError
from amadou_plugins.console._text import shown_time
from amadou_runtime.command.top_display import TopScreen
from amadou_runtime.command.top_view import Documents, View, read_view


def watch(documents: Documents, interval: float, console: Console) -> None:
    """Show a run's figures on the entire terminal, and keep them up to date. If they cannot be read, the last
    figures stay.

    :param interval: seconds after which the figures are read again
    :raises AmadouError: the run's figures cannot be read at the start
    """
    view = read_view(documents)
    with Live(TopScreen(view), console=console, screen=True, refresh_per_second=1) as live:
        while True:
            time.sleep(interval)
            note = ""
            try:
                view = read_view(documents)
            except AmadouError as error:
                note = _note(error, view)
            live.update(TopScreen(view, note), refresh=True)


def _note(error: AmadouError, view: View) -> str:
    return f"{error}. The figures are those of {shown_time(view.overview.now)} UTC"
