"""Warns of runs that drop many events."""

import logging

from amadou import Counts

_SHARE = 0.01
_logger = logging.getLogger("amadou")


class DroppedWarning:
    """Warns once where more than one event in a hundred is dropped because it came too late.

    :param job: the job's name
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._has_warned = False

    def look(self, counts: Counts) -> None:
        """Look at what the run came to so far."""
        if self._has_warned or counts.dropped <= counts.events * _SHARE:
            return
        self._has_warned = True
        _logger.warning(
            "job %s: %s of %s events (%.1f %%) were dropped because they came too late. Raise watermark_delay or the "
            'windows\' allowed_lateness above the disorder of the input, or keep late events with late_events="divert" '
            'and late="divert" of windows',
            self._job,
            f"{counts.dropped:,}",
            f"{counts.events:,}",
            100 * counts.dropped / max(counts.events, 1),
        )
