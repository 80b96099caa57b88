"""Tells plugins of one run's beginning, its batches and its end."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs

from amadou import BatchReport, Run, RunSummary
from amadou_runtime.plugins.hooks import Plugins


class RunHooks:
    """Tells plugins of one run: of its beginning and its end once."""

    def __init__(self, plugins: Plugins) -> None:
        self.plugins = plugins
        self._run: Run | None = None
        self._has_ended = False

    def started(self, run: Run) -> None:
        """Sources and sinks were looked at; batches follow."""
        if self._run is None:
            self._run = attrs.evolve(run, metrics=self.plugins.metrics())
            self.plugins.run_started(self._run)

    def batch_completed(self, batch: BatchReport) -> None:
        """A batch's outputs are committed."""
        assert self._run is not None
        self.plugins.batch_completed(self._run, batch)

    def spark_progress(self, progress: Mapping[str, Any]) -> None:
        """What Spark says of a batch."""
        assert self._run is not None
        self.plugins.spark_progress(self._run, progress)

    def ended(self, outcome: RunSummary | Exception) -> None:
        """The run is over, for good or with an error. One that failed before it began is none."""
        if self._run is None or self._has_ended:
            return
        self._has_ended = True
        if isinstance(outcome, RunSummary):
            self.plugins.run_ended(self._run, outcome)
        else:
            self.plugins.run_failed(self._run, outcome)

    @contextmanager
    def failures_reported(self) -> Iterator[None]:
        """Take an error that comes out of the context for the run's end."""
        try:
            yield
        except Exception as error:
            self.ended(error)
            raise
