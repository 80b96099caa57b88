"""The watermark of a run (`semantics.md` 2)."""

from collections.abc import Mapping
from datetime import timedelta

from amadou import Job
from amadou._time import MICROSECOND


class Watermark:
    """Follows the newest event times of a run's sources. All times are in microseconds.

    :param job: the job, which says how far the watermark stays behind the newest event
    """

    def __init__(self, job: Job) -> None:
        assert isinstance(job.watermark_delay, timedelta)
        self._delay = job.watermark_delay // MICROSECOND
        self._newest: dict[str, int] = {}
        self.current: int | None = None
        """The watermark of the next batch; `None` before the first event."""

    @property
    def newest(self) -> int | None:
        """The newest event time of all sources."""
        return max(self._newest.values(), default=None)

    def observe(self, newest: Mapping[str, int]) -> None:
        """Note the newest event time that each source brought in a batch."""
        for source, micros in newest.items():
            self._newest[source] = max(micros, self._newest.get(source, micros))

    def follow(self) -> None:
        """End a batch: the watermark follows the source that is furthest behind."""
        if self._newest:
            self.raise_to(min(self._newest.values()) - self._delay)

    def raise_to(self, micros: int) -> None:
        """Move the watermark to a time, unless it is there already: it never goes back."""
        if self.current is None or micros > self.current:
            self.current = micros
