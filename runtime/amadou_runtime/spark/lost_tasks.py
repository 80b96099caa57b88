"""Logs warnings about tasks that Spark retried, for example because a Python process or a machine was lost."""

import logging
import re
from typing import Any

from amadou.errors import RunError

_logger = logging.getLogger("amadou")
_TRIED_AGAIN = "job %s: %s during batch %s. Spark retried the task: state and exactly-once outputs are not affected"
_DIED = "Python worker exited unexpectedly"
_MANY = 10_000
"""Maximum number of tasks to examine in each stage."""


class LostTasks:
    """Logs a warning for each task that Spark retried after a failure, because a run's results do not show failures."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._failed = 0
        self._looked_at = -1

    def warn(self, spark: Any, number: int) -> None:
        """Log the tasks that failed since the last call. Call this method in the thread that processes the batch.

        :param spark: the session of the batch's `DataFrame`
        :param number: the batch's number
        """
        context = spark.sparkContext
        store = context._jsc.sc().statusStore()
        failed = sum(executor.failedTasks() for executor in _items(store.executorList(False)))
        if failed == self._failed:  # other queries in the session can also increase this number
            return
        self._failed = failed
        tracker = context._jsc.sc().statusTracker()
        jobs = list(tracker.getJobIdsForGroup(context.getLocalProperty("spark.jobGroup.id")))
        for job in sorted(job for job in jobs if job > self._looked_at):
            info = tracker.getJobInfo(job)
            for stage in info.get().stageIds() if info.isDefined() else ():
                self._warn_of_stage(store, tracker.getStageInfo(stage), stage, number)
        self._looked_at = max(jobs, default=self._looked_at)

    def _warn_of_stage(self, store: Any, info: Any, stage: int, number: int) -> None:
        if not info.isDefined() or not info.get().numFailedTasks():
            return
        tasks = _items(store.taskList(stage, info.get().currentAttemptId(), _MANY))
        for task in tasks:
            if task.status() == "FAILED" and task.errorMessage().isDefined():
                _logger.warning(_TRIED_AGAIN, self._job, what_died(task.errorMessage().get()), number)


def what_died(message: str) -> str:
    """Return the cause of a task's failure, as a clause for a log message.

    :param message: the task's error message
    """
    if _DIED in message:
        return "one of Spark's Python workers was killed or crashed"
    return f"a task failed ({message.strip().splitlines()[0]})"


def died_error(job: str, number: int, message: str, master: str) -> RunError | None:
    """Return the error for a batch in which a task lost its Python worker in every attempt; `None` for other failures.

    :param message: the error message from Spark
    :param master: the master URL of the Spark session
    """
    if _DIED not in message:
        return None
    times = re.search(r"failed (\d+) times", message)
    tries = "1" if times is None else times[1]
    advice = (
        f". With the master {master}, Spark does not retry tasks: create the session with local[N,4], which retries "
        "each task up to 3 times"
        if tries == "1" and master.startswith("local")
        else ""
    )
    times_in_words = "once" if tries == "1" else f"{tries} times in a row"
    return RunError(
        f"batch {number} of {job!r} failed: a task's Python worker died {times_in_words}, without a Python "
        "error. Possible causes: the system killed the process for lack of memory (see the system log), a "
        f"native library crashed, or the handler's code called os._exit{advice}"
    )


def _items(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(position) for position in range(sequence.length())]
