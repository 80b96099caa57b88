"""A run on Spark: it is started, stopped and waited for."""

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from amadou.engine import shown_watermark
from amadou.errors import AmadouError, CheckpointError, RunError
from amadou.plugins import RunSummary
from amadou.spark_versions import wakes_while_ending
from amadou_runtime.runs.lease import Lease
from amadou_runtime.runs.progress import Progress
from amadou_runtime.spark.checkpoint import CheckpointMetadata, absolute
from amadou_runtime.spark.committer import Committer
from amadou_runtime.spark.payload import Payload
from amadou_runtime.spark.savepoints.service import SavepointService
from amadou_runtime.spark.spark_errors import (
    ENDED,
    JAVA_ENDED,
    message_with_cause,
    own_error,
    without_plans,
)

_logger = logging.getLogger("amadou")
_POLL = 0.05


class RunningJob:
    """A job that runs on Spark.

    :ivar query: the Spark `StreamingQuery`
    """

    def __init__(
        self, committer: Committer, on_spark_progress: Callable[[Mapping[str, Any]], None] | None = None
    ) -> None:
        self.query: Any = None
        self.payload: Payload | None = None
        """The job in the form that is sent to workers."""
        self.on_end: Callable[[RunSummary | Exception], None] | None = None
        """Called when the run has ended: by `await_termination` with the run's summary or error, and by `stop` with the
        summary of a run that has not failed."""
        self.committer = committer
        committer.before_batch = self._before_batch
        self._job = committer.job
        self._on_spark_progress = on_spark_progress
        self._lease: Lease | None = None
        self._savepoints: SavepointService | None = None
        self._reporting = threading.Lock()
        self._reported = -1
        """Number of the last batch whose Spark progress was reported."""
        self._itself = [committer]
        """Spark's reference to the committer, cleared when the run ends. Java keeps Python callbacks alive, and Python
        keeps Java objects alive, so a permanent reference would leak memory."""

    def __repr__(self) -> str:
        done = f"{self.summary.batches:,} batches, watermark {shown_watermark(self.summary.watermark)}"
        return f"<RunningJob {self._job.name!r}: {self.status}, {done}>"

    @property
    def status(self) -> str:
        """Status of the run: `running`, `stopped` or `failed`."""
        if self.committer.error is not None or (self.query is not None and self._failure() is not None):
            return "failed"
        return "running" if self.query is not None and self.query.isActive else "stopped"

    @property
    def is_stopping(self) -> bool:
        """`True` once the run has been asked to stop."""
        return self.committer.is_stopping

    @property
    def goes_on(self) -> bool:
        """`True` if batches are due after the run's end: a version of Spark that plans one batch has ended it early."""
        return (
            self.committer.clock.is_due
            and self.committer.done >= 0
            and not self.committer.is_stopping
            and not wakes_while_ending()
        )

    @property
    def progress(self) -> Progress:
        """The run's current progress."""
        return self.committer.progress

    @property
    def summary(self) -> RunSummary:
        """Summary of the run up to the last completed batch."""
        return self.committer.summary

    def await_termination(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until the run ends.

        :param timeout: maximum time to wait, as a `timedelta` or in seconds; unlimited by default
        :returns: `True` if the run has ended
        :raises CallbackError: a callback of the handler failed
        :raises RunError: Spark failed
        :raises AmadouError: the run failed for another reason, such as a `SinkError`
        """
        ended, cause = True, None
        try:
            if timeout is None:
                self.query.awaitTermination()
            else:
                seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
                ended = bool(self.query.awaitTermination(seconds))
            self._report_spark_progress()
        except Exception as error:  # StreamingQueryException, or a py4j error if the JVM has ended
            cause = error
        if ended or cause is not None:
            self._release()
            self._end(cause)  # outside the except block so that the traceback does not include Spark's error
        return ended

    def _end(self, cause: Exception | None) -> None:
        try:
            self.raise_error(cause)
        except AmadouError as error:
            if self.on_end is not None:
                self.on_end(error)
            raise
        if self.on_end is not None:
            self.on_end(self.summary)

    def stop(self) -> None:
        """Stop the run after the current batch.

        :raises RunError: Spark's Java process has ended
        """
        _logger.info("job %s: the run ends after the current batch", self._job.name)
        self.committer.is_stopping = True
        try:
            self._await_idle()
            self.halt()
            self._report_spark_progress()
        except JAVA_ENDED as error:
            self._release()
            self._end(error)
        if self.on_end is not None and self.committer.error is None:
            self.on_end(self.summary)

    def _await_idle(self) -> None:
        while self.query.isActive and self.query.status["isTriggerActive"]:
            time.sleep(_POLL)

    def halt(self) -> None:
        """Stop the run immediately, even in the middle of a batch."""
        self.query.stop()
        self._release()

    def hold(self, lease: Lease, savepoints: SavepointService | None) -> None:
        """Hold a lease on the checkpoint until the run ends, and take savepoints.

        :param savepoints: `None` for a run without a checkpoint
        """
        self._lease, self._savepoints = lease, savepoints
        self.committer.check = lease.check
        lease.follow(self._is_active, self._look, self._fail)

    def _look(self) -> None:
        """Do what is due without a batch, too."""
        if self._savepoints is not None:
            self._savepoints.look()
        self.committer.look_again()

    def _fail(self, error: AmadouError) -> None:
        """End the run with an error. A batch that is being processed is not committed: see `Lease.check`."""
        self.committer.error = error
        with suppress(*JAVA_ENDED):
            self._await_idle()
            self.query.stop()

    def _is_active(self) -> bool:
        try:
            return bool(self.query.isActive)
        except Exception:  # py4j raises many kinds of errors if the JVM has ended
            return False

    def _release(self) -> None:
        self._itself.clear()
        if self._savepoints is not None:
            self._savepoints.wait()
        if self.committer.history is not None:
            self.committer.history.end()
        if self._lease is not None:
            self._lease.end()

    def ask_for_savepoint(self) -> str | None:
        """Take a savepoint soon. Signal handlers may call this method.

        :returns: the directory of the run's schedule; `None` if there is none, and no savepoint is taken
        """
        return None if self._savepoints is None else self._savepoints.ask()

    def savepoint(self, directory: str | Path) -> None:
        """Write a savepoint as of the last completed batch. The run continues meanwhile.

        :param directory: a new directory: a path, which all machines of the cluster share, or a URI
        :raises CheckpointError: the run has no checkpoint, or it cannot be read
        :raises SavepointError: the directory is not empty, or cannot be written
        """
        if self._savepoints is None:
            raise CheckpointError("of the run", "a run needs a checkpoint for savepoints: pass checkpoint= to start")
        self._savepoints.take(absolute(str(directory)))

    def raise_error(self, cause: BaseException | None) -> None:
        """Raise the error that ended the run, if there is one."""
        if self.committer.error is not None:
            raise self.committer.error
        failure = self._failure()
        if failure is not None or (cause is not None and not self.committer.has_stopped):
            own = own_error(without_plans(failure or cause))
            raise own or RunError(
                f"the run of {self._job.name!r} failed in Spark: {message_with_cause(failure or cause)}"
            )

    def _failure(self) -> Any:
        try:
            return None if self.committer.has_stopped else self.query.exception()
        except JAVA_ENDED:
            return ENDED

    def on_results(self, identity: CheckpointMetadata) -> Callable[[Any, int], None]:
        """Return the function that Spark calls with each batch's results."""
        return partial(commit_batch, self._itself, identity)

    def _before_batch(self, number: int) -> None:
        self._report_spark_progress()
        if self._savepoints is not None:
            self._savepoints.before_batch(number)

    def _report_spark_progress(self) -> None:
        """Report Spark's progress for the completed batches that have not been reported yet."""
        if self.query is None or self._on_spark_progress is None or self._reported == self.committer.done:
            return
        with self._reporting:  # batches, await_termination and stop can call this method at the same time
            recent, unreported = self.query._jsq.recentProgress(), []
            for position in reversed(range(len(recent))):
                if recent[position].batchId() <= self._reported:
                    break
                # When there is no data, Spark also reports progress for a batch that has not begun.
                if recent[position].durationMs().containsKey("addBatch"):
                    unreported.append(recent[position])
            for progress in reversed(unreported):
                self._reported = progress.batchId()
                self._on_spark_progress(json.loads(progress.json()))


def commit_batch(itself: list[Committer], identity: CheckpointMetadata, frame: Any, number: int) -> None:
    """Process and commit a batch; Spark calls this function. Spark retains a raised error, so the error's frames must
    not refer to the committer.
    """
    failure = itself[0].commit_batch(identity, frame, number)
    if failure is not None:
        raise RunError(failure)
