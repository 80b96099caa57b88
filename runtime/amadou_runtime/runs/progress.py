"""The progress of a run, as its engine reports it."""

from collections.abc import Sequence
from datetime import datetime

import attrs

from amadou.event_time import FIRST_TIME
from amadou.plugins import Counts, PartitionReport


@attrs.frozen
class Progress:
    """The progress of a run.

    :param job: the job's name
    :param batches: number of completed batches
    :param counts: the total counts of all completed batches. The counts of several stages are added up
    :param events_per_second: number of events processed per second in the most recent batches, by all stages
    :param watermark: the watermark of the last completed batch
    :param partitions: the progress of each source partition
    :param seconds: number of seconds since the run started
    """

    job: str
    batches: int
    counts: Counts
    events_per_second: float
    watermark: datetime | None
    seconds: float
    partitions: Sequence[PartitionReport] = ()

    @property
    def lag(self) -> int | None:
        """Number of unread records, over all partitions whose source reports it; `None` if no source reports it."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None

    @property
    def held_back_by(self) -> PartitionReport | None:
        """The partition that holds the watermark back; `None` if there is none. Of several stages, the partition that
        is furthest behind.
        """
        holding = [partition for partition in self.partitions if partition.holds_back]
        return min(holding, key=lambda each: each.newest or FIRST_TIME, default=None)
