"""Warns if a source or partition without new events holds back a run's watermark."""

import logging
from datetime import datetime, timedelta, timezone

from amadou import Job
from amadou.engine import shown_watermark
from amadou.plugins import BatchReport, PartitionReport

_PATIENCE = timedelta(minutes=1)
_WAITS = (
    "job %s: windows and timers wait for the first event of %s. If they must not wait for it, set "
    "idle_timeout={'%s': 0}, or a number of seconds to wait"
)
_STILL_WAITS = _WAITS.replace("wait for", "have waited for %d s for", 1)
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
        self._holder: PartitionReport | None = None
        self._since = datetime.min.replace(tzinfo=timezone.utc)
        self._warned: set[str] = set()

    def look(self, batch: BatchReport) -> None:
        """Check a completed batch."""
        before, self._holder = self._holder, self._holder_in(batch)
        if self._holder is None or (before is not None and self._is_as_before(before, self._holder)):
            self.look_again(batch.completed)
            return
        self._since = batch.completed
        if self._holder.newest is None:
            _logger.warning(_WAITS, self._job.name, self._holder.name, self._holder.source)

    def look_again(self, now: datetime) -> None:
        """Check the last batch after some time. Without new events, no other batch may follow."""
        holder, waited = self._holder, now - self._since
        if holder is None or holder.name in self._warned or waited < _PATIENCE:
            return
        self._warned.add(holder.name)
        seconds = round(waited.total_seconds())
        if holder.newest is None:
            _logger.warning(_STILL_WAITS, self._job.name, seconds, holder.name, holder.source)
        else:
            _logger.warning(_SILENT, self._job.name, holder.name, seconds, shown_watermark(holder.newest))

    def _holder_in(self, batch: BatchReport) -> PartitionReport | None:
        """Return the partition that holds back the watermark of a batch, if it has nothing to read."""
        holder = next((partition for partition in batch.partitions if partition.holds_back), None)
        is_alone = len(self._job.sources) < 2 and len(batch.partitions) < 2
        if holder is None or holder.lag or holder.source in self._job.idle_after or is_alone:
            return None
        return holder

    @staticmethod
    def _is_as_before(before: PartitionReport, now: PartitionReport) -> bool:
        return (before.name, before.newest) == (now.name, now.newest)
