"""Notifies plugins of one run's beginning, its batches and its end."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from amadou import BatchReport, Run, RunSummary
from amadou_runtime.plugins.hooks import Plugins


class RunHooks:
    """Notifies plugins of one run: of its beginning and its end only once."""

    def __init__(self, plugins: Plugins) -> None:
        self.plugins = plugins
        self._run: Run | None = None
        self._has_ended = False

    def started(self, run: Run) -> None:
        """Notify plugins of the run's beginning, after sources and sinks were checked and before the first batch."""
        if self._run is None:
            self._run = attrs.evolve(run, metrics=self.plugins.metrics())
            self.plugins.run_started(self._run)

    def batch_completed(self, batch: BatchReport) -> None:
        """Notify plugins of a batch whose outputs are committed."""
        assert self._run is not None
        self.plugins.batch_completed(self._run, batch)

    def spark_progress(self, progress: Mapping[str, Any]) -> None:
        """Notify plugins of Spark's progress of a batch."""
        assert self._run is not None
        self.plugins.spark_progress(self._run, progress)

    def ended(self, outcome: RunSummary | Exception) -> None:
        """Notify plugins of the run's end or failure, unless the run failed before it began."""
        if self._run is None or self._has_ended:
            return
        self._has_ended = True
        if isinstance(outcome, RunSummary):
            self.plugins.run_ended(self._run, outcome)
        else:
            self.plugins.run_failed(self._run, outcome)

    @contextmanager
    def failures_reported(self) -> Iterator[None]:
        """Report an error that leaves the context as the run's end."""
        try:
            yield
        except Exception as error:
            self.ended(error)
            raise
