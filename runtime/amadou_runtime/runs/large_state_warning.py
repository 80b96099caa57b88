"""Warns if a run's state is too large for the store *groups*."""

import logging

from amadou import Job
from amadou.engine import shown_bytes
from amadou.plugins import BatchReport

_LARGE = 16 << 20
"""Compressed size in bytes. The table in `benchmarks/README.md` shows the time of a batch on both stores by size."""
_logger = logging.getLogger("amadou")


class LargeStateWarning:
    """Warns once if the state on the store *groups* has grown so much that the store *log* is usually faster.

    :param job: the job
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._has_warned = False

    def look(self, batch: BatchReport, store: str) -> None:
        """Check a completed batch.

        :param store: the store of the run's checkpoint
        """
        if self._has_warned or store != "groups" or batch.counts.state_bytes <= _LARGE:
            return
        self._has_warned = True
        _logger.warning(
            'job %s: state has grown to %s on the store "groups", which reads and writes all state of a key range in '
            'each batch. With this much state, the store "log" is usually faster: start a new checkpoint with '
            'state="log" (or --state log)',
            self._job.name,
            shown_bytes(batch.counts.state_bytes),
        )
