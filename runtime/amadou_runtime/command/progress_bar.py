"""Shows how much of a command's work is done."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(label: str, total: int, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on standard error if that is a terminal. Yield a function to call with the amount of work
    that was done since its last call.

    :param total: the amount of work
    :param in_bytes: `True` if the work is counted in bytes, to show the speed
    """
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    more = (DownloadColumn(binary_units=True), TransferSpeedColumn()) if in_bytes else ()
    columns = (*Progress.get_default_columns(), *more)
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(label, total=total)
        yield lambda done: progress.advance(task, done)
