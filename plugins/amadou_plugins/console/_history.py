"""Records what a run did, batch by batch, in bounded memory."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

import attrs
import orjson

from amadou import BatchReport, Counts, Run, RunSummary
from amadou.text import shortened, shown_error

MOST_BATCHES: Final = 10_000
"""Number of batches that are kept. Older ones are dropped."""
_MOST_PARTITIONS: Final = 1_000
_ERROR_LENGTH: Final = 20_000
_PATH_LENGTH: Final = 1_000
_RATE_SPAN: Final = 60.0
"""Seconds over which rates are measured."""
CHART_SPAN: Final = timedelta(hours=1)
_CHART_POINTS: Final = 120


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
        "Watermark behind the clock", "s", lambda batch: None if batch.lag is None else batch.lag.total_seconds()
    ),
    "keys": Series("Keys", "", lambda batch: batch.counts.keys),
    "timers": Series("Timers pending", "", lambda batch: batch.counts.timers_pending),
    "late": Series("Late events", "1/s", lambda batch: batch.counts.late),
    "dead_letters": Series("Dead letters", "1/s", lambda batch: batch.counts.dead_letters),
    "held": Series("Events held", "", lambda batch: sum(batch.counts.held.values())),
}
"""The charts, by the name that the API uses."""


@attrs.frozen
class _Batch:
    """A batch in compact form.

    :param completed: seconds since 1970
    :param figures: the figures of `SERIES`, in their order
    :param document: the batch as JSON
    """

    number: int
    completed: float
    figures: tuple[float | None, ...]
    document: bytes


class RunHistory:
    """What a run did. All methods can be called from any thread.

    :param run: the run
    :param most: number of batches to keep
    """

    def __init__(self, run: Run, most: int = MOST_BATCHES) -> None:
        self.run = run
        self._lock = threading.Lock()
        self._batches: deque[_Batch] = deque(maxlen=most)
        self._started = datetime.now(UTC)
        self._completed = 0
        self._totals = Counts()
        self._last: BatchReport | None = None
        self._status = "running"
        self._error: str | None = None

    def add(self, batch: BatchReport) -> None:
        """Add a completed batch."""
        figures = tuple(series.read(batch) for series in SERIES.values())
        document = orjson.dumps(_batch_document(batch))
        with self._lock:
            self._batches.append(_Batch(batch.number, batch.completed.timestamp(), figures, document))
            self._completed += 1
            self._totals = self._totals.then(batch.counts)
            self._last = batch

    def end(self, outcome: RunSummary | BaseException) -> None:
        """Record that the run has ended or failed."""
        with self._lock:
            if isinstance(outcome, BaseException):
                self._status, self._error = "failed", shortened(shown_error(outcome), _ERROR_LENGTH)
            else:
                self._status = "ended"

    def overview(self, now: datetime) -> dict[str, Any]:
        """Return the run's status, totals and current figures as a document of the API."""
        with self._lock:
            last, totals = self._last, self._totals
            return {
                "job": self.run.job.name,
                "run": self.run.id,
                "engine": self.run.engine,
                "checkpoint": None if self.run.checkpoint is None else shortened(self.run.checkpoint, _PATH_LENGTH),
                "trigger": self.run.trigger,
                "status": self._status,
                "error": self._error,
                "started": self._started,
                "now": now,
                "batches": self._completed,
                "figures": {} if last is None else self._figures(now),
                "totals": _counts_document(totals),
                "last_batch": None if last is None else _batch_document(last),
                "sources": [] if last is None else _sources(self.run, last),
                "partitions": [] if last is None else list(islice(_partitions(last), _MOST_PARTITIONS)),
            }

    def batches(self, limit: int, before: int | None = None) -> list[bytes]:
        """Return batches as JSON documents, newest first.

        :param limit: maximum number of batches
        :param before: only batches with lower numbers
        """
        with self._lock:
            found = (each for each in self._newest_first() if before is None or each.number < before)
            return [each.document for each in islice(found, limit)]

    def chart(self, name: str, now: datetime) -> list[tuple[float, float | None]]:
        """Return a figure of the last hour as points of time and value. Rates are per second; of other figures, a point
        has the highest value since the point before. The value is `None` if there was no batch.

        :param name: a key of `SERIES`
        """
        position, is_rate = list(SERIES).index(name), SERIES[name].unit == "1/s"
        step = CHART_SPAN.total_seconds() / _CHART_POINTS
        begin = now.timestamp() - CHART_SPAN.total_seconds()
        values: list[list[float]] = [[] for _ in range(_CHART_POINTS)]
        with self._lock:
            for each in self._newest_first():
                at = int((each.completed - begin) / step)
                if at < 0:
                    break
                figure = each.figures[position]
                if figure is not None:
                    values[min(at, _CHART_POINTS - 1)].append(figure)
        combine: Callable[[list[float]], float] = (lambda given: sum(given) / step) if is_rate else max
        return [(begin + (at + 1) * step, combine(given) if given else None) for at, given in enumerate(values)]

    def _figures(self, now: datetime) -> dict[str, float | None]:
        """Return the figures of the last batch; rates are those of the last minute."""
        span = min(_RATE_SPAN, max((now - self._started).total_seconds(), 1.0))
        recent = list(takewhile(lambda each: each.completed > now.timestamp() - span, self._newest_first()))
        return {
            name: sum(each.figures[at] or 0 for each in recent) / span
            if SERIES[name].unit == "1/s"
            else self._batches[-1].figures[at]
            for at, name in enumerate(SERIES)
        }

    def _newest_first(self) -> Iterator[_Batch]:
        return reversed(self._batches)


def _counts_document(counts: Counts) -> dict[str, Any]:
    return attrs.asdict(counts) | {"dead_letters": counts.dead_letters}


def _batch_document(batch: BatchReport) -> dict[str, Any]:
    return {
        "number": batch.number,
        "completed": batch.completed,
        "seconds": batch.seconds,
        "watermark": batch.watermark,
        "stage_seconds": batch.stage_seconds,
        "callback_seconds": batch.callback_seconds,
        "callback_calls": batch.callback_calls,
        "counts": _counts_document(batch.counts),
    }


def _sources(run: Run, batch: BatchReport) -> list[dict[str, Any]]:
    """Return the progress of each source: that of its partition that is furthest behind."""
    found = []
    for name in run.job.sources:
        partitions = [each for each in batch.partitions if each.source == name]
        lags = [each.lag for each in partitions if each.lag is not None]
        times = [each.newest for each in partitions if each.newest is not None]
        found.append(
            {
                "name": name,
                "newest": max(times, default=None),
                "oldest": min(times, default=None),
                "lag": sum(lags) if lags else None,
                "age_seconds": max(
                    (each.age.total_seconds() for each in partitions if each.age is not None), default=None
                ),
                "holds_back": any(each.holds_back for each in partitions),
                "records": batch.counts.records.get(name, 0),
                "held": batch.counts.held.get(name, 0),
                "down": batch.down.get(name),
            }
        )
    return found


def _partitions(batch: BatchReport) -> Iterator[dict[str, Any]]:
    for each in batch.partitions:
        yield {
            "source": each.source,
            "partition": each.partition,
            "newest": each.newest,
            "lag": each.lag,
            "age_seconds": None if each.age is None else each.age.total_seconds(),
            "holds_back": each.holds_back,
        }
