"""The figures of batches that are shown as charts."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from amadou.plugins import BatchReport


class Series(NamedTuple):
    """A figure of batches that is shown as a chart.

    :param title: the figure's name
    :param unit: `"s"` for seconds, `"1/s"` for a rate, `""` for a number
    :param read: function that returns the figure for a batch; `None` if the batch has none
    """

    title: str
    unit: str
    read: Callable[[BatchReport], float | None]


def _delay(batch: BatchReport) -> float | None:
    """Return the time from the newest event read until its batch was committed."""
    newest = max((each.newest for each in batch.partitions if each.newest is not None), default=None)
    return None if newest is None else (batch.completed - newest).total_seconds()


SERIES: Final[Mapping[str, Series]] = {
    "batch_seconds": Series("Batch time", "s", lambda batch: batch.seconds),
    "events": Series("Events", "1/s", lambda batch: batch.counts.events),
    "delay_seconds": Series("Delay", "s", _delay),
    "watermark_lag_seconds": Series(
        "Watermark lag", "s", lambda batch: None if batch.lag is None else batch.lag.total_seconds()
    ),
    "keys": Series("Keys", "", lambda batch: batch.counts.keys),
    "timers": Series("Timers pending", "", lambda batch: batch.counts.timers_pending),
    "late": Series("Late events", "1/s", lambda batch: batch.counts.late),
    "dead_letters": Series("Dead letters", "1/s", lambda batch: batch.counts.dead_letters),
    "held": Series("Events held", "", lambda batch: sum(batch.counts.held.values())),
}
"""The charts, by the name that the API uses."""
