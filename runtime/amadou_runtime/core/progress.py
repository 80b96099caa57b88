"""The progress of a run, as its engine reports it."""

from collections.abc import Sequence
from datetime import datetime

import attrs

from amadou import Counts, PartitionReport


@attrs.frozen
class Progress:
    """The progress of a run.

    :param job: the job's name
    :param batches: number of completed batches
    :param counts: their counts
    :param events_per_second: the recent rate
    :param watermark: the last watermark
    :param partitions: the progress of each partition of the sources
    :param seconds: the time since the start of the run
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
        """Number of available records that were not read; `None` if no source reports it."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None

    @property
    def held_back_by(self) -> PartitionReport | None:
        """The partition that holds the watermark back."""
        return next((partition for partition in self.partitions if partition.holds_back), None)
