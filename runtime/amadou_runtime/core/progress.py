"""Where a run stands, as its engine reports it."""

from collections.abc import Sequence
from datetime import datetime

import attrs

from amadou import Counts, PartitionReport


@attrs.frozen
class Progress:
    """Where a run stands.

    :param job: the job's name
    :param batches: how many batches were completed
    :param counts: what they came to
    :param events_per_second: lately
    :param watermark: the last one
    :param partitions: where each partition of the sources stands
    :param seconds: since the start of the run
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
        """How many records are there that were not read; `None` where no source tells."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return sum(known) if known else None

    @property
    def held_back_by(self) -> PartitionReport | None:
        """The partition that the watermark waits for."""
        return next((partition for partition in self.partitions if partition.holds_back), None)
