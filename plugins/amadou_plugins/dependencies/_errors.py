from typing import Any

from amadou.errors import AmadouError, error_class


class DependencyError(AmadouError):
    """A `Checkpoint`, `Dependency` or stream has an invalid argument, a cache cannot be read or written, or a coroutine
    in `run_sync` waits for something.
    """


@error_class
class MarkerError(DependencyError, ValueError):
    """Two markers cannot be compared or subtracted.

    :param dependency: the dependency's name
    :param marker: first marker
    :param other: second marker
    """

    dependency: str
    marker: Any
    other: Any

    def _message(self) -> str:
        return (
            f"{self.dependency}: the markers {self.marker!r} and {self.other!r} cannot be compared: pass markers of "
            "the same type to heartbeat and check_pulse, or give the dependency a downtime_check and a recovery_check"
        )
