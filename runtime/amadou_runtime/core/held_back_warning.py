"""Warns if a source or partition without new events holds back a run's watermark."""

import logging
from datetime import datetime, timedelta

from amadou import BatchReport, Job
from amadou.engine import shown_watermark

_PATIENCE = timedelta(minutes=1)
_WAITS = "job %s: windows and timers wait for the first event of %s"
_STILL_WAITS = (
    "job %s: windows and timers have waited for %d s for the first event of %s. If they must not wait for it, set "
    "idle_timeout={'%s': 0}, or a number of seconds to wait"
)
_SILENT = (
    "job %s: %s has had no new events for %d s (newest event: %s) and holds the watermark back, so windows and timers "
    "wait. Set an idle_timeout, unless windows and timers must wait for this partition"
)
_logger = logging.getLogger("amadou")


class HeldBackWarning:
    """Warns once about each source or partition that has had no new events for a minute and holds the watermark back.
    Says at once if the watermark waits for the first event of a source.

    :param job: the job; sources with an `idle_timeout` are ignored, since they do not hold the watermark back forever
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._place: tuple[str, datetime | None] | None = None
        self._since: datetime | None = None
        self._warned: set[str] = set()

    def look(self, batch: BatchReport) -> None:
        """Check a completed batch."""
        holder = next((partition for partition in batch.partitions if partition.holds_back), None)
        is_alone = len(self._job.sources) < 2 and len(batch.partitions) < 2
        if holder is None or holder.lag or holder.source in self._job.idle_after or is_alone:
            self._place = None
            return
        place = holder.name, holder.newest
        if place != self._place or self._since is None:
            self._place, self._since = place, batch.completed
            if holder.newest is None:
                _logger.info(_WAITS, self._job.name, holder.name)
        elif holder.name not in self._warned and batch.completed - self._since >= _PATIENCE:
            self._warned.add(holder.name)
            seconds = round((batch.completed - self._since).total_seconds())
            if holder.newest is None:
                _logger.warning(_STILL_WAITS, self._job.name, seconds, holder.name, holder.source)
            else:
                _logger.warning(_SILENT, self._job.name, holder.name, seconds, shown_watermark(holder.newest))
