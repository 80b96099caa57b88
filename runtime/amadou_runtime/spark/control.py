"""Lets plugins control a run."""

import threading

from amadou.errors import AmadouError
from amadou_runtime.spark.running_job import RunningJob


class Control:
    """See `amadou.plugins.RunControl`.

    :ivar running: the run, once it has been created
    """

    def __init__(self) -> None:
        self.running: RunningJob | None = None

    def stop(self) -> None:
        if self.running is not None:
            threading.Thread(target=self.running.stop, name="amadou-stop", daemon=True).start()

    def savepoint(self) -> str:
        directory = None if self.running is None else self.running.ask_for_savepoint()
        if directory is None:
            raise AmadouError("the run has no directory for savepoints: pass --checkpoint, or --savepoint-dir")
        return str(directory)
