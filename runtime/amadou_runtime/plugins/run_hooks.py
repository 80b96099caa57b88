"""Notifies plugins when a run starts, completes a batch, or ends."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from amadou.plugins import BatchReport, DeadLetterReport, FailedBatch, Run, RunSummary
from amadou_runtime.plugins.hooks import Plugins


class RunHooks:
    """Notifies plugins of the start, batches and end of one run. The start and the end are reported only once.

    :param reproduce: see `Run.reproduce`
    """

    def __init__(self, plugins: Plugins, reproduce: Callable[[DeadLetterReport], str] | None = None) -> None:
        self.plugins = plugins
        self._reproduce = reproduce
        self._run: Run | None = None
        self._has_ended = False

    def started(self, run: Run) -> None:
        """Notify plugins that the run starts: sources and sinks have been checked, and the first batch follows."""
        if self._run is None:
            self._run = attrs.evolve(run, metrics=self.plugins.metrics(), reproduce=self._reproduce)
            self.plugins.run_started(self._run)

    def batch_completed(self, batch: BatchReport) -> None:
        """Notify plugins of a batch whose outputs have been committed."""
        assert self._run is not None
        self.plugins.notify("amadou_batch_completed", run=self._run, batch=batch)

    def batch_failed(self, batch: FailedBatch) -> None:
        """Notify plugins of a batch that has failed."""
        assert self._run is not None
        self.plugins.notify("amadou_batch_failed", run=self._run, batch=batch)

    def spark_progress(self, progress: Mapping[str, Any]) -> None:
        """Notify plugins of Spark's progress report on a batch."""
        assert self._run is not None
        self.plugins.notify("amadou_spark_progress", run=self._run, progress=progress)

    def ended(self, outcome: RunSummary | Exception) -> None:
        """Notify plugins that the run has ended or failed, unless it failed before it started."""
        if self._run is None or self._has_ended:
            return
        self._has_ended = True
        if isinstance(outcome, RunSummary):
            self.plugins.notify("amadou_run_ended", run=self._run, summary=outcome)
        else:
            self.plugins.notify("amadou_run_failed", run=self._run, error=outcome)

    @contextmanager
    def failures_reported(self) -> Iterator[None]:
        """Report an error raised within the context as the run's failure."""
        try:
            yield
        except Exception as error:
            self.ended(error)
            raise
