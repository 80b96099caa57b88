"""Warns of runs that drop many events."""

import logging

from amadou import Counts, Job

_SHARE = 0.01
_logger = logging.getLogger("amadou")


class DroppedWarning:
    """Warns once where more than one event in a hundred is dropped because it came too late.

    :param job: the job
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._has_warned = False

    def look(self, counts: Counts) -> None:
        """Look at what the run came to so far."""
        if self._has_warned or counts.dropped <= counts.events * _SHARE:
            return
        self._has_warned = True
        _logger.warning(
            "job %s: %s of %s events (%.1f %%) were dropped because they came too late. %s",
            self._job.name,
            f"{counts.dropped:,}",
            f"{counts.events:,}",
            100 * counts.dropped / max(counts.events, 1),
            _advice(self._job),
        )


def _advice(job: Job) -> str:
    dropping = ", ".join(name for name, component in job.components.items() if component.drops_late)
    lateness = f" or the allowed_lateness of {dropping}" if dropping else ""
    keep = [f'late="divert" of {dropping}'] if dropping else []
    if job.late_events == "drop" or not dropping:
        keep.insert(0, 'late_events="divert"')
    return f"Raise watermark_delay{lateness} above the disorder of the input, or keep late events with " + " and ".join(
        keep
    )
