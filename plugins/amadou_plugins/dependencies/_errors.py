from typing import Any

from amadou import AmadouError


class DependencyError(AmadouError):
    """Settings of dependent streams do not fit together, or the streams cannot go on."""


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
            f"{dependency}: {marker!r} and {other!r} cannot be compared: give heartbeat and check_pulse markers of one "
            "kind, or the dependency a downtime_check and a recovery_check"
        )
