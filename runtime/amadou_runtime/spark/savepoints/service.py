"""Takes savepoints of a running job: on request, after a signal, or at intervals.

Another process requests a savepoint with a file in the checkpoint, and waits for the file with the answer. The job goes
on while the savepoint is written, as Spark keeps the state of earlier batches. Only if the job is about to get so far
ahead that Spark would remove this state, the next batch waits.
"""

import json
import logging
import re
import threading
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs

from amadou.errors import AmadouError, CheckpointError
from amadou.paths import is_remote, local_path
from amadou.remote_files import RemoteDirectory
from amadou.text import shown_error
from amadou_runtime.runs.files import Files, LocalFiles
from amadou_runtime.runs.lease import holder_of
from amadou_runtime.savepoint.manifest import EMPTY, MANIFEST, JobManifest, is_empty
from amadou_runtime.savepoint.savepoint import PARTIAL
from amadou_runtime.spark.clock import last_commit
from amadou_runtime.spark.savepoints.writing import write_savepoint

REQUESTS: Final = "savepoint-requests"
_ANSWER: Final = ".answer"
_REMOTE_LOOKS: Final = 10
"""On file systems where listing a directory can cost money, only each tenth call of `look` does so."""
_RETAINED_SETTING: Final = "spark.sql.streaming.minBatchesToRetain"
_logger = logging.getLogger("amadou")


@attrs.frozen
class Schedule:
    """When and where a run takes savepoints by itself.

    :param directory: directory in which to create savepoints, as an absolute path or a URI; by default, `savepoints` in
        the checkpoint
    :param every: interval between savepoints; `None` to take savepoints only after a signal
    :param keep: number of savepoints to keep; `None` to keep all
    """

    directory: str | None = None
    every: timedelta | None = None
    keep: int | None = None


class SavepointService:
    """Takes savepoints of a running job, one at a time.

    :param spark: the job's `SparkSession`
    :param files: the files of the job's checkpoint
    :param name: the job's name
    """

    def __init__(self, spark: Any, files: Files, name: str, schedule: Schedule | None) -> None:
        self._spark = spark
        self._files = files
        self._name = name
        self._schedule = schedule
        self._directory = (schedule and schedule.directory) or f"{local_path(files.checkpoint)}/savepoints"
        """The directory of the schedule."""
        self._retained = int(spark.conf.get(_RETAINED_SETTING))
        self._lock = threading.Lock()
        self._batch: int | None = None
        """The batch of the savepoint that is being written."""
        self._finished = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_asked = False
        self._last = datetime.now(timezone.utc)
        self._looks = 0

    def ask(self) -> str | None:
        """Take a savepoint soon, in the directory of the schedule.

        :returns: the directory; `None` if there is no schedule
        """
        self._is_asked = self._schedule is not None
        return self._directory if self._is_asked else None

    def take(self, directory: str) -> JobManifest:
        """Take a savepoint as of the last completed batch. Return when it is complete.

        :raises CheckpointError: the checkpoint cannot be read
        :raises SavepointError: the directory is not empty, or cannot be written
        """
        with self._lock:
            self._batch = last_commit(self._files)
            try:
                return write_savepoint(self._spark, self._files.checkpoint, directory)
            finally:
                with self._finished:
                    self._batch = None
                    self._finished.notify_all()

    def before_batch(self, number: int) -> None:
        """Wait if a batch would make Spark remove the state that a savepoint still needs."""
        with self._finished:
            self._finished.wait_for(lambda: self._batch is None or number - self._batch < self._retained - 2)

    def look(self) -> None:
        """Start to take a savepoint in a thread if one is due or has been requested. Call this method often."""
        if self._thread is not None and self._thread.is_alive():
            return
        task = self._task()
        if task is not None:
            self._thread = threading.Thread(target=task, name="amadou-savepoint", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait for the savepoint that is being taken. Then take the one that a signal has requested, if any."""
        if self._thread is not None:
            self._thread.join()
        if self._is_asked:
            self.look()
            self.wait()

    def _requested(self) -> str | None:
        """Return the name of a file that requests a savepoint; `None` if there is none."""
        self._looks += 1
        if not isinstance(self._files, LocalFiles) and self._looks % _REMOTE_LOOKS:
            return None
        try:
            names = sorted(self._files.names(REQUESTS))
        except CheckpointError:
            return None  # the file system does not answer, which concerns the run itself, too
        open_ = (name for name in names if not name.endswith(_ANSWER) and f"{name}{_ANSWER}" not in names)
        return next(open_, None)

    def _task(self) -> Callable[[], None] | None:
        request = self._requested()
        if request is not None:
            return partial(self._answer, request)
        schedule = self._schedule
        if schedule is None:
            return None
        is_due = schedule.every is not None and datetime.now(timezone.utc) - self._last >= schedule.every
        if not is_due and not self._is_asked:
            return None
        self._is_asked, self._last = False, datetime.now(timezone.utc)
        return partial(self._take_by_schedule, schedule)

    def _answer(self, request: str) -> None:
        """Take the savepoint that a file requests, and write the answer."""
        text = self._files.read(f"{REQUESTS}/{request}")
        if text is None:
            return
        error = None
        try:
            self.take(json.loads(text)["directory"])
        except AmadouError as failed:
            error = getattr(failed, "message", str(failed))
        except Exception as failed:
            error = f"{type(failed).__name__}: {failed}"
        self._files.write(f"{REQUESTS}/{request}{_ANSWER}", json.dumps({"error": error}))

    def _take_by_schedule(self, schedule: Schedule) -> None:
        now = datetime.now(timezone.utc)
        slug = re.sub(r"\W+", "-", self._name)
        path = f"{self._directory}/{slug}-{now:%Y%m%dT%H%M%SZ}"
        try:
            manifest = self.take(path)
            if is_empty(manifest):
                _logger.warning("job %s: the savepoint %s %s", self._name, path, EMPTY)
            else:
                _logger.info("job %s: wrote the savepoint %s (batch %s)", self._name, path, manifest.batch)
            self._remove_outdated(schedule, slug)
        except Exception as error:  # the run continues
            _logger.warning("job %s: no savepoint was written: %s", self._name, shown_error(error))

    def _remove_outdated(self, schedule: Schedule, slug: str) -> None:
        """Remove the savepoints of this job in the directory of the schedule that need not be kept, and what is left of
        savepoints before the newest that were interrupted.
        """
        if schedule.keep is None:
            return
        path = self._directory if is_remote(self._directory) else Path(self._directory).as_uri()
        directory = RemoteDirectory(path, self._spark.sparkContext)
        mine = re.compile(rf"{re.escape(slug)}-\d{{8}}T\d{{6}}Z({re.escape(PARTIAL)}\w+)?")
        with self._lock:  # no savepoint is being written
            found = sorted(name for name in directory.names() if mine.fullmatch(name))
            complete = [name for name in found if PARTIAL not in name and directory.exists(f"{name}/{MANIFEST}")]
            newest, kept = complete[-1], complete[-schedule.keep :]
            for name in found:
                if name < newest and name not in kept:
                    directory.remove(name)


class Request:
    """A request to the run that uses a checkpoint to take a savepoint.

    :param directory: the savepoint's directory, as an absolute path or a URI
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._name = f"{REQUESTS}/{uuid.uuid4().hex}"
        files.write(self._name, json.dumps({"directory": directory}))

    def is_answered(self) -> bool:
        """Return `True` if the savepoint is complete.

        :raises CheckpointError: the run could not take the savepoint, or has ended
        """
        is_alive = holder_of(self._files) is not None
        text = self._files.read(f"{self._name}{_ANSWER}")
        if text is None:
            if not is_alive:
                raise CheckpointError(self._files.checkpoint, "the run has ended before it took the savepoint")
            return False
        error = json.loads(text)["error"]
        if error is not None:
            raise CheckpointError(self._files.checkpoint, f"the run could not take the savepoint: {error}")
        return True

    def end(self) -> None:
        """Remove the files of the request."""
        self._files.remove(self._name)
        self._files.remove(f"{self._name}{_ANSWER}")
