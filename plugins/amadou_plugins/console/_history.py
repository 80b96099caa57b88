"""Records what a run did, batch by batch, in bounded memory."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Any, Final

import attrs
import orjson

from amadou.plugins import BatchReport, Counts, DeadLetterReport, FailedBatch, RunSummary
from amadou.text import shortened, shown_error
from amadou_plugins.console._documents import (
    batch_document,
    counts_document,
    partition_documents,
    pipeline_document,
    source_documents,
    stage_documents,
)
from amadou_plugins.console._facts import RunFacts
from amadou_plugins.console._letters import Letters
from amadou_plugins.console._series import SERIES

MOST_BATCHES: Final = 10_000
"""Number of batches that are kept. Older ones are dropped."""
_ERROR_LENGTH: Final = 20_000
_PATH_LENGTH: Final = 1_000
_RATE_SPAN: Final = 60.0
"""Seconds over which rates are measured."""
CHART_SPAN: Final = timedelta(hours=1)
_CHART_POINTS: Final = 120


@attrs.frozen
class _Batch:
    """A batch in compact form.

    :param at: the time at which it was completed or failed, in seconds since 1970
    :param figures: the figures of `SERIES`, in their order
    :param document: the batch as JSON
    """

    number: int
    at: float
    figures: tuple[float | None, ...]
    document: bytes

    @classmethod
    def of(cls, batch: BatchReport | FailedBatch) -> "_Batch":
        document = orjson.dumps(batch_document(batch))
        if isinstance(batch, FailedBatch):
            return cls(batch.number, batch.failed.timestamp(), (None,) * len(SERIES), document)
        figures = tuple(series.read(batch) for series in SERIES.values())
        return cls(batch.number, batch.completed.timestamp(), figures, document)


class RunHistory:
    """What a run did. All methods can be called from any thread.

    :param facts: what is known when the run starts
    :param most: number of batches to keep
    """

    def __init__(self, facts: RunFacts, most: int = MOST_BATCHES) -> None:
        self.facts = facts
        self._lock = threading.Lock()
        self._batches: deque[_Batch] = deque(maxlen=most)
        self._letters = Letters()
        self._completed = 0
        self._totals = Counts()
        self._last: BatchReport | None = None
        self._status = "running"
        self._error: str | None = None

    def add_earlier(self, batches: Sequence[BatchReport | FailedBatch]) -> None:
        """Add the batches of earlier runs, oldest first. The totals do not include them."""
        with self._lock:
            for batch in batches:
                self._add(batch)

    def add(self, batch: BatchReport | FailedBatch) -> None:
        """Add a batch of this run."""
        with self._lock:
            self._add(batch)
            if isinstance(batch, BatchReport):
                self._completed += 1
                self._totals = self._totals.then(batch.counts)

    def _add(self, batch: BatchReport | FailedBatch) -> None:
        self._batches.append(_Batch.of(batch))
        if isinstance(batch, BatchReport):
            self._last = batch
            self._letters.add(batch)

    def end(self, outcome: RunSummary | BaseException) -> None:
        """Record that the run has ended or failed."""
        if isinstance(outcome, BaseException):
            self.set_status("failed", shortened(shown_error(outcome), _ERROR_LENGTH))
        else:
            self.set_status("ended")

    def set_status(self, status: str, error: str | None = None) -> None:
        """Record the status of the run.

        :param status: `"running"`, `"ended"` or `"failed"`
        :param error: the error with which the run failed
        """
        with self._lock:
            self._status, self._error = status, error

    def overview(self, now: datetime) -> dict[str, Any]:
        """Return the run's status, totals and current figures as a document of the API."""
        with self._lock:
            last, totals, facts = self._last, self._totals, self.facts
            recent = self._recent_documents(now) if last is not None and last.stages else []
            return {
                "job": facts.job,
                "run": facts.id,
                "engine": facts.engine,
                "checkpoint": None if facts.checkpoint is None else shortened(facts.checkpoint, _PATH_LENGTH),
                "trigger": facts.trigger,
                "trigger_seconds": None if facts.interval is None else facts.interval.total_seconds(),
                "status": self._status,
                "error": self._error,
                "started": facts.started,
                "now": now,
                "batches": self._completed,
                "figures": {} if last is None else self._figures(now),
                "totals": counts_document(totals),
                "last_batch": None if last is None else batch_document(last),
                "sources": [] if last is None else source_documents(facts.sources, last),
                "partitions": [] if last is None else partition_documents(last),
                "stages": [] if last is None else stage_documents(last, recent, self._rate_span(now)),
            }

    def pipeline(self, now: datetime) -> dict[str, Any]:
        """Return the job's description, with the rates of its sources and ports, as a document of the API."""
        with self._lock:
            recent = self._recent_documents(now)
            return pipeline_document(self.facts.description, self._last, self._totals, recent, self._rate_span(now))

    def letters(self) -> dict[str, Any]:
        """Return the newest dead letters and late events as a document of the API."""
        with self._lock:
            return self._letters.document()

    def letter(self, id_: str) -> tuple[dict[str, Any], DeadLetterReport] | None:
        """Return a dead letter; see `Letters.find`."""
        with self._lock:
            return self._letters.find(id_)

    def batches(self, limit: int, before: int | None = None) -> list[bytes]:
        """Return batches as JSON documents, newest first.

        :param limit: maximum number of batches
        :param before: only batches with lower numbers
        """
        with self._lock:
            found = (each for each in self._newest_first() if before is None or each.number < before)
            return [each.document for each in islice(found, limit)]

    def chart(self, name: str, now: datetime) -> list[tuple[float, float | None]]:
        """Return a figure of an hour as points of time and value. Rates are per second; of other figures, a point has
        the highest value since the point before. The value is `None` if there was no batch.

        The hour ends now, or with the last batch of a run that has ended.

        :param name: a key of `SERIES`
        """
        position, is_rate = list(SERIES).index(name), SERIES[name].unit == "1/s"
        step = CHART_SPAN.total_seconds() / _CHART_POINTS
        values: list[list[float]] = [[] for _ in range(_CHART_POINTS)]
        with self._lock:
            begin = self._until(now) - CHART_SPAN.total_seconds()
            for each in self._newest_first():
                at = int((each.at - begin) / step)
                if at < 0:
                    break
                figure = each.figures[position]
                if figure is not None:
                    values[min(at, _CHART_POINTS - 1)].append(figure)
        combine: Callable[[list[float]], float] = (lambda given: sum(given) / step) if is_rate else max
        return [(begin + (at + 1) * step, combine(given) if given else None) for at, given in enumerate(values)]

    def charts(self, now: datetime) -> dict[str, Any]:
        """Return all charts as a document of the API."""
        return {
            name: {"title": series.title, "unit": series.unit, "points": self.chart(name, now)}
            for name, series in SERIES.items()
        }

    def _figures(self, now: datetime) -> dict[str, float | None]:
        """Return the figures of the last batch; rates are those of the last minute."""
        span = self._rate_span(now)
        recent = list(self._recent(now, span))
        newest = next(each for each in self._newest_first() if any(figure is not None for figure in each.figures))
        return {
            name: sum(each.figures[at] or 0 for each in recent) / span if series.unit == "1/s" else newest.figures[at]
            for at, (name, series) in enumerate(SERIES.items())
        }

    def _rate_span(self, now: datetime) -> float:
        """Return the number of seconds over which rates are measured."""
        started = self.facts.started
        running = _RATE_SPAN if started is None else self._until(now) - started.timestamp()
        return min(_RATE_SPAN, max(running, 1.0))

    def _recent_documents(self, now: datetime) -> list[dict[str, Any]]:
        """Return the batches that were completed in the time over which rates are measured."""
        recent = (orjson.loads(each.document) for each in self._recent(now, self._rate_span(now)))
        return [each for each in recent if "counts" in each]

    def _recent(self, now: datetime, span: float) -> Iterator[_Batch]:
        since = self._until(now) - span
        return takewhile(lambda each: each.at > since, self._newest_first())

    def _until(self, now: datetime) -> float:
        """Return the end of the time that is shown, in seconds since 1970."""
        return now.timestamp() if self._status == "running" or not self._batches else self._batches[-1].at

    def _newest_first(self) -> Iterator[_Batch]:
        return reversed(self._batches)
