from time import perf_counter


class Stopwatch:
    """Adds up how long callbacks take. One at a time is measured."""

    __slots__ = ("_seconds", "_since", "turn_of")

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._since = 0.0
        self.turn_of = ""
        """The callback that is measured; empty for none."""

    def turn(self, callback: str = "") -> None:
        """Measure a callback from now on, or none."""
        now = perf_counter()
        if self.turn_of:
            self._seconds[self.turn_of] = self._seconds.get(self.turn_of, 0.0) + now - self._since
        self.turn_of, self._since = callback, now

    def take(self) -> dict[str, float]:
        """Return the seconds by callback since the last call of this method, and reset them."""
        seconds, self._seconds, self.turn_of = self._seconds, {}, ""
        return seconds
