"""How plugins control a run."""

from typing import Protocol


class RunControl(Protocol):
    """Controls a run. Can be used from any thread; the methods return at once."""

    def stop(self) -> None:
        """Stop the run after the current batch, as Ctrl-C does."""

    def savepoint(self) -> str:
        """Take a savepoint soon, as the signal SIGUSR1 makes `amadou run` do.

        :returns: the directory in which the savepoint will be
        :raises AmadouError: the run has no directory for savepoints
        """
