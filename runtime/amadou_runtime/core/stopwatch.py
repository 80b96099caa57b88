from time import perf_counter


class Stopwatch:
    """Adds up the time that each callback takes. Only one callback is measured at a time."""

    __slots__ = ("_seconds", "_since", "turn_of")

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._since = 0.0
        self.turn_of = ""
        """Name of the callback that is being measured; empty if there is none."""

    def turn(self, callback: str = "") -> None:
        """Start measuring a callback. If the name is empty, stop measuring."""
        now = perf_counter()
        if self.turn_of:
            self._seconds[self.turn_of] = self._seconds.get(self.turn_of, 0.0) + now - self._since
        self.turn_of, self._since = callback, now

    def take(self) -> dict[str, float]:
        """Return the seconds measured since the last call of this method, by callback, and reset them."""
        seconds, self._seconds, self.turn_of = self._seconds, {}, ""
        return seconds
