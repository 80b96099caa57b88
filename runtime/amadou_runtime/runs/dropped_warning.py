"""Warns if a run drops many events."""

import logging
from collections import deque
from datetime import datetime, timedelta

from amadou import Job
from amadou.plugins import BatchReport

_SHARE = 0.01
_STRETCH = 1_000
"""Minimum number of recent events for computing the fraction of dropped events, unless the run had fewer events."""
_SHORTEST, _LONGEST = timedelta(minutes=1), timedelta(hours=1)
_logger = logging.getLogger("amadou")


class DroppedWarning:
    """Warns if more than 1 % of the recent events were dropped because they arrived too late. While the fraction stays
    above 1 %, the warning is repeated at intervals that double from one minute to one hour.

    :param job: the job
    :param replays: `True` if the run replays dead letters
    """

    def __init__(self, job: Job, *, replays: bool = False) -> None:
        self._job = job
        self._replays = replays
        self._events = self._dropped = 0
        self._last: deque[tuple[int, int]] = deque()
        """Number of events and number of dropped events in each recent batch."""
        self._seen: datetime | None = None
        self._next = datetime.min
        self._pause = _SHORTEST

    def look(self, batch: BatchReport) -> None:
        """Check a completed batch, and log a warning if one is due."""
        self._events += batch.counts.events
        self._dropped += batch.counts.dropped
        self._last.append((batch.counts.events, batch.counts.dropped))
        events, dropped = map(sum, zip(*self._last, strict=True))
        while events - self._last[0][0] >= _STRETCH:
            first = self._last.popleft()
            events, dropped = events - first[0], dropped - first[1]
        if batch.counts.dropped and dropped > events * _SHARE and self._is_due(batch.completed):
            self._warn(events, dropped)

    def _is_due(self, now: datetime) -> bool:
        begins = self._seen is None or now - self._seen >= _LONGEST
        self._seen = now
        if begins:
            self._next, self._pause = now, _SHORTEST
        if now < self._next:
            return False
        self._next, self._pause = now + self._pause, min(2 * self._pause, _LONGEST)
        return True

    def _warn(self, events: int, dropped: int) -> None:
        is_all = events == self._events
        _logger.warning(
            "job %s: %s of %s%s events (%.1f %%) were dropped because they arrived too late%s. %s",
            self._job.name,
            f"{dropped:,}",
            "" if is_all else "the last ",
            f"{events:,}",
            100 * dropped / max(events, 1),
            "" if is_all else f" ({self._dropped:,} of {self._events:,} in total)",
            "A replay does not move the watermark back, so closed windows do not accept replayed events"
            if self._replays
            else _advice(self._job),
        )


def _advice(job: Job) -> str:
    dropping = ", ".join(name for name, component in job.components.items() if component.drops_late)
    lateness = f" or the allowed_lateness of {dropping}" if dropping else ""
    keep = [f'late="divert" for {dropping}'] if dropping else []
    if job.late_events == "drop" or not dropping:
        keep.insert(0, 'late_events="divert"')
    kept = " and ".join(keep)
    return f"Raise watermark_delay{lateness} above the out-of-orderness of the input, or set {kept} to keep late events"
