from typing import Any

from amadou import AmadouError


class DependencyError(AmadouError):
    """A `Checkpoint`, `Dependency` or stream has an invalid argument, a cache cannot be read or written, or a coroutine
    in `run_sync` waits for something.
    """


class MarkerError(DependencyError, ValueError):
    """Two markers cannot be compared or subtracted.

    :param dependency: the dependency's name
    :param marker: first marker
    :param other: second marker
    """

    def __init__(self, dependency: str, marker: Any, other: Any) -> None:
        self.dependency = dependency
        self.marker = marker
        self.other = other
        super().__init__(
            f"{dependency}: the markers {marker!r} and {other!r} cannot be compared: pass markers of the same "
            "type to heartbeat and check_pulse, or give the dependency a downtime_check and a recovery_check"
        )
